"""The socket half of a connection: when it is read, when it is written, when it is closed.

What comes in is no business of this module: `Link` reads it. Here is what bounds a peer that
does not read, or is not read: the pause rules, how long a peer may stall, and how long its
socket may stay open once the connection is over.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

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
"""Seconds after which a peer that is not read is looked at again for its keepalive."""

BULK: Final = 64 * 1024
"""Bytes that are many for one connection: from so many on it is cheaper not to copy what is
written, and what waits for its socket is counted for all connections together."""

TURN: Final = 16 * 1024
"""Bytes of frames that one connection has handled before others have their turn.

Of the smallest frames, or of requests that find no destination, that takes some milliseconds. Each
connection may have one such turn in a pass of the loop, so a pass takes as long as the turns of all
that have as much to say: a hundred that flood the broker make it a second. What bounds that is how
many connections a source may have.
"""

_HEAD: Final = 16
"""Bytes that the length of a frame is in, with or without a WebSocket's header."""


class Flow(asyncio.Protocol, ABC):
    """A connection's socket, and the state machine it is read and written for.

    Attributes:
        core: The state machine.
        options: The limits.
        shared: What all connections of the listener hold.
        peer_name: The peer's address, for the log.
        source: What all connections of the peer have in common: its address, or its user. What
            they take together is counted by it; empty if nothing is known of it.
        now: When the last chunk of input came, by `clock_of` the loop.
        in_turns: Whether what it is given comes in turns already.
        flushing: Whether what is queued will be written at the end of this turn.
        write_paused: Whether more than `high_water` bytes wait for the socket.
        closed_reason: Why the connection ended, in a few words, the same for the same cause:
            `setup refused`, `no setup`, `silent`, `broken frame`, `error of the peer`,
            `too slow`, `unfinished frame`, `unfinished frames`, `replaced`, `stopped`, or
            `by the peer`. Empty while it lives.

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
        # No more than `low_water`, so that all is noted while writing is paused.
        self._much = min(BULK, options.low_water)
        self._half = options.max_pending // 2
        self._seen = 0  # bytes that waited when it was last looked, while writing is paused
        self._read = 0  # bytes that the peer has read since writing was paused
        self._read_before = 0  # of them, those before its time began that is running
        self._noted = False  # as one for which more than a little waits
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
        # What was read and has its turns later from `_later_at` on, how many of some of its bytes
        # belong to the frame that they begin in, and what handles it.
        self._later = b""
        self._later_at = 0
        self._reach: Callable[[bytes], int] | None = None
        self._handle: Callable[[bytes], object] | None = None
        self.in_turns = False
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        # Those whose sockets are full of what this one sends to them; it is not read meanwhile.
        self._blocked_by: set[Flow] = set()
        self._blocking: set[Flow] = set()
        # A stream on which this peer answers, as far as one has been looked for.
        self._answers: Stream | None = None
        self.closed_reason = ""

    @abstractmethod
    def _on_event(self, event: Event) -> None:
        """Act on what the state machine says of a stream or of the connection."""

    # --- the socket ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        self._transport = cast(asyncio.Transport, transport)
        options = self.options
        self._transport.set_write_buffer_limits(options.high_water, options.low_water)
        name: Any = transport.get_extra_info("peername")
        self.peer_name = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "unix")
        self._arm()

    def eof_received(self) -> bool:
        """Let the socket close: RSocket has no half-closed connections."""
        self.end_core(self.core.receive_eof())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything that used this connection."""
        self.end_core(self.core.receive_eof())
        self._end()
        self._transport = None

    def flush_soon(self) -> None:
        """Write what has been queued at the end of this turn of the loop."""
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
        """Note how much waits for the socket; close if that is too much, or another one is."""
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
            # It has had more than its own limit: no need to measure what others hold by now.
            self._give_up_requests()
        elif shares.measure():
            while shares.exceeds(source) and (most := shares.overdrawn(source)) is not None:
                if not most.give_up_share():
                    break

    def give_up_share(self) -> bool:
        """Let go of what waits for this peer, as its source has more than its share.

        Returns:
            Whether the connection was closed. If not, the peer reads, and all connections
            together hold no more than they may: what waits for it becomes less as it reads.
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
        """Bytes that wait for the socket."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _arm(self) -> None:
        """Set the timer to what the state machine asks for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.core.get_timer()
        if at is not None and self._transport is not None:
            self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._blocked_by:
            # Not read because of us: its silence says nothing.
            self._timer = self._loop.call_later(BLOCKED_RECHECK, self._on_timer)
            return
        self.end_core(self.core.handle_timer(self._now()))
        self._arm()

    def end_core(self, events: Iterable[Event]) -> None:
        """Act on the events of a state machine that may have ended, and send what is left."""
        for event in events:
            self._on_event(event)
        self._settle()

    def _settle(self) -> None:
        """Send what the state machine has queued, and close if it has ended."""
        if self.core.pending:
            self.flush_soon()
        if self.core.close_expected():
            self._close_when_flushed()

    # --- slow peers ---------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Note that the peer does not read as fast as it is sent to."""
        self.write_paused = True
        self._seen = self.waiting
        self._read = self._read_before = 0
        self._stall = self._loop.call_later(self.options.stall_timeout, self._on_stalled)
        if self.only_requests():
            self.block(self)

    def resume_writing(self) -> None:
        """Let those go on who waited for this socket."""
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
        """Say whether nobody waits for an answer from this peer.

        A peer that answers must always be read: it may be unable to take anything before
        it has got rid of its answers.
        """
        known = self._answers
        if known is not None and known.state != CLOSED:
            return False
        streams = self.core.streams.values()
        self._answers = next((stream for stream in streams if stream.requester), None)
        return self._answers is None

    def block(self, by: Flow) -> None:
        """Do not read this peer until the socket of another takes what it sends there."""
        if self._transport is None or by._transport is None:
            return  # One of them is over, and would never take the other out of its set.
        if not self._blocked_by:
            self._transport.pause_reading()
        self._blocked_by.add(by)
        by._blocking.add(self)

    def unblock(self, by: Flow) -> None:
        """Read this peer again, as far as one socket is concerned."""
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
        """Read this peer, whatever it was not read for."""
        for flow in list(self._blocked_by):
            self.unblock(flow)

    def _unblock_all(self) -> None:
        """Read those again who were not read because of this socket."""
        for flow in list(self._blocking):
            flow.unblock(self)

    def _note_read(self) -> None:
        """Note what the peer has read since it was last looked."""
        waiting = self.waiting
        if waiting < self._seen:
            self._read += self._seen - waiting
        self._seen = waiting

    def _on_stalled(self) -> None:
        """Close if the peer has hardly read anything; one that reads steadily has time.

        It has no more than that while others are not read because of it: a destination could
        stop the connections of all that send to it by reading just enough.
        """
        self._stall = None
        self._note_read()
        if self._read - self._read_before < self.options.low_water or self._stops_others():
            self._too_slow("it has not read for too long")
            return
        self._read_before = self._read
        self._stall = self._loop.call_later(self.options.stall_timeout, self._on_stalled)

    def _stops_others(self) -> bool:
        """Whether connections that send to this peer are not read because of it."""
        return any(flow is not self for flow in self._blocking)

    def _hold_back(self) -> None:
        """Hold back those that send to this peer alone: it has half of what may wait."""

    def _give_up_requests(self) -> None:
        """End the newest of the peer's requests, if more waits than when it was last asked."""

    # --- reading ------------------------------------------------------------------------------

    def first_turn(
        self, data: bytes, reach: Callable[[bytes], int], handle: Callable[[bytes], object]
    ) -> bytes:
        """Return as much of what was read as is handled now; the rest has its turns later.

        A peer that keeps sending small frames would have the loop to itself otherwise: what is
        read at once can be tens of thousands of frames. It is not read until all is handled.

        Args:
            data: What was read, more than `TURN` bytes; or a turn of it, which stays as it is.
            reach: Returns how many of some bytes belong to the frame that they begin in, as far
                as is known.
            handle: What handles it.
        """
        self._rest()
        whole = max(TURN, reach(data))
        if whole >= len(data):
            return data
        self._later, self._later_at, self._reach, self._handle = data, whole, reach, handle
        return data[:whole]

    def _next_turn(self, reach: Callable[[bytes], int]) -> bytes:
        """Return as much of what was read as has the next turn, without a copy of the rest."""
        later, at = self._later, self._later_at
        if len(later) - at <= TURN:
            return self.take_later()
        stop = at + max(TURN, reach(later[at : at + _HEAD]))
        if stop >= len(later):
            return self.take_later()
        self._later_at = stop
        return later[at:stop]

    def take_later(self) -> bytes:
        """Return what has not had its turn yet; it is up to the caller then."""
        later = self._later[self._later_at :]
        self._later, self._later_at, self._reach, self._handle = b"", 0, None, None
        return later

    def _rest(self) -> None:
        """Do not read until others had their turn.

        Some event loops read on and on while there is something to read, and who is sent to
        would not be seen to be slow before it is far above its limits.
        """
        if not self._resting and self._transport is not None:
            self._resting = True
            self._transport.pause_reading()
            self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        """Handle one more turn of what was read, or read on."""
        self._resting = False
        handle, reach, transport = self._handle, self._reach, self._transport
        if handle and reach and transport is not None and not self._blocked_by:
            # A transport that is closing looks for its end in all that there is.
            handle(self.take_later() if transport.is_closing() else self._next_turn(reach))
        self._read_on()

    def _note_unfinished(self) -> None:
        core = self.core
        self._keeps = core.unfinished > 0
        self._unfinished.note(self, core.unfinished, core.unfinished_since)

    # --- the end of things --------------------------------------------------------------------

    def close(self, reason: str, text: str, code: int = ErrorCode.CONNECTION_ERROR) -> None:
        """Close in order: tell the peer why, send what is waiting, then close the socket.

        Args:
            reason: Why, as in `closed_reason`.
            text: What the peer is told.
            code: The code of the ERROR frame that says so.
        """
        self.closed_reason = self.closed_reason or reason
        self.end_core(self.core.close(code, text))

    def _too_slow(self, text: str) -> None:
        """Close at once, and say why."""
        self.closed_reason = self.closed_reason or "too slow"
        self._seldom.log(logging.WARNING, "too slow", "closing %s: %s", self.peer_name, text)
        self.abort()

    def abort(self) -> None:
        """Close at once; what is waiting to be sent is lost."""
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
        """Let go of the socket: it is closed."""
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
