"""A worker between two others; both routes as each of them sees them."""

from __future__ import annotations

import asyncio

from onward.actors import Node, Worker
from onward.protocol import Message


# --8<-- [start:workers]
class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        print("echo  ", message)
        self.reply(message, message.payload)


class Relay(Worker):
    def handle_message(self, message: Message) -> None:
        print("relay ", message)
        self.forward(message)


# --8<-- [end:workers]


# --8<-- [start:main]
async def main() -> None:
    async with Node() as node:
        node.spawn(Relay, address="relay")
        node.spawn(Echo, address="echo")
        answer = await node.request("relay => echo", b"hello", timeout=5)
        print("answer", answer)


# --8<-- [end:main]

if __name__ == "__main__":
    asyncio.run(main())
