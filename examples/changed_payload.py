"""A worker that passes each message on with another payload.

It prints:

    filed as 1: tea
    filed as 2: milk
"""

from __future__ import annotations

import asyncio

from onward.actors import Node, Worker
from onward.protocol import Message


# --8<-- [start:number]
class Numbering(Worker):
    def on_start(self) -> None:
        self.count = 0

    def handle_message(self, message: Message) -> None:
        self.count += 1
        self.step(message, payload=b"%d: %s" % (self.count, message.payload))


# --8<-- [end:number]


class Office(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, b"filed as " + message.payload)


async def main() -> None:
    async with Node() as node:
        await node.start(Numbering, address="numbering")
        await node.start(Office, address="office")
        for order in (b"tea", b"milk"):
            answer = await node.request("numbering => office", order)
            print(answer.payload.decode())


if __name__ == "__main__":
    asyncio.run(main())
