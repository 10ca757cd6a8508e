"""The base class of stream links, and the accepting end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import Address, LinkDown, Message, OnwardError
from ...protocol._principal import PeerIdentity, Principal
from .._log import SeldomLogger, shown
from ..streams._authenticating import CHECK, GRACE
from ._identity import forget_identity, note_identity
from ._link import Link
from ._link_statistics import LinkState, LinkStatistics

if TYPE_CHECKING:
    from ..streams._options import StreamOptions
    from ._socket import WireSocket

__all__ = ["AcceptedLink", "StreamLink", "logger"]

logger: Final = logging.getLogger("onward.transports")

_UNKNOWN: Final = PeerIdentity()


class StreamLink(Link):
    """The base class of the connecting and the accepting link.

    Args:
        expose: The addresses that the peer may send to.
        options: The limits.
        on_closed: Called once with the link when it has ended.
        seldom: The logger for events that peers cause; one of its own if not given.
    """

    notices_end: ClassVar[bool] = True  # through `SO_KEEPALIVE`

    def __init__(
        self,
        expose: frozenset[Address],
        options: StreamOptions,
        on_closed: Callable[[StreamLink], object],
        seldom: SeldomLogger | None = None,
    ) -> None:
        super().__init__(
            expose=expose,
            max_returns=options.max_returns,
            arrivals=options.arrivals,
            max_arrival_bytes=options.max_arrival_bytes,
            stall_timeout=options.stall_timeout,
            max_inside=options.max_inside,
        )
        self.options = options
        self.state = LinkState.CONNECTING
        self.peer = ""
        self.identity = _UNKNOWN
        self.principal: Principal | None = None
        self.reason = ""
        self._on_closed = on_closed
        self._seldom = seldom or SeldomLogger(logger)
        self._told = False
        self._ends = ("", "")
        self._socket: WireSocket | None = None
        self._outlet: WireSocket | None = None  # the same, while messages may be sent directly
        self._past = [0, 0, 0, 0]  # sent, heartbeats, bytes in and out of earlier sockets
        self._in_doubt = 0
        self._connects = 0
        self._failures: int = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    def _largest(self) -> int:
        return self.options.max_frame

    def on_start(self) -> None:
        """Start the idle timer."""
        self._watch_idleness(-1)

    def on_stop(self) -> Awaitable[None] | None:
        """Close the socket once the accepted messages are written, and wait for it."""
        self.state = LinkState.CLOSED
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        wire_socket = self._socket
        if wire_socket is not None:
            wire_socket.close("the link was closed")
        super().on_stop()
        self._tell_closed()
        return wire_socket.closed() if wire_socket is not None else None

    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Write a message to the socket; return an awaitable while it is slow."""
        outlet = self._outlet
        if outlet is None:
            return self.keep(message)
        try:
            return outlet.send(message)
        except OnwardError as error:
            self.undelivered(message, error)
            return None

    def keep(self, message: Message) -> Awaitable[None] | None:
        """Handle a message that cannot be sent now: drop it."""
        self.undelivered(message, LinkDown(self.peer, self.reason))
        return None

    def hold(self) -> None:
        """Pause reading from the socket."""
        if self._socket is not None:
            self._socket.hold()

    def release(self) -> None:
        """Resume reading from the socket."""
        if self._socket is not None:
            self._socket.release()

    # --- called by the socket -------------------------------------------------------------

    def socket_open(self, wire_socket: WireSocket) -> None:
        """Handle a connected socket."""
        instruments = self.node.instruments
        if instruments is not None:
            instruments.link_connected(self)  # the counts so far belong to the previous one
        self._ends = wire_socket.ends
        self._socket = self._outlet = wire_socket
        self.peer = self.peer or wire_socket.peer
        if self._holding:  # too many messages of the previous connection still wait
            wire_socket.hold()

    def socket_ready(self, wire_socket: WireSocket) -> None:
        """Handle the peer's greeting."""
        self.state = LinkState.UP
        self._connects += 1
        self._failures = 0
        self.identity = wire_socket.identity
        note_identity(self.node, self.address, self.identity, self.principal)

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """Handle the loss of the socket, and end the requests that went over it."""
        if self._socket is wire_socket:
            self._socket = self._outlet = None
        forget_identity(self.node, self.address)
        wire = wire_socket.wire
        counts = (wire_socket.sent, wire.heartbeats, wire_socket.bytes_in, wire_socket.bytes_out)
        self._in_doubt += wire_socket.in_doubt
        self._past = [past + more for past, more in zip(self._past, counts, strict=True)]
        self.reason = reason
        level, kind = logging.INFO, "closed"
        if wire.error is not None:
            level, kind = logging.WARNING, type(wire.error).__name__
        text = "connection with %s closed: %s"
        self._seldom.log(
            level, kind, text, self.peer, shown(reason), extra={"event": "link.closed"}
        )
        self.lost(reason)

    def not_sent(self, messages: Sequence[Message], reason: str) -> None:
        """Drop messages that the closed socket has not written."""
        for message in messages:
            self.undelivered(message, LinkDown(self.peer, reason))

    def retire(self) -> None:
        """End the link, and remove it from the table of links."""
        self.state = LinkState.CLOSED
        self._tell_closed()
        self.finish()

    def _tell_closed(self) -> None:
        if not self._told:
            self._told = True
            self._on_closed(self)

    # --- statistics, idleness -------------------------------------------------------------

    def statistics(self) -> LinkStatistics:
        """Return the current statistics."""
        sent, heartbeats, bytes_in, bytes_out = self._past
        pending = 0
        if self._socket is not None:
            sent += self._socket.sent
            heartbeats += self._socket.wire.heartbeats
            bytes_in += self._socket.bytes_in
            bytes_out += self._socket.bytes_out
            pending = self._socket.pending
        return LinkStatistics(
            address=self.address,
            peer=self.peer,
            state=self.state,
            sent=sent,
            received=self.arrived,
            refused=self.refused,
            heartbeats=heartbeats,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            pending=pending,
            queued=self.queued,
            in_doubt=self._in_doubt,
            held=self.kept,
            connects=self._connects,
            failures=self._failures,
            reason=self.reason,
            names=self.identity.names,
            principal="" if self.principal is None else self.principal.name,
        )

    @property
    def queued(self) -> int:
        """Messages that wait for a connection."""
        return 0

    @property
    def ends(self) -> tuple[str, str]:
        """The socket addresses of this end and the other, of the last socket if there is none."""
        return self._ends if any(self._ends) else ("", self.peer)

    def _watch_idleness(self, before: int) -> None:
        """End the link if no message has come or gone since the last check."""
        timeout = self.options.idle_timeout
        if timeout is None:
            return
        figures = self.statistics()
        now = self.taken + self.arrived + figures.sent + figures.heartbeats
        # A link that waits for its next connection is not idle.
        idle = now == before and (self.state is LinkState.UP or not self.options.reconnect)
        # A link in use stays: the system detects lost peers.
        if idle and not (self.state is LinkState.UP and self.in_use()):
            self.reason = f"no message for {timeout:g} s"
            self.retire()
            return
        loop = self.node.loop
        self._idle_timer = loop.call_later(timeout, self._watch_idleness, now)


