"""A destination of the demo: handlers, and Onward's client that brings them to a broker.

It prints a line for each request but the many that ask for a user, and signs its answers with
its town:

    python shop.py URI TOWN
"""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from collections.abc import AsyncGenerator

from onward.actors.broker import Handlers, Incoming, Request
from onward.transports.client import connect

SHOPS = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
"""Names of shops are in this namespace. A shop that comes back has the id it had before."""


def handlers_of(town: str) -> Handlers:
    handlers = Handlers()
    go = asyncio.Event()

    def sign(data: bytes) -> bytes:
        return data + b" from " + town.encode()

    @handlers.response
    async def user(request: Request) -> bytes:
        return sign(request.data)

    @handlers.response("race")
    async def race(request: Request) -> bytes:
        what = f"request/response {request.data.decode()!r}"
        tell(what)
        try:
            await go.wait()
        except asyncio.CancelledError:
            tell(f"{what} was cancelled")
            raise
        return sign(request.data)

    @handlers.fire_and_forget
    async def note(request: Request) -> None:
        tell(f"fire-and-forget {request.data.decode()!r}")
        if request.data == b"go":
            go.set()

    @handlers.metadata_push
    async def pushed(request: Request) -> None:
        tell(f"metadata push {(request.metadata or b'').decode()!r}")

    @handlers.stream
    async def count(request: Request) -> AsyncGenerator[bytes]:
        tell(f"request/stream {request.data.decode()!r}")
        for number in range(1, int(request.data) + 1):
            yield sign(str(number).encode())

    @handlers.channel
    async def echo(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        async for data in incoming:
            tell(f"request/channel {data.decode()!r}")
            yield sign(data)

    return handlers


def tell(text: str) -> None:
    print(text, flush=True)


async def main(uri: str, town: str) -> None:
    told_to_stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)

    async with connect(
        uri,
        service="shop",
        tags={"town": town},
        handlers=handlers_of(town),
        route_ids=[uuid.uuid5(SHOPS, town)],
    ):
        await told_to_stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
