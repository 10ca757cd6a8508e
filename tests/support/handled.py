"""Handlers without a broker: an outlet that writes everything down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from onward.actors.broker import Handlers, Handling, Interaction, Request
from onward.protocol import PayloadTooBig


class Written:
    """An outlet that keeps what it is told."""

    def __init__(self, limit: int = 1000) -> None:
        self.said: list[Any] = []
        self.limit = limit

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        if len(data) > self.limit:
            raise PayloadTooBig(len(data), self.limit)
        self.said.append((data, metadata, complete) if metadata or complete else data)

    def complete(self) -> None:
        self.said.append("complete")

    def error(self, code: int, text: str) -> None:
        self.said.append((code, text))

    def request_n(self, n: int) -> None:
        self.said.append(n)

    def cancel_input(self) -> None:
        self.said.append("cancel input")


async def settle() -> None:
    """Let every task run until it waits for something else than its turn."""
    for _ in range(10):
        await asyncio.sleep(0)


async def start(
    handlers: Handlers, outlet: Written, kind: Interaction, data: bytes = b"first"
) -> Handling:
    handling = handlers.start(kind, Request(data), outlet)
    await settle()
    return handling


async def answer(_request: Request) -> bytes:
    raise AssertionError("not started")


async def elements(_request: Request) -> AsyncGenerator[bytes]:
    yield b"1"
