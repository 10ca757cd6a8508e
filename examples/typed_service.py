"""A service of values behind a broker: its handlers declare types, and its client gets values.

It prints:

    Receipt(item='tea', total=7.0)
    3 2 1
    bad payload: count: Expected int >= 1
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from onward.actors import Node
from onward.actors.broker import Broker, TypedHandlers
from onward.protocol.payloads import JSON
from onward.transports.client import Client, connect
from onward.transports.rsocket import DestinationError

PRICES = {"tea": 3.5, "milk": 1.2}


# --8<-- [start:handlers]
@dataclass
class Order:
    item: str
    count: Annotated[int, Meta(ge=1)]


@dataclass
class Receipt:
    item: str
    total: float


handlers = TypedHandlers(codec=JSON)


@handlers.response("buy")
async def buy(order: Order) -> Receipt:
    return Receipt(order.item, order.count * PRICES[order.item])


@handlers.stream("countdown")
async def countdown(start: int) -> AsyncGenerator[int]:
    for number in range(start, 0, -1):
        yield number


# --8<-- [end:handlers]


# --8<-- [start:ask]
async def ask(client: Client) -> None:
    shop = "service=shop"
    print(await client.request_value(shop, Order("tea", 2), Receipt, codec=JSON, route="buy"))
    numbers = client.stream_values(shop, 3, int, codec=JSON, route="countdown")
    async with aclosing(numbers):
        print(*[number async for number in numbers])
    try:
        await client.request_value(shop, Order("tea", 0), Receipt, codec=JSON, route="buy")
    except DestinationError as error:
        print(error.text)


# --8<-- [end:ask]


async def main() -> None:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        async with (
            connect(listener.uri, service="shop", handlers=handlers),
            connect(listener.uri) as client,
        ):
            await ask(client)


if __name__ == "__main__":
    asyncio.run(main())
