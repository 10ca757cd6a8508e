"""The simplest kinds of worker: for topologies people look at, and for checks."""

from __future__ import annotations

from collections import deque

from ...protocol import EmptyRoute, Message, OnwardError
from .._worker import Worker

__all__ = ["Echo", "Forwarder", "Print", "Record"]


class Echo(Worker):
    """Answers with what came."""

    def handle_message(self, message: Message) -> None:
        """Answer, if there is a way back."""
        if message.return_route:
            self.reply(message, message.payload)
        else:
            self.node.dead_letter(message, EmptyRoute())


class Forwarder(Worker):
    """Passes messages on along their onward route."""

    def handle_message(self, message: Message) -> None:
        """Pass it on. Messages come from outside: what is wrong with one is no failure here."""
        try:
            self.forward(message)
        except OnwardError as error:
            self.node.dead_letter(message, error)


class Print(Worker):
    """Prints payloads as text, one a line, and answers nothing."""

    def handle_message(self, message: Message) -> None:
        """Print it."""
        name = str(self.address).removeprefix("0#")
        text = message.payload.decode("utf-8", "backslashreplace")
        print(f"{name}: {text}", flush=True)  # noqa: T201 - it is what it is for


class Record(Worker):
    """Keeps the payloads that come to its primary address, and says at any other which.

    ```
    anybody ──▶ seen        kept
    anybody ◀── seen.list   the payloads, the oldest first, one a line
    ```

    Args:
        limit: Payloads kept; older ones are forgotten.
    """

    def __init__(self, limit: int = 100) -> None:
        super().__init__()
        self._kept: deque[bytes] = deque(maxlen=limit)

    def handle_message(self, message: Message) -> None:
        """Keep it, or say what is kept."""
        if message.to == self.address:
            self._kept.append(message.payload)
        elif message.return_route:
            self.reply(message, b"\n".join(self._kept))
        else:
            self.node.dead_letter(message, EmptyRoute())
