"""A handler that gets an order, not bytes; a sender of anything else is told which field is wrong.

It prints:

    Receipt(item='tea', total=7.0)
    bad payload: count: Expected int, got str
    bad payload: count: Expected int >= 1
    still there: Receipt(item='milk', total=1.2)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from onward.actors import Node, Refused, TypedWorker, call
from onward.protocol.payloads import JSON

PRICES = {"tea": 3.5, "milk": 1.2}


# --8<-- [start:worker]
@dataclass
class Order:
    item: str
    count: Annotated[int, Meta(ge=1)]


@dataclass
class Receipt:
    item: str
    total: float


class Till(TypedWorker):
    codec = JSON

    def handle(self, order: Order) -> Receipt:
        return Receipt(order.item, order.count * PRICES[order.item])


# --8<-- [end:worker]


async def main() -> None:
    async with Node() as node:
        await node.start(Till, address="till")

        # --8<-- [start:call]
        receipt = await call(node, "till", Order("tea", 2), Receipt, codec=JSON)
        print(receipt)
        # --8<-- [end:call]

        for payload in (b'{"item":"tea","count":"two"}', b'{"item":"tea","count":0}'):
            # --8<-- [start:refused]
            try:
                await node.request("till", payload)
            except Refused as error:
                print(error.detail)
            # --8<-- [end:refused]

        print("still there:", await call(node, "till", Order("milk", 1), Receipt, codec=JSON))


if __name__ == "__main__":
    asyncio.run(main())
