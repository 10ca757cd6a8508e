"""TCP for tests: nodes that listen, and the other end of a socket, driven byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, cast

from onward.actors import Node
from onward.protocol import Message
from onward.protocol.ockam import PREAMBLE, WireConnection
from onward.transports import (
    Backoff,
    LinkStatistics,
    StreamListener,
    TcpListener,
    TcpTransport,
)
from onward.transports.streams._options import parse_uri

FAST = Backoff(first=0.001, longest=0.001)


async def listening(node: Node, *expose: str, port: int = 0, **options: Any) -> TcpListener:
    listener = await node.listen(f"tcp://127.0.0.1:{port}", expose=expose, **options)
    return cast(TcpListener, listener)


def peer_of(listener: TcpListener) -> str:
    return listener.uri.removeprefix("tcp://")


def tcp_of(node: Node) -> TcpTransport:
    return cast(TcpTransport, node.transport("tcp://"))


def link_of(node: Node) -> LinkStatistics:
    (link,) = tcp_of(node).statistics()
    return link


@contextlib.asynccontextmanager
async def raw(
    listener: StreamListener, *sent: bytes
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a listener for TCP, and send some bytes."""
    reader, writer = await asyncio.open_connection(*parse_uri(listener.uri, "tcp"))
    for data in sent:
        writer.write(data)
    try:
        yield reader, writer
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the end of a connection."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
    return b""


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


class Peer:
    """The other end of a socket, driven by the test byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.wire = WireConnection()

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def greeted(self) -> Peer:
        self.write(PREAMBLE)
        assert await self.reader.readexactly(1) == PREAMBLE
        self.wire.receive_data(PREAMBLE)
        self.wire.data_to_send()
        return self

    def send(self, message: Message) -> None:
        self.wire.send(message)
        self.write(self.wire.data_to_send())

    async def receive(self) -> Message:
        async with asyncio.timeout(5):
            size = await self.reader.readexactly(4)
            body = await self.reader.readexactly(int.from_bytes(size))
        (message,) = self.wire.receive_data(size + body)
        return message

    async def closed(self) -> None:
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass


@contextlib.asynccontextmanager
async def dialled(listener: TcpListener) -> AsyncGenerator[Peer]:
    """A foreign client of a listener."""
    reader, writer = await asyncio.open_connection(*parse_uri(listener.uri, "tcp"))
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Server:
    """A foreign server: the test gets each connection as a `Peer`."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.port = 0
        self._all: list[Peer] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Server:
        await self.open()
        return self

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._met, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for peer in self._all:
            peer.writer.close()
            with contextlib.suppress(ConnectionError):
                await peer.writer.wait_closed()
        self._all.clear()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def next(self) -> Peer:
        async with asyncio.timeout(5):
            return await self.peers.get()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is not None and not self._server.is_serving():
            writer.transport.abort()  # accepted just before the end
            return
        peer = Peer(reader, writer)
        self._all.append(peer)
        self.peers.put_nowait(peer)

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"
