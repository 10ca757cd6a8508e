"""Hostile bytes for listeners, at every layer of a protocol.

Bytes in place of a handshake test only that handshake. So each layer, TLS, the WebSocket and the
preamble, is also opened correctly, and the bytes are sent above it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import suppress
from struct import pack
from typing import Final
from urllib.parse import unquote_to_bytes

from ...protocol.ockam import PREAMBLE, split_message
from ..streams._options import parse_endpoint, parse_uri

__all__ = ["to_datagrams", "to_stream"]

_DATAGRAM: Final = 60_000
_GOODBYE: Final = 1.0  # seconds for the peer to close too

_REQUEST: Final = (
    "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def to_stream(uri: str, data: bytes) -> None:
    """Connect, write the bytes at one layer and disconnect; once for each layer."""
    scheme = uri.partition("://")[0]
    web = scheme in {"ws", "wss"}
    if scheme in {"tls", "wss"}:
        await _write(uri, data, secure=False, web=False)
    secure = scheme in {"tls", "wss"}
    if web:
        await _write(uri, data, secure=secure, web=False)
        await _write(uri, data, secure=secure, web=True)
    for written in _on_the_wire(data):
        await _write(uri, _binary(written) if web else written, secure=secure, web=web)


def _on_the_wire(data: bytes) -> Iterator[bytes]:
    """Yield bytes in place of the preamble, of a frame, and of a message."""
    yield data
    yield PREAMBLE + data
    yield PREAMBLE + pack(">I", len(data)) + data


def _binary(content: bytes) -> bytes:
    """Return a binary message of a WebSocket, with a mask that changes nothing."""
    return b"\x82\xff" + pack(">Q", len(content)) + bytes(4) + content


async def _write(uri: str, data: bytes, *, secure: bool, web: bool) -> None:
    """Write bytes above the layers asked for; stop if the listener refuses the connection.

    Raises:
        AssertionError: The response to an opening handshake is wrong.
        OSError: There is no listener.
    """
    try:
        reader, writer = await _open(uri, secure=secure)
    except ssl.SSLError:
        return
    with suppress(OSError, EOFError):
        try:
            if web:
                await _shake_hands(uri, reader, writer)
            writer.write(data)
            await writer.drain()
            if writer.can_write_eof():  # wait, as a listener may not read from a peer that has gone
                writer.write_eof()
                async with asyncio.timeout(_GOODBYE):
                    await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


async def _open(uri: str, *, secure: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    scheme, _, rest = uri.partition("://")
    if scheme == "uds":
        return await asyncio.open_unix_connection(os.fsdecode(unquote_to_bytes(rest)))
    host, port = parse_endpoint(rest.partition("/")[0])
    if not secure:
        return await asyncio.open_connection(host, port)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # a hostile client checks no certificate
    return await asyncio.open_connection(host, port, ssl=context, ssl_shutdown_timeout=_GOODBYE)


async def _shake_hands(
    uri: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    host, _, path = uri.partition("://")[2].partition("/")
    writer.write(_REQUEST.format(host=host, path=path).encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 101 "):
        raise AssertionError(f"the opening handshake was answered with {answer[:64]!r}")


async def to_datagrams(uri: str, data: bytes) -> None:
    """Send the bytes as one datagram, as far as they fit, and as a message in parts."""
    where = parse_uri(uri, "udp")
    loop = asyncio.get_running_loop()
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=where)
    data = data[:_DATAGRAM]
    for datagram in (data, *split_message(data, 0)):
        sender.sendto(datagram)
    sender.close()
