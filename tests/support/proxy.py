"""Headers of the PROXY protocol, and a proxy that sends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from ipaddress import ip_address

from onward.transports.streams._proxy_protocol import SIGNATURE

__all__ = ["LOCAL", "UNKNOWN", "header", "header_of", "proxy_to"]


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
