"""A web handler that passes the body of a request to a chain of typed workers, as it is.

It prints:

    200 {"item":"tea","total":8.33}
    400 bad payload: count: Expected int, got str
    400 rejected: there is no price for gold
    500 the order was not completed
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from onward.actors import Node, Refused, Rejection, start_chain, typed
from onward.protocol import InDoubt, NotDelivered, Route
from onward.protocol.payloads import JSON

PRICES = {"tea": 3.5, "milk": 1.2}
MAX_BODY = 64 * 1024
TIMEOUT = 5.0


# --8<-- [start:workers]
@dataclass
class Order:
    item: str
    count: int


@dataclass
class Priced:
    item: str
    amount: float


@dataclass
class Receipt:
    item: str
    total: float


@typed(codec=JSON)
def check(order: Order) -> Order:
    if order.item not in PRICES:
        raise Rejection(f"there is no price for {order.item}")
    return order


# --8<-- [end:workers]


@typed(codec=JSON)
async def price(order: Order) -> Priced:
    return Priced(order.item, order.count * PRICES[order.item])


@typed(codec=JSON)
def tax(priced: Priced) -> Priced:
    return Priced(priced.item, priced.amount * 1.19)


@typed(codec=JSON)
def receipt(priced: Priced) -> Receipt:
    return Receipt(priced.item, round(priced.amount, 2))


# --8<-- [start:handler]
async def answer(node: Node, route: Route, body: bytes) -> tuple[int, bytes]:
    try:
        message = await node.request(route, body, timeout=TIMEOUT)
    except Refused as error:  # by the first worker: nothing has been done
        return 400, error.detail.encode()
    except NotDelivered:  # no worker, or no room: the client can try again
        return 503, b"try again"
    except InDoubt:  # a later worker, or the timeout
        return 500, b"the order was not completed"
    return 200, message.payload


# --8<-- [end:handler]


async def serve(
    node: Node, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(min(length, MAX_BODY))
    status, content = await answer(node, route, body)
    head = b"HTTP/1.1 %d \r\ncontent-length: %d\r\n\r\n" % (status, len(content))
    writer.write(head + content)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def post(port: int, body: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    head, _, content = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return f"{head.split()[1]} {content}"


async def main() -> None:
    async with Node() as node:
        route = await start_chain(
            node, {"check": check, "price": price, "tax": tax, "receipt": receipt}
        )
        server = await asyncio.start_server(
            lambda reader, writer: serve(node, route, reader, writer), "127.0.0.1", 0
        )
        port: int = server.sockets[0].getsockname()[1]
        async with server:
            print(await post(port, b'{"item": "tea", "count": 2}'))
            print(await post(port, b'{"item": "tea", "count": "two"}'))
            print(await post(port, b'{"item": "gold", "count": 1}'))
            await node.stop_worker("tax")
            print(await post(port, b'{"item": "tea", "count": 2}'))


if __name__ == "__main__":
    asyncio.run(main())
