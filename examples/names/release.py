"""Release: the producer is told that no consumer has the message.

It prints:

    Released()
    NotDelivered: safe to send again
"""

# --8<-- [start:program]
import asyncio

from onward.actors import Node
from onward.actors.dispatch import Dispatcher
from onward.protocol import NotDelivered
from onward.protocol.dispatch import Gate, Last, Semantics


async def main() -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        semantics = Semantics(undeliverable=(Last.RELEASE,), gate=Gate.OPEN)
        dispatcher.provision("orders", semantics)

        producer = await dispatcher.produce("orders")
        print(await producer.send(b"12 apples"))
        try:
            await node.request("34#orders", b"12 apples")
        except NotDelivered:
            print("NotDelivered: safe to send again")


asyncio.run(main())
# --8<-- [end:program]
