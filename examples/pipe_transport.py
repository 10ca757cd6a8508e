"""A custom transport over bytes: a node and its child process, joined by standard streams.

See `docs/how-to/write-a-transport.md`. It prints:

    hello, by pipe
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from typing import IO, Any, ClassVar

from onward.actors import Node, Worker
from onward.protocol import Address, LinkDown, Message, OnwardError, WireError
from onward.protocol.ockam import WireConnection
from onward.transports import Link, Listener, Transport


# --8<-- [start:link]
class PipeLink(Link):
    """One end of a link, which reads one pipe and writes another."""

    def __init__(self, source: IO[bytes], sink: IO[bytes], expose: frozenset[Address]) -> None:
        super().__init__(expose=expose)
        self.source, self.sink = source, sink
        self.wire = WireConnection()  # frames, with a limit for their size
        self.writable = asyncio.Event()
        self.writable.set()
        self.closed = False

    async def on_start(self) -> None:
        loop = asyncio.get_running_loop()
        self.writing, _ = await loop.connect_write_pipe(lambda: Writing(self), self.sink)
        self.reading, _ = await loop.connect_read_pipe(lambda: Reading(self), self.source)
        self.writing.write(self.wire.data_to_send())  # the preamble

    async def transmit(self, message: Message) -> None:  # to the other end
        try:
            if self.closed:
                raise LinkDown(self.address, "the pipe is closed")
            self.wire.send(message)
        except OnwardError as error:  # or the message is larger than a frame may be
            self.undelivered(message, error)
            return
        # Written first, as a link that is stopped gives up the message for which it waits.
        self.writing.write(self.wire.data_to_send())
        await self.writable.wait()

    def came(self, data: bytes) -> None:  # from the other end
        try:
            self.arrive(self.wire.receive_data(data))
        except WireError as error:
            self.end(str(error))

    def hold(self) -> None:  # a mailbox of this node is full: read no more
        self.reading.pause_reading()

    def release(self) -> None:
        self.reading.resume_reading()

    def end(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.writable.set()
            self.lost(reason)
            self.finish()

    def on_stop(self) -> None:
        self.closed = True
        self.reading.close()
        self.writing.close()  # writes what is left first
        super().on_stop()


class Reading(asyncio.Protocol):
    """The callbacks of the pipe that is read."""

    def __init__(self, link: PipeLink) -> None:
        self.link = link

    def data_received(self, data: bytes) -> None:
        self.link.came(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.end("the other end has closed its pipe")


class Writing(asyncio.BaseProtocol):
    """The callbacks of the pipe that is written."""

    def __init__(self, link: PipeLink) -> None:
        self.link = link

    def pause_writing(self) -> None:  # when 64 KiB wait
        self.link.writable.clear()

    def resume_writing(self) -> None:
        self.link.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.end("the other end has closed its pipe")


# --8<-- [end:link]


# --8<-- [start:transport]
class PipeTransport(Transport):
    """Links over pipes that are given as options; there is nothing to listen at."""

    scheme: ClassVar[str] = "pipe"

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        return await self.node.start(partial(PipeLink, expose=expose, **options))

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        raise ValueError("a pipe has two ends, and both connect")

    async def stop(self) -> None:
        """Return at once: the node has already stopped the links."""


# --8<-- [end:transport]


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


# --8<-- [start:main]
async def child() -> None:
    async with Node("child") as node:
        node.add_transport(PipeTransport)
        node.spawn(Echo, address="echo")
        source, sink = sys.stdin.buffer, sys.stdout.buffer
        link = await node.connect("pipe://parent", expose=["echo"], source=source, sink=sink)
        ended = asyncio.Event()
        node.watch(link, ended.set)
        await ended.wait()


async def parent(process: subprocess.Popen[bytes]) -> None:
    async with Node("parent") as node:
        node.add_transport(PipeTransport)
        link = await node.connect("pipe://child", source=process.stdout, sink=process.stdin)
        answer = await node.request([link, "echo"], b"hello, by pipe", timeout=10)
        print(answer.payload.decode())


def main() -> None:
    program = [sys.executable, __file__, "child"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        asyncio.run(parent(process))


# --8<-- [end:main]

if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(child())
    else:
        main()
