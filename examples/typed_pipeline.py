"""Four typed workers in a chain: each takes a value and returns one, which goes on to the next.

It prints:

    Receipt(item='tea', total=8.33)
    parse and Tax.handle do not fit: the first returns Order, the second takes Priced
    at 0#price: bad payload: count: Expected int >= 1
    noted ['tea']
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from onward.actors import ChainMismatch, GivenUp, Node, TypedWorker, call, start_chain, typed

PRICES = {"tea": 3.5, "milk": 1.2}


# --8<-- [start:workers]
@dataclass
class Order:
    item: str
    count: Annotated[int, Meta(ge=1)]


@dataclass
class Priced:
    item: str
    amount: float


@dataclass
class Receipt:
    item: str
    total: float


@typed
def parse(line: str) -> Order:
    count, _, item = line.partition(" ")
    return Order(item, int(count))


@typed
def price(order: Order) -> Priced:
    return Priced(order.item, order.count * PRICES[order.item])


class Tax(TypedWorker):
    def __init__(self, rate: float = 0.19) -> None:
        super().__init__()
        self.rate = rate

    def handle(self, priced: Priced) -> Priced:
        return Priced(priced.item, priced.amount * (1 + self.rate))


@typed
def receipt(priced: Priced) -> Receipt:
    return Receipt(priced.item, round(priced.amount, 2))


# --8<-- [end:workers]


# --8<-- [start:ack]
class Notes(TypedWorker):
    def on_start(self) -> None:
        self.items: list[str] = []

    def handle(self, receipt: Receipt) -> None:
        self.items.append(receipt.item)


# --8<-- [end:ack]


async def main() -> None:
    async with Node() as node:
        # --8<-- [start:chain]
        route = await start_chain(
            node, {"parse": parse, "price": price, "tax": Tax, "receipt": receipt}
        )
        answer = await call(node, route, "2 tea", Receipt)
        print(answer)
        # --8<-- [end:chain]

        # --8<-- [start:mismatch]
        try:
            await start_chain(node, {"parse-2": parse, "tax-2": Tax})
        except ChainMismatch as error:
            print(error)
        # --8<-- [end:mismatch]

        # --8<-- [start:refused]
        try:
            await call(node, "parse => price => tax => receipt", "0 tea", Receipt)
        except GivenUp as error:
            print(f"at {error.target}: {error.detail}")
        # --8<-- [end:refused]

        notes = Notes()
        await node.start(lambda: notes, address="notes")
        # --8<-- [start:call-ack]
        await call(node, "notes", answer, None)
        # --8<-- [end:call-ack]
        print("noted", notes.items)


if __name__ == "__main__":
    asyncio.run(main())
