"""`onward statistics`: the figures of a running broker and of each of its listeners."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from ._arguments import Commands
from ._broker_options import add_broker
from ._event_log import told
from ._show import printable, table
from ._status import CommandError
from ._tables import absent, add_watch, print_answers

__all__ = ["add_commands", "show"]

_DESCRIPTION: Final = """\
Print the figures of a running broker and of each of its listeners: the current ones, and the
totals since the start.
"""

_APART: Final = ("listeners", "event_log", "missing")
_COLUMNS: Final = {
    "connections": "CONNECTIONS",
    "handshakes": "HANDSHAKES",
    "streams": "STREAMS",
    "accepted": "ACCEPTED",
    "turned_away": "TURNED AWAY",
    "requests": "REQUESTS",
    "refused": "REFUSED",
}
_REASONS: Final = {
    "closed": "connections closed",
    "dropped": "frames dropped",
    "refused_handshakes": "handshakes refused",
}


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "statistics", help="print the figures of a running broker", description=_DESCRIPTION
    )
    add_broker(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    add_watch(parser)
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    print_answers(arguments, lambda ask: ask("statistics"), show)


def show(figures: Any) -> str:
    """Format the broker's answer.

    Raises:
        CommandError: It is no such answer.
    """
    try:
        own = {name: value for name, value in figures.items() if name not in _APART}
        listeners = figures["listeners"]
        width = max(map(len, own))
        lines = [
            printable(f"{name.replace('_', ' '):<{width}}  {_figure(value):>8}".rstrip())
            for name, value in own.items()
        ]
        if listeners:
            rows = [(each["uri"], *(int(each[name]) for name in _COLUMNS)) for each in listeners]
            lines += ["", table(("LISTENER", *_COLUMNS.values()), rows)]
            lines += _reasons(listeners)
            lines += _authentications(listeners)
            lines += _certificates(listeners)
        if "event_log" in figures:
            lines += ["", printable(told(figures["event_log"]))]
        lines += absent(figures)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise CommandError("the broker's answer is not a set of statistics") from error
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:.1f} s" if isinstance(value, float) else str(int(value))


def _reasons(listeners: Any) -> Iterator[str]:
    """Yield the counters by reason, of all listeners together."""
    for name, what in _REASONS.items():
        counts: dict[str, int] = {}
        for each in listeners:
            for reason, count in each[name].items():
                counts[reason] = counts.get(reason, 0) + int(count)
        if counts:
            shown = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            yield printable(f"{what}: {shown}")


def _authentications(listeners: Any) -> Iterator[str]:
    """Yield the peers accepted and refused, once for listeners that share their authentication."""
    seen: list[Any] = []
    for each in listeners:
        figures = each.get("authentication")
        if not figures or figures in seen:
            continue
        seen.append(figures)
        for name, what in (("accepted", "authenticated"), ("refused", "not authenticated")):
            counts = ", ".join(f"{int(count)} {key}" for key, count in figures[name].items())
            if counts:
                yield printable(f"{what}: {counts}")
        if figures["banned"]:
            yield f"connections of banned sources: {int(figures['banned'])}"


def _certificates(listeners: Any) -> Iterator[str]:
    """Yield the end of each listener's certificate, and how often it was replaced."""
    for each in listeners:
        tls = each.get("tls")
        if tls and tls["not_after"] is not None:
            end = datetime.fromtimestamp(tls["not_after"], UTC)
            done, failed = int(tls["reloads"]), int(tls["failed_reloads"])
            text = f"certificate of {each['uri']}: expires {end:%Y-%m-%d %H:%M} UTC"
            yield printable(f"{text}; {done} reloads, {failed} failed")
