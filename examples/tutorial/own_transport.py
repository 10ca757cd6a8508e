"""A transport of one's own: Unix domain sockets, with the framing of `onward.protocol.ockam`."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from onward.actors import Node, Worker
from onward.protocol import Address, LinkDown, LinkLost, Message, ProtocolError
from onward.protocol.ockam import WireConnection
from onward.transports import Link, Listener, Transport

# --8<-- [start:link]
READ_SIZE = 64 * 1024


class UnixLink(Link):
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        expose: frozenset[Address],
    ) -> None:
        super().__init__(expose=expose)
        self.reader, self.writer = reader, writer
        self.wire = WireConnection()
        self.free = asyncio.Event()
        self.free.set()

    def on_start(self) -> None:
        self.writer.write(self.wire.data_to_send())
        self.reading = asyncio.create_task(self.read())

    def on_stop(self) -> None:
        self.reading.cancel()
        self.writer.close()
        super().on_stop()

    async def transmit(self, message: Message) -> None:
        try:
            self.wire.send(message)
            self.writer.write(self.wire.data_to_send())
            await self.writer.drain()  # a slow peer slows down who sends to it
        except ProtocolError as error:
            self.undelivered(message, error)
        except OSError as error:
            self.undelivered(message, LinkLost(self.address, str(error)))

    async def read(self) -> None:
        with suppress(OSError):  # a connection that is reset ends like one that is closed
            while not self.wire.closed and (data := await self.reader.read(READ_SIZE)):
                self.arrive(self.wire.receive_data(data))
                await self.free.wait()
        self.stop()

    def hold(self) -> None:
        self.free.clear()

    def release(self) -> None:
        self.free.set()


# --8<-- [end:link]


# --8<-- [start:transport]
class UnixListener(Listener):
    def __init__(self, uri: str, address: Address, server: asyncio.Server) -> None:
        self._uri, self._address, self._server = uri, address, server

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def address(self) -> Address:
        return self._address

    async def close(self) -> None:
        self._server.close()


class UnixTransport(Transport):
    scheme: ClassVar[str] = "unix"

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.listeners: list[UnixListener] = []

    async def listen(self, uri: str, *, expose: frozenset[Address], **_: Any) -> UnixListener:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.node.start(partial(UnixLink, reader, writer, expose))

        server = await asyncio.start_unix_server(accept, uri.removeprefix("unix://"))
        self.listeners.append(UnixListener(uri, await self.node.start(Worker), server))
        return self.listeners[-1]

    async def connect(self, uri: str, *, expose: frozenset[Address], **_: Any) -> Address:
        try:
            reader, writer = await asyncio.open_unix_connection(uri.removeprefix("unix://"))
        except OSError as error:
            raise LinkDown(uri, str(error)) from error
        return await self.node.start(partial(UnixLink, reader, writer, expose))

    async def stop(self) -> None:
        for listener in self.listeners:
            await listener.close()


# --8<-- [end:transport]


class Echo(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, message.payload)


# --8<-- [start:main]
async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Node("far") as far, Node("near") as near:
            for node in (far, near):
                node.add_transport(UnixTransport)
            far.spawn(Echo, address="echo")
            listener = await far.listen(f"unix://{folder}/far.socket", expose=["echo"])

            link = await near.connect(listener.uri)
            answer = await near.request((link, "echo"), b"hello")
            print(answer.payload)


# --8<-- [end:main]

if __name__ == "__main__":
    asyncio.run(main())
