"""The RSocket listener, which accepts connections for a broker.

Subclasses such as `TcpListener` are for one kind of socket.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Final

from ...actors import MailboxOptions, Node, Worker
from ...actors.broker import Broker
from ...protocol import Address, NodeStopped, OnwardError, counted
from .._base import Listener
from .._log import SeldomLogger
from ..streams._listening import Arrival, close_server
from ..streams._options import format_endpoint
from ..streams._source import Proxies, source_of
from ._link import Link
from ._options import LinkOptions
from ._places import Places
from ._shared import Shared
from ._worker import ConnectionWorker

__all__ = ["ListenerStatistics", "RSocketListener", "TcpListener"]

_logger = logging.getLogger("onward.transports.rsocket")

_MAILBOX: Final = MailboxOptions(limit=20_000)


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """The figures of an RSocket listener at one moment.

    Attributes:
        connections: Connections now.
        accepted: Connections accepted since the start.
        turned_away: Connections closed at once because there were too many connections, too many
            of their source or too many workers, or because the node was stopping.
        requests: Requests read since the start.
        refused: Those of them that could not be parsed or routed at once.
        dropped: Frames ignored by the connections' state machines since the start, by reason.
        closed: Connections that have ended since the start, by reason.
        handshakes: WebSocket handshakes under way now; `max_connections` counts them as
            connections.
        refused_handshakes: Handshakes that failed since the start, by reason:
            `too late`, `too long`, `not understood`, `not a WebSocket`, `path`, `origin`,
            `no room`, `stopped`, or `given up` by the peer.
        streams: Open streams now, of all connections and opened by either side.
    """

    connections: int
    accepted: int
    turned_away: int
    requests: int
    refused: int
    dropped: dict[str, int]
    closed: dict[str, int]
    handshakes: int = 0
    refused_handshakes: dict[str, int] = field(default_factory=dict[str, int])
    streams: int = 0


class _ListenerWorker(Worker):
    """The parent of the connections' workers."""


