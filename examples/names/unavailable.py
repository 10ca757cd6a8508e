"""Unavailable: a node that has the names it was given, and no others.

It prints:

    open: Accepted()
    secret: Rejected(condition='amqp:not-found', description='no such name')
    secret: no consumer can be attached
"""

# --8<-- [start:program]
import asyncio

from onward.actors import Node
from onward.actors.dispatch import ConsumerRefused, Dispatcher, DispatchOptions, Received
from onward.protocol.dispatch import RoutingPattern, Semantics


def take(delivery: Received) -> None:
    delivery.accept()


async def main() -> None:
    async with Node("shop") as node:
        closed = Semantics(pattern=RoutingPattern.UNAVAILABLE)
        dispatcher = await Dispatcher.attach(node, DispatchOptions(default=closed))
        dispatcher.provision("open", Semantics())
        await dispatcher.consume("open", take)

        producer = await dispatcher.produce_any()
        for name in ("open", "secret"):
            print(f"{name}:", await producer.send(name, b"hello"))
        try:
            await dispatcher.consume("secret", take)
        except ConsumerRefused:
            print("secret: no consumer can be attached")


asyncio.run(main())
# --8<-- [end:program]
