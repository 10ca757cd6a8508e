"""RSocket over WebSocket, seen from the client: one binary message is one frame.

Between the socket and the connection: to the loop it is a protocol, to the connection a
transport. The connection reads and writes a stream of frames with their lengths; here each
becomes a message without it, and back. The WebSocket itself is the state machine of the
`websockets` package, which has no I/O.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from ...protocol.rsocket import LENGTH_SIZE

if TYPE_CHECKING:
    from ._link import ClientLink
    from ._options import Place

__all__ = ["WebSocketBridge", "dial_websocket"]


async def dial_websocket(place: Place, link: ClientLink) -> None:
    """Connect, and do the opening handshake.

    Raises:
        OSError: Nobody is there, or it is no WebSocket.
    """
    loop = asyncio.get_running_loop()
    host = f"[{place.host}]" if ":" in place.host else place.host
    uri = parse_uri(f"ws://{host}:{place.port}{place.path}")
    # No extension is offered: what is compressed could grow to anything.
    wire = ClientProtocol(uri, max_size=link.options.max_frame)
    bridge = WebSocketBridge(wire, link)
    try:
        await loop.create_connection(lambda: bridge, place.host, place.port)
        await bridge.opened
    except BaseException:
        bridge.give_up()
        raise


class WebSocketBridge(asyncio.Transport, asyncio.Protocol):
    """What the connection has as its transport, and the socket as its protocol.

    Attributes:
        opened: Done once the handshake is over; an `OSError` if it failed.

    Args:
        wire: The state machine of the WebSocket.
        link: The connection.
    """

    def __init__(self, wire: ClientProtocol, link: ClientLink) -> None:
        super().__init__()
        self.opened: asyncio.Future[None] = link.loop.create_future()
        self._wire = wire
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._message = bytearray()

    # --- from the socket ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._wire.send_request(self._wire.connect())
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take messages out of what has come, and hand them on together."""
        self._wire.receive_data(data)
        parts: list[bytes] = []
        for event in self._wire.events_received():
            if isinstance(event, Response):
                self._on_response()
            else:
                self._on_frame(cast(Frame, event), parts)
        self._send()
        if parts:
            self._link.data_received(b"".join(parts))
        if self._wire.handshake_exc is not None:
            self._on_response()
        elif self._wire.state is not State.OPEN:
            self.close()

    def _on_response(self) -> None:
        """End the handshake: it went well, or not."""
        if self.opened.done():
            return
        error = self._wire.handshake_exc
        if error is None:
            self.opened.set_result(None)
            self._link.connection_made(self)
            return
        self.opened.set_exception(ConnectionRefusedError(f"no WebSocket: {str(error)[:200]}"))
        self._close_socket()

    def _on_frame(self, frame: Frame, parts: list[bytes]) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._message += frame.data
            if frame.fin:
                parts += (len(self._message).to_bytes(LENGTH_SIZE), bytes(self._message))
                self._message = bytearray()
        elif frame.opcode is Opcode.TEXT:
            self._wire.fail(1003, "RSocket frames are binary messages")

    def eof_received(self) -> bool:
        """Let the socket close."""
        self._wire.receive_eof()
        if self.opened.done():
            self._link.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        self._transport = None
        opened = self.opened
        if not opened.done():
            opened.set_exception(ConnectionResetError("closed in the handshake"))
        elif not opened.cancelled() and opened.exception() is None:
            self._link.connection_lost(exc)

    def give_up(self) -> None:
        """Close at once, as nobody waits for the handshake any more."""
        self.opened.cancel()
        self.abort()

    def pause_writing(self) -> None:
        """Pass it on."""
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._link.resume_writing()

    # --- from the connection ----------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send frames, each as a message. Whole frames only, as the connection writes them."""
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
                # An empty one asks for the end of the stream; TCP alone would do for that.
                if data:
                    self._transport.write(data)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for the socket."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when to pause the connection."""
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def close(self) -> None:
        """Send what is waiting and a Close, and close the socket when it is written."""
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
