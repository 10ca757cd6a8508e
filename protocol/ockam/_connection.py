"""One connection between two nodes: bytes in, messages out, and back.

The wire is Ockam's TCP wire of June 2024 and later:

- each side first writes one byte, 0x01, and never again;
- then frames: the length of the body (4 bytes, big endian, at most 16 MiB) and the body, one
  message in CBOR. An oversize length is refused when it is read, before anything is kept;
- a message with an empty onward route is a heartbeat: it is counted and swallowed;
- nothing in the stream lets a reader find the next frame after a broken one, so the first
  error is the last thing a connection does.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Annotated, Final

from .._address import Address, Route
from .._errors import (
    BadPreamble,
    LinkDown,
    MalformedMessage,
    PayloadTooBig,
    WireError,
)
from .._message import Context, Message, check_bytes
from ..options import Range, check_options
from ._codec import (
    ARRAY_OF_FOUR,
    SHORT_SIZES,
    FrameReader,
    RouteWriter,
    encode_routes,
    encode_size,
    encode_tail,
)

__all__ = ["HEARTBEAT", "MAX_FRAME", "PREAMBLE", "WireConnection", "WireLimits"]

PREAMBLE: Final = b"\x01"
"""The first byte of each direction: the version of the wire."""

MAX_FRAME: Final = 16 * 1024 * 1024
"""Most bytes a frame's body may have on this wire."""

HEARTBEAT: Final = Message((), (), b"")
"""A message without routes, as a keepalive. The peer discards it."""

_pack_length: Final = Struct(">I").pack


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Limits of a connection, for received and sent frames.

    Attributes:
        max_frame: Most bytes of a frame's body, both ways. The wire's own limit is the
            default, `MAX_FRAME`; a larger value is not allowed.
    """

    max_frame: Annotated[int, Range(least=1, most=MAX_FRAME)] = MAX_FRAME

    def __post_init__(self) -> None:
        check_options(self)


class WireConnection:
    """The state of one connection; it owns no socket and never waits.

    Feed it what the socket reads and write what `data_to_send` gives. The first thing it
    gives is our preamble, so a side that only listens writes too.

    Args:
        limits: What to accept and send.
        own: The worker that receives the messages: its address is put at the front of their
            return routes, and is their source. By default messages are as they were sent.

    Attributes:
        limits: As given.
        closed: Whether the connection is over: by `close`, by the peer's end of stream,
            or by an error.
        effort: How many messages of the usual kind would have taken as long to read, so far.
        error: The error that closed it, or `None`.
        greeted: Whether the peer's preamble has come.
        received: Messages given out by `receive_data` so far.
        sent: Messages taken by `send` so far.
        unusable: Messages passed over so far as they have a route that no node can use.
    """

    __slots__ = (
        "_back",
        "_behind",
        "_buffer",
        "_limit",
        "_onward",
        "_out",
        "_reader",
        "_routes",
        "_write_back",
        "_write_onward",
        "closed",
        "effort",
        "error",
        "greeted",
        "limits",
        "received",
        "sent",
        "unusable",
    )

    def __init__(self, limits: WireLimits = WireLimits(), *, own: Address | None = None) -> None:
        self.limits = limits
        self.closed = False
        self.effort = 0
        self.error: WireError | None = None
        self.greeted = False
        self.received = 0
        self.sent = 0
        self.unusable = 0
        self._reader = FrameReader(own, limits.max_frame)
        self._buffer = bytearray()  # the start of a frame that is not complete
        self._limit = limits.max_frame
        self._out: list[bytes] = [PREAMBLE]
        # The routes of the last message taken, and their bytes.
        self._onward: Route = ()
        self._back: Route = ()
        self._routes = encode_routes((), ())
        self._behind = self._routes[-1:]  # those of the return route alone
        self._write_onward: Final = RouteWriter().write
        self._write_back: Final = RouteWriter().write

    @property
    def heartbeats(self) -> int:
        """Messages with an empty onward route swallowed so far."""
        return self._reader.heartbeats

    def receive_data(self, data: bytes, context: Context | None = None) -> list[Message]:
        """Receive bytes from the peer; return the messages they complete, in order.

        Messages without a tracing text get the given context.

        An error does not raise: it closes the connection and is in `error`. The messages
        before it are returned. Bytes for a closed connection are ignored.
        """
        if self.closed:
            return []
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._reader.needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        messages: list[Message] = []
        reader = self._reader
        reader.context = context
        try:
            rest = self._read(data, messages)
        except WireError as error:
            self._fail(error)
        else:
            if rest < len(data):
                self._buffer += data[rest:]
        number = len(messages)
        self.received += number
        if reader.extra:
            number += reader.extra
            reader.extra = 0
            self.unusable = reader.unusable
        self.effort += number
        return messages

    def receive_eof(self) -> None:
        """Receive the peer's end of stream. Inside a frame it is a `MalformedMessage`."""
        if self.closed:
            return
        if self._buffer:
            self._fail(MalformedMessage("the stream ended inside a frame"))
        else:
            self.close()

    def send(self, message: Message) -> int:
        """Send a message: append its frame to the outgoing bytes.

        Returns:
            The number of its bytes on the wire.

        Raises:
            LinkDown: The connection is closed.
            PayloadTooBig: The message does not fit into a frame.
            AddressError: An address of a route is out of range.
            RouteTooLong: A route has more addresses than a route may have.
            PayloadNotBytes: The payload is something else than `bytes`.
            TypeError: A value of a route is not bytes, or the tracing context no text.

        After an error nothing has been taken and the connection is as before.
        """
        if self.closed:
            raise LinkDown
        onward, back, payload, _, context = message
        if type(payload) is not bytes:
            check_bytes(payload)  # in `_out` it would make every later write fail
        if back != self._back:
            routes = ARRAY_OF_FOUR + self._write_onward(onward)
            behind = self._write_back(back)
            self._routes = routes + behind
            self._onward, self._back, self._behind = onward, back, behind
        elif onward != self._onward:
            self._routes = ARRAY_OF_FOUR + self._write_onward(onward) + self._behind
            self._onward = onward
        routes, length = self._routes, len(payload)
        head = SHORT_SIZES[length] if length < 256 else encode_size(length)
        tail = b"\xf6" if context is None or context[1] is None else encode_tail(context)
        size = len(routes) + len(head) + length + len(tail)
        if size > self._limit:
            raise PayloadTooBig(length, max(self._limit - size + length, 0))
        self._out += (_pack_length(size), routes, head, payload, tail)
        self.sent += 1
        return 4 + size

    def data_to_send(self) -> bytes:
        """Return what to write now, and forget it; empty when there is nothing."""
        out = self._out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        return data

    def close(self) -> None:
        """End the connection. What was taken for sending can still be fetched."""
        self.closed = True
        self._buffer.clear()

    def _read(self, data: bytes, messages: list[Message]) -> int:
        position = 0
        if not self.greeted and data:
            if data[0] != PREAMBLE[0]:
                raise BadPreamble(data[0])
            self.greeted = True
            position = 1
        return self._reader.read(data, position, messages)

    def _fail(self, error: WireError) -> None:
        self.error = error
        self.close()
