"""Ask all destinations, or the one responsible for a key, with the Python client.

Three caches hold what they are told to. All are told when something changes, any of them may
answer first, what all have is one stream, and each user's basket is at one cache: the same for
the same user, as long as it is there.

It prints, where a chart of dots stands for the baskets of thirty users:

    all are told: a has tea, b has tea, c has tea
    the first to answer has: tea
    all have: milk, milk, milk, tea, tea, tea
    baskets: a ......, b .............., c ..........
    without c: a .............., b ................
    moved: 10, and all were at c
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from uuid import UUID

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.protocol.broker import multicast, shard
from onward.transports.client import Client, connect

USERS = [f"user-{number}" for number in range(30)]


# --8<-- [start:cache]
class Cache:
    """Some things, and the handlers that keep them."""

    def __init__(self, name: str, told: asyncio.Queue[str]) -> None:
        self.name = name
        self.things = {"milk"}
        self.handlers = handlers = Handlers()

        @handlers.fire_and_forget
        async def put(request: Request) -> None:
            self.things.add(request.data.decode())
            told.put_nowait(f"{name} has {request.data.decode()}")

        @handlers.response("find")
        async def find(request: Request) -> bytes:
            return request.data if request.data.decode() in self.things else b"nothing"

        @handlers.response("basket")
        async def basket(_request: Request) -> bytes:
            return name.encode()

        @handlers.stream
        async def everything(_request: Request) -> AsyncGenerator[bytes]:
            for thing in sorted(self.things):
                yield thing.encode()


# --8<-- [end:cache]


# --8<-- [start:multicast]
async def ask_all(client: Client, told: asyncio.Queue[str]) -> None:
    everyone = multicast("cache")  # the same as the text "@multicast service=cache"

    await client.send(everyone, b"tea")  # a fire-and-forget: each gets it
    print("all are told:", ", ".join(sorted([await told.get() for _ in range(3)])))

    answer = await client.request(everyone, b"tea", route="find")  # the first answer wins
    print("the first to answer has:", answer.data.decode())

    # The elements of all in one stream, in the order they come.
    found = [element.data.decode() async for element in client.stream(everyone, b"")]
    print("all have:", ", ".join(sorted(found)))


# --8<-- [end:multicast]


# --8<-- [start:shard]
async def basket_of(client: Client, user: str) -> str:
    # "@shard=user service=cache user=…": the tag `user` chooses, and no cache has to carry it.
    where = shard("cache", tags={"user": user}, by="user")
    return (await client.request(where, b"", route="basket")).data.decode()


async def baskets(client: Client) -> dict[str, str]:
    return {user: await basket_of(client, user) for user in USERS}


# --8<-- [end:shard]


def chart(found: dict[str, str]) -> str:
    counts = Counter(found.values())
    return ", ".join(f"{name} {'.' * count}" for name, count in sorted(counts.items()))


async def main() -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    async with Node("edge") as node, AsyncExitStack() as open_ones:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        caches: dict[str, Client] = {}
        for number, name in enumerate("abc", start=1):
            # A shard depends on the route ids, so a cache keeps its own when it comes back.
            cache = connect(
                listener.uri,
                service="cache",
                handlers=Cache(name, told).handlers,
                route_ids=[UUID(int=number)],
            )
            caches[name] = await open_ones.enter_async_context(cache)
        client = await open_ones.enter_async_context(connect(listener.uri))

        await ask_all(client, told)
        before = await baskets(client)
        print("baskets:", chart(before))
        with broker.events.subscribe() as events:
            await caches["c"].close()
            async for event in events:
                if event.kind == "left":
                    break
        after = await baskets(client)
        print("without c:", chart(after))
        gone = [user for user in USERS if before[user] != after[user]]
        assert all(before[user] == "c" for user in gone)
        print(f"moved: {len(gone)}, and all were at c")


if __name__ == "__main__":
    asyncio.run(main())
