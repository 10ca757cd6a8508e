"""What the tests of several transports share: workers that show what came, and waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onward.actors import Node, Worker
from onward.protocol import Message

__all__ = ["Echo", "Recorder", "Relay", "Stuck", "eventually"]


class Echo(Worker):
    """Answers with the payload it got."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


class Relay(Worker):
    """Forwards, and leaves its address on the return route."""

    def handle_message(self, message: Message) -> None:
        self.forward(message)


class Recorder(Worker):
    """Keeps what comes, for `next`."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.queue: asyncio.Queue[Message] = asyncio.Queue()

    def handle_message(self, message: Message) -> None:
        self.messages.append(message)
        self.queue.put_nowait(message)

    async def next(self) -> Message:
        async with asyncio.timeout(5):
            return await self.queue.get()

    @classmethod
    async def on(cls, node: Node, address: str) -> Recorder:
        """Start one at an address."""
        recorder = cls()
        await node.start(lambda: recorder, address=address)
        return recorder


class Stuck(Recorder):
    """Handles no message until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def handle_message(self, message: Message) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        await self.go_on.wait()
        super().handle_message(message)


async def eventually(condition: Callable[[], object], within: float = 5) -> None:
    """Wait until something is true; a condition that takes longer, in seconds, fails."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - conditions have no event
            await asyncio.sleep(0.001)
