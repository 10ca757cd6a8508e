"""Formatting of messages and tables."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol import Message, Route, counted, format_route

__all__ = ["describe", "describe_message", "printable", "printable_lines", "table"]


def describe(onward: Route, back: Route, payload: bytes) -> str:
    """Return both routes of a message, and the size of its payload, as one line."""
    return f"onward {_route(onward)}  return {_route(back)}  {counted(len(payload), 'byte')}"


def describe_message(message: Message) -> str:
    """Return a message as one line."""
    return describe(message.onward_route, message.return_route, message.payload)


def _route(route: Route) -> str:
    return format_route(route) or "(none)"


def printable(text: str) -> str:
    """Escape characters that would move the cursor: the text comes from peers."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def printable_lines(text: str) -> str:
    """Escape such characters in each line of a text."""
    return "\n".join(map(printable, text.splitlines()))


def table(headings: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Format rows under headings; numbers are aligned to the right."""
    texts = [headings, *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [bool(rows) and isinstance(cell, int) for cell in (rows[0] if rows else headings)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in texts
    )
