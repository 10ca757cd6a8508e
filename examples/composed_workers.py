"""A composition of the library's workers.

Orders come to one address. A tap copies them to an observer, and a spreader distributes them over
two offices, one of them behind a forwarder. Each office has a clerk for every customer, started at
the first order of that customer.

It prints:

    anna's clerk at north: 1 order
    anna's clerk at north: 2 orders
    fred's clerk at south: 1 order
    anna's clerk at north: 3 orders
    the observer has seen 4 orders and 4 answers
    clerks at north: 1, at south: 1
"""

from __future__ import annotations

import asyncio
from functools import partial

from onward.actors import Node, Worker
from onward.actors.workers import Forwarder, Proxy, Spawner, SpawnerOptions, Spreader, Tap
from onward.protocol import Message


# --8<-- [start:clerk]
class Clerk(Worker):
    def __init__(self, office: str, customer: bytes) -> None:
        super().__init__()
        self.what = f"{customer.decode()}'s clerk at {office}"
        self.count = 0

    def handle_message(self, message: Message) -> None:
        self.count += 1
        orders = "1 order" if self.count == 1 else f"{self.count} orders"
        self.reply(message, f"{self.what}: {orders}".encode())


def customer(message: Message) -> bytes:
    return message.payload.partition(b":")[0]


# --8<-- [end:clerk]


class Observer(Worker):
    def on_start(self) -> None:
        self.orders = self.answers = 0

    def handle_message(self, message: Message) -> None:
        if b"clerk" in message.payload:
            self.answers += 1
        else:
            self.orders += 1


async def main() -> None:
    async with Node() as node:
        # --8<-- [start:office]
        options = SpawnerOptions(max_workers=100, idle=60.0)
        offices = {
            name: Spawner(partial(Clerk, name), customer, options=options)
            for name in ("north", "south")
        }
        for name, office in offices.items():
            await node.start(partial(_same, office), address=name)
        # --8<-- [end:office]

        # --8<-- [start:compose]
        observer = Observer()
        await node.start(lambda: observer, address="observer")
        await node.start(lambda: Tap("observer"), address="tap")
        await node.start(Forwarder, address="road")
        await node.start(
            lambda: Spreader(["north", "road => south"], key=customer), address="spreader"
        )
        await node.start(lambda: Proxy("tap => spreader"), address="orders")
        # --8<-- [end:compose]

        for order in (b"anna: tea", b"anna: milk", b"fred: bread", b"anna: cake"):
            answer = await node.request("orders", order, timeout=5)
            print(answer.payload.decode())
        print(f"the observer has seen {observer.orders} orders and {observer.answers} answers")
        north, south = (len(office.workers()) for office in offices.values())
        print(f"clerks at north: {north}, at south: {south}")


def _same(worker: Spawner) -> Spawner:
    return worker


if __name__ == "__main__":
    asyncio.run(main())
