"""WebSocket clients without sockets: frames by hand, as RFC 6455 says they are made."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any, cast

from onward.transports.rsocket._listener import RSocketListener
from tests.support.rsocket_peer import MemoryLoop, MemoryTransport

__all__ = [
    "BINARY",
    "CLOSE",
    "CONT",
    "KEY",
    "PING",
    "PONG",
    "TEXT",
    "WebSocketPeer",
    "accept_of",
    "close_code",
    "handshake",
    "messages",
    "ws_frame",
    "ws_split",
]

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = base64.b64encode(bytes(range(16))).decode()
MASK = b"\x11\x22\xa3\xf4"


def handshake(path: str = "/", *more: str, key: str = KEY, host: str = "broker.example") -> bytes:
    """Return the request that opens a WebSocket, with more headers."""
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *more,
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def accept_of(key: str = KEY) -> str:
    """Return what a server has to answer to a key (section 1.3)."""
    told = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    return base64.b64encode(hashlib.sha1(told.encode()).digest()).decode()


def ws_frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    mask: bytes | None = MASK,
    reserved: int = 0,
    length: int | None = None,
) -> bytes:
    """Return a frame made of its fields, right or wrong (section 5.2)."""
    size = len(payload) if length is None else length
    masked = 0 if mask is None else 0x80
    head = bytes((fin << 7 | reserved << 4 | opcode,))
    if size < 126:
        head += bytes((masked | size,))
    elif size < 0x10000:
        head += bytes((masked | 126,)) + size.to_bytes(2)
    else:
        head += bytes((masked | 127,)) + size.to_bytes(8)
    if mask is None:
        return head + payload
    # All at once: a byte at a time would take seconds for a megabyte.
    pad = (mask * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload) ^ int.from_bytes(pad)
    return head + mask + mixed.to_bytes(len(payload))


def messages(*frames: bytes) -> bytes:
    """Return RSocket frames, each with its length before it, as messages of a client."""
    for each in frames:
        assert int.from_bytes(each[:3]) == len(each) - 3
    return b"".join(ws_frame(BINARY, each[3:]) for each in frames)


def ws_split(data: bytes | bytearray) -> list[tuple[int, bytes]]:
    """Return opcode and payload of each frame of a server."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        head, size = data[at], data[at + 1]
        assert head & 0xF0 == 0x80, "no fragments, no reserved bits"
        at += 2
        if size == 126:
            size, at = int.from_bytes(data[at : at + 2]), at + 2
            assert size > 125
        elif size == 127:
            size, at = int.from_bytes(data[at : at + 8]), at + 8
            assert size > 0xFFFF
        assert size <= len(data) - at, "not masked, and whole"
        found.append((head & 0x0F, bytes(data[at : at + size])))
        at += size
    return found


def close_code(frames: list[tuple[int, bytes]]) -> int:
    """Return the code of the Close that the last frame is."""
    opcode, payload = frames[-1]
    assert opcode == CLOSE
    return int.from_bytes(payload[:2])


class WebSocketPeer:
    """The other end of a connection to a listener for WebSockets."""

    def __init__(self, listener: RSocketListener, name: object = ("10.0.0.7", 7)) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MemoryLoop)
        self.loop = loop
        port = int(listener.uri.split(":")[2].partition("/")[0])
        protocol = cast(asyncio.Protocol, loop.servers[port]())
        self.transport = MemoryTransport(loop, protocol, name)
        protocol.connection_made(self.transport)

    def send(self, *data: bytes) -> None:
        """Send bytes that arrive in one piece."""
        self.transport.unread.append(b"".join(data))
        self.transport.feed()

    async def raw(self, *data: bytes) -> bytes:
        """Send, let everything happen, and return the bytes that have come since."""
        if data:
            self.send(*data)
        await self.loop.idle()
        came = bytes(self.transport.delivered)
        self.transport.delivered.clear()
        return came

    async def open(self, *more: str, path: str = "/") -> None:
        """Make the handshake."""
        answer = (await self.raw(handshake(path, *more))).decode()
        assert answer.startswith("HTTP/1.1 101 "), answer
        assert f"\r\nSec-WebSocket-Accept: {accept_of()}\r\n" in answer
        assert "extensions" not in answer.lower()

    async def frames(self, *data: bytes) -> list[tuple[int, bytes]]:
        """Send, and return the WebSocket frames that have come since."""
        return ws_split(await self.raw(*data))

    async def ask(self, *frames: bytes) -> list[bytes]:
        """Send RSocket frames as messages, and return those that have come since."""
        return self.rsocket(await self.frames(messages(*frames)))

    def rsocket(self, frames: list[tuple[int, bytes]]) -> list[bytes]:
        """Return the RSocket frames that are the messages, with their length before them."""
        assert {opcode for opcode, _ in frames} <= {BINARY}
        return [len(payload).to_bytes(3) + payload for _, payload in frames]

    @property
    def protocol(self) -> Any:
        """What has the socket now."""
        return self.transport._protocol

    @property
    def closed(self) -> bool:
        """Whether the broker has closed the socket."""
        return self.transport.lost
