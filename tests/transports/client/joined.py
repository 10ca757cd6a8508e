"""A client and a destination of ours, with our own broker between them, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from onward.actors.broker import Answer, Handlers
from onward.transports.client import Client, ClientOptions, connect

from .peers import QUICK, broker, echo_handlers


class Joined(NamedTuple):
    """A requester and a destination at one broker."""

    client: Client
    destination: Client
    handlers: Handlers
    uri: str


@asynccontextmanager
async def joined(
    uri: str = "rsocket+tcp://127.0.0.1:0", options: ClientOptions = QUICK
) -> AsyncGenerator[Joined]:
    handlers = echo_handlers()
    async with (
        broker(uri) as (where, _),
        connect(where, service="echo", handlers=handlers, options=options) as destination,
        connect(where, options=options) as client,
    ):
        yield Joined(client, destination, handlers, where)


async def source(*elements: Any) -> AsyncGenerator[Any]:
    for element in elements:
        if isinstance(element, Exception):
            raise element
        yield element


async def data_of(elements: AsyncIterator[Answer]) -> list[bytes]:
    return [element.data async for element in elements]
