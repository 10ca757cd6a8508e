"""Closest: the consumer at the least cost, and a farther one when that is gone.

It prints:

    1 at b
    2 at a
    3 at b
"""

# --8<-- [start:program]
import asyncio
from collections.abc import Callable

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, Dispatcher, DispatchOptions, Received
from onward.protocol.dispatch import RoutingPattern, Semantics


def printer(node: str) -> Callable[[Received], None]:
    return lambda delivery: print(delivery.payload.decode(), "at", node)


async def main() -> None:
    async with Node("a") as a, Node("b") as b:
        at_a = await Dispatcher.attach(a, DispatchOptions(cost=10))
        at_b = await Dispatcher.attach(b)
        at_a.provision("orders", Semantics(pattern=RoutingPattern.CLOSEST))
        listener = await a.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        await at_b.neighbour(listener.uri, cost=10)

        await at_b.consume("orders", printer("b"))
        producer = await at_a.produce("orders")
        await producer.send(b"1")  # waits until a knows of the consumer at b
        near = await at_a.consume("orders", printer("a"))
        await producer.send(b"2")
        near.close()
        await producer.send(b"3")


asyncio.run(main())
# --8<-- [end:program]
