"""HTTP peers for tests of the admin interface: raw bytes on a socket, and what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from onward.actors import Node
from onward.transports.admin import AdminOptions, AdminPaths, AdminServer

__all__ = ["Answer", "HttpPeer", "Served", "answers_of", "serving"]

URI = "http://127.0.0.1:0"


@dataclass(frozen=True)
class Answer:
    """An answer as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpPeer:
    """The other end of an HTTP connection, driven byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def reset(self) -> None:
        """Reset the connection, as a process that is killed with input unread."""
        end = self.writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def get(self, path: str, *fields: str, method: str = "GET") -> Answer:
        """Send a request without a body, and return its answer."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]
        self.write("\r\n".join(lines).encode())
        return await self.answer(head=method == "HEAD")

    async def post(self, path: str, body: bytes = b"{}", *fields: str) -> Answer:
        """Send JSON, and return the answer."""
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: localhost",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *fields,
            "",
            "",
        ]
        self.write("\r\n".join(lines).encode() + body)
        return await self.answer()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Read status and fields of an answer."""
        async with asyncio.timeout(10):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict[str, str]()
        for line in filter(None, lines[1:]):
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        return int(lines[0].split()[1]), fields

    async def part(self) -> bytes:
        """Read a part of a chunked body; empty at its end."""
        async with asyncio.timeout(10):
            size = int(await self.reader.readline(), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def answer(self, *, head: bool = False) -> Answer:
        """Read a whole answer."""
        status, fields = await self.head()
        if head:
            return Answer(status, fields, b"")
        if "content-length" in fields:
            async with asyncio.timeout(10):
                body = await self.reader.readexactly(int(fields["content-length"]))
            return Answer(status, fields, body)
        parts: list[bytes] = []
        while part := await self.part():
            parts.append(part)
        return Answer(status, fields, b"".join(parts))

    async def closed(self) -> bytes:
        """Read up to the end of the connection, and return what was left."""
        rest = b""
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                while data := await self.reader.read(65536):
                    rest += data
        return rest


@contextlib.asynccontextmanager
async def serving(
    paths: AdminPaths, uri: str = URI, options: AdminOptions | None = None, **more: Any
) -> AsyncGenerator[Served]:
    """Start a node with an admin interface; leave no peer behind."""
    async with Node("served") as node:
        server = AdminServer(uri, paths, options or AdminOptions(), **more)
        await node.start(lambda: server, address="admin")
        served = Served(node, server)
        try:
            yield served
        finally:
            for peer in served.peers:
                peer.writer.transport.abort()
    await asyncio.sleep(0)


class Served:
    """A node with an admin interface, and its peers."""

    def __init__(self, node: Node, server: AdminServer) -> None:
        self.node = node
        self.server = server
        self.port = int(server.uri.rpartition(":")[2]) if "://127" in server.uri else 0
        self.peers: list[HttpPeer] = []

    async def connect(self, **more: Any) -> HttpPeer:
        """Connect a peer."""
        if self.server.uri.startswith("unix:"):
            path = self.server.uri.removeprefix("unix://")
            ends = await asyncio.open_unix_connection(path)
        else:
            ends = await asyncio.open_connection("127.0.0.1", self.port, **more)
        peer = HttpPeer(*ends)
        self.peers.append(peer)
        return peer


async def answers_of(served: Served, raw: bytes) -> bytes:
    """Send bytes on a connection of their own, and return all that comes until its end."""
    peer = await served.connect()
    peer.write(raw)
    return await peer.closed()
