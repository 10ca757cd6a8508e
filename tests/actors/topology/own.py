"""Workers that topologies of the tests name by class."""

from __future__ import annotations

from typing import ClassVar

from onward.actors import Worker
from onward.protocol import Message

__all__ = ["NOT_CALLABLE", "Asks", "Fails", "Shouts", "Tells"]

NOT_CALLABLE = 1


class Shouts(Worker):
    """Answers in capitals, and with something at the end."""

    def __init__(self, end: str = "!", *, times: int = 1) -> None:
        super().__init__()
        self._end = end * times

    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload.upper() + self._end.encode())

    class Louder(Worker):
        """A class in a class."""


class Fails(Worker):
    """Does not start."""

    def on_start(self) -> None:
        raise RuntimeError("no paper")


class Asks(Worker):
    """Asks somebody else before it starts."""

    def __init__(self, route: str) -> None:
        super().__init__()
        self._route = route
        self.answer = b""

    async def on_start(self) -> None:
        message = await self.request(self._route, b"are you there", timeout=5)
        self.answer = message.payload

    def handle_message(self, message: Message) -> None:
        self.reply(message, self.answer)


class Tells(Worker):
    """Says what it does."""

    events: ClassVar[list[str]] = []

    def on_start(self) -> None:
        self.events.append(f"{self.node.name} starts")

    def on_stop(self) -> None:
        self.events.append(f"{self.node.name} stops")
