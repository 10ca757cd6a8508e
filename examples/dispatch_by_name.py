"""Three nodes in a row, a name, and a consumer that moves from one node to another.

It prints:

    from c: Accepted
    nothing is there: Released
    from b: Accepted
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, Dispatcher, Received
from onward.protocol.dispatch import RoutingPattern, Semantics


# --8<-- [start:main]
async def main() -> None:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name)) for name in "abc"]
        a, b, c = [await Dispatcher.attach(node) for node in nodes]
        a.provision("orders", Semantics(pattern=RoutingPattern.CLOSEST))  # and so at all nodes
        at_a = await a.node.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        at_b = await b.node.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        await b.neighbour(at_a.uri)
        await c.neighbour(at_b.uri)

        producer = await a.produce("orders")  # it has no credit before there is a consumer
        consumer = await c.consume("orders", handle)
        outcome, answer = await producer.exchange(b"c")
        print(f"{answer.payload.decode() if answer else '-'}: {type(outcome).__name__}")
        consumer.close()

        await known(a, paths=0)
        anyone = await a.produce_any()
        print(f"nothing is there: {type(await anyone.send('orders', b'?')).__name__}")

        await b.consume("orders", handle)
        await known(a, paths=1)
        outcome, answer = await producer.exchange(b"b")
        print(f"{answer.payload.decode() if answer else '-'}: {type(outcome).__name__}")


def handle(delivery: Received) -> None:
    delivery.accept(b"from " + delivery.payload)


async def known(dispatcher: Dispatcher, paths: int) -> None:
    """Wait until a node knows so many consumers and nodes with consumers."""
    told = asyncio.Event()
    unwatch = dispatcher.watch("orders", lambda _, now: told.set() if now == paths else None)
    await told.wait()
    unwatch()


# --8<-- [end:main]


if __name__ == "__main__":
    asyncio.run(main())
