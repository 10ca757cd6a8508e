"""A node with three names for clients of AMQP 1.0; the clients beside it use them.

It prints where it listens, and the orders that come.
"""

from __future__ import annotations

# --8<-- [start:program]
import asyncio
import sys
from contextlib import suppress
from typing import Any

from proton import Message

from onward.actors import Node
from onward.actors.dispatch import Dispatcher, Received


def read(delivery: Received) -> Message:
    message = Message()
    message.decode(delivery.payload)  # the whole message, as the client has encoded it
    return message


async def main(uri: str) -> None:
    async with Node("shop") as node:
        dispatcher = await Dispatcher.attach(node)
        answers = await dispatcher.produce_any()

        def order(delivery: Received) -> None:
            message = read(delivery)
            body: Any = message.body  # text, or the bytes of a data section
            print("ordered:", body if isinstance(body, str) else bytes(body).decode(), flush=True)

        async def price(delivery: Received) -> None:
            asked = read(delivery)
            delivery.accept()  # first: a client may wait for this before it reads the answer
            answer = Message("3 each", correlation_id=asked.correlation_id)
            await answers.send(asked.reply_to or "", bytes(answer.encode()))

        await dispatcher.consume("orders", order)
        await dispatcher.consume("prices", price)
        listener = await node.listen(uri, dispatcher=dispatcher)
        print("listening", listener.uri, flush=True)

        bills = await dispatcher.produce("bills")
        while True:
            await bills.send(b"36")  # waits for a consumer: a client


with suppress(KeyboardInterrupt):
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"))
# --8<-- [end:program]
