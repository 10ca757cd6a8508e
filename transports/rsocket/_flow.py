"""The flow control of a connection of the broker.

`Link` reads the frames. This module has the limits for a peer that does not read, or is not
read: the pauses, the backlogs, and the time that a peer may stall.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ...protocol.rsocket import CLOSED, ConnectionState, Role, Stream
from ...protocol.security import PeerIdentity
from .._log import SeldomLogger
from ..streams._lost_transport import LostTransport
from ._connection import RSocketConnection
from ._options import LinkOptions
from ._shared import Shared

__all__ = ["BULK", "Flow"]

BULK: Final = 64 * 1024
"""Bytes above which a write is cheaper without a copy, and above which the backlog of one
connection counts for all connections together."""

_AWAIT_SETUP: Final = ConnectionState.AWAIT_SETUP
_HELD: Final = ConnectionState.HELD
_UNKNOWN: Final = PeerIdentity()


class Flow(RSocketConnection):
    """A connection of the broker, and its flow control.

    Attributes:
        options: The limits.
        flow: Those of backlogs and credit, at hand for each frame.
        gathering: Those of what is held, likewise.
        shared: What all connections of the listener hold.
        left: Whether the peer has left while some of what it has sent is still to be handled.
        identity: The peer, as its transport has verified it.
        source: The source in its identity, at hand for the limits that are counted by source;
            empty if it is unknown.
        closed_reason: The reason of the end of the connection, as a counter key: `setup refused`,
            `not authenticated`, `credentials expired`, `no setup`, `silent`, `broken frame`,
            `error of the peer`, `too slow`, `unfinished frame`, `unfinished frames`, `replaced`,
            `drained`, `stopped`, or `by the peer`. With sessions that can be resumed also
            `resume refused`, `not resumed`, `not resumable`, or `resumed another` of a connection
            that went on as an earlier one. Of links of brokers also `handshake`, `peer refused` or
            `no handshake`. Empty while it is open.

    Args:
        loop: The loop of the socket.
        role: Whether this side is the client or the server.
        options: The limits.
        seldom: Logs the warnings of all connections of the listener.
        shared: What all connections of the listener hold.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        role: Role,
        options: LinkOptions,
        seldom: SeldomLogger,
        shared: Shared,
    ) -> None:
        high, low = options.flow.high_water, options.flow.low_water
        super().__init__(loop, role, options.connection, high, low, options.drain_timeout)
        self.options = options
        self.flow = options.flow
        self.gathering = options.gathering
        self._seldom = seldom
        self.shared = shared
        self._unfinished = shared.unfinished
        # At most `low_water`, so that every backlog is counted while writing is paused.
        self._much = min(BULK, options.flow.low_water)
        self._half = options.flow.max_pending // 2
        self._seen = 0  # backlog at the last check, while writing is paused
        self._read = 0  # bytes that the peer has read since writing was paused
        self._read_before = 0  # of them, those before the current stall timer
        self._noted = False  # whether its backlog is counted in `shared.waiting`
        self.left = False
        self.identity: PeerIdentity = _UNKNOWN
        self.source = ""
        self._stall: asyncio.TimerHandle | None = None
        # Connections with full sockets to which this one sends; it is not read meanwhile.
        self._blocked_by: set[Flow] = set()
        self._blocking: set[Flow] = set()
        # A stream on which this peer responds, if one was found.
        self._answers: Stream | None = None

    # --- the socket ---------------------------------------------------------------------------

    def _write(self, transport: asyncio.Transport) -> None:
        if self.write_paused:
            self._note_read()
        data = self.core.data_to_send()
        self.sent_bytes += len(data)
        transport.write(data)
        waiting = transport.get_write_buffer_size()
        if waiting > self._much or self._noted:
            self._note_waiting(waiting)

    def _note_waiting(self, waiting: int) -> None:
        """Count the socket's backlog, and enforce the limits of one and of all connections."""
        self._noted = waiting > self._much
        self._seen = waiting
        if waiting > self._half:
            self._hold_back()
        if waiting > self.flow.max_pending and not self._read:
            self._too_slow("it does not read what it is sent")
            return
        shares, source = self.shared.waiting, self.source
        shares.note(self, waiting if self._noted else 0)
        if not shares.exceeds(source):
            return
        if waiting > self.flow.max_pending and not shares.full:
            # It is over its own limit: the others need not be measured.
            self._give_up_requests()
        elif shares.measure():
            shares.reached += shares.exceeds(source)
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
    def kept_bytes(self) -> int:
        """The bytes kept to be sent again; 0 without a session that can be resumed."""
        return 0

    @property
    def name(self) -> str:
        """The name of the peer for the log."""
        return self.identity.peer

    # --- slow peers ---------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Start the stall timer of a full socket, and pause a peer that only requests."""
        super().pause_writing()
        self._seen = self.waiting
        self._read = self._read_before = 0
        self._stall = self._loop.call_later(self.flow.stall_timeout, self._on_stalled)
        if self.only_requests():
            self.block(self)

    def resume_writing(self) -> None:
        """Read the connections again that were blocked on this socket."""
        super().resume_writing()
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
        if self._read - self._read_before < self.flow.low_water or self._stops_others():
            self._too_slow("it has not read for too long")
            return
        self._read_before = self._read
        self._stall = self._loop.call_later(self.flow.stall_timeout, self._on_stalled)

    def _stops_others(self) -> bool:
        """Whether this peer blocks other connections."""
        return any(flow is not self for flow in self._blocking)

    def _hold_back(self) -> None:
        """Hold back the destinations that answer this peer only, as its backlog is half full."""

    def _give_up_requests(self) -> None:
        """End the newest of the peer's requests, if its backlog has grown since the last call."""

    # --- reading ------------------------------------------------------------------------------

    def note_kept(self, kept: int, since: float) -> None:
        """Count the bytes of an unfinished frame or WebSocket message, since the first of them."""
        self._unfinished.note(self, kept, since)

    # --- the end of the input -----------------------------------------------------------------

    def _waits(self) -> bool:
        """Whether the end of the input waits for what has come before it.

        That is the case until the peer is admitted, which has its limit of time, and then until the
        last turn of its input. A connection that is over waits for nothing.
        """
        state = self.core.state
        if state is _HELD or not self._later:
            return state is _HELD
        return state is _AWAIT_SETUP or (self.left and not self.core.closed)

    def eof_received(self) -> bool:
        """End the connection, once what has come is handled; return False to close the socket.

        TLS reports the end with the input before it, though the socket is not read meanwhile.
        """
        if self._waits() or (self._later and not self.core.closed):
            self.left = True
            return False
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything that used this connection, once what has come is handled."""
        transport = self._transport
        if transport is not None and self._waits():
            self.left = True
            extra = {"cipher": transport.get_extra_info("cipher")}
            self._transport = LostTransport(self, self._loop, exc, extra)
            if self.write_paused:
                self.resume_writing()  # it has room for all that is dropped
            return
        super().connection_lost(exc)

    def _read_on(self) -> None:
        """Read on, or end the connection of a peer that has left."""
        if self.left and not self._waits():
            self._loop.call_soon(self._end_input)
        else:
            super()._read_on()

    def _end_input(self) -> None:
        """Handle the end of the input, which has waited."""
        transport = self._transport
        if transport is None or not self.left or self._waits():
            return
        self.left = False
        self.eof_received()
        transport.close()  # as the loop does after the end of the input

    # --- the end ------------------------------------------------------------------------------

    def report(self, kind: str, text: str) -> None:
        """Log a fault of the peer that leaves its connection open; see `SeldomLogger`."""
        self._seldom.log(
            logging.WARNING,
            kind,
            "%s: %s",
            self.name,
            text,
            extra={"event": "connection.limited", "peer": self.name, "reason": kind},
        )

    def warn(self, kind: str, text: str) -> None:
        """Log why the peer's connection is closed; see `SeldomLogger`."""
        self._seldom.log(
            logging.WARNING,
            kind,
            "closing %s: %s",
            self.name,
            text,
            extra={"event": "connection.closing", "peer": self.name, "reason": kind},
        )

    def _too_slow(self, text: str) -> None:
        """Log why the peer is too slow, and close at once."""
        self.closed_reason = self.closed_reason or "too slow"
        self.warn("too slow", text)
        self.abort()

    def _end(self) -> None:
        """Release the shares of a closed socket as well."""
        super()._end()
        self.closed_reason = self.closed_reason or "by the peer"
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self.shared.waiting.note(self, 0)
        self._unblock_all()
        for flow in self._blocked_by:
            flow._blocking.discard(self)
        self._blocked_by.clear()
