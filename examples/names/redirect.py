"""Redirect: what no consumer takes is sent to another name.

It prints:

    orders.failed has 12 apples
    Accepted()
"""

# --8<-- [start:program]
import asyncio

from onward.actors import Node
from onward.actors.dispatch import Dispatcher, Received
from onward.protocol.dispatch import Gate, Last, Redirect, Semantics


def failed(delivery: Received) -> None:
    print("orders.failed has", delivery.payload.decode())


async def main() -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        chain = (Redirect("34#orders.failed"), Last.RELEASE)
        dispatcher.provision("orders", Semantics(undeliverable=chain, gate=Gate.OPEN))
        await dispatcher.consume("orders.failed", failed)
        producer = await dispatcher.produce("orders")
        print(await producer.send(b"12 apples"))


asyncio.run(main())
# --8<-- [end:program]
