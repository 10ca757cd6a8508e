"""The connection as a whole: SETUP, keepalive, closing, frames of stream 0.

Choices where the specification leaves one:

- A SETUP with the resume flag gets ERROR[REJECTED_SETUP], as the note in "SETUP Frame" says,
  one with the lease flag ERROR[UNSUPPORTED_SETUP] (unless the limits enable leases).
- A KEEPALIVE has position 0, which stands for "not supported". Both are different on a
  `ResumableConnection`.
- Any received byte shows that the peer is alive, not only a KEEPALIVE.
- A server drops a client that is silent for the lifetime the client itself announced.
- An ERROR on stream 0 with a code that belongs to streams is ignored, unless it answers SETUP.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from ._constants import (
    IGNORE,
    MAJOR_VERSION,
    METADATA,
    MINOR_VERSION,
    RESPOND,
    ErrorCode,
    FrameType,
)
from ._errors import (
    InvalidSetup,
    KeepaliveTimeout,
    LocalProtocolError,
    MalformedFrame,
    PeerError,
    RejectedResume,
    RejectedSetup,
    RSocketError,
    SetupTimeout,
    UnsupportedSetup,
)
from ._events import Closed, Event
from ._frames import Frame, check_frame
from ._limits import ConnectionLimits
from ._outbound import Outbound
from ._serialize import Buffer, error_frame, keepalive_frame
from ._setup import Setup
from ._states import CLOSED, CONNECTION, ConnectionInput, ConnectionState, Role

__all__ = ["Control"]

_OPEN: Final = ConnectionState.OPEN
_SETUP_CODES: Final = frozenset(
    {
        ErrorCode.INVALID_SETUP,
        ErrorCode.UNSUPPORTED_SETUP,
        ErrorCode.REJECTED_SETUP,
        ErrorCode.REJECTED_RESUME,
    }
)
_STREAM_CODES: Final = frozenset(
    {
        ErrorCode.APPLICATION_ERROR,
        ErrorCode.REJECTED,
        ErrorCode.CANCELED,
        ErrorCode.INVALID,
    }
)


class Control(Outbound):
    """The life of a `Connection`. Not for use by itself.

    Args:
        role: The end of the connection, client or server.
        limits: Its limits.
        now: The time at which the transport connected, in seconds of any monotonic clock;
            all other times are of the same clock.

    Attributes:
        setup: The SETUP of the client, once it was accepted or sent.
        error: The error that closed the connection; `None` before that, and after an orderly
            close.
        round_trip: Seconds from a KEEPALIVE of the timer to its answer; 0 if unknown.
        measure_every: The seconds after which a server sends one as well, with its answer to the
            client's, to know the round trip; 0: never.
        holds: Whether a server, once it has SETUP, reads no further frame until `admit`.
    """

    __slots__ = (
        "_asked_at",
        "_connected_at",
        "_established",
        "_keepalive_at",
        "_last_received",
        "_lifetime",
        "_measured_at",
        "_tail",
        "_unfinished_since",
        "error",
        "holds",
        "measure_every",
        "round_trip",
        "setup",
    )

    def __init__(self, role: Role, limits: ConnectionLimits | None = None, *, now: float) -> None:
        super().__init__(role, limits or ConnectionLimits())
        self.setup: Setup | None = None
        self.error: RSocketError | None = None
        self.holds = False
        self.round_trip = 0.0
        self.measure_every = 0.0
        self._measured_at = -inf
        self._asked_at = 0.0
        self._tail: bytearray = bytearray()
        self._unfinished_since = now
        self._connected_at = now
        self._last_received = now
        self._lifetime = 0.0
        self._keepalive_at = now
        self._established = False

    @property
    def closed(self) -> bool:
        """Whether the connection is over: nothing is accepted, nothing can be sent."""
        return self.state is ConnectionState.CLOSED

    def close_expected(self) -> bool:
        """Return whether to write what is pending and then close the transport."""
        if self.state is _OPEN:
            return False
        return self.closed or (self.state is ConnectionState.DRAINING and not self.streams)

    # --- opening and closing --------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """Number of bytes kept of an incomplete frame."""
        return len(self._tail)

    @property
    def unfinished_since(self) -> float:
        """Time of arrival of the first byte of that frame; without meaning while there is none."""
        return self._unfinished_since

    def send_setup(self, setup: Setup, *, keepalive_at: float | None = None) -> None:
        """Send SETUP, as a client. Requests may follow at once.

        Args:
            setup: The SETUP.
            keepalive_at: The time of the first KEEPALIVE of the timer, by default one interval from
                now; infinite if the caller sends them.

        Raises:
            LocalProtocolError: This is a server, SETUP was sent, or a field is out of range.
            PayloadTooBig: The frame would be over 16 MiB - 1.
        """
        if self.role is Role.SERVER or self.state is not ConnectionState.AWAIT_SETUP:
            raise LocalProtocolError(f"no SETUP from a {self.role.value} that is {self.state.name}")
        # Connection Establishment: "Immediately upon successful connection, the client MUST send
        # either a SETUP or RESUME frame with Stream ID of 0."
        self._out += setup.serialize()
        self.setup = setup
        self.state = CONNECTION[self.state, ConnectionInput.SETUP]
        self._lifetime = setup.lifetime / 1000
        first = self._last_received + setup.keepalive / 1000
        self._keepalive_at = first if keepalive_at is None else keepalive_at

    def reject_setup(self, text: str) -> list[Event]:
        """Send ERROR[REJECTED_SETUP] and close, as a server that does not want the client.

        Returns:
            The `Closed` event.

        Raises:
            LocalProtocolError: This is a client, or no SETUP was received.
        """
        if self.role is Role.CLIENT or self.state not in (_OPEN, ConnectionState.HELD):
            raise LocalProtocolError("only a server that received a SETUP can reject it")
        return self.close(ErrorCode.REJECTED_SETUP, text)

    def close(self, code: int = ErrorCode.CONNECTION_ERROR, text: str = "") -> list[Event]:
        """Close the connection with an ERROR frame on stream 0.

        Args:
            code: CONNECTION_CLOSE lets live streams end first, and takes no new ones; any
                other code ends all.
            text: Why.

        Returns:
            The `Closed` event, or nothing if streams are still to end or it was closed.

        Raises:
            LocalProtocolError: The code is not 1 to 0xFFFFFFFE.
        """
        if self.closed:
            return []
        self._out += error_frame(0, code, text)
        if code == ErrorCode.CONNECTION_CLOSE:
            return self._drain()
        return [self._end(None)]

    def announce_close(self, text: str) -> None:
        """Send ERROR[CONNECTION_CLOSE], and leave the rest to the caller.

        After `close` the connection is over with its last stream. Here it stays open, so that
        requests which the peer has sent before it reads the ERROR can be refused.

        Args:
            text: Why.

        Raises:
            LocalProtocolError: The connection is not open.
        """
        self._check_live("ERROR[CONNECTION_CLOSE]")
        self._out += error_frame(0, ErrorCode.CONNECTION_CLOSE, text)

    def receive_eof(self) -> list[Event]:
        """Receive the end of the transport, or its loss.

        Returns:
            The `Closed` event, if there was none before.
        """
        return [] if self.closed else [self._end(None)]

    def _drain(self) -> list[Event]:
        state = CONNECTION[self.state, ConnectionInput.CONNECTION_CLOSE]
        if state is ConnectionState.CLOSED:
            return [self._end(None)]
        self.state = state
        return self._end_if_drained()

    def _end_if_drained(self) -> list[Event]:
        if self.state is not ConnectionState.DRAINING or self.streams:
            return []
        # Error Codes, CONNECTION_CLOSE: "Sender or Receiver of this frame MUST wait for outstanding
        # streams to terminate before closing the connection."
        return [self._end(None, ConnectionInput.LAST_STREAM)]

    def _end(
        self, error: RSocketError | None, reason: ConnectionInput = ConnectionInput.FAIL
    ) -> Closed:
        """Close the connection and drop its streams; nothing more is sent."""
        self.state = CONNECTION[self.state, reason]
        self.error = error
        streams = tuple(self.streams.values())
        self.streams.clear()
        for stream in streams:
            stream.state = CLOSED
        self._tail.clear()
        return Closed(error, streams)

    def _fail(self, error: RSocketError) -> Closed:
        """Send ERROR on stream 0 for a violation of the peer, and close."""
        self._out += error_frame(0, error.code, error.text)
        return self._end(error)

    # --- time -----------------------------------------------------------------------------

    def get_timer(self) -> float | None:
        """Return the time at which to call `handle_timer`, or `None` for never.

        The time may move on when data is received; calling `handle_timer` early is harmless.
        """
        if self.state is ConnectionState.CLOSED:
            return None
        server = self.role is Role.SERVER
        if self.state is ConnectionState.AWAIT_SETUP:
            return self._connected_at + self.limits.setup_timeout if server else None
        # KEEPALIVE Frame: "Reception of a KEEPALIVE by a server indicates to the server that the
        # client is alive."
        deadline = self._last_received + self._lifetime
        return deadline if server else min(deadline, self._keepalive_at)

    def handle_timer(self, now: float) -> list[Event]:
        """Run the timers that are due: send KEEPALIVE as a client, close on keepalive timeout.

        Returns:
            The `Closed` event, if the peer was silent for too long.
        """
        due = self.get_timer()
        if due is None or now < due:
            return []
        if self.state is ConnectionState.AWAIT_SETUP:
            return [self._fail(SetupTimeout(f"no SETUP within {self.limits.setup_timeout:g} s"))]
        if now >= self._last_received + self._lifetime:
            # SETUP Frame, Max Lifetime: "Time (in milliseconds) that a client will allow a server
            # to not respond to a KEEPALIVE before it is assumed to be dead."
            text = f"no keep-alive within {self._lifetime * 1000:.0f} ms"
            return [self._fail(KeepaliveTimeout(text))]
        if self.setup is None:
            raise AssertionError("open without SETUP")
        # KEEPALIVE Frame: "KEEPALIVE frames MUST be initiated by the client and sent periodically
        # with the (R)espond flag set."
        self.send_keepalive()
        self._asked_at = now
        # Always a whole number of intervals after the first, so that connections that begin
        # together stay together; those that were missed are skipped.
        every = self.setup.keepalive / 1000
        self._keepalive_at += every * ((now - self._keepalive_at) // every + 1)
        return []

    def silence(self, now: float) -> float:
        """Return for which part of its lifetime the peer has been silent; 1 or more: it is dead."""
        return (now - self._last_received) / self._lifetime if self._lifetime else 0.0

    def excuse_silence(self, until: float) -> None:
        """Accept the peer's silence up to a time, because its frames are not read until then.

        The KEEPALIVE frames of a client are sent all the same.
        """
        self._last_received = max(self._last_received, until - self._lifetime)

    def send_keepalive(self, data: Buffer = b"") -> None:
        """Send a KEEPALIVE that the peer must answer. A client's timer does it by itself.

        Raises:
            LocalProtocolError: The connection is not open.
            PayloadTooBig: The frame would be over 16 MiB - 1.
        """
        # KEEPALIVE Frame: "KEEPALIVE frames MAY be initiated by the server and sent upon
        # application request with the (R)espond flag set."
        self._check_live("KEEPALIVE")
        self._out += keepalive_frame(data, respond=True, position=self._position())

    # --- frames of the connection ---------------------------------------------------------

    def _receive_setup(self, frame: Frame, events: list[Event]) -> None:
        """Receive the first frame, which must be an acceptable SETUP."""
        if self.role is Role.CLIENT:
            raise InvalidSetup("a frame before SETUP was sent")
        if frame.type == FrameType.RESUME and not frame.stream_id:
            self._receive_resume_first(frame, events)
            return
        if frame.stream_id:
            # Connection Establishment: "a SETUP|RESUME frame with a Stream ID > 0, MUST cause the
            # server to send an ERROR[INVALID_SETUP] and close the connection."
            raise InvalidSetup(f"the first frame is {frame!r}, not SETUP on stream 0")
        setup = Setup.parse(frame)
        if (setup.major, setup.minor) != (MAJOR_VERSION, MINOR_VERSION):
            # Cross version compatibility: "RSocket assumes that all version changes (major and
            # minor) are backward incompatible."
            raise UnsupportedSetup(f"version {setup.major}.{setup.minor} is not supported")
        if setup.token is not None:
            self._begin_session()
        if setup.lease and not self.limits.lease:
            # Error Codes, UNSUPPORTED_SETUP: "Some (or all) of the parameters specified by the
            # client are unsupported by the server."
            raise UnsupportedSetup("leases are not supported")
        if setup.keepalive > self.limits.max_keepalive * 1000:
            longest = f"{self.limits.max_keepalive * 1000:.0f} ms"
            raise UnsupportedSetup(f"keepalive {setup.keepalive} ms is over {longest}")
        lifetime = min(setup.lifetime / 1000, self.limits.max_lifetime)
        self._lifetime = max(lifetime, 2 * setup.keepalive / 1000)
        self.setup = setup
        given = ConnectionInput.HOLD if self.holds else ConnectionInput.SETUP
        self.state = CONNECTION[self.state, given]
        events.append(frame)

    # The next five are for sessions that can be resumed: see `ResumableConnection`.

    def _begin_session(self) -> None:
        """Begin to count positions, after a SETUP with a resume token was received or sent.

        Raises:
            RejectedSetup: Sessions cannot be resumed here.
        """
        # SETUP Frame: "A server that receives a SETUP frame that has (R)esume Enabled set, but does
        # not support resuming operation, MUST reject the SETUP with an ERROR[REJECTED_SETUP]."
        raise RejectedSetup("sessions cannot be resumed here")

    def _receive_resume_first(self, frame: Frame, events: list[Event]) -> None:
        """Receive a RESUME as the first frame.

        Raises:
            RejectedResume: Sessions cannot be resumed here, or the frame is broken.
        """
        # Resume Operation: the server "MUST send an ERROR[REJECTED_RESUME] frame if the server does
        # not support resuming operation."
        raise RejectedResume("sessions cannot be resumed here")

    def _position(self) -> int:
        """Return the position up to which the peer's frames were received."""
        # KEEPALIVE Frame, Last Received Position: "(optional. Set to all 0s when not supported.)"
        return 0

    def _position_before(self, frame: Frame) -> int:
        """Return the position up to which frames were received before one of the last read."""
        return 0

    def _receive_position(self, position: int) -> None:
        """Receive the position up to which the peer has received, in a KEEPALIVE."""

    # The frames of an open connection.

    def _receive_control(self, frame: Frame, events: list[Event]) -> None:
        """Receive a frame that neither opens a stream nor belongs to a live one."""
        if frame.stream_id > 0x7FFFFFFF:
            raise MalformedFrame("the reserved bit of a stream id is set")
        if not self._understood(frame):
            return
        handler = _HANDLERS.get(frame.type)
        if handler is None or (frame.stream_id and frame.type == FrameType.ERROR):
            # Handling the Unexpected: "Receiving a CANCEL on an unknown Stream ID (including 0)
            # MUST be ignored." The same holds for ERROR and PAYLOAD.
            self.counters["unknown_stream"] += 1
        elif frame.stream_id:
            # Handling the Unexpected: "Receiving a METADATA_PUSH with a non-0 Stream ID MUST be
            # ignored."
            self.counters["control_frame_on_stream"] += 1
        else:
            handler(self, frame, events)

    def _understood(self, frame: Frame) -> bool:
        """Count a frame of an unknown type that may be ignored; one that may not is fatal."""
        if frame.type in _UNDERSTOOD:
            return True
        if not frame.word & IGNORE:
            # Handling Ignore Flag: "An implementation MAY send an ERROR[CONNECTION_ERROR] frame and
            # close the underlying transport connection on reception of a frame that it does not
            # understand with this bit not set."
            raise MalformedFrame(f"frame type 0x{frame.type:02x} is unknown")
        self.counters["unknown_type"] += 1
        return False

    def _inner_fields_fit(self, frame: Frame) -> bool:
        """Check a frame of the connection; broken ones with the I flag are only counted."""
        # Metadata Optional Header: "the receiver MUST send an ERROR[CONNECTION_ERROR] frame and
        # close the underlying transport connection on reception unless the frame's IGNORE flag is
        # set."
        if frame.word & IGNORE:
            try:
                check_frame(frame)
            except MalformedFrame:
                self.counters["malformed_ignored"] += 1
                return False
        check_frame(frame)
        return True

    def _receive_keepalive(self, frame: Frame, events: list[Event]) -> None:
        if not self._inner_fields_fit(frame):
            return
        size = frame.end - frame.data_offset
        if size > self.limits.max_keepalive_data:
            limit = self.limits.max_keepalive_data
            raise MalformedFrame(f"KEEPALIVE data of {size} bytes is over {limit} bytes")
        self._receive_position(frame.position)
        if frame.word & RESPOND:
            # KEEPALIVE Frame: "Reception of a KEEPALIVE frame with the (R)espond flag set MUST
            # cause a client or server to send back a KEEPALIVE with the (R)espond flag NOT set. The
            # data in the received KEEPALIVE MUST be echoed back in the generated KEEPALIVE."
            data = frame.buffer[frame.data_offset : frame.end]
            position = self._position_before(frame)
            self._out += keepalive_frame(data, respond=False, position=position)
            self._measure()
        elif self._asked_at:
            self.round_trip = self._last_received - self._asked_at
            self._asked_at = 0.0

    def _measure(self) -> None:
        """Send a KEEPALIVE as a server, if the round trip is to be measured again."""
        now, every = self._last_received, self.measure_every
        if every and self.role is Role.SERVER and now - self._measured_at >= every:
            self._measured_at = self._asked_at = now
            self.send_keepalive()

    def _receive_error(self, frame: Frame, events: list[Event]) -> None:
        """Receive an ERROR on stream 0."""
        if not self._inner_fields_fit(frame):
            return
        code = frame.error_code
        # Connection Establishment: "A client assumes a SETUP is rejected if it receives an ERROR."
        awaited = self.role is Role.CLIENT and not self._established and not events
        if not awaited and (code in _SETUP_CODES or code in _STREAM_CODES):
            # Handling the Unexpected: "A server MUST ignore an
            # ERROR[INVALID_SETUP|UNSUPPORTED_SETUP|REJECTED_SETUP|REJECTED_RESUME] frame." A client
            # MUST too, "after it has completed connection establishment."
            self.counters["error_ignored"] += 1
        elif code == ErrorCode.CONNECTION_CLOSE:
            # Error Codes, CONNECTION_CLOSE: "Sender or Receiver of this frame MUST wait for
            # outstanding streams to terminate before closing the connection."
            # `receive_data` ends the connection if no stream is left.
            self.state = CONNECTION[self.state, ConnectionInput.CONNECTION_CLOSE]
            events.append(frame)
        else:
            # ERROR Frame: "A Stream ID of 0 means the error pertains to the connection."
            raise PeerError(frame.error_text, code=code)

    def _receive_metadata_push(self, frame: Frame, events: list[Event]) -> None:
        # METADATA_PUSH Frame: "This frame only supports Metadata, so the Metadata Length header
        # MUST NOT be included." The flag M is set in the specification's picture of the frame, and
        # some clients leave it out. It is set where the frame is relayed.
        frame.word |= METADATA
        events.append(frame)

    def _receive_lease(self, frame: Frame, events: list[Event]) -> None:
        if self.setup is None or not (self.setup.lease and self.limits.lease):
            # SETUP Frame: "(L)ease: Will honor LEASE (or not)." Without it a LEASE has no meaning.
            self.counters["lease_ignored"] += 1
        elif self._inner_fields_fit(frame):
            events.append(frame)

    def _receive_second_setup(self, frame: Frame, events: list[Event]) -> None:
        # Handling the Unexpected: "A server MUST ignore a SETUP frame after it has accepted a
        # previous SETUP." and "A client MUST ignore a SETUP frame."
        self.counters["setup_ignored"] += 1

    def _receive_resume(self, frame: Frame, events: list[Event]) -> None:
        # Resume Operation: "A Server that receives a RESUME frame after a SETUP frame, SHOULD send
        # an ERROR[CONNECTION_ERROR]."
        if self.role is Role.SERVER:
            raise RSocketError("RESUME after SETUP")
        self.counters["resume_ignored"] += 1

    def _receive_resume_ok(self, frame: Frame, events: list[Event]) -> None:
        self.counters["resume_ignored"] += 1


_UNDERSTOOD: Final[frozenset[int]] = frozenset(FrameType) - {FrameType.EXT}
_HANDLERS: Final[dict[int, Callable[[Control, Frame, list[Event]], None]]] = {
    FrameType.SETUP: Control._receive_second_setup,
    FrameType.LEASE: Control._receive_lease,
    FrameType.KEEPALIVE: Control._receive_keepalive,
    FrameType.ERROR: Control._receive_error,
    FrameType.METADATA_PUSH: Control._receive_metadata_push,
    FrameType.RESUME: Control._receive_resume,
    FrameType.RESUME_OK: Control._receive_resume_ok,
}
