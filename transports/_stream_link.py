"""Links over streams: one that was accepted, and one that connects, and connects again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ..protocol import Address, LinkDown, Message, OnwardError
from ..protocol.ockam import HEARTBEAT
from ._early import secure
from ._identity import forget_names, note_names
from ._link import Link
from ._link_statistics import LinkState, LinkStatistics
from ._log import SeldomLogger, shown
from ._options import StreamOptions
from ._place import Place
from ._socket import WireSocket
from ._tls import TlsOptions

__all__ = ["AcceptedLink", "DialledLink", "StreamLink", "logger"]

logger: Final = logging.getLogger("onward.transports")


class StreamLink(Link):
    """What both kinds of link have in common.

    Args:
        expose: What the peer may send to.
        options: The limits.
        on_closed: Called once with the link when it is over.
        seldom: Where it logs what peers can cause; of its own if not given.
    """

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
        )
        self.options = options
        self.state = LinkState.CONNECTING
        self.peer = ""
        self.names: tuple[str, ...] = ()
        self.reason = ""
        self._on_closed = on_closed
        self._seldom = seldom or SeldomLogger(logger)
        self._told = False
        self._socket: WireSocket | None = None
        self._past = [0, 0, 0, 0]  # sent, heartbeats, bytes in and out of sockets before
        self._in_doubt = 0
        self._connects = 0
        self._failures: int = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    def on_start(self) -> None:
        """Begin to watch for idleness."""
        self._watch_idleness(-1)

    def on_stop(self) -> Awaitable[None] | None:
        """Close the socket after what was taken is written, and wait until it has gone."""
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
        """Write a message to the socket; slow the senders down while it is slow."""
        wire_socket = self._socket
        if wire_socket is None:
            self.keep(message)
            return None
        try:
            return wire_socket.send(message)
        except OnwardError as error:
            self.undelivered(message, error)
            return None

    def keep(self, message: Message) -> None:
        """Do something with a message while there is no socket."""
        self.undelivered(message, LinkDown(self.peer, self.reason))

    def hold(self) -> None:
        """Stop reading from the socket."""
        if self._socket is not None:
            self._socket.hold()

    def release(self) -> None:
        """Read from the socket again."""
        if self._socket is not None:
            self._socket.release()

    # --- told by the socket ---------------------------------------------------------------

    def socket_open(self, wire_socket: WireSocket) -> None:
        """The socket is connected."""
        self._socket = wire_socket
        self.peer = self.peer or wire_socket.peer

    def socket_ready(self, wire_socket: WireSocket) -> None:
        """The peer has greeted us."""
        self.state = LinkState.UP
        self._connects += 1
        self._failures = 0
        self.names = wire_socket.names
        if self.names:
            note_names(self.node, self.address, self.names)

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """The socket is gone: fail what waits for an answer over it."""
        if self._socket is wire_socket:
            self._socket = None
        if self.names:
            forget_names(self.node, self.address)
        wire = wire_socket.wire
        counts = (wire_socket.sent, wire.heartbeats, wire_socket.bytes_in, wire_socket.bytes_out)
        self._in_doubt += wire_socket.in_doubt
        self._past = [past + more for past, more in zip(self._past, counts, strict=True)]
        self.reason = reason
        level, kind = logging.INFO, "closed"
        if wire.error is not None:
            level, kind = logging.WARNING, type(wire.error).__name__
        text = "connection with %s closed: %s"
        self._seldom.log(level, kind, text, self.peer, shown(reason))
        self.lost(reason)

    def not_sent(self, messages: Sequence[Message], reason: str) -> None:
        """The socket is gone and has not written these."""
        for message in messages:
            self.undelivered(message, LinkDown(self.peer, reason))

    def retire(self) -> None:
        """End the link; from now on nobody is given its address."""
        self.state = LinkState.CLOSED
        self._tell_closed()
        self.stop()

    def _tell_closed(self) -> None:
        if not self._told:
            self._told = True
            self._on_closed(self)

    # --- statistics, idleness -------------------------------------------------------------

    def statistics(self) -> LinkStatistics:
        """Return what has been counted so far."""
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
            held=len(self._arrivals),
            connects=self._connects,
            failures=self._failures,
            reason=self.reason,
            names=self.names,
        )

    @property
    def queued(self) -> int:
        """Messages waiting for a connection."""
        return 0

    def _watch_idleness(self, before: int) -> None:
        """Stop if no message has come or gone since the last look."""
        timeout = self.options.idle_timeout
        if timeout is None:
            return
        figures = self.statistics()
        now = self.taken + self.arrived + figures.sent + figures.heartbeats
        # A link that waits for its next connection is not idle; it says itself when it is over.
        if now == before and (self.state is LinkState.UP or not self.options.reconnect):
            self.reason = f"no message for {timeout:g} s"
            self.retire()
            return
        loop = self.node.loop
        self._idle_timer = loop.call_later(timeout, self._watch_idleness, now)


class AcceptedLink(StreamLink):
    """The link of a connection that came to a listener; it ends with the connection."""

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """The socket is gone, and the link with it."""
        super().socket_closed(wire_socket, reason)
        self.retire()


class DialledLink(StreamLink):
    """A link that connects. Its address stays the same however often it does.

    Args:
        place: Where to connect.
        context: What for TLS; `None`: without.
        expose: What the peer may send to.
        options: The limits, and whether and when to connect again.
        on_closed: Called once with the link when it is over.
    """

    def __init__(
        self,
        place: Place,
        context: ssl.SSLContext | None,
        expose: frozenset[Address],
        options: StreamOptions,
        on_closed: Callable[[StreamLink], object],
    ) -> None:
        super().__init__(expose, options, on_closed)
        self.peer = place.peer
        self._place = place
        self._context = context
        self._queue: deque[Message] = deque()
        self._task: asyncio.Task[None] | None = None
        self._heart: asyncio.TimerHandle | None = None
        self._ready: asyncio.Future[None] | None = None  # of the attempt under way
        self._gone: asyncio.Future[None] | None = None  # of the connection
        self._first: asyncio.Future[None] | None = None  # of the first attempt

    @property
    def queued(self) -> int:
        """Messages waiting for a connection."""
        return len(self._queue)

    def on_start(self) -> None:
        """Begin to connect."""
        self._task = self.node.loop.create_task(self._keep_connected())
        self._beat(0)
        super().on_start()

    def on_stop(self) -> Awaitable[None] | None:
        """Give up connecting."""
        self.reason = self.reason or "the link was closed"
        self._refuse_queued()
        self._settle_first(LinkDown(self.peer, self.reason))
        closed = super().on_stop()
        if self._heart is not None:
            self._heart.cancel()
        if self._task is not None:
            self._task.cancel()
        return closed

    async def first_attempt(self) -> None:
        """Wait for the first attempt to connect. Called right after the link was spawned.

        Raises:
            LinkDown: It failed; the link stops.
        """
        self._first = self.node.loop.create_future()
        await self._first

    async def disconnected(self) -> None:
        """Wait until the link, which has been stopped, has given up connecting."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def keep(self, message: Message) -> None:
        """Keep a message for the connection to come."""
        if self.state is not LinkState.CLOSED and len(self._queue) < self.options.queue:
            self._queue.append(message)
        else:
            super().keep(message)

    def socket_open(self, wire_socket: WireSocket) -> None:
        """Wait for the greeting: nothing is sent to a peer that may speak another language."""

    def socket_ready(self, wire_socket: WireSocket) -> None:
        """The peer has greeted us: send what has been kept."""
        super().socket_open(wire_socket)
        super().socket_ready(wire_socket)
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        while self._queue:
            message = self._queue.popleft()
            try:
                wire_socket.send(message)
            except OnwardError as error:
                self.undelivered(message, error)

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """The socket is gone; connect again, or end."""
        if self._socket is wire_socket:
            super().socket_closed(wire_socket, reason)
            if self._gone is not None and not self._gone.done():
                self._gone.set_result(None)
        elif self._ready is not None and not self._ready.done():
            if wire_socket.silent:
                reason += self._missing
            self._ready.set_exception(ConnectionError(reason))

    async def _keep_connected(self) -> None:
        while True:
            try:
                gone = await self._connect()
            except (OSError, UnicodeError) as error:  # no connection in time; no such host
                self._attempt_failed(error)
            else:
                self._settle_first(None)
                await gone
            if self.state is LinkState.CLOSED or not self._connects or not self.options.reconnect:
                break
            self.state = LinkState.WAITING
            await asyncio.sleep(self.options.backoff.wait(self._failures))
            self.state = LinkState.CONNECTING
        self.retire()

    async def _connect(self) -> asyncio.Future[None]:
        """Connect, and wait for the peer's greeting.

        Returns:
            What is done when the connection is gone.

        Raises:
            OSError: It did not work, the peer's greeting included.
        """
        loop = self.node.loop
        self._ready = loop.create_future()
        self._gone = gone = loop.create_future()
        async with asyncio.timeout(self.options.connect_timeout):
            wire_socket = await self._open(loop)
        try:
            await self._ready
        except asyncio.CancelledError:
            wire_socket.abort("the link was closed")
            raise
        return gone

    @property
    def _missing(self) -> str:
        """What a peer may want that says nothing: those that do hang up without a word."""
        if self._context is None:
            return "; it may want TLS"
        tls = self.options.tls
        none = isinstance(tls, TlsOptions) and tls.certificate is None
        return "; it may want a certificate of ours" if none else ""

    async def _open(self, loop: asyncio.AbstractEventLoop) -> WireSocket:
        place, options = self._place, self.options
        early = await place.open(loop)
        try:
            if self._context is not None:
                host = _server_name(options) or place.host
                early = await secure(early, self._context, options.tls_timeout, host=host)
            return await place.begin(early, lambda: WireSocket(self, options, loop))
        except ConnectionResetError as error:
            early.transport.abort()
            raise ConnectionError(f"{error}{self._missing}") from error
        except BaseException:
            early.transport.abort()
            raise

    def _attempt_failed(self, error: OSError | UnicodeError) -> None:
        self._failures += 1
        self.reason = str(error) or "no connection in time"
        text = "no connection with %s: %s"
        self._seldom.log(logging.INFO, "no connection", text, self.peer, shown(self.reason))
        self._refuse_queued()
        self._settle_first(LinkDown(self.peer, self.reason))

    def _beat(self, before: int) -> None:
        """Send a heartbeat if nothing has been sent since the last look."""
        heartbeat = self.options.heartbeat
        if heartbeat is None:
            return
        if self._socket is not None and self._socket.wire.sent == before:
            # One that is closing takes no more.
            with contextlib.suppress(OnwardError):
                self._socket.send(HEARTBEAT)
        sent = self._socket.wire.sent if self._socket is not None else 0
        self._heart = self.node.loop.call_later(heartbeat, self._beat, sent)

    def _settle_first(self, error: LinkDown | None) -> None:
        first = self._first
        if first is None or first.done():
            return
        if error is None:
            first.set_result(None)
        else:
            first.set_exception(error)

    def _refuse_queued(self) -> None:
        while self._queue:
            self.undelivered(self._queue.popleft(), LinkDown(self.peer, self.reason))


def _server_name(options: StreamOptions) -> str | None:
    return options.tls.server_name if isinstance(options.tls, TlsOptions) else None
