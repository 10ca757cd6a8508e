"""One RSocket connection, in either role: its socket, its state machine, and the time.

A connection moves bytes between the two, splits its input into turns, dispatches the frames that
the state machine accepts, runs the timers of SETUP and keepalive, grants leases, and closes with a
reason. Its subclasses have the streams: `Link` relays those of the broker's peers, and `ClientLink`
has the requests and handlers of a client. The role says which side has opened the connection, and
nothing more: it sends SETUP and has the odd stream ids.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, cast

from ...actors.runtime._clock import clock_of
from ...protocol.rsocket import (
    Closed,
    Connection,
    ConnectionLimits,
    ErrorCode,
    Event,
    Frame,
    FrameType,
    Role,
    Setup,
    Stream,
    StreamFailed,
)
from ._leases import Leases
from ._request import INTERACTIONS

if TYPE_CHECKING:
    from ._options import LeaseOptions

__all__ = ["TURN", "BlockedOnWrite", "FrameReceiver", "RSocketConnection"]

_REQUESTS: Final = frozenset(INTERACTIONS) - {int(FrameType.METADATA_PUSH)}
"""The frame types that open a stream."""

BLOCKED_RECHECK: Final = 1.0
"""Seconds after which the keepalive of a peer that is not read is checked again."""

TURN: Final = 16 * 1024
"""Bytes of frames that one connection has handled in one turn.

For the smallest frames, or for requests without a destination, a turn takes some milliseconds. Each
connection may have one turn in a pass of the loop: a hundred connections that flood the broker make
a pass of a second. The limit on that is the number of connections of a source.
"""

_HEAD: Final = 16
"""Bytes in which the length of a frame is found, with or without a WebSocket's header."""


class BlockedOnWrite(Protocol):
    """A sender that is blocked by a full socket."""

    def replenish(self) -> None:
        """Pass on the credit or the elements held back while the socket was full."""


