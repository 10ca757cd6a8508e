"""One RSocket connection without its socket: bytes and times in, events and bytes out.

The I/O layer does five things: hands in what it read (`receive_data`, `receive_eof`), writes
what `data_to_send` gives, calls `handle_timer` at `get_timer`, acts on the events, and closes
the transport when `close_expected` says so and everything is written.

`receive_data` handles a whole chunk before its caller sees the first event. So a stream may
be over by the time its request is looked at, for instance when the same chunk has a CANCEL
for it: look at `stream.closed` before answering.

The loop in `_receive_frames` runs for every frame of every connection and is written for
speed: one look-up finds the stream, one finds the transition, and a frame is made without
calling any function of ours. All that is rare is in methods of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .._closed import close_class
from .._words import counted
from ._constants import (
    HEADER_SIZE,
    LENGTH_SIZE,
    MAX_REQUEST_N,
    MAX_STREAM_ID,
    METADATA,
    ErrorCode,
    FrameType,
)
from ._control import Control
from ._errors import (
    CreditExceeded,
    InvalidRequestN,
    InvalidSetup,
    LocalProtocolError,
    MalformedFrame,
    PeerError,
    RSocketError,
)
from ._events import Event, StreamFailed
from ._frames import LENGTH_AT, Frame, check_length
from ._octets import unpack_header, unpack_u24, unpack_u32
from ._serialize import error_frame
from ._states import CLOSED, CONNECTION, ConnectionInput, ConnectionState, Role
from ._stream import CONNECTION_STREAM, Stream
from ._tables import CHECK, CLOSE, CREDIT, GRANT, KNOWN_BITS, RECEIVE, START

if TYPE_CHECKING:
    from ._limits import ConnectionLimits

__all__ = ["Connection"]

_PREFIXED_HEADER: Final = LENGTH_SIZE + HEADER_SIZE
_PARITY_BITS: Final = 0x80000001
_AWAIT_SETUP: Final = ConnectionState.AWAIT_SETUP
_CLOSED: Final = ConnectionState.CLOSED
_DRAINING: Final = ConnectionState.DRAINING
_OPEN: Final = ConnectionState.OPEN
_HELD: Final = ConnectionState.HELD
_NEVER: Final = 1 << 62
"""A number of bytes that never come."""
_PAYLOAD: Final = int(FrameType.PAYLOAD)
_TOO_LONG: Final = (0xFF, 0xFFFF)
"""A metadata length that fits in no frame."""

_REQUESTS: Final[frozenset[int]] = frozenset(
    {
        FrameType.REQUEST_RESPONSE,
        FrameType.REQUEST_FNF,
        FrameType.REQUEST_STREAM,
        FrameType.REQUEST_CHANNEL,
    }
)


class Connection(Control):
    """The state of one connection, without I/O. See `Control` and `Outbound` for the rest.

    Args:
        role: The end of the connection, client or server.
        limits: Its limits.
        now: The time at which the transport connected, in seconds of any monotonic clock;
            all other times are of the same clock.
    """

    __slots__ = ("_needed", "_their_parity")

    def __init__(self, role: Role, limits: ConnectionLimits | None = None, *, now: float) -> None:
        super().__init__(role, limits, now=now)
        self._needed = 0
        self._their_parity = 1 if role is Role.SERVER else 0

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Receive bytes from the transport.

        Args:
            data: The bytes: any part of any number of frames. Frames refer to them, so they
                are kept as long as the frames are.
            now: The time.

        Returns:
            In order: a `Frame` for each frame that was accepted (on streams, and SETUP,
            METADATA_PUSH, LEASE and ERROR[CONNECTION_CLOSE]), `StreamFailed`, and `Closed` as
            the last one. Frames that the specification says to ignore are counted in
            `counters`. After a connection error, the ERROR frame is in `data_to_send`.
        """
        # Transport Protocol: "it is assumed that the connection will have no further frames sent
        # and all frames will be ignored."
        if self.state is _CLOSED:
            return []
        self._last_received = now
        tail = self._tail
        fresh = not tail
        if tail:
            tail += data
            if len(tail) < self._needed:
                return []
            data = bytes(tail)
            tail.clear()
        events: list[Event] = []
        try:
            pos = 0
            reads = self.state is _OPEN
            if not reads:
                pos = self._receive_first(data, events)
                reads = self.state is _OPEN or self.state is _DRAINING
            if reads:
                pos = self._receive_frames(data, pos, events)
            if pos < len(data):
                if pos or fresh:
                    self._unfinished_since = now
                self._keep_tail(data, pos)
        except PeerError as error:
            events.append(self._end(error))
        except RSocketError as error:
            events.append(self._fail(error))
        if self.state is _DRAINING:
            events += self._end_if_drained()
        if events:
            self._established = True
        return events

    def admit(self) -> None:
        """Read on after a SETUP that was held; `receive_data` then has what has come since.

        Raises:
            LocalProtocolError: No SETUP is held.
        """
        if self.state is not _HELD:
            raise LocalProtocolError(f"no SETUP is held on a connection that is {self.state.name}")
        self.state = CONNECTION[self.state, ConnectionInput.ADMIT]
        self._needed = LENGTH_SIZE

    def reach(self, data: bytes) -> int:
        """Return how many of the bytes that come next belong to the frame that they begin in.

        It may be more than there are, and is less where the length of the frame is yet to come.
        """
        tail = self._tail
        if tail:
            return self._needed - len(tail)
        return LENGTH_SIZE + int.from_bytes(data[:LENGTH_SIZE])

    def _receive_frames(self, data: bytes, pos: int, events: list[Event]) -> int:
        """Accept the whole frames from `pos` on and return where the rest starts.

        Raises:
            RSocketError: The connection is to end.
        """
        streams = self.streams
        steps = RECEIVE
        size = len(data)
        max_frame = self.limits.max_frame
        while size - pos >= _PREFIXED_HEADER:
            high, low, stream_id, word = unpack_header(data, pos)
            length = high << 16 | low
            start = pos + LENGTH_SIZE
            stop = start + length
            if stop > size or not HEADER_SIZE <= length <= max_frame:
                break
            pos = stop

            stream = streams.get(stream_id)
            if stream is None and word >> 10 == _PAYLOAD and stream_id <= MAX_STREAM_ID:
                # The responder had not read our CANCEL yet: usual after a multicast.
                self.counters["unknown_stream"] += 1
                continue
            frame = Frame()
            frame.buffer = data
            frame.start = start
            frame.end = stop
            frame.stream_id = stream_id
            frame.word = word
            frame.type = word >> 10
            if stream is None:
                self._receive_unbound(frame, events)
                continue
            frame.stream = stream
            step = steps.get(stream.state | word)
            if step is None:
                # Handling the Unexpected: "Flag bits not specified for a particular frame MUST be
                # ignored."
                step = steps.get(stream.state | word & KNOWN_BITS)
                if step is None:
                    self._ignore_on_stream(frame)
                    continue
            state, actions = step
            if actions:
                if actions & CHECK and not self._check(frame, actions, events):
                    continue
                if actions & CREDIT:
                    # Reactive Streams Semantics: "This is a credit-based model where the Requester
                    # grants the Responder credit for the number of PAYLOADs it can send."
                    if stream.receive_credit < 1 and stream.receive_credit + stream.reserve < 1:
                        self._credit_exceeded(stream, events)
                        continue
                    stream.receive_credit -= 1
                if actions & CLOSE:
                    del streams[stream_id]
            stream.state = state
            events.append(frame)
        return pos

    def _receive_first(self, data: bytes, events: list[Event]) -> int:
        """Receive the frame that must be SETUP, once it is whole; return its end in `data`.

        In a state other than AWAIT_SETUP nothing is received, and the result is 0.
        """
        if self.state is not _AWAIT_SETUP or len(data) < _PREFIXED_HEADER:
            return 0
        high, low, stream_id, word = unpack_header(data, 0)
        end: int = LENGTH_SIZE + (high << 16 | low)
        if end > len(data) or end < _PREFIXED_HEADER or end - LENGTH_SIZE > self.limits.max_setup:
            return 0
        self._receive_setup(Frame.of(data, LENGTH_SIZE, end, stream_id, word), events)
        return end

    def _keep_tail(self, data: bytes, pos: int) -> None:
        """Keep an incomplete frame, and check its length as soon as it is known.

        After a SETUP that is held, keep all that comes unread.
        """
        self._needed = LENGTH_SIZE
        if self.state is _HELD:
            self._needed = _NEVER
        elif len(data) - pos >= LENGTH_SIZE:
            length = int.from_bytes(data[pos : pos + LENGTH_SIZE])
            if self.state is _AWAIT_SETUP:
                try:
                    check_length(length, self.limits.max_setup)
                except MalformedFrame as error:
                    # Connection Establishment: "Any other frame received that is NOT a SETUP|RESUME
                    # frame or a SETUP|RESUME frame with a Stream ID > 0, MUST cause the server to
                    # send an ERROR[INVALID_SETUP] and close the connection."
                    raise InvalidSetup(error.text) from None
            else:
                check_length(length, self.limits.max_frame)
            self._needed += length
        self._tail += memoryview(data)[pos:]

    # --- frames outside of live streams -----------------------------------------------------

    def _receive_unbound(self, frame: Frame, events: list[Event]) -> None:
        """Receive a request, or another frame that is not of a live stream."""
        word = frame.word
        step = START.get(word) or START.get(word & KNOWN_BITS)
        if step is None:
            frame.stream = CONNECTION_STREAM
            self._receive_control(frame, events)
            return
        stream_id = frame.stream_id
        # Stream Identifiers: "a client MUST generate odd Stream IDs, and a server MUST generate
        # even Stream IDs."
        if stream_id & _PARITY_BITS != self._their_parity or not stream_id:
            self._ignore_request(stream_id)
            return
        state, actions = step
        frame.stream = stream = Stream()
        stream.id = stream_id
        stream.kind = frame.type
        stream.requester = False
        stream.state = state
        stream.send_credit = 0
        stream.receive_credit = 0
        stream.peer = None
        stream.reserve = 0
        if word & METADATA:
            # Metadata Optional Header: "If Metadata Length is not equal to this value, the frame is
            # invalid". The limit is the end of the frame, as the rest is data.
            at = frame.start + LENGTH_AT[frame.type] + 3
            high, low = unpack_u24(frame.buffer, at - 3) if at <= frame.end else _TOO_LONG
            if at + (high << 16 | low) > frame.end and not self._inner_fields_fit(frame):
                return
        if actions & GRANT:
            if frame.end - frame.start < 10 and not self._inner_fields_fit(frame):
                return
            n = unpack_u32(frame.buffer, frame.start + 6)[0]
            if not 0 < n <= MAX_REQUEST_N:
                # REQUEST_STREAM Frame, Initial Request N: "Value MUST be > 0."
                self._refuse(stream, ErrorCode.INVALID, f"the initial request-n is {n}")
                return
            stream.send_credit = n
        streams = self.streams
        if self.state is not _OPEN:
            # Error Codes, CONNECTION_CLOSE: "New requests MAY not be accepted."
            self._refuse(stream, ErrorCode.REJECTED, "the connection is closing")
        elif len(streams) >= self._max_streams:
            self._refuse(
                stream, ErrorCode.REJECTED, f"{counted(len(streams), 'stream')} open already"
            )
        else:
            if not actions & CLOSE:
                streams[stream_id] = stream
            events.append(frame)

    def _ignore_request(self, stream_id: int) -> None:
        """Count a request on stream 0 or on an id that only this side may open."""
        if stream_id > MAX_STREAM_ID:
            raise MalformedFrame("the reserved bit of a stream id is set")
        # Stream Identifiers: "Stream ID of value 0 is reserved for any operation involving the
        # connection." Handling the Unexpected: such frames "MUST be ignored."
        self.counters["request_id_not_the_peers" if stream_id else "request_on_stream_0"] += 1

    def _refuse(self, stream: Stream, code: int, text: str) -> None:
        """Answer a request that is not taken; nothing answers a fire-and-forget."""
        self.counters["request_refused"] += 1
        stream.state = CLOSED
        # Request Fire-n-Forget: "REQUEST_FNF are assumed to be best effort and MAY not be
        # processed".
        if stream.kind != FrameType.REQUEST_FNF:
            self._out += error_frame(stream.id, code, text)

    # --- frames of live streams -----------------------------------------------------------

    def _ignore_on_stream(self, frame: Frame) -> None:
        """Count a frame that makes no sense on its stream now ("MUST be ignored")."""
        if self._understood(frame):
            # Handling the Unexpected: "Receiving a Request frame on a Stream ID that is already in
            # use MUST be ignored." So must "All other received frames that are not accounted for in
            # previous sections".
            in_use = frame.type in _REQUESTS
            self.counters["stream_id_in_use" if in_use else "not_legal_on_stream"] += 1

    def _check(self, frame: Frame, actions: int, events: list[Event]) -> bool:
        """Check what is inside a frame of a live stream, and book the credit it grants."""
        if not self._fits(frame):
            return False
        if actions & GRANT:
            n = unpack_u32(frame.buffer, frame.start + 6)[0]
            stream = frame.stream
            if not 0 < n <= MAX_REQUEST_N:
                # REQUEST_N Frame: "Unsigned 31-bit integer representing the number of items to
                # request. Value MUST be > 0."
                error = InvalidRequestN(f"request-n is {n}", stream_id=stream.id)
                self._fail_stream(stream, error, events)
                return False
            # Reactive Streams Semantics: "Credits are cumulative. Once credits are granted from
            # Requester to Responder, they cannot be revoked."
            # The sum stays at the maximum of one REQUEST_N, so that it cannot overflow.
            stream.send_credit = min(stream.send_credit + n, MAX_REQUEST_N)
        return True

    def _fits(self, frame: Frame) -> bool:
        """Check that the fixed fields and the metadata lie within the frame.

        Returns:
            False for a broken frame that has the I flag; it is counted.

        Raises:
            MalformedFrame: It is broken and has no I flag.
        """
        if frame.word & METADATA and frame.type == FrameType.PAYLOAD:
            at = frame.start + HEADER_SIZE + 3
            high, low = unpack_u24(frame.buffer, at - 3) if at <= frame.end else _TOO_LONG
            if at + (high << 16 | low) <= frame.end:
                return True
        elif frame.end - frame.start >= 10:
            return True
        return self._inner_fields_fit(frame)

    def _credit_exceeded(self, stream: Stream, events: list[Event]) -> None:
        error = CreditExceeded("more elements than were requested", stream_id=stream.id)
        self._fail_stream(stream, error, events)

    def _fail_stream(self, stream: Stream, error: RSocketError, events: list[Event]) -> None:
        """End a stream because of what the peer did on it, and say so to both sides."""
        self.counters["stream_failed"] += 1
        self.terminate(stream, error.code, error.text)
        events.append(StreamFailed(stream, error))


close_class(Connection)
