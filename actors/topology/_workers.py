"""Two kinds of worker that show their messages: for demonstrations, and for checks."""

from __future__ import annotations

from collections import deque

from ...protocol import Message
from .._worker import Worker

__all__ = ["Print", "Record"]


class Print(Worker):
    """A worker that prints payloads as text, one a line, and does not reply."""

    def handle_message(self, message: Message) -> None:
        """Print a message."""
        name = str(self.address).removeprefix("0#")
        text = message.payload.decode("utf-8", "backslashreplace")
        if not text.isprintable():
            # The text comes from a peer: print it as one line, without control characters.
            parts = (each if each.isprintable() else _escaped(each) for each in text)
            text = "".join(parts)
        print(f"{name}: {text}", flush=True)  # noqa: T201 - its purpose


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class Record(Worker):
    """A worker that keeps the payloads for its primary address, and lists them at its others.

    ```
    app ──▶ seen        kept
    app ◀── seen.list   the payloads, the oldest first, one a line
    ```

    Args:
        limit: Payloads kept; older ones are forgotten.
    """

    def __init__(self, limit: int = 100) -> None:
        super().__init__()
        self._kept: deque[bytes] = deque(maxlen=limit)

    def handle_message(self, message: Message) -> None:
        """Keep a payload, or reply with those kept."""
        if message.to == self.address:
            self._kept.append(message.payload)
        else:
            self.reply(message, b"\n".join(self._kept))
