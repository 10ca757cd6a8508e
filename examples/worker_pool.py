"""A pool of workers behind one address, made larger while it works.

Time is virtual. It prints:

    4 pictures by 2 workers: 2 s
    4 pictures by 4 workers: 1 s
    handled 8, failed 0, restarted 0
"""

from __future__ import annotations

import asyncio

from onward.actors import Node, Worker
from onward.actors.testing import run_virtual
from onward.actors.workers import Spread, WorkerPool
from onward.protocol import Message


class Resizer(Worker):
    async def handle_message(self, message: Message) -> None:
        await asyncio.sleep(1)
        self.reply(message, b"small " + message.payload)


async def resize_four(node: Node) -> float:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    pictures = [b"cat", b"dog", b"hen", b"pig"]
    await asyncio.gather(*(node.request("resizers", each) for each in pictures))
    return loop.time() - begin


async def main() -> None:
    async with Node() as node:
        # --8<-- [start:pool]
        pool = WorkerPool(Resizer, 2, Spread.LEAST_OUTSTANDING)
        await node.start(lambda: pool, address="resizers")
        # --8<-- [end:pool]
        print(f"4 pictures by 2 workers: {await resize_four(node):.0f} s")
        # --8<-- [start:resize]
        pool.resize(4)
        # --8<-- [end:resize]
        print(f"4 pictures by 4 workers: {await resize_four(node):.0f} s")
        counts = pool.statistics()
        print(f"handled {counts.handled}, failed {counts.failed}, restarted {counts.restarts}")


if __name__ == "__main__":
    run_virtual(main())
