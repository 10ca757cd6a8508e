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
"""The maximum number of distinct close reasons that a listener counts; others count as "other"."""


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """The state of one listener at one moment."""

    uri: str
    """The URI of the listener."""

    links: tuple[LinkStatistics, ...]
    """The open links, oldest first."""

    accepted: int
    """Connections that became links."""

    turned_away: int
    """Connections closed at once because a limit, in all or for their source, was reached."""

    closed: Mapping[str, int]
    """Ended links, by reason."""

    handshakes: int = 0
    """Connections with a TLS or WebSocket handshake in progress."""

    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    """Failed handshakes, by reason."""


class ListenerWorker(ListeningWorker):
    """The worker that owns a listening socket; its children are the accepted links.

    Args:
        scheme: The scheme of its URI.
        endpoint: The endpoint to listen at.
        context: The TLS context, or `None` for no TLS.
        expose: The addresses that the peers may send to.
        options: The limits.
        on_closed: Called once with its address when it has ended.
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
        self._links: dict[StreamLink, str] = {}  # with their sources, as in `_entrances`
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
        """The event loop of its sockets."""
        return self.node.loop

    async def listen(self) -> None:
        """Start listening.

        Raises:
            OSError: The endpoint cannot be listened at.
            NodeStopped: The worker was stopped meanwhile.
        """
        # Serving starts later: a server cancelled while it starts serving would never be closed.
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
        """Stop listening; the links have been stopped before."""
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
        """Return the current statistics."""
        return ListenerStatistics(
            uri=self.uri,
            links=tuple(link.statistics() for link in self._links),
            accepted=self._accepted,
            turned_away=self._turned_away,
            closed=dict(self._closed),
            handshakes=len(self._entrances),
            refused=dict(self._refused),
        )

    # --- accepted connections -------------------------------------------------------------

    def _enter(self) -> asyncio.Protocol:
        return Arrival(self._arrived)

    def _arrived(self, transport: asyncio.BaseTransport) -> asyncio.Protocol | None:
        if self._over:
            return None  # accepted just before the close
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
        """Add a connection with a handshake in progress."""
        self._entrances[entrance] = source
        self._places.take(source)

    def entered(self, entrance: EnteringConnection, refused: str) -> None:
        """Remove a connection after its handshake, with the reason if it failed, or ""."""
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
        """Return the socket of a new link, or `None` if the node is stopping or full."""
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
    """A listening socket of a stream transport: a `Listener` with statistics."""

    def statistics(self) -> ListenerStatistics:
        """Return the current statistics."""
        return self._worker.statistics()
