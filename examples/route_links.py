"""A name that is routed by links: a producer, and a container two nodes away that asks for each.

It prints:

    the store asks for 2
    12 apples: Accepted
    9 pears: Rejected
    the store has had 2, and closes
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from onward.actors import Node
from onward.actors.dispatch import (
    DISPATCH,
    CircuitClosed,
    CircuitConsumer,
    CircuitProducer,
    Dispatcher,
)
from onward.protocol.dispatch import Mechanism, Semantics


# --8<-- [start:main]
async def main() -> None:
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(Node(name)) for name in "abc"]
        a, b, c = [await Dispatcher.attach(node) for node in nodes]
        for dispatcher in (a, b, c):
            dispatcher.provision("orders", Semantics(mechanism=Mechanism.LINK))
        at_a = await a.node.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        at_b = await b.node.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        await b.neighbour(at_a.uri)
        await c.neighbour(at_b.uri)
        c.serve("orders", store, window=0)

        orders = await attached(a)
        for text in ("12 apples", "9 pears"):
            outcome = await orders.send(text.encode())
            print(f"{text}: {type(outcome).__name__}")
        try:
            await orders.send(b"3 plums")  # there is no credit for it
        except CircuitClosed as closed:
            print(f"the store has had {closed.description}, and closes")


async def store(circuit: CircuitProducer | CircuitConsumer) -> None:
    """Serve two orders, and close the circuit."""
    assert isinstance(circuit, CircuitConsumer)
    print("the store asks for 2")
    circuit.grant(2)
    for _ in range(2):
        order = await anext(circuit)
        if b"apples" in order.payload:
            order.accept()
        else:
            order.reject("store:none-left")
    circuit.close("store:closed", "2")


async def attached(dispatcher: Dispatcher) -> CircuitProducer:
    """Attach once the node has heard of the container."""
    while True:
        try:
            return await dispatcher.attach_producer("orders")
        except CircuitClosed:
            await asyncio.sleep(0.05)


# --8<-- [end:main]


if __name__ == "__main__":
    asyncio.run(main())
