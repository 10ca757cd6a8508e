"""A transport of one's own: nodes joined by a shared folder, each message a file.

`Link` and `Transport` do the routing; what is left is to move messages. Here the other node
need not even run when one is sent. It prints:

    hello, by folder
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from onward.actors import Node, Worker
from onward.protocol import Address, LinkDown, Message, format_route, parse_route
from onward.transports import Link, Listener, Transport

LOOK_EVERY = 0.01  # seconds
MAX_FILES = 1000  # in one direction; more are refused


class FolderLink(Link):
    """One end: it puts files into one folder and takes them from another."""

    def __init__(self, outbox: Path, inbox: Path, expose: frozenset[Address]) -> None:
        super().__init__(expose=expose)
        self.outbox, self.inbox, self.held = outbox, inbox, False

    def on_start(self) -> None:
        self.outbox.mkdir(exist_ok=True)
        self.every(LOOK_EVERY, self.look)

    def transmit(self, message: Message) -> None:  # to the other end
        if len(list(self.outbox.iterdir())) >= MAX_FILES:
            self.undelivered(message, LinkDown(self.address, "the folder is full"))
            return
        routes = format_route(message.onward_route), format_route(message.return_route)
        file = self.outbox / "part"
        file.write_text(json.dumps([*routes, message.payload.hex()]))
        file.rename(self.outbox / f"{time.time_ns()}.json")  # it is there whole, or not at all

    def look(self) -> None:  # what the other end has put there
        for file in sorted(self.inbox.glob("*.json")):
            if self.held:
                break
            text = file.read_text()
            file.unlink()  # first: what cannot be read is not tried again and again
            onward, back, payload = json.loads(text)
            if onward:
                routes = parse_route(onward), parse_route(back)
                self.arrive([Message(*routes, bytes.fromhex(payload))])

    def hold(self) -> None:  # a mailbox of this node is full: take no more
        self.held = True

    def release(self) -> None:
        self.held = False


class FolderListener(Listener):
    def __init__(self, uri: str, link: FolderLink) -> None:
        self._uri, self.link = uri, link

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def address(self) -> Address:
        return self.link.address

    async def close(self) -> None:
        self.link.stop()


class FolderTransport(Transport):
    scheme: ClassVar[str] = "folder"

    async def listen(self, uri: str, *, expose: frozenset[Address], **_: Any) -> Listener:
        folder = Path(uri.removeprefix("folder://"))
        link = FolderLink(folder / "back", folder / "forth", expose)
        await self.node.start(lambda: link)
        return FolderListener(uri, link)

    async def connect(self, uri: str, *, expose: frozenset[Address], **_: Any) -> Address:
        folder = Path(uri.removeprefix("folder://"))
        return await self.node.start(lambda: FolderLink(folder / "forth", folder / "back", expose))

    async def stop(self) -> None:
        """Do nothing: the links are workers, and the node has stopped them."""


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Node("far") as far, Node("near") as near:
            far.add_transport(FolderTransport)
            near.add_transport(FolderTransport)
            far.spawn(Echo, address="echo")
            await far.listen(f"folder://{folder}", expose=["echo"])
            link = await near.connect(f"folder://{folder}")
            answer = await near.request((link, "echo"), b"hello, by folder", timeout=5)
            print(answer.payload.decode())


if __name__ == "__main__":
    asyncio.run(main())
