"""The accepting side of stream transports: of links of nodes, and of RSocket connections.

An acceptor has one listening socket. It shares its places among the sources of connections, and
performs the TLS and WebSocket handshakes within their limits. A connection that has passed them is
given to the acceptor's owner, which makes its protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from ...protocol import NodeStopped, OnwardError
from ...protocol._principal import PeerIdentity
from .._log import SeldomLogger, shown
from ._authenticating import AuthenticatingConnection
from ._endpoint import Endpoint, EnteringConnection, TurnedAway
from ._listening import Arrival, close_server
from ._pending import TlsHandshake
from ._proxy_entrance import ProxyEntrance, behind_proxy
from ._source import Places, Proxies
from ._tls import TlsOptions, certified
from ._tls_context import TlsContext, TlsStatistics

if TYPE_CHECKING:
    from ...actors import Node
    from ...actors.security import Authentication

__all__ = ["AcceptLimits", "ConnectionOwner", "StreamAcceptor", "count_reason"]

COMPLETED: Final = "completed"
"""The result of a TLS handshake that did not fail."""

MAX_REASONS: Final = 64
"""The maximum number of distinct reasons that a listener counts; others count as "other"."""


class AcceptLimits(Protocol):
    """The options of an acceptor, part of those of its listener."""

    @property
    def max_connections(self) -> int:
        """Connections at a time, including those with a handshake in progress."""
        ...

    @property
    def max_connections_per_source(self) -> int | None:
        """Connections from one source at a time; `None`: as many as there are free places."""
        ...

    @property
    def proxies(self) -> tuple[str, ...]:
        """Networks in which each connection is a source of its own."""
        ...

    @property
    def proxy_protocol(self) -> bool:
        """Whether connections from `proxies` begin with a PROXY header."""
        ...

    @property
    def tls_timeout(self) -> float:
        """Time for the TLS handshake, in seconds."""
        ...


class ConnectionOwner(Protocol):
    """The owner of an acceptor and of its connections after their handshakes."""

    def connect(self, identity: PeerIdentity) -> asyncio.Protocol:
        """Return the protocol of a new connection.

        The owner calls `StreamAcceptor.release` with its source once the connection has ended.

        Args:
            identity: The peer, as the socket and the TLS handshake have reported it.

        Raises:
            OnwardError: There is no room in the node.
        """
        ...

    def make_room(self, source: str) -> bool:
        """Close a connection in favour of a new one from a source; return whether there is one."""
        ...


class StreamAcceptor:
    """A listening socket, and its connections up to the end of their handshakes.

    Args:
        node: The node of the owner.
        scheme: The scheme of its URI.
        endpoint: The endpoint to listen at.
        context: The TLS context, or `None` for no TLS.
        limits: The limits.
        owner: The owner of the connections.
        seldom: The logger for events that peers cause.

    Attributes:
        uri: The URI, once it is bound.
        places: The places for connections.
        accepted: Connections that were given to the owner.
        turned_away: Connections closed at once because a limit, in all or for their source, was
            reached, or because the node had no room.
        refused: Failed handshakes, of TLS and of WebSockets, by reason; `banned`: connections
            of sources that may not attempt to authenticate themselves.
        admits: Whether connections of a source are accepted at all; `None`: they are.
        authentication: The authentication of peers before the owner has them, by what the transport
            has verified and by a header in front of the wire; `None`: the owner has each of them.
    """

    def __init__(
        self,
        node: Node,
        scheme: str,
        endpoint: Endpoint,
        context: TlsContext | None,
        limits: AcceptLimits,
        owner: ConnectionOwner,
        seldom: SeldomLogger,
    ) -> None:
        self.uri = ""
        self.places = Places(limits.max_connections, limits.max_connections_per_source)
        self.accepted = 0
        self.turned_away = 0
        self.refused: Counter[str] = Counter()
        self.admits: Callable[[str], bool] | None = None
        self.authentication: Authentication | None = None
        self._secured: Counter[str] = Counter()
        self._node = node
        self._scheme = scheme
        self._endpoint = endpoint
        self._context = context
        self._limits = limits
        self._owner = owner
        self._seldom = seldom
        self._proxies = Proxies(limits.proxies)
        self._server: asyncio.Server | None = None
        self._over = False
        # Connections with a handshake in progress, with the source of each.
        self._entrances: dict[EnteringConnection, str] = {}
        self._emptied: asyncio.Future[None] | None = None  # while it closes

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its sockets."""
        return self._node.loop

    @property
    def handshakes(self) -> int:
        """Connections with a TLS or WebSocket handshake in progress."""
        return len(self._entrances)

    async def bind(self) -> None:
        """Open the listening socket, which accepts no connections yet.

        Raises:
            OSError: The endpoint cannot be listened at.
            NodeStopped: The acceptor was closed meanwhile.
        """
        # Serving starts later: a server cancelled while it starts serving would never be closed.
        self._server = server = await self._endpoint.listen(self.loop, self._enter)
        self.uri = f"{self._scheme}://{self._endpoint.where(server)}"
        self._check_open()

    async def serve(self) -> None:
        """Accept connections.

        Raises:
            NodeStopped: The acceptor was closed meanwhile.
        """
        try:
            if self._server is not None:
                await self._server.start_serving()
                if self._context is not None:
                    self._context.watch(self.loop)
        except BaseException:
            self.abandon()
            raise
        self._check_open()

    def _check_open(self) -> None:
        if self._over:
            self.abandon()
            raise NodeStopped(self._node.name)

    def abandon(self) -> None:
        """Close the listening socket at once, after a failed start."""
        self._end()
        if self._server is not None:
            self._server.close()
            self._endpoint.left()

    async def close(self) -> None:
        """Stop accepting, and close the connections with a handshake in progress. Idempotent.

        The owner closes its connections itself, before or after.
        """
        self._end()
        server, self._server = self._server, None
        if server is None:
            return
        self._endpoint.left()
        try:
            await close_server(server)
        finally:
            for entrance in list(self._entrances):
                entrance.abort("stopped")
        if self._entrances:
            self._emptied = self.loop.create_future()
            await self._emptied

    def _end(self) -> None:
        self._over = True
        if self._context is not None:
            self._context.unwatch()

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Read the files of the certificates again; see `Listener.prepare_reload`."""
        return (lambda: None) if self._context is None else self._context.prepare_reload(tls)

    def tls_statistics(self) -> TlsStatistics | None:
        """Return the statistics of TLS; `None` without TLS."""
        return None if self._context is None else self._context.statistics(dict(self._secured))

    def release(self, source: str) -> None:
        """Give up the place of a connection that has ended."""
        self.places.give_up(source)

    # --- accepted connections -------------------------------------------------------------

    def _enter(self) -> asyncio.Protocol:
        return Arrival(self._arrived)

    def _arrived(self, transport: asyncio.BaseTransport) -> asyncio.Protocol | None:
        if self._over:
            self.turned_away += 1  # accepted just before the close
            return None
        found = self._endpoint.identify(transport)
        peername = transport.get_extra_info("peername")
        source = self._proxies.source(peername, found.source)
        identity = replace(found, listener=self.uri, source=source)
        if not self._limits.proxy_protocol:
            return self._begin(identity)
        if not self._has_room(source):
            return None
        entrance = ProxyEntrance(
            peername in self._proxies,
            lambda header: self._begin(behind_proxy(identity, header)),
            self.entered,
        )
        self.entering(entrance, source)
        return entrance

    def _has_room(self, source: str) -> bool:
        """Whether a source may have one more connection; if not, count and log why."""
        if self.admits is not None and not self.admits(source):
            count_reason(self.refused, "banned")
            self._turn_away(f"too many failures of {source} to authenticate itself")
            return False
        refusal = self.places.refusal(source)
        if refusal and not self._owner.make_room(source):
            self._turn_away(refusal)
            return False
        return True

    def _begin(self, identity: PeerIdentity) -> asyncio.Protocol | None:
        """Return the protocol of the connection of a known peer, or `None` to close it."""
        if not self._has_room(identity.source):
            return None
        if self._context is None:
            return self._entrance(identity)
        entrance = TlsHandshake(
            self._context.current,
            self._limits.tls_timeout,
            lambda secured: self._entrance(certified(identity, secured)),
            self._shaken,
        )
        self.entering(entrance, identity.source)
        return entrance

    def _entrance(self, identity: PeerIdentity) -> asyncio.Protocol:
        """Return the protocol of a connection after TLS."""
        return self._endpoint.entrance(self, identity)

    def _shaken(self, entrance: EnteringConnection, refused: str) -> None:
        count_reason(self._secured, refused or COMPLETED)
        self.entered(entrance, refused)

    def entering(self, entrance: EnteringConnection, source: str) -> None:
        """Add a connection from a source with a handshake in progress."""
        self._entrances[entrance] = source
        self.places.take(source)

    def entered(self, entrance: EnteringConnection, refused: str) -> None:
        """Remove a connection after its handshake, with the reason if it failed, or ""."""
        source = self._entrances.pop(entrance, None)
        if source is not None:
            self.places.give_up(source)
        emptied = self._emptied
        if emptied is not None and not self._entrances and not emptied.done():
            emptied.set_result(None)
        if refused:
            count_reason(self.refused, refused)
            text, detail = "%s: a handshake failed: %s", shown(entrance.detail or refused)
            self._seldom.log(
                logging.WARNING,
                f"refused {refused}",
                text,
                self.uri,
                detail,
                extra={
                    "event": "listener.handshake_failed",
                    "listener": self.uri,
                    "reason": refused,
                },
            )

    def admit(self, identity: PeerIdentity) -> asyncio.Protocol | None:
        """Return the protocol of a new connection, or `None` if there is no room.

        With authentication the owner has the connection only once its peer is accepted.
        """
        if self._over:
            return None
        authentication = self.authentication
        if authentication is None:
            return self._admit(identity)
        entrance = AuthenticatingConnection(
            authentication,
            identity,
            lambda peer: self._admit(peer) or TurnedAway(),
            self.entered,
        )
        self.entering(entrance, identity.source)
        return entrance

    def _admit(self, identity: PeerIdentity) -> asyncio.Protocol | None:
        if self._over:
            return None
        try:
            made = self._owner.connect(identity)
        except OnwardError as error:
            # The node is stopping, or has too many addresses.
            self._turn_away(str(error))
            return None
        self.places.take(identity.source)
        self.accepted += 1
        return made

    def _turn_away(self, why: str) -> None:
        self.turned_away += 1
        text = "%s: a connection was turned away: %s"
        self._seldom.log(
            logging.WARNING,
            "turned away",
            text,
            self.uri,
            why,
            extra={"event": "listener.turned_away", "listener": self.uri, "reason": why},
        )


def count_reason(reasons: Counter[str], reason: str) -> None:
    """Count a reason, of which a table holds a bounded number."""
    if reason not in reasons and len(reasons) >= MAX_REASONS:
        reason = "other"
    reasons[reason] += 1
