"""Links over UDP, made by a listener or by `connect`.

There is no connection. A link is the local state of a peer: its address, the messages it may
send, and the number of the next message to it. It is up while this state is kept, whether or not
the peer is there. Messages may be lost, reordered or duplicated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ...protocol import (
    LOCAL,
    Address,
    LinkDown,
    MalformedMessage,
    Message,
    OnwardError,
    UnusableRoute,
)
from ...protocol.ockam import HEARTBEAT, MessageDecoder, encode_message, split_message
from .._log import shown
from ..streams._options import format_endpoint
from ._backlog import Backlog
from ._link import Link
from ._link_statistics import LinkState, LinkStatistics
from ._udp_options import UdpOptions
from ._udp_socket import Peer, UdpSocket

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["DialledUdpLink", "UdpLink"]

logger = logging.getLogger("onward.transports")

_NUMBERS = 0x10000


class UdpLink(Link):
    """A link to a peer; the base class of the connecting and the accepting link.

    Args:
        expose: The addresses that the peer may send to.
        options: The limits.
        on_closed: Called once with the link when it has ended.
    """

    def __init__(
        self,
        expose: frozenset[Address],
        options: UdpOptions,
        on_closed: Callable[[UdpLink], object],
    ) -> None:
        self.scheme = "udp"
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
        self.reason = ""
        self.proven = False
        self._exposed = expose
        self._on_closed = on_closed
        self._told = False
        self._socket: UdpSocket | None = None
        self._outlet: UdpSocket | None = None  # the same, while messages may be sent directly
        self._ends = ("", "")
        self._where: Peer = ()
        self._decoder: MessageDecoder | None = None
        self._number = 0
        self._sent = 0
        self._heartbeats = 0
        self._bytes_in = 0
        self._bytes_out = 0
        self._idle_timer: asyncio.TimerHandle | None = None

    def _largest(self) -> int:
        return self.options.datagrams.max_message

    def on_start(self) -> None:
        """Start the idle timer."""
        self._watch_idleness(-1)

    def on_stop(self) -> Awaitable[None] | None:
        """Forget the peer."""
        self.state = LinkState.CLOSED
        self.reason = self.reason or "the link was closed"
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._leave()
        super().on_stop()
        self._tell_closed()
        return None

    def meet(self, udp_socket: UdpSocket, where: Peer) -> None:
        """Store the address of the peer and the socket to reach it."""
        self._socket = self._outlet = udp_socket
        self._where = where
        # Random, so that parts are not joined to those of an earlier user of this port.
        self._number = random.randrange(_NUMBERS)  # noqa: S311 - no secret
        self.peer = self.peer or format_endpoint(where[0], where[1])
        self._ends = (format_endpoint(*udp_socket.where), format_endpoint(where[0], where[1]))
        udp_socket.links[where] = self
        self.state = LinkState.UP

    def _leave(self) -> None:
        udp_socket, self._socket, self._outlet = self._socket, None, None
        if udp_socket is None:
            return
        if udp_socket.links.get(self._where) is self:
            del udp_socket.links[self._where]
        if not udp_socket.shared:
            udp_socket.close()

    # --- messages in both directions ------------------------------------------------------

    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Send a message in as many datagrams as necessary."""
        outlet = self._outlet
        if outlet is None:
            return self.keep(message)
        return self._write(outlet, message)

    def _write(self, udp_socket: UdpSocket, message: Message) -> Awaitable[None] | None:
        try:
            return self._send(udp_socket, message)
        except OnwardError as error:
            self.undelivered(message, error)
        except Exception as error:  # noqa: BLE001 - it would end the link
            self.failed_to_send(message, error)
        return None

    def _send(self, udp_socket: UdpSocket, message: Message) -> Awaitable[None] | None:
        limit = self.options.datagrams.max_message
        body = encode_message(message)
        datagrams = split_message(body, self._number, limit, offsets=self.options.offsets)
        self._number = (self._number + 1) % _NUMBERS
        wait = udp_socket.send(datagrams, self._where)
        self._sent += 1
        self._bytes_out += len(body)
        return wait

    def keep(self, message: Message) -> Awaitable[None] | None:
        """Handle a message that cannot be sent now: drop it."""
        self.undelivered(message, LinkDown(self.peer, self.reason))
        return None

    def receive(self, body: bytes) -> None:
        """Handle a complete message."""
        if self._decoder is None:
            self._decoder = MessageDecoder(self.address)
        self._bytes_in += len(body)
        try:
            message = self._decoder.decode(body)
        except UnusableRoute:
            self.passed_over(1)
            return
        except MalformedMessage:
            if self._socket is not None:
                self._socket.dropped["malformed"] += 1
            return
        if not message.onward_route:
            self._heartbeats += 1
            return
        refused = self.refused
        self.deliver((message,))
        if not self.proven and self._is_way_back(message.onward_route[0]):
            # The peer knows a return route sent to its address, so that is not forged.
            self.proven = self.refused == refused

    def _is_way_back(self, first: Address) -> bool:
        """Whether an address is known only to receivers of our messages."""
        return first.type == LOCAL and first not in self._exposed and not self._is_exposed(first)

    # --- statistics, the end --------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Messages that wait until the peer's address is known."""
        return 0

    @property
    def ends(self) -> tuple[str, str]:
        """The addresses of the socket and of the peer.

        A socket bound to an unspecified address, as of a connecting link, has another address in
        the peer's view.
        """
        return self._ends

    def statistics(self) -> LinkStatistics:
        """Return the current statistics. Bytes are those of messages."""
        return LinkStatistics(
            address=self.address,
            peer=self.peer,
            state=self.state,
            sent=self._sent,
            received=self.arrived,
            refused=self.refused,
            heartbeats=self._heartbeats,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            pending=0 if self._socket is None else self._socket.pending,
            queued=self.queued,
            in_doubt=0,
            held=self.kept,
            connects=0,
            failures=0,
            reason=self.reason,
        )

    def retire(self, reason: str) -> None:
        """End the link, and remove it from the table of links."""
        self.reason = self.reason or reason
        self.state = LinkState.CLOSED
        self._leave()
        self._tell_closed()
        self.lost(self.reason)
        self.stop()

    def _tell_closed(self) -> None:
        if not self._told:
            self._told = True
            self._on_closed(self)

    def _watch_idleness(self, before: int) -> None:
        timeout = self.options.idle_timeout
        if timeout is None:
            return
        now = self.taken + self.arrived + self._sent + self._heartbeats
        if now == before and not self.kept:
            self.retire(f"no message for {timeout:g} s")
            return
        self._idle_timer = self.node.loop.call_later(timeout, self._watch_idleness, now)


