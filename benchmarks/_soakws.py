"""The part of a WebSocket client (RFC 6455) that a peer of raw frames needs.

Each RSocket frame is a binary message, without the length that precedes it over TCP.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from _wire import frames_of

__all__ = ["WebSocket"]

BINARY, CLOSE, PING, PONG = 0x82, 0x88, 0x89, 0x8A
MASKED: Final = 0x80
NO_MASK: Final = bytes(4)
"""A client has to mask its frames. A mask of zeros changes nothing."""
END_OF_HEAD: Final = b"\r\n\r\n"


class WebSocket(asyncio.Protocol):
    """An adapter between a connection and a protocol of frames with lengths.

    It is the transport of the protocol, with the methods that are used.

    Args:
        protocol: The receiver of the frames.
        host: The server's name.
    """

    def __init__(self, protocol: asyncio.Protocol, host: str) -> None:
        self._protocol = protocol
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._open = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(
            f"GET / HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self._open:
            head, mark, data = data.partition(END_OF_HEAD)
            if not mark:
                self._rest = head
                return
            if b" 101 " not in head.partition(b"\r\n")[0]:
                raise ConnectionError(f"the broker takes no WebSocket: {head!r}")
            self._open = True
            self._protocol.connection_made(cast(asyncio.Transport, self))
        self._rest = self._take(data)

    def _take(self, data: bytes) -> bytes:
        """Pass the whole messages in the data to the protocol, and return the rest."""
        found = bytearray()
        at = 0
        while len(data) - at >= 2:
            kind, size, start = data[at], data[at + 1], at + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                size, start = int.from_bytes(data[start : start + width]), start + width
            if start > len(data) or start + size > len(data):
                break
            body, at = data[start : start + size], start + size
            if kind == BINARY:
                found += len(body).to_bytes(3) + body
            elif kind == PING:
                self._send(PONG, body)
            elif kind != CLOSE:
                raise ConnectionError(f"a WebSocket frame of kind {kind:#x}")
        if found:
            self._protocol.data_received(bytes(found))
        return data[at:]

    def write(self, data: bytes) -> None:
        """Send whole frames, each in its own message."""
        for _, _, start, end in frames_of(data):
            self._send(BINARY, data[start - 6 : end])

    def close(self) -> None:
        """Send a close frame, and close the connection."""
        self._send(CLOSE, b"\x03\xe8")
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection without a close frame."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self, kind: int, body: bytes) -> None:
        size = len(body)
        if size < 126:
            length = bytes([MASKED | size])
        elif size < 1 << 16:
            length = bytes([MASKED | 126]) + size.to_bytes(2)
        else:
            length = bytes([MASKED | 127]) + size.to_bytes(8)
        if self._transport is not None:
            self._transport.write(bytes([kind]) + length + NO_MASK + body)
