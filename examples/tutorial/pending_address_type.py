"""A routing rule that has to ask elsewhere first: the node keeps the messages meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from onward.actors import Node, Pending
from onward.actors.workers import Echo
from onward.protocol import Address, Message

# --8<-- [start:rule]
NAME = 65


class Names:
    def __init__(self, look_up: Callable[[bytes], Awaitable[Address | None]]) -> None:
        self.look_up = look_up
        self.known: dict[bytes, Address] = {}
        self.asked: dict[bytes, tuple[Pending, asyncio.Task[None]]] = {}

    def __call__(self, message: Message) -> Message | Pending:
        name = message.to.value
        if name in self.known:
            return message.redirect(self.known[name])
        if name not in self.asked:
            pending = Pending(timeout=2)
            self.asked[name] = pending, asyncio.create_task(self.ask(name, pending))
        return self.asked[name][0]

    async def ask(self, name: bytes, pending: Pending) -> None:
        found = await self.look_up(name)
        del self.asked[name]
        if found is None:
            pending.refuse("no such name")
        else:
            self.known[name] = found
            pending.resume()


# --8<-- [end:rule]


async def directory(name: bytes) -> Address | None:
    """Look a name up elsewhere; this one knows one name."""
    await asyncio.sleep(0.01)
    return Address(0, b"echo") if name == b"tea" else None


async def main() -> None:
    async with Node() as node:
        node.spawn(Echo, address="echo")
        node.add_rule(NAME, Names(directory))
        answer = await node.request("65#tea", b"hello")
        print(answer.payload)  # b'hello'


if __name__ == "__main__":
    asyncio.run(main())
