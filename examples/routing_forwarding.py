"""The routing document's first example: a worker asks another through a third, and is answered.

    [(A) -> (B) -> (C)]
         1      2

    [(A) <- (B) <- (C)]
         4      3

`B` forwards: it takes itself off the onward route and puts itself on the return route. `C`
replies: it swaps the two.

It prints:

    1  onward_route: B -> C
       return_route: A
    2  onward_route: C
       return_route: B -> A
    3  onward_route: B -> A
       return_route: C
    4  onward_route: A
       return_route: B -> C
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from onward.actors import Node, Worker
from onward.actors.workers import Echo, Forwarder
from onward.protocol import Message, Route

Show = Callable[[int, Message], object]


class Numbered:
    """Shows each message that one of the workers gets, with its number."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._numbers = count(1)

    def __call__(self, message: Message) -> None:
        self._show(next(self._numbers), message)


class A(Worker):
    """Asks when it starts, and waits for the answer as for any message."""

    def __init__(self, came: Numbered, answered: asyncio.Event) -> None:
        super().__init__()
        self._came = came
        self._answered = answered

    def on_start(self) -> None:
        self.send("B => C", b"hello")

    def handle_message(self, message: Message) -> None:
        self._came(message)
        self._answered.set()


class B(Forwarder):
    def __init__(self, came: Numbered) -> None:
        super().__init__()
        self._came = came

    def handle_message(self, message: Message) -> None:
        self._came(message)
        super().handle_message(message)


class C(Echo):
    def __init__(self, came: Numbered) -> None:
        super().__init__()
        self._came = came

    def handle_message(self, message: Message) -> None:
        self._came(message)
        super().handle_message(message)


async def run(show: Show) -> None:
    """Run the example; show each message as the worker it is for gets it."""
    came, answered = Numbered(show), asyncio.Event()
    async with Node() as node:
        await node.start(lambda: C(came), address="C")
        await node.start(lambda: B(came), address="B")
        await node.start(lambda: A(came, answered), address="A")
        await answered.wait()


def written(route: Route) -> str:
    """Write a route as the document does."""
    return " -> ".join(address.value.decode() for address in route)


def print_message(number: int, message: Message) -> None:
    print(f"{number}  onward_route: {written(message.onward_route)}")
    print(f"   return_route: {written(message.return_route)}")


if __name__ == "__main__":
    asyncio.run(run(print_message))
