"""Stream links that connect, and reconnect when the connection is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ...protocol import Address, LinkDown, Message, NotDelivered, OnwardError
from ...protocol.ockam import HEARTBEAT
from .._log import shown
from ..streams._presenting import PresentingConnection
from ._backlog import Backlog
from ._link_statistics import LinkState
from ._socket import WireSocket
from ._stream_link import StreamLink

if TYPE_CHECKING:
    from ..streams._credentials import ShownCredentials
    from ..streams._dial import Dialler
    from ..streams._options import StreamOptions

__all__ = ["DialledLink"]

logger: Final = logging.getLogger("onward.transports")


class DialledLink(StreamLink):
    """A link that connects. It keeps its address when it reconnects.

    Args:
        dialler: The endpoint to connect to, its TLS, and the credentials to show.
        expose: The addresses that the peer may send to.
        options: The limits, and whether and when to reconnect.
        on_closed: Called once with the link when it has ended.
    """

    def __init__(
        self,
        dialler: Dialler,
        expose: frozenset[Address],
        options: StreamOptions,
        on_closed: Callable[[StreamLink], object],
    ) -> None:
        super().__init__(expose, options, on_closed)
        self.peer = dialler.endpoint.peer
        self._dialler = dialler
        self._backlog = Backlog(options.queue, options.max_queue_bytes)
        self._task: asyncio.Task[None] | None = None
        self._heart: asyncio.TimerHandle | None = None
        self._ready: asyncio.Future[None] | None = None  # result of the current attempt
        self._gone: asyncio.Future[None] | None = None  # end of the connection
        self._first: asyncio.Future[None] | None = None  # result of the first attempt

    @property
    def queued(self) -> int:
        """Messages that wait for a connection."""
        return len(self._backlog)

    @property
    def reconnects(self) -> bool:
        """Whether it connects again."""
        return self.options.reconnect

    def on_start(self) -> None:
        """Start connecting."""
        self._task = self.node.loop.create_task(self._run())
        self._beat(0)
        super().on_start()

    def on_stop(self) -> Awaitable[None] | None:
        """Stop connecting, and close the connection."""
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
        """Wait for the first connection attempt. Call it right after spawning the link.

        Raises:
            LinkDown: The attempt failed; the link stops.
        """
        self._first = self.node.loop.create_future()
        await self._first

    async def disconnected(self) -> None:
        """Wait until the stopped link no longer tries to connect."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def keep(self, message: Message) -> Awaitable[None] | None:
        """Keep a message for the next connection, or send it after the kept ones."""
        if self._socket is not None:
            return self._in_turn(message)
        if self.state is LinkState.CLOSED or not self._backlog.keep(message):
            return super().keep(message)
        return None

    async def _in_turn(self, message: Message) -> None:
        await self._backlog.sent()
        wait = self.transmit(message)
        if wait is not None:
            await wait

    def socket_open(self, wire_socket: WireSocket) -> None:
        """Wait for the greeting: nothing is sent to a peer that may speak another protocol."""

    def socket_ready(self, wire_socket: WireSocket) -> None:
        """Handle the peer's greeting, and begin to send the kept messages."""
        super().socket_open(wire_socket)
        super().socket_ready(wire_socket)
        if self._backlog:
            self._outlet = None
            self._backlog.begin(self.node.loop)
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        self.node.parts.workers.tell_connected(self.address)

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        """Handle the loss of a connection, or the failure of an attempt."""
        if self._socket is wire_socket:
            super().socket_closed(wire_socket, reason)
            if self._gone is not None and not self._gone.done():
                self._gone.set_result(None)
        elif self._ready is not None and not self._ready.done():
            if wire_socket.silent:
                reason += self._dialler.missing
            self._ready.set_exception(ConnectionError(reason))

    async def _run(self) -> None:
        """Connect and reconnect, until the link ends or an unexpected error occurs."""
        try:
            await self._keep_connected()
        except Exception as error:
            self.reason = f"{type(error).__name__}: {error}"
            text = "the link to %s has failed: %s"
            logger.exception(text, self.peer, shown(self.reason), extra={"event": "link.failed"})
            self._refuse_queued()
            self._settle_first(LinkDown(self.peer, self.reason))
        self.retire()

    async def _keep_connected(self) -> None:
        while True:
            try:
                wire_socket, gone = await self._connect()
            except (OSError, UnicodeError) as error:  # a timeout, or an unknown host
                self._attempt_failed(error)
            else:
                self._settle_first(None)
                await self._send_queued(wire_socket)
                await gone
            if self.state is LinkState.CLOSED or not self._connects or not self.options.reconnect:
                return
            self.state = LinkState.WAITING
            await asyncio.sleep(self.options.backoff.wait(self._failures))
            self.state = LinkState.CONNECTING

    def _write(self, wire_socket: WireSocket, message: Message) -> Awaitable[None] | None:
        try:
            return wire_socket.send(message)
        except OnwardError as error:
            self.undelivered(message, error)
        except Exception as error:  # noqa: BLE001 - it would end the link
            self.failed_to_send(message, error)
        return None

    async def _send_queued(self, wire_socket: WireSocket) -> None:
        """Send the kept messages as fast as the peer reads; on a loss the rest stays."""

        def lost() -> bool:
            return self._socket is not wire_socket

        try:
            await self._backlog.send(lambda message: self._write(wire_socket, message), lost)
            self._outlet = self._socket
        finally:
            self._backlog.end()

    async def _connect(self) -> tuple[WireSocket, asyncio.Future[None]]:
        """Connect, and wait for the peer's greeting.

        Returns:
            The socket, and a future for the end of the connection.

        Raises:
            OSError: There is no connection or no greeting.
        """
        loop = self.node.loop
        self._ready = loop.create_future()
        self._gone = gone = loop.create_future()
        async with asyncio.timeout(self.options.connect_timeout):
            credentials = self._dialler.credentials
            if credentials is None:
                wire_socket = await self._dialler.open(lambda: WireSocket(self, self.options, loop))
            else:
                wire_socket = await self._open_as(credentials)
        try:
            await self._ready
        except asyncio.CancelledError:
            wire_socket.abort("the link was closed")
            raise
        return wire_socket, gone

    async def _open_as(self, credentials: ShownCredentials) -> WireSocket:
        """Connect, show credentials, and wait until the peer has accepted them.

        Raises:
            OSError: There is no connection, there are no credentials, or the peer refuses them.
        """
        try:
            content = await credentials.content(self.peer)
        except NotDelivered as error:
            raise ConnectionError(str(error)) from error
        presenting = await self._dialler.open(lambda: PresentingConnection(content))
        try:
            await presenting.accepted
        except BaseException:
            presenting.transport.abort()
            raise
        wire_socket = WireSocket(self, self.options, self.node.loop)
        presenting.hand_over(wire_socket)
        return wire_socket

    def _attempt_failed(self, error: OSError | UnicodeError) -> None:
        self._failures += 1
        self.reason = str(error) or "no connection in time"
        text = "no connection with %s: %s"
        self._seldom.log(
            logging.INFO,
            "no connection",
            text,
            self.peer,
            shown(self.reason),
            extra={"event": "link.no_connection"},
        )
        self._refuse_queued()
        self._settle_first(LinkDown(self.peer, self.reason))

    def _beat(self, before: int) -> None:
        """Send a heartbeat if nothing has been sent since the last check."""
        heartbeat = self.options.heartbeat
        if heartbeat is None:
            return
        if self._socket is not None and self._socket.wire.sent == before:
            # A socket that is closing refuses.
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
        for message in self._backlog.take_all():
            self.undelivered(message, LinkDown(self.peer, self.reason))
