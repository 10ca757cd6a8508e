"""A worker for a topology file, and the topology in a program."""

from __future__ import annotations

import asyncio
from pathlib import Path

# --8<-- [start:worker]
from onward.actors import Worker
from onward.actors.topology import Topology, read
from onward.protocol import Message


class Greeter(Worker):
    def __init__(self, greeting: str) -> None:
        super().__init__()
        self.greeting = greeting

    def handle_message(self, message: Message) -> None:
        self.reply(message, f"{self.greeting}, {message.payload.decode()}".encode())


# --8<-- [end:worker]


# --8<-- [start:main]
FILE = Path(__file__).with_name("three_nodes.toml")


async def main() -> None:
    plan = read(FILE.read_bytes(), FILE.name)
    async with await Topology.start(plan) as topology:
        answer = await topology.node("near").request("greeter", b"ann")
        print(answer.payload)


# --8<-- [end:main]

if __name__ == "__main__":
    asyncio.run(main())
