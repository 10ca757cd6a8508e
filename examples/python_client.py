"""A service and a requester that are clients of a broker, written in Python.

They could be three programs on three machines; here they are in one. It prints

    hello, ann
    1 2 3
    A B
    OutOfStock is 0x301
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from onward.actors import Node
from onward.actors.broker import ApplicationError, Broker, Handlers, Incoming, Request
from onward.transports.client import Client, connect
from onward.transports.rsocket import DestinationError

handlers = Handlers()


@handlers.response("greet")
async def greet(request: Request) -> bytes:
    return b"hello, " + request.data


@handlers.response("buy")
async def buy(_request: Request) -> bytes:
    raise ApplicationError(0x301, "OutOfStock")


@handlers.stream
async def count(request: Request) -> AsyncGenerator[bytes]:
    for number in range(1, int(request.data) + 1):
        yield str(number).encode()


@handlers.channel
async def shout(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
    async for data in incoming:
        yield data.upper()


async def letters() -> AsyncGenerator[bytes]:
    yield b"a"
    yield b"b"


async def ask(client: Client) -> None:
    answer = await client.request("service=demo", b"ann", route="greet")
    print(answer.data.decode())
    # Closed whatever happens, so that a loop that is left leaves nothing behind.
    async with aclosing(client.stream("service=demo", b"3")) as numbers:
        print(*[each.data.decode() async for each in numbers])
    async with aclosing(client.channel("service=demo", letters())) as answers:
        print(*[each.data.decode() async for each in answers])
    try:
        await client.request("service=demo", b"", route="buy")
    except DestinationError as error:
        print(f"{error.text} is 0x{error.code:x}")


async def main() -> None:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        async with (
            connect(listener.uri, service="demo", handlers=handlers),
            connect(listener.uri) as client,
        ):
            await ask(client)


if __name__ == "__main__":
    asyncio.run(main())
