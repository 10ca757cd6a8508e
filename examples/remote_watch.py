"""A worker that is watched from another node: its end is reported once, with the reason.

It prints:

    0#orders: stopped
    0#missing: refused
"""

from __future__ import annotations

import asyncio

from onward.actors import Node
from onward.actors.services import RemoteWatch, WatchEnd, WatchService
from onward.actors.workers import Echo


def ended(end: WatchEnd) -> None:
    print(end)


async def main() -> None:
    async with Node("here") as here, Node("there") as there:
        await there.start(Echo, address="orders")

        # --8<-- [start:service]
        await there.start(lambda: WatchService(["orders", "missing"]), address="watch")
        listener = await there.listen("tcp://127.0.0.1:0", expose=["watch"])
        # --8<-- [end:service]

        # --8<-- [start:watch]
        link = await here.connect(listener.uri)
        watch = await RemoteWatch.on(here, [link, "watch"], "orders", ended)
        # --8<-- [end:watch]

        await watch.until_known()
        await there.stop_worker("orders")
        await watch.until_ended()

        watch = await RemoteWatch.on(here, [link, "watch"], "missing", ended)
        await watch.until_ended()


if __name__ == "__main__":
    asyncio.run(main())
