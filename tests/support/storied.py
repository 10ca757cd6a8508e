"""Workers that write down what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from onward.actors import Worker
from onward.protocol import Message


class Storied(Worker):
    """Writes its life into a list that all its instances share."""

    def __init__(self, name: str, story: list[str]) -> None:
        super().__init__()
        self.name = name
        self.story = story

    async def on_start(self) -> None:
        await asyncio.sleep(0.1)
        self.story.append(f"{self.name} starts")

    async def handle_message(self, message: Message) -> None:
        self.story.append(f"{self.name} handles {message.payload.decode()}")
        await asyncio.sleep(0.1)
        if message.payload.startswith(b"!"):
            raise ValueError(message.payload.decode())

    async def on_stop(self) -> None:
        await asyncio.sleep(0.1)
        self.story.append(f"{self.name} stops")

    async def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert traceback is not None
        await asyncio.sleep(0.1)
        self.story.append(f"{self.name} fails with {exception_value}")


def storied(name: str, story: list[str]) -> Callable[[], Storied]:
    return lambda: Storied(name, story)
