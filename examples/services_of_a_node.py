"""Services that live on the broker's node: handlers, and no socket of their own.

The same handlers could be given to `connect` of the Python client; then they would serve from
another process. Clients cannot tell the difference, and a multicast reaches both.

It prints:

    a client asks: 20 degrees
    a client watches: 20 21 22
    a client is told: 0x301: no such unit
    a worker asks: 20 degrees
    both answer: 20 degrees from far, 20 degrees from here
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from onward.actors import Node
from onward.actors.broker import ApplicationError, Broker, Handlers, Request
from onward.transports.client import Client, connect
from onward.transports.rsocket import DestinationError


# --8<-- [start:handlers]
def thermometer(place: str) -> Handlers:
    handlers = Handlers()

    @handlers.response  # what has no handler of its own
    async def temperature(_request: Request) -> bytes:
        return b"20 degrees"

    @handlers.response("in")  # what the routing metadata of a request name
    async def converted(request: Request) -> bytes:
        if request.data != b"kelvin":
            raise ApplicationError(0x301, "no such unit")
        return b"293 kelvin"

    @handlers.stream
    async def warmer(_request: Request) -> AsyncGenerator[bytes]:
        # Not advanced before the requester wants an element. A requester that stops
        # cancels it, so that it may go on for ever.
        degrees = 20
        while True:
            yield str(degrees).encode()
            degrees += 1

    @handlers.stream("here")
    async def here(_request: Request) -> AsyncGenerator[bytes]:
        yield b"20 degrees from " + place.encode()

    return handlers


# --8<-- [end:handlers]


async def client_asks(client: Client) -> None:
    answer = await client.request("service=thermometer place=here", b"")
    print("a client asks:", answer.data.decode())
    print("a client watches:", *await first_three(client))
    try:
        await client.request("service=thermometer place=here", b"furlong", route="in")
    except DestinationError as error:
        print(f"a client is told: 0x{error.code:x}: {error.text}")


# --8<-- [start:stream]
async def first_three(client: Client) -> list[str]:
    seen: list[str] = []
    async with aclosing(client.stream("service=thermometer place=here", b"")) as stream:
        async for element in stream:
            seen.append(element.data.decode())
            if len(seen) == 3:
                break
    # The stream is closed, so the handler has been told that no more is wanted.
    return seen


# --8<-- [end:stream]


# --8<-- [start:main]
async def main() -> None:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        broker.serve(thermometer("here"), service="thermometer", tags={"place": "here"})

        async with connect(listener.uri) as client:
            await client_asks(client)
            # Workers send to it as they send to any address.
            answer = await node.request("32#service=thermometer place=here", b"")
            print("a worker asks:", answer.payload.decode())

            async with connect(
                listener.uri,
                service="thermometer",
                tags={"place": "far"},
                handlers=thermometer("far"),
            ):
                both = client.stream("@multicast service=thermometer", b"", route="here")
                found = sorted([element.data.decode() async for element in both])
                print("both answer:", ", ".join(found))


# --8<-- [end:main]

if __name__ == "__main__":
    asyncio.run(main())
