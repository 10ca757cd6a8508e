"""A custom transport: nodes joined by a shared folder, where each message is a file.

`Link` and `Transport` do the routing; the transport moves messages and detects a lost peer. See
`docs/how-to/write-a-transport.md`. It prints:

    hello, by folder
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from onward.actors import Node, Worker
from onward.protocol import Address, LinkDown, Message, ProtocolError
from onward.protocol.ockam import decode_message, encode_message
from onward.transports import Link, Listener, Transport

# --8<-- [start:alive]
LOOK_EVERY = 0.005  # seconds between two scans of a folder
SILENT = 5.0  # seconds without a sign of life after which the other end is lost
CONNECT = 5.0  # seconds within which the listener has to answer
MAX_FILES = 100  # messages in flight in one direction; a sender of more waits
MAX_BYTES = 20 * 1024 * 1024  # of a file; a larger one is discarded
MAX_LINKS = 100  # of one listener; further ones get no answer


def sign_of_life(folder: Path) -> None:
    (folder / "alive").touch()


def is_alive(folder: Path) -> bool:
    try:
        return time.time() - (folder / "alive").stat().st_mtime < SILENT
    except FileNotFoundError:
        return False


# --8<-- [end:alive]


# --8<-- [start:link]
class FolderLink(Link):
    """One end of a link, which writes files to one folder and reads them from another."""

    def __init__(self, outbox: Path, inbox: Path, expose: frozenset[Address]) -> None:
        super().__init__(expose=expose)
        self.outbox, self.inbox = outbox, inbox
        self.sent = self.broken = 0
        self.held = False

    def on_start(self) -> None:
        sign_of_life(self.outbox)
        self.looking = asyncio.create_task(self.look())

    async def transmit(self, message: Message) -> None:  # to the other end
        try:
            while len(list(self.outbox.iterdir())) > MAX_FILES and not self.looking.done():
                await asyncio.wait([self.looking], timeout=LOOK_EVERY)
            if self.looking.done():
                raise FileNotFoundError("the other end is silent")
            self.sent += 1
            part = self.outbox / "part"
            part.write_bytes(encode_message(message))
            part.rename(self.outbox / f"{self.sent:020}")  # atomic: never half a file
        except OSError as error:
            self.undelivered(message, LinkDown(self.address, str(error)))

    async def look(self) -> None:  # for files of the other end
        alive = True
        with suppress(OSError):  # a missing folder ends the link too
            while alive or self.held:
                alive = is_alive(self.inbox)  # before the scan, which then finds its last files
                for file in sorted(self.inbox.glob("[0-9]*")):
                    if self.held:
                        break
                    self.take(file)
                sign_of_life(self.outbox)
                await asyncio.sleep(LOOK_EVERY)
        self.lost("the other end is silent")
        self.stop()

    def take(self, file: Path) -> None:
        data = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b""
        file.unlink()
        try:
            self.arrive([decode_message(data)])
        except ProtocolError:
            self.broken += 1  # not a file of the other end

    def hold(self) -> None:  # a mailbox of this node is full: read no more
        self.held = True

    def release(self) -> None:
        self.held = False

    def on_stop(self) -> None:
        self.looking.cancel()
        (self.outbox / "alive").unlink(missing_ok=True)
        if not is_alive(self.inbox):  # the last one cleans up
            shutil.rmtree(self.outbox.parent, ignore_errors=True)
        super().on_stop()


# --8<-- [end:link]


# --8<-- [start:listener]
class Door(Worker):
    """The owner of a listener's folder, which starts the other end of each new link in it."""

    def __init__(self, folder: Path, expose: frozenset[Address]) -> None:
        super().__init__()
        self.folder, self.expose = folder, expose

    def on_start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not is_alive(self.folder):
            (self.folder / "alive").unlink(missing_ok=True)
        (self.folder / "alive").touch(exist_ok=False)  # or it raises an OSError
        for old in self.folder.glob("*.link"):  # of a listener that did not clean up
            shutil.rmtree(old, ignore_errors=True)
        self.every(LOOK_EVERY, self.look)

    def look(self) -> None:
        sign_of_life(self.folder)
        for new in self.folder.glob("*.new"):
            if len(list(self.folder.glob("*.link"))) < MAX_LINKS:
                link = new.rename(new.with_suffix(".link"))
                self.spawn(partial(FolderLink, link / "back", link / "forth", self.expose))

    def on_stop(self) -> None:
        (self.folder / "alive").unlink(missing_ok=True)


class FolderListener(Listener):
    def __init__(self, node: Node, uri: str, address: Address) -> None:
        self.node, self._uri, self._address = node, uri, address

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def address(self) -> Address:
        return self._address

    async def close(self) -> None:
        if self.node.has(self.address):
            await self.node.stop_worker(self.address)


# --8<-- [end:listener]


# --8<-- [start:transport]
class FolderTransport(Transport):
    scheme: ClassVar[str] = "folder"

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        folder = folder_of(uri, options)
        return FolderListener(self.node, uri, await self.node.start(partial(Door, folder, expose)))

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        folder = folder_of(uri, options)
        if not is_alive(folder):
            raise LinkDown(uri, "no listener there")
        begun = folder / self.node.random_address().value.decode()
        link = begun.with_suffix(".link")
        try:
            for name in ("forth", "back"):
                (begun / name).mkdir(parents=True)
            sign_of_life(begun / "forth")
            begun.rename(begun.with_suffix(".new"))
            await answered(folder, link / "back")
            return await self.node.start(partial(FolderLink, link / "forth", link / "back", expose))
        except BaseException as error:
            for each in (begun, begun.with_suffix(".new"), link):
                shutil.rmtree(each, ignore_errors=True)
            if isinstance(error, OSError):  # as a TimeoutError is
                raise LinkDown(uri, str(error)) from error
            raise

    async def stop(self) -> None:
        """Return at once: the node has already stopped the transport's workers."""


async def answered(folder: Path, answer: Path) -> None:
    for _ in range(int(CONNECT / LOOK_EVERY)):
        if is_alive(answer):
            return
        if not is_alive(folder):
            break
        await asyncio.sleep(LOOK_EVERY)
    raise TimeoutError("no answer")


def folder_of(uri: str, options: dict[str, Any]) -> Path:
    if options:
        raise TypeError(f"no such option: {', '.join(options)}")
    scheme, _, path = uri.partition("://")
    if scheme != "folder" or not path:
        raise ValueError(f"{uri!r} is not folder://path")
    return Path(path)


# --8<-- [end:transport]


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


# --8<-- [start:main]
async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Node("far") as far, Node("near") as near:
            for node in (far, near):
                node.add_transport(FolderTransport)
            far.spawn(Echo, address="echo")
            listener = await far.listen(f"folder://{folder}/post", expose=["echo"])

            link = await near.connect(listener.uri)
            answer = await near.request([link, "echo"], b"hello, by folder", timeout=5)
            print(answer.payload.decode())


# --8<-- [end:main]

if __name__ == "__main__":
    asyncio.run(main())
