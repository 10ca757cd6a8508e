"""A sound transport over TCP, as short as one can be: faults are planted into subclasses of it."""

from __future__ import annotations

import asyncio
from functools import partial
from struct import pack, unpack
from typing import Any, ClassVar

from onward.actors import Node, Worker
from onward.protocol import Address, LinkDown, Message, PayloadTooBig, WorkerStopped
from onward.protocol.ockam import decode_message, encode_message
from onward.transports import Link, Listener, Transport

__all__ = ["MAX_BODY", "Door", "PlainLink", "PlainListener", "PlainTransport"]

MAX_BODY = 2 * 1024 * 1024
"""Most bytes of a message on the wire."""

CLOSING = 0.2
"""Seconds that a link which was stopped may take to write what it has taken."""


class PlainLink(Link):
    """One end of a connection: each message is its length in four bytes and its body."""

    scheme = "plain"

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, expose: frozenset[Address]
    ) -> None:
        super().__init__(expose=expose)
        self.reader, self.writer = reader, writer
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.ended = False

    def on_start(self) -> None:
        self.reading = asyncio.create_task(self.read())

    # --- to the other end -----------------------------------------------------------------

    async def transmit(self, message: Message) -> None:
        body = encode_message(message)
        if len(body) > MAX_BODY:
            self.undelivered(message, PayloadTooBig(len(body), MAX_BODY))
        elif self.ended or self.writer.is_closing():
            self.undelivered(message, LinkDown(self.address, "the connection was closed"))
        else:
            await self.write(pack(">I", len(body)) + body)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        try:
            await self.writer.drain()
        except OSError:
            self.ended = True  # what was written is in doubt: `lost` ends its requests

    # --- from the other end ---------------------------------------------------------------

    async def read(self) -> None:
        try:
            while True:
                await self.may_read.wait()
                (size,) = unpack(">I", await self.reader.readexactly(4))
                if size > MAX_BODY:
                    break
                self.came(decode_message(await self.reader.readexactly(size)))
        except (EOFError, OSError):
            pass
        self.end()

    def came(self, message: Message) -> None:
        self.arrive([message])

    def hold(self) -> None:
        self.may_read.clear()

    def release(self) -> None:
        self.may_read.set()

    # --- the end --------------------------------------------------------------------------

    def end(self) -> None:
        self.ended = True
        self.writer.transport.abort()  # nobody reads what is written now: wakes `drain`
        self.lost("the connection was closed")
        self.stop()

    async def on_stop(self) -> None:
        self.reading.cancel()
        self.ended = True
        super().on_stop()
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(CLOSING):
                await asyncio.shield(self.writer.wait_closed())
        except (OSError, TimeoutError):
            self.writer.transport.abort()


class Door(Worker):
    """Owns the listening socket; the links of its connections are its children."""

    def __init__(self, transport: PlainTransport, uri: str, expose: frozenset[Address]) -> None:
        super().__init__()
        self.transport, self.uri, self.expose = transport, uri, expose

    async def on_start(self) -> None:
        host, port = place_of(self.uri)
        self.server = await asyncio.start_server(self.accept, host, port, start_serving=True)
        self.uri = f"plain://{host}:{self.server.sockets[0].getsockname()[1]}"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.spawn(partial(self.transport.accepted_class, reader, writer, self.expose))
        except WorkerStopped:
            writer.transport.abort()

    def on_stop(self) -> None:
        self.server.close()


class PlainListener(Listener):
    def __init__(self, node: Node, door: Door) -> None:
        self.node, self.door = node, door
        self._address = door.address

    @property
    def uri(self) -> str:
        return self.door.uri

    @property
    def address(self) -> Address:
        return self._address

    async def close(self) -> None:
        if self.node.has(self.address):
            await self.node.stop_worker(self.address)


class PlainTransport(Transport):
    scheme: ClassVar[str] = "plain"
    dialled_class: ClassVar[type[PlainLink]] = PlainLink
    accepted_class: ClassVar[type[PlainLink]] = PlainLink
    door_class: ClassVar[type[Door]] = Door

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        place_of(uri, **options)
        door = self.door_class(self, uri, expose)
        await self.node.start(lambda: door)
        return PlainListener(self.node, door)

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        try:
            reader, writer = await asyncio.open_connection(*place_of(uri, **options))
        except OSError as error:
            raise LinkDown(uri, str(error)) from error
        return await self.dialled(reader, writer, expose)

    async def dialled(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, expose: frozenset[Address]
    ) -> Address:
        try:
            return await self.node.start(partial(self.dialled_class, reader, writer, expose))
        except BaseException:
            writer.transport.abort()
            raise

    async def stop(self) -> None:
        """Do nothing: all there is are workers, and the node has stopped them."""


def place_of(uri: str, **options: Any) -> tuple[str, int]:
    """Read a URI, and refuse options."""
    if options:
        raise TypeError(f"no such option: {', '.join(options)}")
    scheme, _, place = uri.partition("://")
    host, _, port = place.rpartition(":")
    if scheme != "plain" or not host or not port.isdigit():
        raise ValueError(f"{uri!r} is not plain://host:port")
    return host, int(port)
