"""A connection with a session that can be resumed over another transport.

Theory of operation
===================

A session begins with a SETUP that has a resume token. Each side counts the bytes that it receives
in frames of streams, and keeps those that it sends. The loss of the transport suspends the
connection, and leaves its streams as they are. Over another transport the client sends RESUME, with
what it has received; the server answers with RESUME_OK, and what it has received; and both send
again what the other lacks. A frame that was not whole at the loss was not received.

The I/O layer calls `suspend` where it would call `receive_eof`. While the connection is suspended
it goes on to call `data_to_send`, which keeps the frames, and `handle_timer`. For a RESUME it calls
`accept_resume` as the server, and `send_resume` as the client.

All of it is in a subclass, so that connections without it pay nothing.
"""

from __future__ import annotations

from typing import Final

from .._closed import close_class
from ._connection import Connection
from ._constants import HEADER_SIZE, LENGTH_SIZE, FrameType
from ._errors import LocalProtocolError, PeerError, RejectedResume, ResumeTimeout, RSocketError
from ._events import Event, Resumed
from ._frames import Frame, check_frame
from ._kept_frames import KeptFrames, positions_in
from ._limits import ConnectionLimits
from ._octets import unpack_header
from ._resume import Resume, resume_ok_frame
from ._resumption import ResumeLimits, ResumeRefusal, refusal_of
from ._setup import Setup
from ._states import CONNECTION, ConnectionInput, ConnectionState, Role

__all__ = ["ResumableConnection"]

_PREFIXED_HEADER: Final = LENGTH_SIZE + HEADER_SIZE
_OPEN: Final = ConnectionState.OPEN
_SUSPENDED: Final = ConnectionState.SUSPENDED
_RESUMING: Final = ConnectionState.RESUMING


