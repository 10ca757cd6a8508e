"""Drop: the message is accepted, dropped and counted.

It prints:

    Accepted()
    {'dropped as provisioned': 1}
"""

# --8<-- [start:program]
import asyncio

from onward.actors import Node
from onward.actors.dispatch import Dispatcher
from onward.protocol.dispatch import Gate, Last, Semantics


async def main() -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        semantics = Semantics(undeliverable=(Last.DROP,), gate=Gate.OPEN)
        dispatcher.provision("degrees", semantics)
        producer = await dispatcher.produce("degrees")
        print(await producer.send(b"21"))
        print(dict(node.dead_letters.by_reason))


asyncio.run(main())
# --8<-- [end:program]
