"""The sending half of a connection: streams of our own, frames we make and frames we relay.

Each send looks its transition up first, so an illegal one raises before anything changed,
and the peer never sees it. Bytes are gathered in one buffer until the I/O layer takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final

from .._errors import PayloadTooBig
from ._constants import (
    HEADER_SIZE,
    IGNORE,
    LENGTH_SIZE,
    MAX_FRAME,
    MAX_REQUEST_N,
    MAX_STREAM_ID,
    METADATA,
    FrameType,
)
from ._errors import LocalProtocolError, TooManyStreams
from ._octets import unpack_u32
from ._serialize import (
    Buffer,
    cancel_frame,
    error_frame,
    lease_frame,
    metadata_push_frame,
    payload_frames,
    request_frames,
    request_n_frame,
)
from ._states import CLOSED, ConnectionState, Role
from ._stream import Stream
from ._tables import BARE, CLOSE, CREDIT, GRANT, IDLE, KNOWN_BITS, SEND, describe

if TYPE_CHECKING:
    from ._frames import Frame
    from ._limits import ConnectionLimits
    from ._tables import Sending

__all__ = ["Outbound"]

_pack_u32: Final = Struct(">I").pack_into
_pack_head: Final = Struct(">HBIH").pack_into
_pack_id_and_word: Final = Struct(">IH").pack_into
_GRANT_OR_BARE: Final = GRANT | BARE
_CANCEL: Final = int(FrameType.CANCEL) << 10
_OPEN: Final = ConnectionState.OPEN


class Outbound:
    """The sending part of `Connection`. Not for use by itself.

    Attributes:
        role: The end of the connection, client or server.
        limits: Its limits.
        state: The state of the connection.
        streams: The live streams by id. Do not change it.
        sent: Frames sent on streams and as metadata pushes.
        counters: Number of received frames that were dropped, by reason: `unknown_stream` (the
            stream is over or never was), `stream_id_in_use` (a second request),
            `not_legal_on_stream`, `request_id_not_the_peers` (wrong parity),
            `request_on_stream_0`, `request_refused` (answered with ERROR), `stream_failed`
            (as `StreamFailed` says), `control_frame_on_stream`, `unknown_type` and
            `malformed_ignored` (both with the I flag), `error_ignored`, `setup_ignored`,
            `resume_ignored`, `lease_ignored`, `position_ignored` (a KEEPALIVE with a position that
            this side has not reached).
    """

    __slots__ = (
        "_max_streams",
        "_next_id",
        "_out",
        "counters",
        "limits",
        "role",
        "sent",
        "state",
        "streams",
    )

    def __init__(self, role: Role, limits: ConnectionLimits) -> None:
        self.role = role
        self.limits = limits
        self._max_streams = limits.max_streams
        self.state = ConnectionState.AWAIT_SETUP
        self.streams: dict[int, Stream] = {}
        self.counters: Counter[str] = Counter()
        # Stream Identifiers: "Stream IDs on the client MUST start at 1 and increment by 2
        # sequentially", and those "on the server MUST start at 2".
        self._next_id = 1 if role is Role.CLIENT else 2
        self._out: bytearray = bytearray()
        self.sent: int = 0

    @property
    def pending(self) -> int:
        """Bytes queued since the last `data_to_send`."""
        return len(self._out)

    def data_to_send(self) -> bytearray:
        """Hand over the bytes to write, in order; empty if there are none.

        The buffer is the caller's to keep. After the connection closed there may be a last
        ERROR frame in it.
        """
        out = self._out
        self._out = bytearray()
        return out

    # --- streams of our own ---------------------------------------------------------------

    def open(self, kind: int) -> Stream:
        """Allocate a stream for a request of ours. Nothing is sent.

        Follow it with `send_request`, or `relay` of a request frame of the same kind; or
        with `send_cancel`, which forgets it. Ids go up by two and start again after
        2**31 - 1, past those in use (section "Stream Identifiers").

        Args:
            kind: REQUEST_RESPONSE, REQUEST_FNF, REQUEST_STREAM or REQUEST_CHANNEL.

        Raises:
            LocalProtocolError: The connection is not open, or `kind` is no request.
            TooManyStreams: `ConnectionLimits.max_streams` are live.
        """
        if self.state is not _OPEN:
            raise LocalProtocolError(f"no request on a connection that is {self.state.name}")
        state = IDLE.get(kind)
        if state is None:
            raise LocalProtocolError(f"frame type {kind} opens no stream")
        streams = self.streams
        if len(streams) >= self._max_streams:
            raise TooManyStreams(self._max_streams)
        number = self._next_id
        if number > MAX_STREAM_ID or number in streams:
            number = self._free_id(number)
        self._next_id = number + 2
        stream = streams[number] = Stream()
        stream.id = number
        stream.kind = kind
        stream.requester = True
        stream.state = state
        stream.send_credit = 0
        stream.receive_credit = 0
        stream.peer = None
        stream.reserve = 0
        return stream

    def _free_id(self, number: int) -> int:
        """Return the next id that is not in use; there is one, or `open` had refused."""
        # Stream Identifiers: "The Requester MUST re-use IDs by wrapping and restarting at ID 1 for
        # client, and ID 2 for server, and incrementing sequentially by 2s as stated above." and
        # "The Requester MUST skip IDs still in use."
        while number > MAX_STREAM_ID or number in self.streams:
            number = number + 2 if number < MAX_STREAM_ID else 2 - (number & 1)
        return number

    # --- relayed frames -------------------------------------------------------------------

    def relay(self, stream: Stream, frame: Frame) -> None:
        """Send a frame that another connection accepted, with this stream's id.

        Other bytes stay as they are: flags, empty metadata, unknown flag bits. Only what the
        specification forbids is mended, so that no peer closes its connection over what
        another wrote: flags that mean nothing in the frame are cleared, a PAYLOAD without N and
        C gets N, F beside C is cleared, the last fragment of a channel's last element
        has C, and what follows the fixed fields of REQUEST_N and CANCEL is left out.

        Credit is accounted for as if the frame was made here; a request's initial n becomes
        `stream.receive_credit`.

        Args:
            stream: A live stream of this connection.
            frame: A request for a stream fresh from `open`, or a later frame, fragments
                included.

        Raises:
            LocalProtocolError: The frame is not legal now, the stream is over, or its
                credit is used up. Nothing was sent, and the stream is as it was.
        """
        step = SEND.get(stream.state | frame.word)
        if step is None:
            step = self._unusual(stream, frame)
        state, actions, word = step
        buffer = frame.buffer
        start = frame.start
        end = frame.end
        if actions:
            if actions & CREDIT:
                if stream.send_credit < 1:
                    raise self._no_credit(stream)
                stream.send_credit -= 1
            if actions & _GRANT_OR_BARE:
                if actions & GRANT:
                    self._grant(stream, unpack_u32(buffer, start + 6)[0])
                if actions & BARE:
                    buffer, start, end = _bare(frame)
            if actions & CLOSE:
                del self.streams[stream.id]
        stream.state = state
        self.sent += 1
        out = self._out
        out += buffer[start - 3 : end]
        _pack_id_and_word(out, start - end, stream.id, word)  # counted from the end

    def relay_pinned(self, stream: Stream, frame: Frame, data: int, metadata: bytes) -> None:
        """Relay a REQUEST_RESPONSE or REQUEST_FNF with other metadata.

        Args:
            stream: A stream fresh from `open`.
            frame: The request.
            data: The offset, in the frame's buffer, of its data.
            metadata: `PIN_HEAD` bytes that are overwritten, the length of the other metadata, and
                these.

        Raises:
            LocalProtocolError: As for `relay`, or the frame is another request.
            PayloadTooBig: The frame would be over 16 MiB - 1. Nothing was sent.
        """
        step = SEND.get(stream.state | frame.word)
        if step is None:
            step = self._unusual(stream, frame)
        state, actions, word = step
        if actions & ~CLOSE:
            raise LocalProtocolError(f"{frame!r} has credit as well")
        end = frame.end
        size = end - data + len(metadata) - LENGTH_SIZE
        if size > MAX_FRAME:
            raise PayloadTooBig(size, MAX_FRAME)
        if actions:
            del self.streams[stream.id]
        stream.state = state
        self.sent += 1
        out = self._out
        at = len(out)
        out += metadata
        out += frame.buffer[data:end]
        _pack_head(out, at, size >> 8, size & 0xFF, stream.id, word)

    def relay_request(self, stream: Stream, frame: Frame, initial_n: int) -> None:
        """Relay a REQUEST_STREAM or REQUEST_CHANNEL with another first credit.

        Args:
            stream: A stream fresh from `open`.
            frame: The request.
            initial_n: Credit to give instead of the requester's, 1 to 2**31 - 1.

        Raises:
            LocalProtocolError: As for `relay`, or `initial_n` is out of range, or the
                frame has no initial n. Nothing was sent.
        """
        self._check_n(initial_n)
        if frame.type not in (FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL):
            raise LocalProtocolError(f"{frame!r} has no initial request-n")
        self.relay(stream, frame)
        _pack_u32(self._out, frame.start + 6 - frame.end, initial_n)
        stream.receive_credit = initial_n

    def relay_metadata_push(self, frame: Frame) -> None:
        """Send a METADATA_PUSH that another connection accepted.

        It stays as it is, except for flags that mean nothing in it.

        Raises:
            LocalProtocolError: The connection is not open.
        """
        self._check_live("METADATA_PUSH")
        start, end = frame.start, frame.end
        self.sent += 1
        out = self._out
        out += frame.buffer[start - 3 : end]
        unknown = frame.word & ~KNOWN_BITS
        # METADATA_PUSH Frame: "METADATA_PUSH frames MUST always use Stream ID 0 as they pertain to
        # the Connection."
        word = FrameType.METADATA_PUSH << 10 | METADATA | frame.word & IGNORE | unknown
        _pack_id_and_word(out, start - end, 0, word)

    # --- frames of our own ----------------------------------------------------------------

    def send_request(
        self,
        stream: Stream,
        data: Buffer,
        metadata: Buffer | None = None,
        *,
        initial_n: int = 1,
        complete: bool = False,
    ) -> None:
        """Send the request of a stream fresh from `open`.

        Args:
            stream: The stream.
            data: The data.
            metadata: The metadata; `None` for none, which is not the same as empty.
            initial_n: Elements to ask for first, 1 to 2**31 - 1 (stream and channel).
            complete: Whether a channel's request is also our last element.

        Raises:
            LocalProtocolError: The stream has sent its request, or `initial_n` is out of
                range. Nothing was sent.
            PayloadTooBig: One frame does not hold it and `ConnectionLimits.mtu` is `None`.
                Nothing was sent.
        """
        self._check_n(initial_n)
        self._send(
            stream,
            request_frames(
                stream.kind,
                stream.id,
                data,
                metadata,
                initial_n=initial_n,
                complete=complete,
                mtu=self.limits.mtu,
            ),
        )

    def send_payload(
        self,
        stream: Stream,
        data: Buffer = b"",
        metadata: Buffer | None = None,
        *,
        next: bool = True,  # noqa: A002 - the specification's word
        complete: bool = False,
    ) -> None:
        """Send an element, the end of our direction, or both.

        Args:
            stream: The stream.
            data: The data.
            metadata: The metadata; `None` for none, which is not the same as empty.
            next: Whether this is an element; it costs one credit on a stream or channel.
            complete: Whether our direction ends with this.

        Raises:
            LocalProtocolError: Without `next` there is no `complete`, or there is data or
                metadata; the frame is not legal now; or there is no credit. Nothing was
                sent.
            PayloadTooBig: As for `send_request`.
        """
        if not next and (not complete or data or metadata is not None):
            # PAYLOAD Frame: "A PAYLOAD MUST NOT have both (C)complete and (N)ext empty (false)."
            raise LocalProtocolError("a PAYLOAD without next only completes, and carries nothing")
        self._send(
            stream,
            payload_frames(
                stream.id, data, metadata, next=next, complete=complete, mtu=self.limits.mtu
            ),
        )

    def send_request_n(self, stream: Stream, n: int) -> None:
        """Ask for `n` more elements, 1 to 2**31 - 1.

        Raises:
            LocalProtocolError: Not legal on this stream now, or `n` out of range.
        """
        self._check_n(n)
        self._send(stream, (request_n_frame(stream.id, n),))

    def send_error(self, stream: Stream, code: int, text: str = "") -> None:
        """End a stream with an error.

        Args:
            stream: The stream: one we answer, or a channel.
            code: `ErrorCode` or a number of the application, 0x301 to 0xFFFFFFFE.
            text: What is wrong.

        Raises:
            LocalProtocolError: Not legal on this stream now, or no such code.
        """
        self._send(stream, (error_frame(stream.id, code, text),))

    def send_cancel(self, stream: Stream) -> None:
        """Cancel a stream we opened; as a channel's responder, stop its requester.

        If the request of the stream was not sent yet, the stream is removed without a frame.

        Raises:
            LocalProtocolError: Not legal on this stream now.
        """
        # Not by `_send`: a multicast cancels all its streams but one.
        step = SEND.get(stream.state | _CANCEL)
        if step is not None:
            if step[1] & CLOSE:
                del self.streams[stream.id]
            stream.state = step[0]
            self.sent += 1
            self._out += cancel_frame(stream.id)
        elif stream.state == IDLE.get(stream.kind):
            self._forget(stream)
        else:
            raise self._illegal(stream, FrameType.CANCEL)

    def terminate(self, stream: Stream, code: int, text: str = "") -> None:
        """End a stream by the frame of this side: CANCEL as requester, ERROR as responder.

        Does nothing on a stream that is over. A fire-and-forget we respond to is just
        forgotten, since it has no answer.
        """
        if stream.closed:
            return
        if stream.requester:
            self.send_cancel(stream)
        elif stream.kind == FrameType.REQUEST_FNF:
            self._forget(stream)
        else:
            self.send_error(stream, code, text)

    def send_metadata_push(self, metadata: Buffer) -> None:
        """Send metadata of the connection.

        Raises:
            LocalProtocolError: The connection is not open.
            PayloadTooBig: It is over 16 MiB - 1.
        """
        self._check_live("METADATA_PUSH")
        self.sent += 1
        self._out += metadata_push_frame(metadata)

    def send_lease(
        self, time_to_live: int, number_of_requests: int, metadata: Buffer | None = None
    ) -> None:
        """Allow the peer a number of requests; 0 for either number stops all requests.

        Args:
            time_to_live: Milliseconds it holds, 0 to 2**31 - 1.
            number_of_requests: Requests it allows, 0 to 2**31 - 1.
            metadata: Metadata, or `None` for none.

        Raises:
            LocalProtocolError: Leases are not enabled by `ConnectionLimits.lease`, the
                connection is not open, or a number is out of range.
        """
        if not self.limits.lease:
            raise LocalProtocolError("leases are not enabled on this connection")
        # LEASE Frame: "A Responder implementation MAY stop all further requests by sending a LEASE
        # with a value of 0 for Number of Requests or Time-To-Live."
        if not min(time_to_live, number_of_requests) >= 0:
            raise LocalProtocolError("a lease's numbers are 0 to 2**31 - 1")
        if max(time_to_live, number_of_requests) > MAX_REQUEST_N:
            raise LocalProtocolError("a lease's numbers are 0 to 2**31 - 1")
        self._check_live("LEASE")
        self._out += lease_frame(time_to_live, number_of_requests, metadata)

    # --- shared ---------------------------------------------------------------------------

    def _send(self, stream: Stream, frames: Iterable[bytes]) -> None:
        """Send the frames of one payload. Only the first can be refused.

        They are made before anything changes, so that one that is too big changes nothing.
        """
        for frame in tuple(frames):
            word = frame[7] << 8 | frame[8]
            step = SEND.get(stream.state | word)
            if step is None:
                raise self._illegal(stream, word >> 10)
            state, actions, _ = step
            if actions & CREDIT:
                if stream.send_credit < 1:
                    raise self._no_credit(stream)
                stream.send_credit -= 1
            if actions & GRANT:
                self._grant(stream, unpack_u32(frame, 9)[0])
            if actions & CLOSE:
                del self.streams[stream.id]
            stream.state = state
            self.sent += 1
            self._out += frame

    def _unusual(self, stream: Stream, frame: Frame) -> Sending:
        """Return the step for a frame with flag bits that mean nothing in any frame: they stay."""
        step = SEND.get(stream.state | frame.word & KNOWN_BITS)
        if step is None:
            raise self._illegal(stream, frame.type)
        state, actions, word = step
        return state, actions, word | frame.word & ~KNOWN_BITS

    def _grant(self, stream: Stream, n: int) -> None:
        # Reactive Streams Semantics: "sending `request(3)` and `request(2)` accumulates to a value
        # of 5, allowing the Responder to send 5 PAYLOADs."
        # The sum is kept at the maximum of one REQUEST_N, so that it cannot overflow.
        stream.receive_credit = min(stream.receive_credit + n, MAX_REQUEST_N)

    def _forget(self, stream: Stream) -> None:
        del self.streams[stream.id]
        stream.state = CLOSED

    def _check_live(self, what: str) -> None:
        if self.state not in (_OPEN, ConnectionState.DRAINING):
            raise LocalProtocolError(f"no {what} on a connection that is {self.state.name}")

    @staticmethod
    def _check_n(n: int) -> None:
        if not 0 < n <= MAX_REQUEST_N:
            # REQUEST_N Frame: "Unsigned 31-bit integer representing the number of items to request.
            # Value MUST be > 0."
            raise LocalProtocolError(f"a request-n is 1 to 2**31 - 1, not {n}")

    @staticmethod
    def _illegal(stream: Stream, frame_type: int) -> LocalProtocolError:
        name = FrameType(frame_type).name
        return LocalProtocolError(
            f"{name} is not legal on stream {stream.id}: {describe(stream.state)}"
        )

    @staticmethod
    def _no_credit(stream: Stream) -> LocalProtocolError:
        return LocalProtocolError(f"no credit to send an element on stream {stream.id}")


def _bare(frame: Frame) -> tuple[bytes, int, int]:
    """Return a REQUEST_N or CANCEL without what follows its fixed fields, and where it is."""
    size = HEADER_SIZE + 4 if frame.type == FrameType.REQUEST_N else HEADER_SIZE
    start, end = frame.start, frame.end
    if end - start == size:
        return frame.buffer, start, end
    return size.to_bytes(3) + frame.buffer[start : start + size], 3, 3 + size