class AcceptedLink(StreamLink):
    """The link of a connection that a listener accepted; it ends with the connection.

    Attributes:
        principal: The principal of the peer; `None` at a listener without authentication.
        clock: Returns the seconds since 1970, by which its credentials expire.
    """

    clock: Callable[[], float] = time.time
    _expiry_timer: asyncio.TimerHandle | None = None

    def on_start(self) -> None:
        """Start the timers of idleness and of the credentials."""
        super().on_start()
        self._watch_credentials()

    def on_stop(self) -> Awaitable[None] | None:
        """Close the socket once the accepted messages are written, and wait for it."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        return super().on_stop()

    def _watch_credentials(self) -> None:
        """End the link some time after its credentials have expired."""
        if self.principal is None or self.principal.expires is None:
            return
        left = self.principal.expires + GRACE - self.clock()
        if left <= 0:
            self.reason = "credentials expired"
            self.retire()
        else:
            loop = self.node.loop
            self._expiry_timer = loop.call_later(min(left, CHECK), self._watch_credentials)

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """Handle the loss of the socket, and end the link."""
        super().socket_closed(wire_socket, reason)
        self.retire()

    def retire(self) -> None:
        """End the link once its messages are in mailboxes; it counts as a connection until then."""
        self.state = LinkState.CLOSED
        self.when_delivered(super().retire)
