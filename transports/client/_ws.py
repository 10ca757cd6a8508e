"""RSocket over WebSocket for the client: one binary message is one frame.

A bridge is the protocol of the socket and the transport of the connection. The connection reads
and writes a stream of frames with their lengths; the bridge converts them to messages without
lengths, and back. The state machine of the WebSocket is that of the `websockets` package.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, State

from ...protocol.rsocket import LENGTH_SIZE

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["WebSocketBridge"]


class WebSocketBridge(asyncio.Transport, asyncio.Protocol):
    """The transport of a connection and the protocol of its socket.

    Args:
        transport: The socket.
        wire: The state machine of the WebSocket, open.
        link: The connection.
    """

    def __init__(self, transport: asyncio.Transport, wire: Protocol, link: ClientLink) -> None:
        super().__init__()
        wire.max_message_size = link.options.max_frame
        self._wire = wire
        self._link = link
        self._transport: asyncio.Transport | None = transport
        self._message = bytearray()

    # --- from the socket ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse the messages of a read, and hand them on together."""
        self._wire.receive_data(data)
        parts: list[bytes] = []
        for event in self._wire.events_received():
            if isinstance(event, Frame):  # and not the response to the opening handshake
                self._on_frame(event, parts)
        self._send()
        if parts:
            self._link.data_received(b"".join(parts))
        if self._wire.state is not State.OPEN:
            self.close()

    def _on_frame(self, frame: Frame, parts: list[bytes]) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._message += frame.data
            if frame.fin:
                parts += (len(self._message).to_bytes(LENGTH_SIZE), bytes(self._message))
                self._message = bytearray()
        elif frame.opcode is Opcode.TEXT:
            self._wire.fail(1003, "RSocket frames are binary messages")

    def eof_received(self) -> bool:
        """Pass the end of the input to the connection; return False to close the socket."""
        self._wire.receive_eof()
        self._link.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss of the socket to the connection."""
        self._transport = None
        self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause the connection's writing."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Resume the connection's writing."""
        self._link.resume_writing()

    # --- from the connection ----------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send whole frames, each as a message."""
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end and self._wire.state is State.OPEN:
            start = at + LENGTH_SIZE
            at = start + int.from_bytes(view[at:start])
            self._wire.send_binary(bytes(view[start:at]))
        self._send()

    def _send(self) -> None:
        if self._transport is not None:
            for data in self._wire.data_to_send():
                # An empty item asks for a half-close of the TCP connection, which is not used.
                if data:
                    self._transport.write(data)

    def get_write_buffer_size(self) -> int:
        """Return the socket's backlog in bytes."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the backlog above which writing is paused, and below which it is resumed."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def close(self) -> None:
        """Send a Close, and close the socket once the backlog is written."""
        if self._wire.state is State.OPEN:
            self._wire.send_close(1000)
            self._send()
        self._close_socket()

    def _close_socket(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the socket at once."""
        if self._transport is not None:
            self._transport.abort()
