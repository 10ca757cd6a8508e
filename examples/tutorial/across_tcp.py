"""The forwarder again, with a TCP connection in the middle."""

from __future__ import annotations

import asyncio

# --8<-- [start:workers]
from onward.actors import Node, Worker
from onward.protocol import Message, RequestTimeout


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


class Relay(Worker):
    def handle_message(self, message: Message) -> None:
        self.forward(message)


# --8<-- [end:workers]


# --8<-- [start:main]
async def main() -> None:
    async with Node("far") as far, Node("near") as near:
        far.spawn(Echo, address="echo")
        far.spawn(Relay, address="relay")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["relay"], allow=["echo"])
        there = listener.uri.removeprefix("tcp://")

        answer = await near.request(f"1#{there} => relay => echo", b"hello")
        print(answer.payload)


# --8<-- [end:main]


# --8<-- [start:refused]
async def refused() -> None:
    async with Node("far") as far, Node("near") as near:
        far.spawn(Echo, address="echo")
        listener = await far.listen("tcp://127.0.0.1:0")  # exposes nothing
        there = listener.uri.removeprefix("tcp://")

        try:
            await near.request(f"1#{there} => echo", b"hello", timeout=0.2)
        except RequestTimeout as error:
            print(error)
        print(dict(far.dead_letters.by_reason))


# --8<-- [end:refused]

if __name__ == "__main__":
    asyncio.run(main())
    asyncio.run(refused())
