"""Workers that tests use again and again."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from onward.actors import LimitReached, Node, Worker
from onward.protocol import Address, Message

__all__ = [
    "Echo",
    "Failing",
    "Forwarder",
    "Gate",
    "Recorder",
    "fill",
    "spawn_worker",
    "start_worker",
]

W = TypeVar("W", bound=Worker)


class Echo(Worker):
    """Answers every message with its payload."""

    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


class Forwarder(Worker):
    """Passes every message on."""

    def handle_message(self, message: Message) -> None:
        self.forward(message)


class Recorder(Worker):
    """Keeps what comes: the messages and, as text, what happened to it."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.events: list[str] = []

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of the messages, in order."""
        return [message.payload for message in self.messages]

    def on_start(self) -> None:
        self.events.append("start")

    def handle_message(self, message: Message) -> None:
        self.messages.append(message)

    def on_stop(self) -> None:
        self.events.append("stop")


class Gate(Worker):
    """Has one message in hand until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.opened = asyncio.Event()

    async def handle_message(self, message: Message) -> None:
        self.messages.append(message)
        await self.opened.wait()


class Failing(Recorder):
    """Raises `ValueError` with the payload of every message that starts with `!`."""

    def handle_message(self, message: Message) -> None:
        super().handle_message(message)
        if message.payload.startswith(b"!"):
            raise ValueError(message.payload.decode())


async def start_worker(node: Node, worker: W, address: Any, **options: Any) -> W:
    """Start this instance of a worker and return it."""
    await node.start(lambda: worker, address=address, **options)
    return worker


def spawn_worker(node: Node, worker: W, address: Any, **options: Any) -> W:
    """Spawn this instance of a worker and return it."""
    node.spawn(lambda: worker, address=address, **options)
    return worker


async def fill(node: Node, *, spare: int = 0) -> None:
    """Start workers until the node has as many addresses as it may, less some to spare."""
    started: list[Address] = []
    try:
        while True:
            started.append(await node.start(Echo))
    except LimitReached:
        for address in started[:spare]:
            await node.stop_worker(address)
