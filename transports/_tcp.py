"""The `tcp` transport: nodes joined by TCP, on the wire of Ockam."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..actors import Worker
from ..protocol import (
    TCP,
    Address,
    AddressError,
    LinkDown,
    Message,
    NodeStopped,
    OnwardError,
    PayloadTooBig,
    WorkerStopped,
)
from ._base import Listener, Transport
from ._link_statistics import LinkStatistics
from ._log import SeldomLogger
from ._options import TcpOptions, format_endpoint, parse_endpoint, parse_uri
from ._socket import Unfinished, WireSocket
from ._tcp_link import AcceptedLink, DialledLink, TcpLink, logger

if TYPE_CHECKING:
    from ..actors import Node

__all__ = ["ListenerStatistics", "TcpListener", "TcpTransport"]

MAX_REASONS: Final = 64
"""Most distinct reasons for closing a listener counts; further ones count as "other"."""


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """One TCP listener at one moment."""

    uri: str
    """Where it listens."""

    links: tuple[LinkStatistics, ...]
    """The links that are open, oldest first."""

    accepted: int
    """Connections accepted so far."""

    turned_away: int
    """Connections closed at once because there were `max_connections`."""

    closed: Mapping[str, int]
    """Connections that have ended, by reason."""


class ListenerWorker(Worker):
    """Owns the listening socket; the links of its connections are its children."""

    def __init__(
        self,
        host: str,
        port: int,
        expose: frozenset[Address],
        options: TcpOptions,
        on_closed: Callable[[Address], object],
    ) -> None:
        super().__init__()
        self.uri = ""
        self._on_closed = on_closed
        self._where = (host, port)
        self._expose = expose
        self._options = options
        self._server: asyncio.Server | None = None
        self._over = False
        self._links: dict[TcpLink, None] = {}
        self._seldom = SeldomLogger(logger)
        self._unfinished = Unfinished(options.max_unfinished)
        self._accepted = 0
        self._turned_away = 0
        self._closed: Counter[str] = Counter()

    async def listen(self) -> None:
        """Listen.

        Raises:
            OSError: It cannot be done; the worker has no use then.
            NodeStopped: The worker was stopped meanwhile.
        """
        host, port = self._where
        # Not serving yet: what is cancelled while it begins to serve would never be closed.
        server = await self.node.loop.create_server(
            self._accept, host, port, backlog=1024, start_serving=False
        )
        self._server = server
        self.uri = f"tcp://{format_endpoint(host, server.sockets[0].getsockname()[1])}"
        try:
            if not self._over:
                await server.start_serving()
            if self._over:
                raise NodeStopped(self.node.name)
        except BaseException:
            server.close()
            raise

    def on_stop(self) -> None:
        """Stop listening; the links have stopped before."""
        self._over = True
        if self._server is not None:
            self._server.close()
        self._on_closed(self.address)

    def statistics(self) -> ListenerStatistics:
        """Return what has been counted so far."""
        return ListenerStatistics(
            uri=self.uri,
            links=tuple(link.statistics() for link in self._links),
            accepted=self._accepted,
            turned_away=self._turned_away,
            closed=dict(self._closed),
        )

    def _accept(self) -> asyncio.Protocol:
        if len(self._links) >= self._options.max_connections:
            return self._turn_away(f"there are {len(self._links)} already")
        link = AcceptedLink(self._expose, self._options, self._link_closed, self._seldom)
        try:
            self.spawn(lambda: link, mailbox=self._options.mailbox)
        except OnwardError as error:
            # The node is stopping or full.
            return self._turn_away(str(error))
        self._links[link] = None
        self._accepted += 1
        return WireSocket(link, self._options, self.node.loop, self._unfinished)

    def _turn_away(self, why: str) -> asyncio.Protocol:
        self._turned_away += 1
        text = "%s: a connection was turned away: %s"
        self._seldom.log(logging.WARNING, "turned away", text, self.uri, why)
        return _TurnedAway()

    def _link_closed(self, link: TcpLink) -> None:
        self._links.pop(link, None)
        reason = link.reason or "the link was closed"
        if reason not in self._closed and len(self._closed) >= MAX_REASONS:
            reason = "other"
        self._closed[reason] += 1


class _TurnedAway(asyncio.Protocol):
    """A connection we have no room for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class TcpListener(Listener):
    """A listening TCP socket."""

    def __init__(self, node: Node, worker: ListenerWorker) -> None:
        self._node = node
        self._worker = worker

    @property
    def uri(self) -> str:
        """Where it listens, with the port it really has."""
        return self._worker.uri

    @property
    def address(self) -> Address:
        """The address of its worker."""
        return self._worker.address

    def statistics(self) -> ListenerStatistics:
        """Return what has been counted so far."""
        return self._worker.statistics()

    async def close(self) -> None:
        """Stop listening and close the connections accepted. Idempotent."""
        if self._node.has(self.address):
            await self._node.stop_worker(self.address)


