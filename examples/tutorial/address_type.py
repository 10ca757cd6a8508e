"""A routing rule of one's own: the same key always meets the same worker."""

from __future__ import annotations

import asyncio
from zlib import crc32

from onward.actors import Node, Worker
from onward.protocol import Address, Message

# --8<-- [start:rule]
SHARD = 64


class Shards:
    def __init__(self, *workers: Address) -> None:
        self.workers = workers

    def __call__(self, message: Message) -> Message:
        key = message.to.value
        return message.redirect(self.workers[crc32(key) % len(self.workers)])


# --8<-- [end:rule]


class Basket(Worker):
    def on_start(self) -> None:
        self.items: list[str] = []

    def handle_message(self, message: Message) -> None:
        self.items.append(message.payload.decode())
        self.reply(message, ", ".join(self.items).encode())


# --8<-- [start:main]
async def main() -> None:
    async with Node() as node:
        node.add_rule(SHARD, Shards(*(node.spawn(Basket) for _ in range(8))))
        await node.request("64#customer-17", b"tea")
        answer = await node.request("64#customer-17", b"milk")
        print(answer.payload)  # b'tea, milk'


# --8<-- [end:main]

if __name__ == "__main__":
    asyncio.run(main())
