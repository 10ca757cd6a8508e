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

from ..streams._ws_frames import WebSocketFrameReader, frame, header_of
from ..streams._ws_stream import WebSocketStream
from ._connection import TURN
from ._flow import BULK

if TYPE_CHECKING:
    from ._connection import RSocketConnection

__all__ = ["FrameSocket", "give_up"]


class FrameSocket(WebSocketStream):
    """The WebSocket of a connection, with one RSocket frame in each message.

    Args:
        transport: The socket.
        connection: The connection; the caller calls its `connection_made`.
        client: Whether this is the connecting side.
    """

    def __init__(
        self, transport: asyncio.Transport, connection: RSocketConnection, client: bool
    ) -> None:
        limits = connection.core.limits
        # The first message to a server is a SETUP, from an unknown peer.
        first = limits.max_frame if client else limits.max_setup
        # Max Frame Size: "RSocket Frames (Header + Payload) MUST be limited to 16,777,215 bytes,
        # regardless of whether the utilized transport protocol requires the Frame Length field."
        reader = WebSocketFrameReader(masked=not client, limit=limits.max_frame, first_limit=first)
        super().__init__(transport, connection, reader, client=client)
        self._connection = connection
        connection.in_turns = True  # messages of one read are handed on together
        self._kept = 0
        self._since = 0.0

    # --- from the socket ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse the messages of one turn, and hand them on together."""
        reader, connection = self._reader, self._connection
        if reader.over:
            return
        if self._closing:
            data = connection.take_later() + data  # to find the Close, without turns
        elif len(data) > TURN:
            data = connection.first_turn(data, reader.reach, self.data_received)
        super().data_received(data)
        if not self._closing:
            self._note()

    def pass_to(self, connection: RSocketConnection) -> None:
        """Give the socket to another connection, from the next read on."""
        self._forget()
        connection.in_turns = True
        self._connection = connection
        self._inner = connection

    def detach(self) -> None:
        """Cut the socket, without a word to the connection."""
        self.abort()
        self._inner = asyncio.Protocol()

    def _note(self) -> None:
        """Record the bytes kept of unfinished frames and messages, and their time."""
        kept = self._reader.kept
        if not kept or self._transport.is_closing():
            self._forget()
            return
        if self._reader.fresh or not self._kept:
            self._since = self._connection.time()
        self._kept = kept
        self._connection.note_kept(kept, self._since)

    def _forget(self) -> None:
        """Record that no bytes are kept."""
        if self._kept:
            self._kept = 0
            self._connection.note_kept(0, 0.0)

    def _fail(self, code: CloseCode, text: str) -> None:
        """Close the connection, with its ERROR before the Close."""
        if self._closing:
            self._transport.close()
        else:
            self._broken(text)
            self.close()

    def _broken(self, text: str) -> None:
        self._connection.close("broken frame", text)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss of the socket to the connection, for which messages may still be parsed."""
        self._forget()
        self._paused = True  # no Ping is answered
        self._inner.connection_lost(exc)

    # --- from the connection --------------------------------------------------------------

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
            # Framing Protocol Usage: "The frame length field MUST be omitted if the transport
            # protocol preserves message boundaries e.g. provides compatible framing."
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            at += 3
            if self._client:
                add(frame(Opcode.BINARY, bytes(source[at : at + length]), self._mask()))
            else:
                add(header_of(length))
                add(source[at : at + length])
            at += length
        self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Send Close, and close the socket after the peer's Close.

        The connection cuts it if that takes longer than its `drain_timeout`.
        """
        self._forget()
        super().close()

    def _last_word(self) -> tuple[int, str]:
        code, text = super()._last_word()
        if code == CloseCode.NORMAL_CLOSURE and self._connection.closed_reason == "stopped":
            return CloseCode.GOING_AWAY, ""
        return code, text

    def abort(self) -> None:
        """Close the socket at once."""
        self._forget()
        super().abort()


def give_up(transport: asyncio.Transport) -> None:
    """Cut a socket, so that its connection is not notified of anything on it any more."""
    if isinstance(transport, FrameSocket):
        transport.detach()
    else:
        transport.set_protocol(asyncio.Protocol())
        transport.abort()