class DialledUdpLink(UdpLink):
    """A link to a given host and port.

    Args:
        host: The name or the IP address.
        port: The port.
        expose: The addresses that the peer may send to.
        options: The limits.
        open_socket: Returns the socket for an address family, a peer and options.
        on_closed: Called once with the link when it has ended.
    """

    def __init__(
        self,
        host: str,
        port: int,
        expose: frozenset[Address],
        options: UdpOptions,
        open_socket: Callable[[int, Peer, UdpOptions], Coroutine[object, object, UdpSocket]],
        on_closed: Callable[[UdpLink], object],
    ) -> None:
        super().__init__(expose, options, on_closed)
        self.peer = format_endpoint(host, port)
        self._endpoint = (host, port)
        self._open_socket = open_socket
        self._backlog = Backlog(options.queue, options.max_queue_bytes)
        self._task: asyncio.Task[None] | None = None
        self._found: asyncio.Future[None] | None = None
        self._heart: asyncio.TimerHandle | None = None

    @property
    def queued(self) -> int:
        """Messages that wait until the peer's address is known."""
        return len(self._backlog)

    def on_start(self) -> None:
        """Start the look-up of the host."""
        self._task = self.node.loop.create_task(self._run())
        self._beat(0)
        super().on_start()

    def on_stop(self) -> Awaitable[None] | None:
        """Cancel the look-up, and forget the peer."""
        self.reason = self.reason or "the link was closed"
        self._settle(LinkDown(self.peer, self.reason))
        if self._heart is not None:
            self._heart.cancel()
        if self._task is not None:
            self._task.cancel()
        return super().on_stop()

    async def found(self) -> None:
        """Wait until the peer's address is known. Call it right after spawning the link.

        Raises:
            LinkDown: There is no such host; the link stops.
        """
        self._found = self.node.loop.create_future()
        await self._found

    async def ended(self) -> None:
        """Wait until the stopped link no longer looks up the host."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def keep(self, message: Message) -> Awaitable[None] | None:
        """Keep a message until the peer's address is known, or send it after the kept ones."""
        if self._socket is not None:
            return self._in_turn(message)
        if self.state is not LinkState.CONNECTING or not self._backlog.keep(message):
            return super().keep(message)
        return None

    async def _in_turn(self, message: Message) -> None:
        await self._backlog.sent()
        wait = self.transmit(message)
        if wait is not None:
            await wait

    async def _run(self) -> None:
        """Look up the peer, and send the kept messages."""
        try:
            await self._find()
        except (OSError, UnicodeError) as error:  # an unknown host, a timeout, or no socket
            reason = str(error) or "the host was not found in time"
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            logger.exception(
                "the link to %s has failed: %s",
                self.peer,
                shown(reason),
                extra={"event": "link.failed"},
            )
        else:
            return
        self.reason = reason
        self._settle(LinkDown(self.peer, reason))
        self.retire(reason)

    async def _find(self) -> None:
        loop = self.node.loop
        host, port = self._endpoint
        async with asyncio.timeout(self.options.resolve_timeout):
            family, where = _literal(host, port) or await _look_up(loop, host, port)
            udp_socket = await self._open_socket(family, where, self.options)
        self.meet(udp_socket, where)
        self._outlet = None
        self._backlog.begin(loop)
        self._settle(None)
        try:
            await self._backlog.send(
                lambda message: self._write(udp_socket, message), lambda: self._socket is None
            )
            self._outlet = self._socket
        finally:
            self._backlog.end()

    def _settle(self, error: LinkDown | None) -> None:
        if error is not None:
            for message in self._backlog.take_all():
                self.undelivered(message, error)
        found = self._found
        if found is None or found.done():
            return
        if error is None:
            found.set_result(None)
        else:
            found.set_exception(error)

    def _beat(self, before: int) -> None:
        """Send a heartbeat if nothing has been sent since the last check."""
        heartbeat = self.options.heartbeat
        if heartbeat is None:
            return
        if self._socket is not None and self._sent == before:
            with suppress(LinkDown):
                self._send(self._socket, HEARTBEAT)
        self._heart = self.node.loop.call_later(heartbeat, self._beat, self._sent)


def _literal(host: str, port: int) -> tuple[int, Peer] | None:
    """Return the family and the socket address of an IP address, or `None` for a name."""
    try:
        version = ip_address(host).version
    except ValueError:
        return None
    if version == 4:
        return socket.AF_INET, _reported(socket.AF_INET, (host, port))
    if "%" in host:  # the system has to resolve a scope
        return None
    return socket.AF_INET6, _reported(socket.AF_INET6, (host, port, 0, 0))


async def _look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> tuple[int, Peer]:
    family, _, _, _, where = (await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM))[0]
    return family, _reported(family, where)


def _reported(family: int, where: Peer) -> Peer:
    """Return an address in the form that the system reports for datagrams from there.

    Received datagrams are matched by this form, as an IPv6 address can be written in many ways.
    Datagrams to the unspecified address, such as a listener's `0.0.0.0`, go to this machine, so
    the replies come from the loopback address.
    """
    if "%" in where[0]:
        return where
    packed = socket.inet_pton(family, where[0])
    if not any(packed):
        packed = b"\x7f\0\0\1" if family == socket.AF_INET else bytes(15) + b"\1"
    return (socket.inet_ntop(family, packed), *where[1:])