class TcpTransport(Transport):
    """Joins nodes by TCP.

    - `node.listen("tcp://127.0.0.1:0", expose=["echo"])` accepts connections.
    - `node.connect("tcp://127.0.0.1:4000")` opens one and keeps it open: when it is lost it is
      connected again, after a wait, and the link's address stays the same.
    - An address `1#127.0.0.1:4000` in a route uses the link to that peer, or opens one that is
      closed when it has been idle.

    The options of `listen` and `connect` are the attributes of `TcpOptions`; `options=` gives
    them all at once.

    Attributes:
        options: What links opened by an address of type 1 use.
        max_dialled: Links to other nodes at a time; more are refused with `LinkDown`.
    """

    scheme: ClassVar[str] = "tcp"
    address_type: ClassVar[int | None] = TCP

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.options = TcpOptions(reconnect=False, heartbeat=None)
        self.max_dialled = 1000
        # A rule may be called on any thread. Held to open and to forget links.
        self._lock = threading.RLock()
        self._listeners: dict[Address, TcpListener] = {}
        self._dialled: dict[DialledLink, None] = {}
        self._by_peer: dict[str, DialledLink] = {}

    async def listen(
        self,
        uri: str,
        *,
        expose: frozenset[Address] = frozenset(),
        options: TcpOptions | None = None,
        **changes: Any,
    ) -> TcpListener:
        """Accept connections at `tcp://host:port`; port 0 is any free one.

        Args:
            uri: Where.
            expose: What the peers may send to; see `Gate`.
            options: The options; the defaults if not given.
            **changes: Attributes of `TcpOptions` that differ from them.

        Raises:
            OSError: It cannot be listened there.
            NodeStopped: The node was stopped meanwhile.
            ValueError: The URI is wrong.
            TypeError: There is no such option.
        """
        host, port = parse_uri(uri, self.scheme)
        chosen = replace(options or TcpOptions(), **changes)
        worker = ListenerWorker(host, port, expose, chosen, self._listener_closed)
        address = self.node.random_address()
        try:
            await self.node.start(lambda: worker, address=address)
            await worker.listen()
        except WorkerStopped:
            raise NodeStopped(self.node.name) from None
        except BaseException:
            if self.node.has(address):
                await self.node.stop_worker(address)
            raise
        listener = TcpListener(self.node, worker)
        self._listeners[address] = listener
        return listener

    async def connect(
        self,
        uri: str,
        *,
        expose: frozenset[Address] = frozenset(),
        options: TcpOptions | None = None,
        **changes: Any,
    ) -> Address:
        """Connect to `tcp://host:port`, and again whenever the connection is lost.

        Args:
            uri: Where to.
            expose: What the peer may send to; see `Gate`.
            options: The options; the defaults if not given.
            **changes: Attributes of `TcpOptions` that differ from them.

        Returns:
            The address of the link's worker.

        Raises:
            LinkDown: Nobody is there, or nobody who speaks the same, or there are too many
                links.
            ValueError: The URI is wrong.
            TypeError: There is no such option.
        """
        host, port = parse_uri(uri, self.scheme)
        link = self._open(host, port, expose, replace(options or TcpOptions(), **changes))
        try:
            await link.first_attempt()
        except BaseException:
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)
            raise
        return link.address

    def resolve(self, message: Message) -> Message:
        """Replace an address of type 1 by that of the link to the peer.

        Raises:
            AddressError: It is not `host:port`.
            PayloadTooBig: The payload alone is larger than a frame may be.
            LinkDown: There are too many links.
        """
        if len(message[2]) > self.options.max_frame:
            raise PayloadTooBig(len(message[2]), self.options.max_frame)
        try:
            peer = message[0][0].value.decode("ascii")
        except UnicodeDecodeError:
            raise AddressError(message[0][0], "not host:port") from None
        link = self._by_peer.get(peer)
        if link is None:
            host, port = parse_endpoint(peer)
            with self._lock:
                # Another thread may have been first.
                link = self._by_peer.get(peer)
                link = link or self._open(host, port, frozenset(), self.options)
        return message.redirect(link.address)

    def statistics(self) -> tuple[LinkStatistics, ...]:
        """Return what the links to other nodes have counted, oldest first."""
        return tuple(link.statistics() for link in self._dialled)

    async def stop(self) -> None:
        """Close every listener and link."""
        for listener in list(self._listeners.values()):
            await listener.close()
        for link in list(self._dialled):
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)
            await link.disconnected()

    def _open(
        self, host: str, port: int, expose: frozenset[Address], options: TcpOptions
    ) -> DialledLink:
        link = DialledLink(host, port, expose, options, self._link_closed)
        with self._lock:
            if len(self._dialled) >= self.max_dialled:
                raise LinkDown(link.peer, f"there are {self.max_dialled} links")
            self.node.spawn(lambda: link, mailbox=options.mailbox)
            self._dialled[link] = None
            self._by_peer.setdefault(link.peer, link)
        return link

    def _listener_closed(self, address: Address) -> None:
        self._listeners.pop(address, None)

    def _link_closed(self, link: TcpLink) -> None:
        with self._lock:
            self._dialled = {each: None for each in self._dialled if each is not link}
            if self._by_peer.get(link.peer) is link:
                del self._by_peer[link.peer]
