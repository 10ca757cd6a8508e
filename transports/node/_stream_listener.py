"""Listeners of stream transports, and the worker that owns their socket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...protocol import Address
from ...protocol._principal import PeerIdentity
from .._log import SeldomLogger
from ..streams._acceptor import StreamAcceptor, count_reason
from ..streams._authenticating import AuthenticatedPeer
from ..streams._endpoint import Endpoint
from ..streams._listening import ListeningWorker, WorkerListener
from ..streams._options import StreamOptions
from ..streams._tls import TlsOptions
from ..streams._tls_context import TlsContext, TlsStatistics
from ._link_statistics import LinkStatistics
from ._socket import Unfinished, WireSocket
from ._stream_link import AcceptedLink, StreamLink, logger

if TYPE_CHECKING:
    from ...actors.security import Authentication, AuthenticationStatistics

__all__ = ["ListenerStatistics", "ListenerWorker", "StreamListener"]


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
    """Failed handshakes, of TLS and of WebSockets, by reason."""

    tls: TlsStatistics | None = None
    """The TLS handshakes and the certificate; `None` without TLS."""

    authentication: AuthenticationStatistics | None = None
    """The figures of its authentication; `None` without one."""


class ListenerWorker(ListeningWorker):
    """The worker that owns a listening socket; its children are the accepted links.

    Args:
        scheme: The scheme of its URI.
        endpoint: The endpoint to listen at.
        context: The TLS context, or `None` for no TLS.
        expose: The addresses that the peers may send to.
        options: The limits.
        on_closed: Called once with its address when it has ended.
        authentication: The authentication of peers; `None` accepts each of them.
    """

    def __init__(
        self,
        scheme: str,
        endpoint: Endpoint,
        context: TlsContext | None,
        expose: frozenset[Address],
        options: StreamOptions,
        on_closed: Callable[[Address], object],
        authentication: Authentication | None = None,
    ) -> None:
        super().__init__(on_closed)
        self._authentication = authentication
        self._listens_at = (scheme, endpoint, context)
        self._options = options
        self._expose = expose
        self._acceptor: StreamAcceptor | None = None
        self._links: dict[StreamLink, str] = {}  # with their sources
        self._seldom = SeldomLogger(logger)
        self._unfinished = Unfinished(options.max_unfinished)
        self._closed: Counter[str] = Counter()
        self._unwatch: Callable[[], object] | None = None

    def on_start(self) -> None:
        """Make the acceptor, which needs the node."""
        scheme, endpoint, context = self._listens_at
        self._acceptor = acceptor = StreamAcceptor(
            self.node, scheme, endpoint, context, self._options, self, self._seldom
        )
        if self._authentication is not None:
            acceptor.admits = self._authentication.admits
            acceptor.authentication = self._authentication

    @property
    def acceptor(self) -> StreamAcceptor:
        """The listening socket and its handshakes."""
        if self._acceptor is None:
            raise AssertionError("the worker has not started")
        return self._acceptor

    async def listen(self) -> None:
        """Start listening.

        Raises:
            OSError: The endpoint cannot be listened at.
            NodeStopped: The worker was stopped meanwhile.
        """
        await self.acceptor.bind()
        self.uri = self.acceptor.uri
        await self.acceptor.serve()
        if self._authentication is not None:
            self._unwatch = self._authentication.on_reload(self._readmit)

    def on_stop(self) -> Awaitable[None] | None:
        """Stop listening; the links have been stopped before."""
        if self._unwatch is not None:
            self._unwatch()
        self._on_closed(self.address)
        return self.acceptor.close()

    def _readmit(self) -> None:
        """Close the links of peers that are refused, or are another principal, since a reload."""
        for link in tuple(self._links):
            principal, authentication = link.principal, self._authentication
            if principal is None or authentication is None:
                continue
            if authentication.readmit(principal, link.identity) != principal:
                link.reason = "no longer admitted"
                link.retire()

    def statistics(self) -> ListenerStatistics:
        """Return the current statistics."""
        acceptor, authentication = self.acceptor, self._authentication
        return ListenerStatistics(
            uri=self.uri,
            links=tuple(link.statistics() for link in self._links),
            accepted=acceptor.accepted,
            turned_away=acceptor.turned_away,
            closed=dict(self._closed),
            handshakes=acceptor.handshakes,
            refused=dict(acceptor.refused),
            tls=acceptor.tls_statistics(),
            authentication=None if authentication is None else authentication.statistics(),
        )

    # --- accepted connections -------------------------------------------------------------

    def connect(self, identity: PeerIdentity) -> WireSocket:
        """Return the socket of a new link.

        Raises:
            OnwardError: The node is stopping or full.
        """
        link = AcceptedLink(self._expose, self._options, self._link_closed, self._seldom)
        link.scheme = self._listens_at[0]
        if self._authentication is not None and isinstance(identity, AuthenticatedPeer):
            link.principal = identity.principal
            link.clock = self._authentication.time
        self.spawn(lambda: link, mailbox=self._options.mailbox)
        self._links[link] = identity.source
        return WireSocket(link, self._options, self.node.loop, self._unfinished, identity)

    def make_room(self, source: str) -> bool:
        """Return `False`: a link is not closed in favour of another."""
        return False

    def _link_closed(self, link: StreamLink) -> None:
        source = self._links.pop(link, None)
        if source is not None:
            self.acceptor.release(source)
        count_reason(self._closed, link.reason or "the link was closed")


class StreamListener(WorkerListener[ListenerWorker]):
    """A listening socket of a stream transport: a `Listener` with statistics."""

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Read the files of the certificates again; see `Listener.prepare_reload`."""
        return self._worker.acceptor.prepare_reload(tls)

    def statistics(self) -> ListenerStatistics:
        """Return the current statistics."""
        return self._worker.statistics()
