"""A connection of the broker with a session that can be resumed.

```
connected ──socket lost──▶ suspended ──RESUME on another socket──▶ connected
                              └──time over, too much kept, drain──▶ ended
```

The connection of the peer stays, with its worker, streams and route, and gets another socket. While
it is suspended, it has a `SuspendedTransport`: to the flow control it is a peer that does not read.
Its route is hidden. A socket with a RESUME belongs to a connection of its own first, the
*entrance*, which gives it away.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from ...protocol.rsocket import (
    ConnectionState,
    KeptFrames,
    RejectedResume,
    ResumableConnection,
    Resume,
    ResumeRefusal,
    Role,
)
from .._log import SeldomLogger
from ._exchange import StreamExchange
from ._held_back import MOST_REQUESTS
from ._link import Link
from ._options import LinkOptions
from ._resumable_sessions import DROPPED, ResumableSessions
from ._shared import Shared
from ._suspended_transport import SuspendedTransport
from ._ws_socket import FrameSocket, give_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...actors.broker import Broker
    from ._worker import ConnectionWorker

__all__ = ["ResumableLink"]

_logger = logging.getLogger("onward.transports.rsocket")

FILL: Final = 4
"""The part of the bytes a session may keep above which a suspended one has its senders stopped."""
NOT_RESUMABLE: Final = "not resumable"


class ResumableLink(Link):
    """A connection of a listener with sessions that can be resumed.

    A peer without a resume token in its SETUP has no session, and is treated as on any listener.

    Attributes:
        key: The key of the session among those of the listener; `None` without a session.
        suspended: Whether the socket is lost, and the session is not resumed yet.
        suspended_at: The time at which it was lost, by `time`; without meaning otherwise.

    Args:
        worker: The connection's worker.
        broker: The broker.
        options: The limits.
        seldom: Logs the warnings of all connections of the listener.
        shared: What all connections of the listener hold.
        on_closed: Called when the socket is closed.
        sessions: The sessions of the listener.
    """

    def __init__(
        self,
        worker: ConnectionWorker,
        broker: Broker,
        options: LinkOptions,
        seldom: SeldomLogger,
        shared: Shared,
        on_closed: Callable[[Link], None],
        sessions: ResumableSessions,
    ) -> None:
        super().__init__(worker, broker, options, seldom, shared, on_closed)
        limits = sessions.options.session
        self._machine = ResumableConnection(Role.SERVER, options.connection, limits, now=self.now)
        self._machine.holds = self.core.holds
        self.core = self._machine
        self._sessions = sessions
        self._mark = max(1, min(options.flow.high_water, limits.max_kept // FILL))
        self.key: tuple[bytes | int | None, bytes] | None = None
        self.suspended = False
        self.suspended_at = -inf
        self._written = 0  # the position up to which frames were written when the socket was lost
        self._drops = 0

    @property
    def kept_bytes(self) -> int:
        """The bytes kept to be sent again."""
        kept = self._machine.kept
        return 0 if kept is None else kept.size

    @property
    def expired(self) -> bool:
        """Whether the credentials of the peer have expired."""
        principal, authentication = self.session.principal, self.shared.authentication
        if principal is None or principal.expires is None or authentication is None:
            return False
        return principal.expires <= authentication.time()

    def begin_session(self, token: bytes) -> None:
        """Begin a session that can be resumed.

        Raises:
            RejectedSetup: The token is too short or in use, or there are too many sessions.
        """
        self._sessions.add(self, token)

    def unread(self) -> bytes:
        """Return the bytes that have come after RESUME."""
        return self._machine.unread()

    def receive_resume(self, resume: Resume) -> None:
        """Resume the session that a RESUME names, over the socket of this connection."""
        if self._later:
            # Resume Operation: "The client MUST NOT send any other frame types until resumption
            # succeeds."
            self.close("broken frame", "frames before RESUME_OK")
            return
        self._sessions.resume(self, resume)

    # --- the loss of the socket -----------------------------------------------------------------

    def eof_received(self) -> bool:
        """Wait for the loss of the socket, which follows, and suspend the session then."""
        transport = self._transport
        if transport is None or not self._can_suspend or self._later:
            return super().eof_received()
        self._aborting = self.call_later(self._drain_timeout, transport.abort)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Suspend the session, or end everything that used this connection."""
        if self._can_suspend and not self._waits():
            self._suspend()
        else:
            super().connection_lost(exc)

    @property
    def _can_suspend(self) -> bool:
        """Whether the loss of the socket now suspends the session."""
        return (
            self.key is not None
            and not self.suspended
            and not self.closed_reason
            and self.core.state is ConnectionState.OPEN
            and self._sessions.accepting
        )

    def _suspend(self) -> None:
        """Suspend the session; its socket is lost, or given up here."""
        kept = self._machine.kept
        if kept is None:
            raise AssertionError("a session keeps frames")
        now = self.time()
        self._written = kept.end
        if not self._machine.suspend(now):
            raise AssertionError(f"{self.core.state.name} is not suspended")
        self.suspended, self.suspended_at = True, now
        self.left = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._aborting is not None:
            self._aborting.cancel()
            self._aborting = None
        self.take_later()  # not received: it is sent again
        self.note_kept(0, 0.0)
        self._keeps = False
        self.shared.waiting.note(self, 0)
        self._noted = False
        if self.leases is not None:
            # Resume Operation: "Leasing semantics are NOT assumed to carry over from previous
            # connections when resuming."
            self.leases.end()
            self.leases = None
        self._transport = SuspendedTransport(self, self._mark, full=self.write_paused)
        registration = self.session.registration
        if registration is not None:
            registration.suspend()
        self._sessions.owner.on_suspended(self)
        _logger.info(
            "%s: suspended",
            self.name,
            extra={"event": "connection.suspended", "peer": self.name},
        )
        self._arm()

    def _on_timer(self) -> None:
        """Suspend the session of a peer that is silent for its lifetime; otherwise as `Link`."""
        transport = self._transport
        silent = self.core.silence(self.time()) >= 1 and not self.blocked
        if transport is None or not silent or not self._can_suspend:
            super()._on_timer()
            return
        self._timer = None
        give_up(transport)
        self._suspend()

    # --- while it is suspended ------------------------------------------------------------------

    def _write(self, transport: asyncio.Transport) -> None:
        """Write the queued frames, and bound those that are kept."""
        if not self.suspended:
            super()._write(transport)
        else:
            transport.write(self.core.data_to_send())
        kept = self._machine.kept
        if kept is None or self.key is None:
            return
        shares = self._sessions.kept
        shares.note(self, kept.size)
        if shares.exceeds(self.source):
            shares.reached += 1
            kept.drop_to(0)
            shares.note(self, 0)
        if kept.drops != self._drops:
            self._on_drop(kept)

    def _on_drop(self, kept: KeptFrames) -> None:
        """Count frames that were dropped, and end a suspended session that nothing can resume."""
        if not self._drops:
            self._sessions.results[DROPPED] += 1
        self._drops = kept.drops
        if self.suspended and kept.first > self._written:
            # The peer cannot have received what was not written.
            self.close(NOT_RESUMABLE, "too much waits for the client")

    def fill_up(self) -> None:
        """Stop the senders, as a full socket does, and the destinations that only answer this peer.

        Answers of request/response have no credit, so these destinations are not read.
        """
        self.write_paused = True
        for stream in islice(self.core.streams.values(), MOST_REQUESTS):
            peer = stream.peer
            taker = peer.taker if isinstance(peer, StreamExchange) else None
            if taker is None or taker is self or taker.blocked or not taker.answers_only(self):
                continue
            taker.block(self)

    # --- another socket ---------------------------------------------------------------------------

    def give_away(self, other: ResumableLink) -> asyncio.Transport:
        """Give the socket to another connection, and end this one without a word to the peer."""
        transport, self._transport = self._transport, None
        if transport is None:
            raise AssertionError("a connection that reads has a socket")
        if isinstance(transport, FrameSocket):
            transport.pass_to(other)
        else:
            transport.set_protocol(other)
        self.closed_reason = "resumed another"
        super().connection_lost(None)
        return transport

    def resume(self, entrance: ResumableLink, resume: Resume) -> None:
        """Go on over the socket of another connection.

        A client may come back before the loss of its old socket is noticed; that one is given up.

        Args:
            entrance: The connection that has received RESUME.
            resume: The RESUME.

        Raises:
            RejectedResume: The positions do not allow it. The session is suspended.
        """
        old = self._transport
        if old is not None and self._can_suspend:
            give_up(old)
            self._suspend()
        if not self._machine.suspended:  # it is ending
            raise RejectedResume(ResumeRefusal.UNKNOWN.value)
        written = self._machine.accept_resume(resume, self.time())
        unread = entrance.unread()
        transport = entrance.give_away(self)
        if self.write_paused:
            self.resume_writing()
        else:
            self._unblock_all()
        self.suspended = False
        self.identity = entrance.identity
        self._transport = transport
        transport.set_write_buffer_limits(*self._marks)
        for each in written:
            self.sent_bytes += len(each)
            transport.write(each)
        if self.blocked:
            transport.pause_reading()
        self._sessions.owner.on_resumed(self)
        registration = self.session.registration
        if registration is not None and not registration.resume():
            self.session.registration = None
        setup = self.session.setup
        if setup is None:
            raise AssertionError("a session has begun with SETUP")
        # Resume Operation: "LEASE semantics MUST be restarted upon a new connection by sending a
        # LEASE frame from the server."
        self.set_up(setup, self.options.lease)
        if self.core.pending:
            self.flush_soon()
        if unread:
            self.data_received(unread)

    def _end(self) -> None:
        """Forget the session as well."""
        super()._end()
        self._sessions.discard(self)
