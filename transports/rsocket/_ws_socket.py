"""RSocket over WebSocket, after the handshake.

RSocket's "WebSocket" transport has one frame in one binary message, without the length that
precedes it in a stream of bytes. A connection reads and writes a stream of bytes. A `FrameSocket`
is the protocol of the socket and the transport of the connection. Messages of one read reach the
connection together, as over TCP.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from websockets.frames import CloseCode, Opcode

from ..streams._ws_frames import FrameReader, frame, header_of
from ..streams._ws_stream import WebSocketStream
from ._flow import BULK, TURN

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["FrameSocket", "WebSocket", "join_websocket"]


class FrameSocket(WebSocketStream):
    """A WebSocket with one RSocket frame in each message."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send frames, each preceded by its length, as messages."""
        if self._closing:
            return
        # A slice of a view costs more than one of bytes, but copies nothing.
        source = memoryview(data) if len(data) >= BULK else data
        size = len(data)
        parts: list[bytes | bytearray | memoryview] = []
        add = parts.append
        at = 0
        while at < size:
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            at += 3
            if self._client:
                add(frame(Opcode.BINARY, bytes(source[at : at + length]), self._mask()))
            else:
                add(header_of(length))
                add(source[at : at + length])
            at += length
        self._transport.write(b"".join(parts))


class WebSocket(FrameSocket):
    """The WebSocket of a connection of the broker.

    Args:
        transport: The socket.
        link: The connection; the caller calls its `connection_made`.
    """

    def __init__(self, transport: asyncio.Transport, link: Link) -> None:
        # The first message is a SETUP, from an unknown peer.
        limits = link.options.connection
        reader = FrameReader(masked=True, limit=limits.max_frame, first_limit=limits.max_setup)
        super().__init__(transport, link, reader, client=False)
        self._link = link
        link.in_turns = True  # messages of one read are handed on together
        self._unfinished = link.shared.unfinished
        self._loop = link.node.loop
        self._kept = 0
        self._since = 0.0

    def data_received(self, data: bytes) -> None:
        """Parse the messages of one turn, and hand them on together."""
        reader, link = self._reader, self._link
        if reader.over:
            return
        if self._closing:
            data = link.take_later() + data  # to find the Close, without turns
        elif len(data) > TURN:
            data = link.first_turn(data, reader.reach, self.data_received)
        super().data_received(data)
        if not self._closing:
            self._note()

    def _note(self) -> None:
        """Record the bytes kept of unfinished frames and messages, and their time."""
        kept = self._reader.kept
        if not kept:
            self._forget()
            return
        if self._reader.fresh or not self._kept:
            self._since = self._loop.time()
        self._kept = kept
        self._unfinished.note(self._link, kept, self._since)

    def _forget(self) -> None:
        """Record that no bytes are kept."""
        if self._kept:
            self._kept = 0
            self._unfinished.note(self._link, 0, 0.0)

    def _fail(self, code: CloseCode, text: str) -> None:
        """Close the connection, with its ERROR before the Close."""
        if self._closing:
            self._transport.close()
        else:
            self._broken(text)
            self.close()

    def _broken(self, text: str) -> None:
        self._link.close("broken frame", text)

    def _last_word(self) -> tuple[int, str]:
        code, text = super()._last_word()
        if code == CloseCode.NORMAL_CLOSURE and self._link.closed_reason == "stopped":
            return CloseCode.GOING_AWAY, ""
        return code, text

    def close(self) -> None:
        """Send Close, and close the socket after the peer's Close.

        The connection cuts it if that takes longer than `drain_timeout`.
        """
        self._forget()
        super().close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss of the socket to the connection."""
        self._forget()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the socket at once."""
        self._forget()
        super().abort()


def join_websocket(transport: asyncio.Transport, link: Link, client: bool) -> WebSocket:
    """Return the WebSocket of a connection that a broker has accepted."""
    if client:
        raise AssertionError("a broker does not connect")
    return WebSocket(transport, link)