class RSocketListener(Listener):
    """A listening socket and its connections.

    Args:
        node: The node of its workers.
        broker: The broker of the connections.
        options: The limits.
    """

    def __init__(self, node: Node, broker: Broker, options: LinkOptions) -> None:
        self._node = node
        self._broker = broker
        self._options = options
        self._worker = _ListenerWorker()
        self._address: Address | None = None
        self._server: asyncio.Server | None = None
        self._uri = ""
        self._seldom = SeldomLogger(_logger, node.loop.time)
        self._shared = Shared(node.loop, options)
        self._links: set[Link] = set()
        self._places = Places(options, node.loop.time)
        self._proxies = Proxies(options.proxies)
        self._accepted = 0
        self._turned_away = 0
        self._requests = 0
        self._refused = 0
        self._dropped: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._gone: asyncio.Event = asyncio.Event()
        self._withdraw: Callable[[], None] | None = None

    async def open(self) -> None:
        """Start listening.

        Raises:
            OSError: The socket cannot be bound.
            NodeStopped: The node stopped meanwhile.
            LimitReached: The broker has too many listeners.
        """
        # The worker first: it is the parent of the connections' workers.
        self._address = await self._node.start(lambda: self._worker)
        try:
            self._server = server = await self._bind()
            if not self._node.has(self._address):
                raise NodeStopped(self._node.name)
            self._uri = self._shown(server)
            self._withdraw = self._broker.report(self._uri, lambda: asdict(self.statistics()))
            await server.start_serving()
        except BaseException:
            await self._abandon()
            raise

    @abstractmethod
    async def _bind(self) -> asyncio.Server:
        """Return a server that does not serve yet, with `_enter` as its protocol factory.

        Raises:
            OSError: The socket cannot be bound.
        """

    @abstractmethod
    def _shown(self, server: asyncio.Server) -> str:
        """Return the URI of a server."""

    def _unbound(self) -> None:
        """Clean up after the server."""

    async def _abandon(self) -> None:
        """Clean up after a failed start."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._unbound()
        self._report_no_more()
        await self._stop_worker()

    def _report_no_more(self) -> None:
        withdraw, self._withdraw = self._withdraw, None
        if withdraw is not None:
            withdraw()

    async def _stop_worker(self) -> None:
        if self._address is not None and self._node.has(self._address):
            await self._node.stop_worker(self._address)

    @property
    def open_now(self) -> bool:
        """Whether the listener accepts connections."""
        return self._server is not None

    @property
    def uri(self) -> str:
        """The URI of the listener, with the real port."""
        return self._uri

    @property
    def address(self) -> Address:
        """The address of the listener's worker."""
        if self._address is None:
            raise AssertionError("the listener is not open")
        return self._address

    def _enter(self) -> asyncio.BaseProtocol:
        """Return the first protocol of a new connection."""
        return Arrival(self._admit)

    def _admit(self, transport: asyncio.BaseTransport) -> asyncio.BaseProtocol | None:
        """Return the next protocol of a new connection, or `None` if there is no room for it."""
        if self._server is None:
            self._turned_away += 1  # accepted just before it was closed
            return None
        peername, places = transport.get_extra_info("peername"), self._places
        source = self._proxies.source(peername, self._source(transport))
        refusal = places.refusal(source)
        if refusal:
            spare = places.spare(source)
            if spare is None:
                self._turned_away += 1
                text = "%s: %s, one more turned away"
                self._seldom.log(logging.WARNING, "too many", text, self._uri, refusal)
                return None
            spare.close("unused", "the connection is unused, and another needs its place")
        return self._first(source)

    def _source(self, transport: asyncio.BaseTransport) -> str:
        """Return the source of a connection."""
        return source_of(transport.get_extra_info("peername"))

    def _first(self, source: str) -> asyncio.BaseProtocol | None:
        """Return the protocol of a connection for which there is room."""
        return self._link(source)

    def _link(self, source: str) -> Link | None:
        """Return a connection with its worker, or `None` if no worker can be started."""
        worker = ConnectionWorker()
        try:
            self._worker.spawn(lambda: worker, mailbox=_MAILBOX)
        except OnwardError as error:
            # The node is stopping, or has too many addresses.
            self._turned_away += 1
            text = "%s: a connection turned away: %s"
            self._seldom.log(logging.WARNING, "turned away", text, self._uri, error)
            return None
        self._accepted += 1
        link = Link(
            worker, self._broker, self._options, self._seldom, self._shared, self._on_closed
        )
        link.source = source
        worker.attach(link)
        self._links.add(link)
        self._places.take(source)
        self._places.begin(link)
        return link

    def _on_closed(self, link: Link) -> None:
        self._links.discard(link)
        self._places.end(link)
        self._requests += link.session.requests
        self._refused += link.session.refused
        self._dropped += link.core.counters
        self._closed[link.closed_reason] += 1
        link.worker.stop()
        if not self._links:
            self._gone.set()

    async def close(self) -> None:
        """Stop listening, and close the connections with an ERROR. Idempotent.

        Connections that are open a second after `drain_timeout` are cut.
        """
        server, self._server = self._server, None
        if server is None:
            return
        self._gone.clear()
        try:
            try:
                await close_server(server)
            finally:
                # Last, so that connections accepted meanwhile are cleaned up as well.
                self._unbound()
            for link in list(self._links):
                link.close("stopped", "the broker stops")
            if self._links:
                async with asyncio.timeout(self._options.drain_timeout + 1):
                    await self._gone.wait()
        except TimeoutError:
            _logger.warning("%s: cut %s", self._uri, counted(len(self._links), "connection"))
        finally:
            for link in list(self._links):
                link.abort()
            self._report_no_more()
            await self._stop_worker()

    def statistics(self) -> ListenerStatistics:
        """Return the listener's figures at this moment."""
        dropped = self._dropped.copy()
        for link in self._links:
            if link.core.counters:
                dropped.update(link.core.counters)
        sessions = [link.session for link in self._links]
        return ListenerStatistics(
            connections=len(self._links),
            accepted=self._accepted,
            turned_away=self._turned_away,
            requests=self._requests + sum(session.requests for session in sessions),
            refused=self._refused + sum(session.refused for session in sessions),
            dropped=dict(dropped),
            closed=dict(self._closed),
            streams=sum(len(link.core.streams) for link in self._links),
        )


class TcpListener(RSocketListener):
    """A listening TCP socket.

    Args:
        node: The node of its workers.
        broker: The broker of the connections.
        options: The limits.
        host: The address or name to listen at.
        port: The port; 0 takes a free one.
    """

    _scheme: ClassVar[str] = "rsocket+tcp"

    def __init__(
        self, node: Node, broker: Broker, options: LinkOptions, host: str, port: int
    ) -> None:
        super().__init__(node, broker, options)
        self._host = host
        self._port = port

    async def _bind(self) -> asyncio.Server:
        return await self._node.loop.create_server(
            self._enter, self._host, self._port, start_serving=False
        )

    def _shown(self, server: asyncio.Server) -> str:
        host, port = server.sockets[0].getsockname()[:2]
        return f"{self._scheme}://{format_endpoint(host, port)}"
