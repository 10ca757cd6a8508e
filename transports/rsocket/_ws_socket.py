"""An RSocket connection over WebSocket, after the handshake.

RSocket's "WebSocket" transport has one frame in one binary message, without the length that
precedes it in a stream of bytes. A `Link` reads and writes a stream of bytes. A `WebSocket` is
the protocol of the socket and the transport of the link. Messages of one read reach the link
together, as over TCP.

A WebSocket frame that is a whole binary message is parsed here; that is the path of a relayed
frame. All other frames (pings, fragments, the closing handshake, illegal ones) are left to the
state machine of the `websockets` package. It is given whole frames, and only those with a size
within the limits in their header.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from websockets.frames import CloseCode, Frame as WireFrame, Opcode
from websockets.protocol import Protocol

from ._flow import BULK, TURN

try:
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - where the package was built without its extension
    from websockets.utils import apply_mask

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["WebSocket"]

# RFC 6455 section 5.2: FIN and a binary message, in one byte; the mask bit of a client.
_WHOLE_BINARY: Final = 0x80 | Opcode.BINARY
_FIN: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127
_MOST_OF_CONTROL: Final = 125
_SHORTEST: Final = 6
"""Bytes of an empty frame of a client: two, and the mask."""
_LARGEST_CONTROL: Final = _SHORTEST + _MOST_OF_CONTROL

_unpack_16: Final = Struct(">H").unpack_from
_unpack_64: Final = Struct(">Q").unpack_from
_pack_16: Final = Struct(">BBH").pack
_pack_64: Final = Struct(">BBQ").pack
_HEADERS: Final = tuple(bytes((_WHOLE_BINARY, length)) for length in range(_LENGTH_16))

_KINDS: Final = frozenset({Opcode.CONT, Opcode.BINARY, Opcode.CLOSE, Opcode.PING, Opcode.PONG})


class WebSocket(asyncio.Transport, asyncio.Protocol):
    """The transport of a `Link` and the protocol of its socket.

    Args:
        transport: The socket.
        wire: The state machine of the WebSocket, open.
        link: The connection; the caller calls its `connection_made`.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        wire: Protocol,
        link: Link,
    ) -> None:
        super().__init__()
        self._transport = transport
        self._wire = wire
        self._link = link
        link.in_turns = True  # messages of one read are handed on together
        self._unfinished = link.shared.unfinished
        self._loop = link.node.loop
        # The first message is a SETUP, from an unknown peer.
        self._limit = link.options.connection.max_setup
        self._max_frame = link.options.connection.max_frame
        self._tail = bytearray()  # of a frame that is not whole
        self._needed = 0
        self._skip = 0  # bytes of a frame to discard
        self._message: bytearray | None = None  # the fragments of an unfinished message
        self._kept = 0
        self._since = 0.0
        self._pong = b""  # the answer to the last ping, until it can be sent
        self._paused = False
        self._closing = False
        self._failure = ""
        self._answered = False  # whether the peer has sent Close
        self._farewell = b""  # the Close to send, if the state machine has made it already

    # --- from the socket ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse the messages of a read, and hand them on together."""
        if self._over:
            return  # the rest is ignored
        if self._closing:
            data = self._link.take_later() + data  # to find the Close, without turns
        elif len(data) > TURN:
            data = self._link.first_turn(data, self._reach, self.data_received)
        if self._skip:
            skip = min(self._skip, len(data))
            self._skip -= skip
            data = data[skip:]
        if self._tail:
            self._tail += data
            if len(self._tail) < self._needed:
                self._note(began=False)
                return
            data = bytes(self._tail)
            self._tail.clear()
        parts: list[bytes | bytearray] = []
        began = self._read(data, parts)
        if parts and not self._closing:
            self._link.data_received(b"".join(parts))
        if self._over:
            self._end()
        elif self._closing:
            self._shed()
        else:
            self._note(began=began)
            if self._pong:
                self._send_pong()

    def _reach(self, data: bytes) -> int:
        """Return the length of the frame at the start of some bytes."""
        if self._tail:
            return self._needed - len(self._tail)
        length = data[1] & ~_MASKED
        if length == _LENGTH_16:
            return _SHORTEST + 2 + cast(int, _unpack_16(data, 2)[0])
        if length == _LENGTH_64:
            return _SHORTEST + 8 + cast(int, _unpack_64(data, 2)[0])
        return _SHORTEST + length

    @property
    def _over(self) -> bool:
        """Whether further input is ignored, after a failure or the peer's Close."""
        return bool(self._failure) or self._answered

    def _read(self, data: bytes, parts: list[bytes | bytearray]) -> bool:
        """Parse the whole frames, and keep the rest.

        Args:
            data: The bytes, from the start of a frame on.
            parts: The list to which each message is added, after its length.

        Returns:
            Whether the kept rest, if any, began with this data.
        """
        add = parts.append
        size = len(data)
        at = began = 0
        self._needed = _SHORTEST
        while size - at >= _SHORTEST:
            head = data[at]
            length = data[at + 1] ^ _MASKED
            start = at + _SHORTEST
            if length > _MOST_OF_CONTROL:
                start, length = self._long(data, at, length)
            stop = start + length
            message: bytes | bytearray | None
            if head == _WHOLE_BINARY and self._message is None:
                if length > self._limit:
                    self._too_big()
                    break
                if stop > size:
                    self._needed = stop - at
                    break
                message = apply_mask(data[start:stop], data[start - 4 : start])
            else:
                if not self._check(head, length):
                    break
                if stop > size:
                    self._needed = stop - at
                    break
                message = self._step(data[at:stop])
            at = stop
            if message is not None:
                self._limit = self._max_frame
                add(len(message).to_bytes(3))
                add(message)
            elif self._over:
                break
            if self._message is None:
                began = at
        if at < size and not self._over:
            self._tail += memoryview(data)[at:]
        return began > 0

    def _long(self, data: bytes, at: int, length: int) -> tuple[int, int]:
        """Return the offset and length of the payload of a frame with an extended length."""
        if length == _LENGTH_16:
            return at + _SHORTEST + 2, _unpack_16(data, at + 2)[0]
        start = at + _SHORTEST + 8
        if length == _LENGTH_64:
            # With an incomplete header the frame is longer than the data in any case.
            return start, _unpack_64(data, at + 2)[0] if start <= len(data) else 0
        self._fail(CloseCode.PROTOCOL_ERROR, "a client has to mask its frames")
        return len(data) + 1, 0

    def _check(self, head: int, length: int) -> bool:
        """Check the header of a frame that is not a whole message."""
        kind = head & _OPCODE
        if kind == Opcode.TEXT:
            self._fail(CloseCode.UNSUPPORTED_DATA, "RSocket frames are binary messages")
        elif head & _RESERVED or kind not in _KINDS:
            self._fail(CloseCode.PROTOCOL_ERROR, "reserved bits or an unknown opcode")
        elif kind & _CONTROL:
            if length > _MOST_OF_CONTROL or not head & _FIN:
                self._fail(CloseCode.PROTOCOL_ERROR, "a control frame that is long or in parts")
        elif length + len(self._message or b"") > self._limit:
            self._too_big()
        return not self._failure

    def _step(self, frame: bytes) -> bytearray | None:
        """Feed a frame to the state machine; return the message that it completes, or `None`."""
        wire = self._wire
        wire.receive_data(frame)
        out = b"".join(wire.data_to_send())
        if wire.parser_exc is not None:
            self._failure = str(wire.parser_exc)
            self._farewell = out
            return None
        (event,) = cast("list[WireFrame]", wire.events_received())
        if event.opcode is Opcode.PING:
            # RFC 6455, 5.5.3: of several pings, only the last need be answered.
            self._pong = out
        elif event.opcode is Opcode.CLOSE:
            self._answered = True
            self._farewell = out
        elif event.opcode is not Opcode.PONG:
            message = self._message = self._message or bytearray()
            message += event.data
            if event.fin:
                self._message = None
                return message
        return None

    def _too_big(self) -> None:
        self._fail(CloseCode.MESSAGE_TOO_BIG, f"a message has more than {self._limit} bytes")

    def _fail(self, code: CloseCode, text: str) -> None:
        """Fail the connection, for the first failure; the caller closes."""
        if not self._failure:
            self._failure = text
            self._wire.fail(code, text)
            self._farewell = b"".join(self._wire.data_to_send())

    def _note(self, *, began: bool) -> None:
        """Record the bytes kept of unfinished frames and messages, and their time.

        Args:
            began: Whether all of them arrived just now.
        """
        if self._closing:
            return
        # An empty unfinished message counts as one byte, so that it is timed.
        kept = len(self._tail) + (0 if self._message is None else len(self._message) + 1)
        if not kept:
            self._forget()
            return
        if began or not self._kept:
            self._since = self._loop.time()
        self._kept = kept
        self._unfinished.note(self._link, kept, self._since)

    def _send_pong(self) -> None:
        """Answer the last ping, unless writing is paused."""
        if not self._paused and not self._closing:
            self._transport.write(self._pong)
            self._pong = b""

    def pause_writing(self) -> None:
        """Pause the connection's writing."""
        self._paused = True
        self._link.pause_writing()

    def resume_writing(self) -> None:
        """Resume the connection's writing, and send the pong that waits."""
        self._paused = False
        self._link.resume_writing()
        if self._pong:
            self._send_pong()

    def eof_received(self) -> bool:
        """Pass the end of the input to the connection; return False to close the socket."""
        self._link.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the loss of the socket to the connection."""
        self._closing = True
        self._forget()
        self._link.connection_lost(exc)

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
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            at += 3
            if length < _LENGTH_16:
                add(_HEADERS[length])
            elif length < 0x10000:
                add(_pack_16(_WHOLE_BINARY, _LENGTH_16, length))
            else:
                add(_pack_64(_WHOLE_BINARY, _LENGTH_64, length))
            add(source[at : at + length])
            at += length
        self._transport.write(b"".join(parts))

    def close(self) -> None:
        """Send Close, and close the socket after the peer's Close.

        The connection cuts it if that takes longer than `drain_timeout`.
        """
        if self.is_closing():
            return
        self._closing = True
        self._shed()
        if not self._over:
            stopped = self._link.closed_reason == "stopped"
            self._wire.send_close(CloseCode.GOING_AWAY if stopped else CloseCode.NORMAL_CLOSURE)
            self._farewell = b"".join(self._wire.data_to_send())
        self._transport.write(self._farewell)
        if self._answered:
            self._transport.close()
        else:
            self._transport.resume_reading()

    def _end(self) -> None:
        """Close after the peer's Close or a failure."""
        if self._closing:
            self._transport.close()
        elif self._answered:
            self._link.eof_received()
        else:
            self._link.close("broken frame", self._failure)
        self.close()

    def _shed(self) -> None:
        """Discard all kept input except a frame that may be the peer's Close."""
        if len(self._tail) > _LARGEST_CONTROL:
            self._skip = self._needed - len(self._tail)
            self._tail.clear()
        if self._message is not None:
            self._message.clear()
        self._forget()

    def _forget(self) -> None:
        """Record that no bytes are kept."""
        if self._kept:
            self._kept = 0
            self._unfinished.note(self._link, 0, 0.0)

    def abort(self) -> None:
        """Close the socket at once."""
        self._closing = True
        self._forget()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the socket is closed or closing."""
        return self._closing or self._transport.is_closing()

    def pause_reading(self) -> None:
        """Pause reading the socket, unless it is closing."""
        if not self._closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading the socket, unless it is closing."""
        if not self._closing:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return the socket's backlog in bytes."""
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the backlog above which writing is paused, and below which it is resumed."""
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a property of the socket."""
        return self._transport.get_extra_info(name, default)