class FrameReceiver:
    """The receiver of the frames of one connection that are for no stream with a user.

    It is no abstract base class, as it is called for each request.
    """

    def on_request(self, frame: Frame) -> None:
        """Handle a request of the peer; its stream has no user yet."""
        raise NotImplementedError

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame of the connection; ignore one of a closed stream."""
        raise NotImplementedError


class RSocketConnection(asyncio.Protocol, ABC):
    """A connection: its socket, its state machine, and the timers and turns between them.

    Attributes:
        core: The state machine.
        leases: The leases in both directions; `None` without leases.
        blocked_on_write: Senders that wait for this socket, with credit or elements held back.
        now: The time of the last read, by `clock_of` the loop.
        in_turns: Whether the input is split into turns already.
        flushing: Whether a flush is scheduled for the end of this turn.
        write_paused: Whether more than `high` bytes wait for the socket.
        closed_reason: The reason of the end of the connection; empty while it is open.
        received_bytes: Bytes of frames read, without those of TLS and WebSockets.
        sent_bytes: Bytes of frames written, likewise.
        received_frames: Frames read and accepted, without KEEPALIVE.

    Args:
        loop: The loop of the socket.
        role: Whether this side is the client or the server.
        limits: The limits of the state machine.
        high: Bytes of the socket's backlog above which writing is paused.
        low: Bytes below which it is resumed.
        drain_timeout: Seconds in which a closing socket has to write its backlog.

    A subclass sets `_receiver`.
    """

    _receiver: FrameReceiver

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        role: Role,
        limits: ConnectionLimits,
        high: int,
        low: int,
        drain_timeout: float,
    ) -> None:
        self._loop = loop
        self._now = clock_of(loop)
        self.now = self._now()
        self.core = Connection(role, limits, now=self.now)
        self.leases: Leases | None = None
        self.blocked_on_write: set[BlockedOnWrite] = set()
        self.write_paused = False
        self.flushing = False
        self.closed_reason = ""
        self.received_bytes: int = 0
        self.sent_bytes: int = 0
        self.received_frames: int = 0
        self.in_turns = False
        self._marks = (high, low)
        self._drain_timeout = drain_timeout
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._aborting: asyncio.TimerHandle | None = None
        self._resting = False
        self._keeps = False  # whether bytes of an unfinished frame are counted
        # Input for later turns, from `_later_at` on; the length of the frame at its start; and its
        # handler.
        self._later = b""
        self._later_at = 0
        self._reach: Callable[[bytes], int] | None = None
        self._handle: Callable[[bytes], object] | None = None

    def time(self) -> float:
        """Return the time on the loop's clock, in seconds."""
        return self._now()

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call a function after a delay, in seconds of the loop's clock."""
        return self._loop.call_later(delay, callback)

    # --- frames -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the state machine, and dispatch the frames it accepts."""
        core = self.core
        if len(data) > TURN and not self.in_turns:
            data = self.first_turn(data, core.reach, self.data_received)
        self.received_bytes += len(data)
        now = self.now = self._now()
        events = core.receive_data(data, now)
        self.received_frames += len(events)
        for event in events:
            if type(event) is not Frame:
                self._on_event(event)
                continue
            stream = event.stream
            if stream.peer is not None:
                self._on_stream_frame(stream, event)
            elif event.type in _REQUESTS:
                self._receiver.on_request(event)
            else:
                self._receiver.on_frame(event)
        if core.unfinished or self._keeps:
            self._note_unfinished()
        if core.pending and not self.flushing:
            self.flush_soon()
        if core.close_expected():
            self._close_when_flushed()

    @abstractmethod
    def _on_stream_frame(self, stream: Stream, frame: Frame) -> None:
        """Pass a frame to the user of its stream, which is the stream's `peer`."""

    @abstractmethod
    def _on_stream_failed(self, event: StreamFailed) -> None:
        """End the user of a stream that the peer has broken."""

    @abstractmethod
    def _on_core_closed(self, event: Closed) -> None:
        """End the users of the streams of a connection that has ended."""

    @abstractmethod
    def _write(self, transport: asyncio.Transport) -> None:
        """Write the queued frames, and enforce the limits on the socket's backlog."""

    def _on_event(self, event: Event) -> None:
        """Act on an event of the state machine that is no frame."""
        if type(event) is StreamFailed:
            self._on_stream_failed(event)
        elif type(event) is Closed:
            self._on_core_closed(event)

    # --- opening ------------------------------------------------------------------------------

    def _open_core(
        self, setup: Setup, lease: LeaseOptions | None, *, keepalive_at: float | None = None
    ) -> None:
        """Send SETUP, as the client.

        Args:
            setup: The SETUP.
            lease: The leases for the peer.
            keepalive_at: The time of the first KEEPALIVE of the timer, by default one interval from
                now; infinite if the caller sends them.
        """
        self.core.send_setup(setup, keepalive_at=keepalive_at)
        self.set_up(setup, lease)
        self.flush_soon()

    def set_up(self, setup: Setup, lease: LeaseOptions | None) -> None:
        """Grant the first lease if the SETUP of either side has the L flag, and set the timer."""
        # Connection Establishment: "If the server accepts the contents of the SETUP frame, it MUST
        # send a LEASE frame if the SETUP frame set the L flag." "The client-side Responder MUST
        # send a LEASE frame after a SETUP frame with the L flag set."
        if setup.lease and lease is not None:
            self.leases = Leases(self, lease.requests, lease.valid, lease.interval)
        self._arm()

    # --- the socket ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket and its limits, and start the timer."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(*self._marks)
        self._arm()

    def eof_received(self) -> bool:
        """End the connection, as RSocket has no half-closed ones; return False to close."""
        self.end_core(self.core.receive_eof())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything that used this connection."""
        self.end_core(self.core.receive_eof())
        self._end()
        self._transport = None

    def flush_soon(self) -> None:
        """Write the queued frames at the end of this turn of the loop."""
        if not self.flushing:
            self.flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self.flushing = False
        transport = self._transport
        if transport is None or not self.core.pending:
            return
        self._write(transport)
        if self.core.close_expected():
            self._close_when_flushed()

    @property
    def waiting(self) -> int:
        """The socket's backlog in bytes."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        """Record that the socket is full."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Record that the socket has room; the subclass then calls `_replenish`."""
        self.write_paused = False

    def _replenish(self) -> None:
        """Resume the senders that the full socket has blocked."""
        blocked_on_write, self.blocked_on_write = self.blocked_on_write, set()
        for each in blocked_on_write:
            each.replenish()

    # --- time ---------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether the peer is not read now, by the choice of this side."""
        return False

    def _arm(self) -> None:
        """Set the timer to the time that the state machine returns."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.core.get_timer()
        if at is not None and self._transport is not None:
            self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._now()
        if self.blocked:
            # Handling the Unexpected: "The decision to close a connection due to inactivity is the
            # applications choice."
            # It is not read by our choice: its silence means nothing.
            self.core.excuse_silence(now + BLOCKED_RECHECK)
        self.end_core(self.core.handle_timer(now))
        self._arm()

    # --- reading in turns ---------------------------------------------------------------------

    def first_turn(
        self, data: bytes, reach: Callable[[bytes], int], handle: Callable[[bytes], object]
    ) -> bytes:
        """Return the part of the input for this turn, and keep the rest for later turns.

        One read can be tens of thousands of small frames. Without turns, a peer that floods would
        have the loop to itself. The socket is not read until all of it is handled.

        Args:
            data: The input, more than `TURN` bytes; or one turn of it, which stays as it is.
            reach: Returns the length of the frame at the start of some bytes, as far as known.
            handle: The handler of the later turns.
        """
        self._rest()
        whole = max(TURN, reach(data))
        if whole >= len(data):
            return data
        self._later, self._later_at, self._reach, self._handle = data, whole, reach, handle
        return data[:whole]

    def _next_turn(self, reach: Callable[[bytes], int]) -> bytes:
        """Return the part of the input for the next turn, without a copy of the rest."""
        later, at = self._later, self._later_at
        if len(later) - at <= TURN:
            return self.take_later()
        stop = at + max(TURN, reach(later[at : at + _HEAD]))
        if stop >= len(later):
            return self.take_later()
        self._later_at = stop
        return later[at:stop]

    def take_later(self) -> bytes:
        """Return the input kept for later turns, and keep none."""
        later = self._later[self._later_at :]
        self._later, self._later_at, self._reach, self._handle = b"", 0, None, None
        return later

    def _rest(self) -> None:
        """Pause reading until the next pass of the loop.

        Some event loops keep reading while there is input. The receiver's backlog would be far
        above its limits before it is checked.
        """
        if not self._resting and self._transport is not None:
            self._resting = True
            self._transport.pause_reading()
            self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        """Handle one more turn of the input, or resume reading."""
        self._resting = False
        handle, reach, transport = self._handle, self._reach, self._transport
        if handle and reach and transport is not None and not self.blocked:
            # A closing transport gets all of it, to find the peer's Close.
            handle(self.take_later() if transport.is_closing() else self._next_turn(reach))
        self._read_on()

    def _read_on(self) -> None:
        if self.blocked or self._resting or self._transport is None:
            return
        if self._later:
            self._rest()
        else:
            self._transport.resume_reading()

    def _note_unfinished(self) -> None:
        core = self.core
        self._keeps = core.unfinished > 0
        self.note_kept(core.unfinished, core.unfinished_since)

    def note_kept(self, kept: int, since: float) -> None:
        """Count the bytes of an unfinished frame or WebSocket message, since the first of them."""

    # --- the end ------------------------------------------------------------------------------

    def end_core(self, events: Iterable[Event]) -> None:
        """Act on events of the state machine, then flush, and close if it has ended."""
        for event in events:
            self._on_event(event)
        self._settle()

    def _settle(self) -> None:
        """Flush the state machine's output, and close the socket if it has ended."""
        if self.core.pending:
            self.flush_soon()
        if self.core.close_expected():
            self._close_when_flushed()

    def close(self, reason: str, text: str, code: int = ErrorCode.CONNECTION_ERROR) -> None:
        """Send an ERROR to the peer, flush, then close the socket.

        Args:
            reason: The reason, as in `closed_reason`.
            text: The text of the ERROR.
            code: The code of the ERROR.
        """
        self.closed_reason = self.closed_reason or reason
        self.end_core(self.core.close(code, text))

    def hang_up(self) -> None:
        """Close the socket once the backlog is written, without an ERROR."""
        self.end_core(self.core.receive_eof())

    def abort(self, reason: str = "") -> None:
        """Close at once; the backlog is lost."""
        self.closed_reason = self.closed_reason or reason
        if self._transport is not None:
            self._transport.abort()
        self.end_core(self.core.receive_eof())

    def _close_when_flushed(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._flush()
        transport.close()
        self._aborting = self._loop.call_later(self._drain_timeout, transport.abort)

    def _end(self) -> None:
        """Release the timers, the leases and the input of a closed socket."""
        for handle in (self._timer, self._aborting):
            if handle is not None:
                handle.cancel()
        self._timer = self._aborting = None
        self.blocked_on_write.clear()
        self.take_later()
        if self.leases is not None:
            self.leases.end()