class ResumableConnection(Connection):
    """The state of one connection with a session that can be resumed.

    Args:
        role: The end of the connection, client or server.
        limits: Its limits.
        resume: The limits of the session.
        now: The time, as for `Connection`.

    Attributes:
        kept: The frames kept to be sent again; `None` as long as there is no resume token.
        received: The position up to which the peer's frames were received.
    """

    __slots__ = ("_counted", "_read", "_resume", "_until", "kept", "received")

    def __init__(
        self, role: Role, limits: ConnectionLimits | None, resume: ResumeLimits, *, now: float
    ) -> None:
        super().__init__(role, limits, now=now)
        self._resume = resume
        self.kept: KeptFrames | None = None
        self.received: int = 0
        self._until = now
        self._read = b""  # the last bytes read; their frames are counted up to `_counted`
        self._counted: int = 0

    # --- the session ----------------------------------------------------------------------

    def _begin_session(self) -> None:
        self.kept = KeptFrames(self._resume.max_kept)

    def send_setup(self, setup: Setup, *, keepalive_at: float | None = None) -> None:
        """Send SETUP, as a client; see `Connection.send_setup`. A token in it begins a session."""
        super().send_setup(setup, keepalive_at=keepalive_at)
        if setup.token is not None:
            self._begin_session()

    @property
    def suspended(self) -> bool:
        """Whether the transport was lost, and the session is not resumed yet."""
        return self.state is _SUSPENDED or self.state is _RESUMING

    def suspend(self, now: float) -> bool:
        """Suspend the session after the loss of its transport, or after one that resumed nothing.

        Returns:
            False if the connection has no session or is not open: call `receive_eof` then.
        """
        state = CONNECTION.get((self.state, ConnectionInput.LOSS))
        if self.kept is None or state is None:
            return False
        if self.state is _OPEN:
            self._until = now + self._resume.time
        self.state = state
        # Implied Position: "partial frames are not delivered for processing".
        self._tail.clear()
        self.data_to_send()  # what was not written is kept as well
        return True

    def accept_resume(self, resume: Resume, now: float) -> list[bytes | memoryview]:
        """Resume the session as the server, over a new transport.

        Args:
            resume: The RESUME of the client.
            now: The time.

        Returns:
            RESUME_OK and the frames to send again: to be written before any that `data_to_send`
            returns.

        Raises:
            RejectedResume: The positions do not allow it. The session can only be closed.
            LocalProtocolError: The session is not suspended.
        """
        kept = self.kept
        if self.role is Role.CLIENT or self.state is not _SUSPENDED or kept is None:
            raise LocalProtocolError(f"no RESUME_OK from a {self.role.value} {self.state.name}")
        refusal = refusal_of(resume, self.received, kept)
        again = None if refusal is not None else kept.since(resume.last_received)
        if again is None:
            raise RejectedResume((refusal or ResumeRefusal.NO_BORDER).value)
        kept.trim(resume.last_received)
        self._go_on(now)
        # Resume Operation: the server "MAY retransmit *all* REQUEST, CANCEL, ERROR, and PAYLOAD
        # frames starting at the RESUME Last Received Position field value from the client."
        return [resume_ok_frame(self.received), *again]

    def send_resume(self) -> bytes:
        """Begin to resume the session as the client; return RESUME, to be written at once.

        Nothing else is written until the event `Resumed`.

        Raises:
            LocalProtocolError: The session is not suspended.
        """
        kept, setup = self.kept, self.setup
        token = None if setup is None else setup.token
        if (
            self.role is Role.SERVER
            or self.state is not _SUSPENDED
            or kept is None
            or token is None
        ):
            raise LocalProtocolError(f"no RESUME from a {self.role.value} {self.state.name}")
        self.state = CONNECTION[self.state, ConnectionInput.RESUME]
        # Resume Operation: "The RESUME Identification Token MUST be the token used in the original
        # SETUP frame. The RESUME Last Received Position field MUST be the last successfully
        # received implied position from the server."
        return Resume(
            token=token, last_received=self.received, first_available=kept.first
        ).serialize()

    def _go_on(self, now: float) -> None:
        self.state = CONNECTION[self.state, ConnectionInput.RESUME_OK]
        # An earlier time of the next KEEPALIVE has passed, or is soon enough.
        self._last_received = now
        self._needed = LENGTH_SIZE

    # --- sending --------------------------------------------------------------------------

    def data_to_send(self) -> bytearray:
        """Hand over the bytes to write, as `Connection`, and keep those of streams."""
        out = super().data_to_send()
        if out and self.kept is not None:
            self.kept.add(out)
        return out

    # --- receiving ------------------------------------------------------------------------

    def _receive_frames(self, data: bytes, pos: int, events: list[Event]) -> int:
        if self.kept is None:
            return super()._receive_frames(data, pos, events)
        self._read = data
        self._counted = pos
        end = super()._receive_frames(data, pos, events)
        self._count_to(end)
        self._read = b""
        return end

    def _count_to(self, end: int) -> None:
        """Count the frames of the last read up to an offset."""
        self.received += positions_in(self._read, self._counted, end)
        self._counted = end

    def _receive_first(self, data: bytes, events: list[Event]) -> int:
        """Receive the first frame: SETUP or RESUME, or as a client the answer to RESUME."""
        if self.state is not _RESUMING:
            return super()._receive_first(data, events)
        if len(data) < _PREFIXED_HEADER:
            return 0
        high, low, stream_id, word = unpack_header(data, 0)
        end: int = LENGTH_SIZE + (high << 16 | low)
        if end > len(data) or end < _PREFIXED_HEADER:
            return 0
        frame = Frame.of(data, LENGTH_SIZE, end, stream_id, word)
        check_frame(frame)
        if frame.type == FrameType.ERROR and not stream_id:
            raise PeerError(frame.error_text, code=frame.error_code)
        # Resume Operation: "Client waits for either a RESUME_OK or
        # ERROR[CONNECTION_ERROR|REJECTED_RESUME] frame from the server."
        if frame.type != FrameType.RESUME_OK or stream_id:
            raise RSocketError(f"{frame!r} is no answer to RESUME")
        kept = self.kept
        again = None if kept is None else kept.since(frame.position)
        if kept is None or again is None:
            raise RSocketError("RESUME_OK has a position from which no frame is kept")
        kept.trim(frame.position)
        self._go_on(self._last_received)
        # Resume Operation: the client "MAY retransmit *all* REQUEST, CANCEL, ERROR, and PAYLOAD
        # frames starting at the RESUME_OK Last Received Position field value from the server."
        events.append(Resumed(tuple(again)))
        return end

    def _receive_resume_first(self, frame: Frame, events: list[Event]) -> None:
        """Hold a RESUME: the caller decides on it, with the session that it names."""
        Resume.parse(frame)
        self.state = CONNECTION[self.state, ConnectionInput.HOLD]
        events.append(frame)

    def unread(self) -> bytes:
        """Return the bytes after a RESUME that is held, and keep none of them."""
        tail = bytes(self._tail)
        self._tail.clear()
        return tail

    def _position(self) -> int:
        return self.received

    def _position_before(self, frame: Frame) -> int:
        if self.kept is not None:
            self._count_to(frame.start - LENGTH_SIZE)
        return self.received

    def _receive_position(self, position: int) -> None:
        kept = self.kept
        if kept is None:
            return
        if position > kept.end:
            self.counters["position_ignored"] += 1
        else:
            kept.trim(position)

    # --- time -----------------------------------------------------------------------------

    def get_timer(self) -> float | None:
        """Return the time at which to call `handle_timer`, or `None` for never."""
        return self._until if self.suspended else super().get_timer()

    def handle_timer(self, now: float) -> list[Event]:
        """Run the timers that are due, as `Connection`; end a session that was not resumed."""
        if not self.suspended:
            return super().handle_timer(now)
        if now < self._until:
            return []
        text = f"the session was not resumed within {self._resume.time:g} s"
        return [self._end(ResumeTimeout(text))]


close_class(ResumableConnection)
