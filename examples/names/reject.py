"""Reject: the producer is told that the message is refused for good.

It prints:

    Rejected(condition='onward:undeliverable', description='no consumer took it')
"""

# --8<-- [start:program]
import asyncio

from onward.actors import Node
from onward.actors.dispatch import Dispatcher
from onward.protocol.dispatch import Gate, Last, Semantics


async def main() -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        semantics = Semantics(undeliverable=(Last.REJECT,), gate=Gate.OPEN)
        dispatcher.provision("orders", semantics)
        producer = await dispatcher.produce("orders")
        print(await producer.send(b"12 apples"))


asyncio.run(main())
# --8<-- [end:program]
