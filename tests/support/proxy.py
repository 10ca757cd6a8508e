"""Headers of the PROXY protocol, and a proxy that sends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from ipaddress import ip_address
from typing import Any

from onward.transports.streams._proxy_protocol import SIGNATURE

__all__ = ["LOCAL", "UNKNOWN", "CuttingProxy", "header", "header_of", "proxy_to"]


def header(command: int, kind: int, body: bytes = b"", *, size: int | None = None) -> bytes:
    """A header of a version and command, a family and protocol, and addresses."""
    length = len(body) if size is None else size
    return SIGNATURE + bytes((command, kind)) + length.to_bytes(2) + body


def header_of(host: str, port: int, more: bytes = b"") -> bytes:
    """The header of a stream from this address."""
    source = ip_address(host)
    target = ip_address("192.0.2.1") if source.version == 4 else ip_address("2001:db8::1")
    ports = port.to_bytes(2) + (443).to_bytes(2)
    kind = 0x11 if source.version == 4 else 0x21
    return header(0x21, kind, source.packed + target.packed + ports + more)


LOCAL = header(0x20, 0x00)
UNKNOWN = header(0x21, 0x00)


@contextlib.asynccontextmanager
async def proxy_to(where: int | str, head: bytes) -> AsyncGenerator[int]:
    """Run a proxy to a port or a Unix socket, which sends a header first; yields its port."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(where, str):
            far, to_far = await asyncio.open_unix_connection(where)
        else:
            far, to_far = await asyncio.open_connection("127.0.0.1", where)
        to_far.write(head)
        await asyncio.gather(copy(reader, to_far), copy(far, writer))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class CuttingProxy:
    """A proxy that cuts its first connection after a number of bytes, and passes on all others.

    Attributes:
        port: The port that it listens at.
        passed: Bytes passed on in the first connection, of both directions together.
        connections: Connections accepted.
        refuses: Whether it closes further connections at once.

    Args:
        where: The port to pass connections on to.
        cut_at: The number of bytes; -1: it cuts nothing.
    """

    def __init__(self, where: int, cut_at: int = -1) -> None:
        self.port = 0
        self.passed = 0
        self.connections = 0
        self.refuses = False
        self._open: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over = False
        self._where = where
        self._cut_at = cut_at

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[CuttingProxy]:
        """Run it. At the end its connections are cut, and their tasks have ended."""
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._over = True
            server.close()
            self.cut()
            # One that is cancelled, with the loop, would be logged as an error of a callback.
            await asyncio.gather(*self._tasks)

    def cut(self) -> None:
        """Cut all connections that are open."""
        for end in self._open:
            end.transport.abort()
        self._open.clear()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses or self._over:
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        first = self.connections == 1
        ends = [writer]
        self._open.append(writer)
        try:
            far, to_far = await asyncio.open_connection("127.0.0.1", self._where)
            ends.append(to_far)
            self._open.append(to_far)
            if self._over:
                return
            copies = (self._copy(reader, to_far, ends, first), self._copy(far, writer, ends, first))
            await asyncio.gather(*copies)
        except OSError:
            pass  # the broker, or the client, has gone
        finally:
            for end in ends:
                end.close()

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: list[asyncio.StreamWriter],
        first: bool,
    ) -> None:
        while data := await reader.read(1 << 16):
            left = self._cut_at - self.passed
            cut = first and 0 <= left <= len(data)
            writer.write(data[:left] if cut else data)
            if first:
                self.passed += min(left, len(data)) if cut else len(data)
            with contextlib.suppress(OSError):
                await writer.drain()
            if cut:
                for end in ends:
                    end.transport.abort() if end is not writer else end.close()
                return
        writer.close()
