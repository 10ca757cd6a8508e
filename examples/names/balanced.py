"""Balanced: the load is shared, and a slow consumer gets less of it.

It prints:

    quick: 9, slow: 1
"""

# --8<-- [start:program]
import asyncio
from collections import Counter

from onward.actors import Node
from onward.actors.dispatch import Dispatcher, Received
from onward.protocol.dispatch import RoutingPattern, Semantics


async def main() -> None:
    handed: asyncio.Queue[str] = asyncio.Queue()
    enough = asyncio.Event()

    async def quick(_: Received) -> None:
        handed.put_nowait("quick")

    async def slow(_: Received) -> None:
        handed.put_nowait("slow")
        await enough.wait()

    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        dispatcher.provision("orders", Semantics(pattern=RoutingPattern.BALANCED))
        await dispatcher.consume("orders", quick)
        await dispatcher.consume("orders", slow)
        producer = await dispatcher.produce("orders")

        had: Counter[str] = Counter()
        sending: list[asyncio.Task[object]] = []
        for number in range(10):
            sending.append(asyncio.create_task(producer.send(b"%d" % number)))
            had[await handed.get()] += 1
        enough.set()
        await asyncio.gather(*sending)
        print(f"quick: {had['quick']}, slow: {had['slow']}")


asyncio.run(main())
# --8<-- [end:program]
