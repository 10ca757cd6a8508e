"""A custom address type: names for workers on any node.

An address is a type and a value. Type 0 is the node's own workers; every other type has a rule,
a function that replaces the address by other addresses. Here type 64 is a name in a directory,
and a name may stand for a whole route, to another node too. When a worker moves, only the
directory changes; senders do not.

It prints:

    64#greeter: hello from the near node
    64#greeter: hello from the far node
    64#baker: no such worker: 64#baker (not in the directory)
"""

from __future__ import annotations

import asyncio
from functools import partial

from onward.actors import Node, Worker
from onward.protocol import DeliveryError, Message, Route, UnknownAddress, parse_route

NAME = 64


class Directory:
    """The rule for addresses of type 64."""

    def __init__(self) -> None:
        self._routes: dict[bytes, Route] = {}

    def enter(self, name: str, route: str) -> None:
        self._routes[name.encode()] = parse_route(route)

    def __call__(self, message: Message) -> Message:
        # A rule runs for every message to such an address, so it does no more than a lookup.
        # The sender gets its exceptions.
        route = self._routes.get(message.to.value)
        if route is None:
            raise UnknownAddress(message.to, "not in the directory")
        # The route may start with an address of another type, here TCP: its rule is next.
        return message.redirect(*route)


class Greeter(Worker):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def handle_message(self, message: Message) -> None:
        self.reply(message, f"hello from the {self.where} node".encode())


async def ask(node: Node, address: str) -> None:
    try:
        answer = await node.request(address, b"", timeout=5)
        print(f"{address}: {answer.payload.decode()}")
    except DeliveryError as error:
        print(f"{address}: {error}")


async def main() -> None:
    async with Node("far") as far, Node("near") as near:
        directory = Directory()
        near.add_rule(NAME, directory)

        near.spawn(partial(Greeter, "near"), address="greeter")
        directory.enter("greeter", "0#greeter")
        await ask(near, "64#greeter")

        # The greeter moves to another node.
        far.spawn(partial(Greeter, "far"), address="greeter")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["greeter"])
        directory.enter("greeter", f"1#{listener.uri.removeprefix('tcp://')} => 0#greeter")
        await ask(near, "64#greeter")

        await ask(near, "64#baker")


if __name__ == "__main__":
    asyncio.run(main())
