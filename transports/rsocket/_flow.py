"""The flow control of a connection's socket.

`Link` reads the frames. This module has the limits for a peer that does not read, or is not
read: the pauses, the time that a peer may stall, and the time that a closing socket may stay
open.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final, cast

from ...actors.runtime._clock import clock_of
from ...protocol.rsocket import (
    CLOSED,
    Connection,
    ErrorCode,
    Event,
    Role,
    Stream,
)
from .._log import SeldomLogger
from ._options import LinkOptions
from ._shared import Shared

__all__ = ["BULK", "TURN", "Flow"]

BLOCKED_RECHECK: Final = 1.0
"""Seconds after which the keepalive of a peer that is not read is checked again."""

BULK: Final = 64 * 1024
"""Bytes above which a write is cheaper without a copy, and above which the backlog of one
connection counts for all connections together."""

TURN: Final = 16 * 1024
"""Bytes of frames that one connection has handled in one turn.

For the smallest frames, or for requests without a destination, a turn takes some milliseconds. Each
connection may have one turn in a pass of the loop: a hundred connections that flood the broker make
a pass of a second. The limit on that is the number of connections of a source.
"""

_HEAD: Final = 16
"""Bytes in which the length of a frame is found, with or without a WebSocket's header."""


class Flow(asyncio.Protocol, ABC):
    """A connection's socket and state machine, and the flow control between them.

    Attributes:
        core: The state machine.
        options: The limits.
        shared: What all connections of the listener hold.
        peer_name: The peer's address, for the log.
        source: The peer's address or user, by which shared limits are counted; empty if it is
            unknown.
        now: The time of the last read, by `clock_of` the loop.
        in_turns: Whether the input is split into turns already.
        flushing: Whether a flush is scheduled for the end of this turn.
        write_paused: Whether more than `high_water` bytes wait for the socket.
        closed_reason: The reason of the end of the connection, as a counter key: `setup refused`,
            `no setup`, `silent`, `broken frame`, `error of the peer`, `too slow`,
            `unfinished frame`, `unfinished frames`, `replaced`, `stopped`, or `by the peer`. Empty
            while it is open.

    Args:
        loop: The loop of the socket.
        options: The limits.
        seldom: Logs the warnings of all connections of the listener.
        shared: What all connections of the listener hold.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: LinkOptions,
        seldom: SeldomLogger,
        shared: Shared,
    ) -> None:
        self.options = options
        self._seldom = seldom
        self.shared = shared
        self._unfinished = shared.unfinished
        self._keeps = False
        # At most `low_water`, so that every backlog is counted while writing is paused.
        self._much = min(BULK, options.low_water)
        self._half = options.max_pending // 2
        self._seen = 0  # backlog at the last check, while writing is paused
        self._read = 0  # bytes that the peer has read since writing was paused
        self._read_before = 0  # of them, those before the current stall timer
        self._noted = False  # whether its backlog is counted in `shared.waiting`
        self._loop = loop
        self._now = clock_of(loop)
        self.now = self._now()
        self.core = Connection(Role.SERVER, options.connection, now=self.now)
        self._transport: asyncio.Transport | None = None
        self._aborting: asyncio.TimerHandle | None = None
        self.peer_name = ""
        self.source = ""
        self.write_paused = False
        self.flushing = False
        self._resting = False
        # Input for later turns, from `_later_at` on; the length of the frame at its start; and its
        # handler.
        self._later = b""
        self._later_at = 0
        self._reach: Callable[[bytes], int] | None = None
        self._handle: Callable[[bytes], object] | None = None
        self.in_turns = False
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        # Connections with full sockets to which this one sends; it is not read meanwhile.
        self._blocked_by: set[Flow] = set()
        self._blocking: set[Flow] = set()
        # A stream on which this peer responds, if one was found.
        self._answers: Stream | None = None
        self.closed_reason = ""

    @abstractmethod
    def _on_event(self, event: Event) -> None:
        """Act on an event of the state machine."""

    # --- the socket ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket and its limits, and start the timer."""
        self._transport = cast(asyncio.Transport, transport)
        options = self.options
        self._transport.set_write_buffer_limits(options.high_water, options.low_water)
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
        if self.write_paused:
            self._note_read()
        transport.write(self.core.data_to_send())
        waiting = transport.get_write_buffer_size()
        if waiting > self._much or self._noted:
            self._note_waiting(waiting)
        if self.core.close_expected():
            self._close_when_flushed()

    def _note_waiting(self, waiting: int) -> None:
        """Count the socket's backlog, and enforce the limits of one and of all connections."""
        self._noted = waiting > self._much
        self._seen = waiting
        if waiting > self._half:
            self._hold_back()
        if waiting > self.options.max_pending and not self._read:
            self._too_slow("it does not read what it is sent")
            return
        shares, source = self.shared.waiting, self.source
        shares.note(self, waiting if self._noted else 0)
        if not shares.exceeds(source):
            return
        if waiting > self.options.max_pending and not shares.full:
            # It is over its own limit: the others need not be measured.
            self._give_up_requests()
        elif shares.measure():
            while shares.exceeds(source) and (most := shares.overdrawn(source)) is not None:
                if not most.give_up_share():
                    break

    def give_up_share(self) -> bool:
        """Give up some of this peer's backlog, as its source exceeds its share.

        Returns:
            Whether the connection was closed. If not, the peer reads and the total limit is kept:
            the backlog shrinks as it reads.
        """
        shares = self.shared.waiting
        self._note_read()
        if self._read and not shares.full:
            self._give_up_requests()
            return False
        shares.give_up(self)
        self._too_slow(f"too much waits for connections of {self.source or 'its source'}")
        return True

    @property
    def waiting(self) -> int:
        """The socket's backlog in bytes."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

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
        if self._blocked_by:
            # It is not read by our choice: its silence means nothing.
            self._timer = self._loop.call_later(BLOCKED_RECHECK, self._on_timer)
            return
        self.end_core(self.core.handle_timer(self._now()))
        self._arm()

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

    # --- slow peers ---------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Start the stall timer of a full socket, and pause a peer that only requests."""
        self.write_paused = True
        self._seen = self.waiting
        self._read = self._read_before = 0
        self._stall = self._loop.call_later(self.options.stall_timeout, self._on_stalled)
        if self.only_requests():
            self.block(self)

    def resume_writing(self) -> None:
        """Read the connections again that were blocked on this socket."""
        self.write_paused = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self._unblock_all()

    @property
    def blocked(self) -> bool:
        """Whether the peer is not read now."""
        return bool(self._blocked_by)

    def only_requests(self) -> bool:
        """Return whether this peer has no request to answer.

        A peer that responds must always be read: it may be unable to read before it has written its
        responses.
        """
        known = self._answers
        if known is not None and known.state != CLOSED:
            return False
        streams = self.core.streams.values()
        self._answers = next((stream for stream in streams if stream.requester), None)
        return self._answers is None

    def block(self, by: Flow) -> None:
        """Pause reading this peer until another socket, to which it sends, has room."""
        if self._transport is None or by._transport is None:
            return  # a closed one would never leave the other's set
        if not self._blocked_by:
            self._transport.pause_reading()
        self._blocked_by.add(by)
        by._blocking.add(self)

    def unblock(self, by: Flow) -> None:
        """Remove one socket that blocks this peer; read it again if it was the last."""
        if by not in self._blocked_by:
            return
        by._blocking.discard(self)
        self._blocked_by.discard(by)
        self._read_on()

    def _read_on(self) -> None:
        if self._blocked_by or self._resting or self._transport is None:
            return
        if self._later:
            self._rest()
        else:
            self._transport.resume_reading()

    def read_again(self) -> None:
        """Read this peer again, whatever blocks it."""
        for flow in list(self._blocked_by):
            self.unblock(flow)

    def _unblock_all(self) -> None:
        """Read the connections again that are blocked by this socket."""
        for flow in list(self._blocking):
            flow.unblock(self)

    def _note_read(self) -> None:
        """Count the bytes that the peer has read since the last check."""
        waiting = self.waiting
        if waiting < self._seen:
            self._read += self._seen - waiting
        self._seen = waiting

    def _on_stalled(self) -> None:
        """Close the connection if the peer has read little; otherwise restart the timer.

        The timer is not restarted while the peer blocks others: by reading just enough, a
        destination could stop the connections of all its requesters.
        """
        self._stall = None
        self._note_read()
        if self._read - self._read_before < self.options.low_water or self._stops_others():
            self._too_slow("it has not read for too long")
            return
        self._read_before = self._read
        self._stall = self._loop.call_later(self.options.stall_timeout, self._on_stalled)

    def _stops_others(self) -> bool:
        """Whether this peer blocks other connections."""
        return any(flow is not self for flow in self._blocking)

    def _hold_back(self) -> None:
        """Hold back the destinations that answer this peer only, as its backlog is half full."""

    def _give_up_requests(self) -> None:
        """End the newest of the peer's requests, if its backlog has grown since the last call."""

    # --- reading ------------------------------------------------------------------------------

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
        if handle and reach and transport is not None and not self._blocked_by:
            # A closing transport gets all of it, to find the peer's Close.
            handle(self.take_later() if transport.is_closing() else self._next_turn(reach))
        self._read_on()

    def _note_unfinished(self) -> None:
        core = self.core
        self._keeps = core.unfinished > 0
        self._unfinished.note(self, core.unfinished, core.unfinished_since)

    # --- the end ------------------------------------------------------------------------------

    def close(self, reason: str, text: str, code: int = ErrorCode.CONNECTION_ERROR) -> None:
        """Send an ERROR to the peer, flush, then close the socket.

        Args:
            reason: The reason, as in `closed_reason`.
            text: The text of the ERROR.
            code: The code of the ERROR.
        """
        self.closed_reason = self.closed_reason or reason
        self.end_core(self.core.close(code, text))

    def _too_slow(self, text: str) -> None:
        """Log why the peer is too slow, and close at once."""
        self.closed_reason = self.closed_reason or "too slow"
        self._seldom.log(logging.WARNING, "too slow", "closing %s: %s", self.peer_name, text)
        self.abort()

    def abort(self) -> None:
        """Close at once; the backlog is lost."""
        if self._transport is not None:
            self._transport.abort()
        self.end_core(self.core.receive_eof())

    def _close_when_flushed(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._flush()
        transport.close()
        self._aborting = self._loop.call_later(self.options.drain_timeout, transport.abort)

    def _end(self) -> None:
        """Release the timers and the shares of a closed socket."""
        self.closed_reason = self.closed_reason or "by the peer"
        for handle in (self._timer, self._stall, self._aborting):
            if handle is not None:
                handle.cancel()
        self._timer = self._stall = self._aborting = None
        self.take_later()
        self.shared.waiting.note(self, 0)
        self._unblock_all()
        for flow in self._blocked_by:
            flow._blocking.discard(self)
        self._blocked_by.clear()
