"""Listeners of stream transports, and the worker that owns their socket."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ...protocol import Address, NodeStopped, OnwardError
from .._log import SeldomLogger, shown
from ..streams._endpoint import Endpoint, EnteringConnection
from ..streams._listening import Arrival, ListeningWorker, WorkerListener, close_server
from ..streams._options import StreamOptions
from ..streams._pending import TlsHandshake
from ..streams._source import Places, Proxies
from ._link_statistics import LinkStatistics
from ._socket import Unfinished, WireSocket
from ._stream_link import AcceptedLink, StreamLink, logger

__all__ = ["ListenerStatistics", "ListenerWorker", "StreamListener"]

MAX_REASONS: Final = 64
"""Most distinct reasons for closing a listener counts; further ones count as "other"."""


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """One listener at one moment."""

    uri: str
    """Where it listens."""

    links: tuple[LinkStatistics, ...]
    """The links that are open, oldest first."""

    accepted: int
    """Connections that became links so far."""

    turned_away: int
    """Connections closed at once because there were too many, of them or of their source."""

    closed: Mapping[str, int]
    """Links that have ended, by reason."""

    handshakes: int = 0
    """Connections whose handshake, of TLS or of WebSocket, is under way."""

    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    """Connections whose handshake failed, by reason."""


class ListenerWorker(ListeningWorker):
    """Owns the listening socket; the links of its connections are its children.

    Args:
        scheme: That of its URI.
        place: Where to listen.
        context: What for TLS; `None`: without.
        expose: What the peers may send to.
        options: The limits.
        on_closed: Called once with its address when it is over.
    """

    def __init__(
        self,
        scheme: str,
        endpoint: Endpoint,
        context: ssl.SSLContext | None,
        expose: frozenset[Address],
        options: StreamOptions,
        on_closed: Callable[[Address], object],
    ) -> None:
        super().__init__(on_closed)
        self.options = options
        self._scheme = scheme
        self._place = endpoint
        self._context = context
        self._expose = expose
        self._server: asyncio.Server | None = None
        self._over = False
        self._links: dict[StreamLink, str] = {}  # with where they come from, as the entrances
        self._entrances: dict[EnteringConnection, str] = {}
        self._places = Places(options.max_connections, options.max_connections_per_source)
        self._proxies = Proxies(options.proxies)
        self._emptied: asyncio.Future[None] | None = None  # while it stops
        self._seldom = SeldomLogger(logger)
        self._unfinished = Unfinished(options.max_unfinished)
        self._accepted = 0
        self._turned_away = 0
        self._closed: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of its sockets."""
        return self.node.loop

    async def listen(self) -> None:
        """Listen.

        Raises:
            OSError: It cannot be done; the worker has no use then.
            NodeStopped: The worker was stopped meanwhile.
        """
        # Not serving yet: what is cancelled while it begins to serve would never be closed.
        server = await self._place.listen(self.loop, self.options, self._enter)
        self._server = server
        self.uri = f"{self._scheme}://{self._place.where(server)}"
        try:
            if not self._over:
                await server.start_serving()
            if self._over:
                raise NodeStopped(self.node.name)
        except BaseException:
            server.close()
            self._place.left()
            raise

    def on_stop(self) -> Awaitable[None] | None:
        """Stop listening; the links have stopped before."""
        self._over = True
        self._on_closed(self.address)
        if self._server is None:
            return None
        self._place.left()
        return self._close(self._server)

    async def _close(self, server: asyncio.Server) -> None:
        await close_server(server)
        for entrance in list(self._entrances):
            entrance.abort("stopped")
        if self._entrances:
            self._emptied = self.loop.create_future()
            await self._emptied

    def statistics(self) -> ListenerStatistics:
        """Return what has been counted so far."""
        return ListenerStatistics(
            uri=self.uri,
            links=tuple(link.statistics() for link in self._links),
            accepted=self._accepted,
            turned_away=self._turned_away,
            closed=dict(self._closed),
            handshakes=len(self._entrances),
            refused=dict(self._refused),
        )

    # --- what comes in --------------------------------------------------------------------

    def _enter(self) -> asyncio.Protocol:
        return Arrival(self._arrived)

    def _arrived(self, transport: asyncio.BaseTransport) -> asyncio.Protocol | None:
        if self._over:
            return None  # accepted just before it was closed
        peername = transport.get_extra_info("peername")
        source = self._proxies.source(peername, self._place.source(transport))
        refusal = self._places.refusal(source)
        if refusal:
            self._turn_away(refusal)
            return None
        if self._context is None:
            return self._place.entrance(self, source)
        entrance = TlsHandshake(
            self._context,
            self.options.tls_timeout,
            lambda: self._place.entrance(self, source),
            self.entered,
        )
        self.entering(entrance, source)
        return entrance

    def entering(self, entrance: EnteringConnection, source: str) -> None:
        """Note a connection whose handshake is under way."""
        self._entrances[entrance] = source
        self._places.take(source)

    def entered(self, entrance: EnteringConnection, refused: str) -> None:
        """Note that it is no more: what was wrong with it, or "" if all is well."""
        source = self._entrances.pop(entrance, None)
        if source is not None:
            self._places.give_up(source)
        emptied = self._emptied
        if emptied is not None and not self._entrances and not emptied.done():
            emptied.set_result(None)
        if refused:
            _count(self._refused, refused)
            text, detail = "%s: a handshake failed: %s", shown(entrance.detail or refused)
            self._seldom.log(logging.WARNING, f"refused {refused}", text, self.uri, detail)

    def admit(self, source: str) -> WireSocket | None:
        """Make a link; `None`: there can be none more, as the node is stopping or full."""
        if self._over:
            return None
        link = AcceptedLink(self._expose, self.options, self._link_closed, self._seldom)
        link.scheme = self._scheme
        try:
            self.spawn(lambda: link, mailbox=self.options.mailbox)
        except OnwardError as error:
            self._turn_away(str(error))
            return None
        self._links[link] = source
        self._places.take(source)
        self._accepted += 1
        return WireSocket(link, self.options, self.loop, self._unfinished, self._place.name)

    def _turn_away(self, why: str) -> None:
        self._turned_away += 1
        text = "%s: a connection was turned away: %s"
        self._seldom.log(logging.WARNING, "turned away", text, self.uri, why)

    def _link_closed(self, link: StreamLink) -> None:
        source = self._links.pop(link, None)
        if source is not None:
            self._places.give_up(source)
        _count(self._closed, link.reason or "the link was closed")


def _count(reasons: Counter[str], reason: str) -> None:
    if reason not in reasons and len(reasons) >= MAX_REASONS:
        reason = "other"
    reasons[reason] += 1


class StreamListener(WorkerListener[ListenerWorker]):
    """A listening socket of a stream transport: a `Listener` that counts."""

    def statistics(self) -> ListenerStatistics:
        """Return what has been counted so far."""
        return self._worker.statistics()
