"""Workers in a row: two that forward, one that steps, and one that replies.

A message carries an onward and a return route. A worker that forwards moves its address from the
onward to the return route, so the reply passes it again. A worker that steps removes its address
from the onward route only, so the reply bypasses it. The payload stays the same.

It prints, with the request's own random address as `…`:

    first   [0#first => 0#counter => 0#second => 0#echo] <- [0#…] 5 bytes
    counter [0#counter => 0#second => 0#echo] <- [0#first => 0#…] 5 bytes
    second  [0#second => 0#echo] <- [0#first => 0#…] 5 bytes
    echo    [0#echo] <- [0#second => 0#first => 0#…] 5 bytes
    second  [0#second => 0#first => 0#…] <- [0#echo] 5 bytes
    first   [0#first => 0#…] <- [0#second => 0#echo] 5 bytes
    HELLO, and 1 message was counted
"""

from __future__ import annotations

import asyncio

from onward.actors import Node, Worker
from onward.protocol import Message


def show(worker: Worker, message: Message) -> None:
    print(f"{worker.address.value.decode():<7} {message}")


class Forwarder(Worker):
    def handle_message(self, message: Message) -> None:
        show(self, message)
        self.forward(message)


class Counter(Worker):
    """A counter of messages. It steps, so replies bypass it."""

    def on_start(self) -> None:
        self.count = 0

    def handle_message(self, message: Message) -> None:
        show(self, message)
        self.count += 1
        self.step(message)


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        show(self, message)
        self.reply(message, message.payload.upper())


async def main() -> None:
    counter = Counter()
    async with Node() as node:
        node.spawn(Forwarder, address="first")
        node.spawn(lambda: counter, address="counter")
        node.spawn(Forwarder, address="second")
        node.spawn(Echo, address="echo")

        # The sender chooses the route; none of the workers knows the others.
        answer = await node.request("first => counter => second => echo", b"hello", timeout=5)
        print(f"{answer.payload.decode()}, and {counter.count} message was counted")


if __name__ == "__main__":
    asyncio.run(main())
