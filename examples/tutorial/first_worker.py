"""A node, a worker, a request."""

from __future__ import annotations

import asyncio

# --8<-- [start:worker]
from onward.actors import Node, Worker
from onward.protocol import Message, UnknownAddress


class Shout(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload.upper())


# --8<-- [end:worker]


# --8<-- [start:main]
async def main() -> None:
    async with Node() as node:
        node.spawn(Shout, address="shout")
        answer = await node.request("shout", b"hello")
        print(answer.payload)


# --8<-- [end:main]


# --8<-- [start:counter]
class Counter(Worker):
    def on_start(self) -> None:
        self.seen = 0

    async def handle_message(self, message: Message) -> None:
        await asyncio.sleep(0)
        self.seen += 1
        self.reply(message, str(self.seen).encode())


async def count() -> None:
    async with Node() as node:
        node.spawn(Counter, address="counter")
        for _ in range(3):
            answer = await node.request("counter", b"")
            print(answer.payload)


# --8<-- [end:counter]


# --8<-- [start:mistakes]
async def mistakes() -> None:
    async with Node() as node:
        try:
            node.send("nobody", b"is there someone?")
        except UnknownAddress as error:
            print(error)


# --8<-- [end:mistakes]

if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(count())
    asyncio.run(mistakes())
