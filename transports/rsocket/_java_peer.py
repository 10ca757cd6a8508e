"""A Java broker as a peer broker: two connections, which are one peer link for the cluster.

The *control* connection has the requests of the cluster, with broker frames as their data. The
*proxy* connection has the requests that are forwarded, either way. Either side may open both:

```
this broker dials:  proxy SETUP ──▶ control SETUP ──▶ cluster.broker-info ──answer──▶ joined
it dials:           control SETUP ──▶ cluster.broker-info ──answer──▶ proxy SETUP ──▶ joined
```

The Java broker asks for BROKER_INFO once more, a second after a SETUP. An end of one connection
ends both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, Final

from ...actors.broker.table._leaving import CONNECTION_LOST
from ...actors.cluster import ElementReceiver, ElementStream, PeerRefused
from ...protocol import NotDelivered, ProtocolError
from ...protocol.broker import BrokerFrameError, BrokerInfo, Dialect
from ...protocol.cluster import LinkRole, PeerInfo, java_info
from ._metadata import JAVA
from ._peer_link import PeerLink, routing_in
from ._peer_session import HANDSHAKE, PeerSession

if TYPE_CHECKING:
    from ...actors.broker import Handlers
    from ...actors.cluster import PeerHandlers
    from ...protocol import Address
    from ...protocol.security import Principal
    from ._exchange import StreamExchange
    from ._link import Link
    from ._session import Session

__all__ = ["MAX_EARLY", "NO_CONTROL", "ControlSession", "JavaLink", "ProxySession"]

MAX_EARLY: Final = 1024
"""Most requests of a Java broker that are kept until both connections are there; with more of them
the connection is closed."""

NO_CONTROL: Final = "there is no connection to the port for brokers of this one"
"""The reason for which a second connection of a Java broker is refused."""

_ENDED: Final = "the other connection of the Java broker has ended"


class JavaLink:
    """The two connections to a Java broker; it implements `PeerConnection`.

    Args:
        peers: The cluster.
        dialled: Whether this broker has dialled.
        forget: Called when it has joined, or never will.

    Attributes:
        info: The BROKER_INFO of the Java broker, as it was received last in the handshake.
        dialled: As given.
        java: Whether the other is a Java broker.
        role: What the link is for: never for another zone, which Java brokers do not know.
        address: The address of the proxy connection's worker.
        peer: The network address of the other end of that connection, as text.
    """

    def __init__(
        self, peers: PeerHandlers, *, dialled: bool, forget: Callable[[], object] = lambda: None
    ) -> None:
        self.dialled = dialled
        self.java = True
        self.role = LinkRole.MESH
        self.info: BrokerInfo
        self.address: Address
        self.peer = ""
        self._peers = peers
        self._forget = forget
        self._control: ControlSession | None = None
        self._proxy: ProxySession | None = None
        self._links: tuple[PeerLink, PeerLink] | None = None
        self._over = False

    def told(self) -> bytes:
        """Return the BROKER_INFO of this broker, as a Java broker reads it."""
        return java_info(PeerInfo.of(self._peers.info))

    def add(self, session: ControlSession | ProxySession) -> None:
        """Add a connection."""
        if isinstance(session, ControlSession):
            self._control = session
        else:
            self._proxy = session

    @property
    def has_proxy(self) -> bool:
        """Whether the connection for forwarded requests is there."""
        return self._proxy is not None

    def join(self) -> PeerLink:
        """Join the cluster: both connections are there, and each side has the other's BROKER_INFO.

        Returns:
            The control connection.

        Raises:
            PeerRefused: The cluster refuses it, or the handshake is not over.
        """
        control, proxy = self._control, self._proxy
        if control is None or proxy is None or control.introduced is None or self._over:
            raise PeerRefused(NO_CONTROL)
        self._forget()
        self.info = info = control.introduced
        links = tuple(PeerLink(each.link, info, dialled=self.dialled) for each in (control, proxy))
        self._links = links[0], links[1]
        self.address, self.peer = links[1].address, links[1].peer
        handlers = self._peers.on_connected(self)
        proxy.use(self, handlers)
        control.use(self, handlers)
        return links[0]

    def leave(self, session: PeerSession) -> None:
        """Release the connections, as one of them ends, and close the other."""
        self.end()
        for each in (self._control, self._proxy):
            if each is not None and each is not session:
                each.link.close("peer link", _ENDED)

    def end(self) -> None:
        """Release the connections."""
        self._over = True
        self._forget()
        sessions = [each for each in (self._control, self._proxy) if each is not None]
        for session in sessions:
            session.connection = None
        for link in self._links or ():
            link.end()

    # --- as the cluster uses it ---------------------------------------------------------------

    @property
    def round_trip(self) -> float:
        """The time from a KEEPALIVE to its answer, in seconds, lately; 0 if it is not known."""
        return 0.0 if self._links is None else self._links[1].round_trip

    @property
    def in_flight(self) -> int:
        """The requests that were forwarded, either way, and have not ended."""
        return 0 if self._links is None else self._links[1].in_flight

    @property
    def busy(self) -> bool:
        """Whether other destinations are to be preferred now."""
        return self._links is None or self._links[1].busy

    def request(self, route: str, data: bytes) -> Awaitable[bytes]:
        """Send a request/response of the cluster, and return the data of the answer.

        Raises:
            OnwardError: (When awaited.) The Java broker answered with an error, or the link was
                lost.
        """
        if self._links is None:
            raise NotDelivered("the peer broker", "the link has ended")
        return self._links[0].request(route, data)

    def subscribe(
        self, route: str, data: bytes, credit: int, receiver: ElementReceiver
    ) -> ElementStream:
        """Refuse: a Java broker has no streams of routes.

        Raises:
            NotDelivered: Always.
        """
        del data, credit, receiver
        raise NotDelivered("the peer broker", f"a Java broker has no stream {route}")

    def close(self, reason: str, text: str) -> None:
        """Close both connections with ERROR[CONNECTION_ERROR]; idempotent."""
        for link in self._links or ():
            link.close(reason, text)


class _JavaSession(PeerSession):
    """The session of one of the two connections."""

    dialect: ClassVar[Dialect] = Dialect.REFERENCE
    requests: int

    def __init__(
        self,
        link: Link,
        peers: PeerHandlers,
        before: Session,
        pair: JavaLink,
        info: BrokerInfo | None = None,
    ) -> None:
        super().__init__(link, peers, before, info)
        self._pair = pair
        self.link = link

    def own_info(self) -> bytes:
        """Return the BROKER_INFO of this broker."""
        return self._pair.told()

    def use(self, pair: JavaLink, handlers: Handlers) -> None:
        """Serve requests, as the link has joined the cluster."""
        self.connection = pair
        self._stop_waiting()
        self._begin_to_serve(handlers, dialled=pair.dialled)

    def leave(self, reason: str = CONNECTION_LOST) -> None:
        """Leave the cluster at once, with the other connection."""
        super().leave(reason)
        self._pair.leave(self)


class ControlSession(_JavaSession):
    """The session of the connection with the requests of the cluster.

    Attributes:
        introduced: The BROKER_INFO of the Java broker, once it has been exchanged.
    """

    def __init__(
        self,
        link: Link,
        peers: PeerHandlers,
        before: Session,
        pair: JavaLink,
        info: BrokerInfo | None = None,
    ) -> None:
        super().__init__(link, peers, before, pair, info)
        self.introduced: BrokerInfo | None = None
        self._early: list[StreamExchange] = []

    def _connected(self, info: BrokerInfo, *, dialled: bool) -> None:
        """Join the cluster, or wait for the connection for forwarded requests."""
        self.introduced = info
        if not self._pair.has_proxy:
            return
        try:
            control = self._pair.join()
        except PeerRefused as error:
            self._fail(error)
            self._link.close("peer refused", error.reason)
            return
        if self._joined is not None and not self._joined.done():
            self._joined.set_result(control)

    def use(self, pair: JavaLink, handlers: Handlers) -> None:
        """Serve requests, first those that have come before."""
        super().use(pair, handlers)
        early, self._early = self._early, []
        for exchange in early:
            self._start(exchange, handlers)

    def _route_whole(
        self, exchange: StreamExchange, metadata: bytes, principal: Principal | None
    ) -> None:
        # All requests are those of the cluster; the others come by the other connection.
        del metadata, principal
        if exchange.stream is None:
            raise BrokerFrameError("metadata", "a push between brokers has no meaning")
        self.requests += 1
        if exchange.whole(lambda: self._answer(exchange)):
            self._answer(exchange)

    def _answer(self, exchange: StreamExchange) -> None:
        if exchange.ended:
            return
        handlers = self._handlers
        if routing_in(exchange.metadata()) == HANDSHAKE:
            self._introduce_to(exchange)
        elif handlers is not None:
            self._start(exchange, handlers)
        elif len(self._early) < MAX_EARLY:
            self._early.append(exchange)
        else:
            self._violated(f"more than {MAX_EARLY} requests before it")

    def _introduce_to(self, exchange: StreamExchange) -> None:
        """Answer a request with the BROKER_INFO of the Java broker; it may send several."""
        try:
            info = BrokerInfo.parse(exchange.request().data, Dialect.REFERENCE)
        except ProtocolError as error:
            self._violated(str(error))
            return
        told = self._info or self.introduced
        if told is not None and info.broker_id != told.broker_id:
            self._violated("another broker id than in SETUP")
            return
        exchange.answer(self.own_info())
        if self._info is not None and self.introduced is None:
            self._connected(info, dialled=False)


class ProxySession(_JavaSession):
    """The session of the connection with the requests that are forwarded, either way."""

    def use(self, pair: JavaLink, handlers: Handlers) -> None:
        """Serve requests, and forward others in the dialect of the Java broker."""
        super().use(pair, handlers)
        self._link.form = JAVA

    def _route_whole(
        self, exchange: StreamExchange, metadata: bytes, principal: Principal | None
    ) -> None:
        if self._handlers is None:
            raise NotDelivered("the request", "the link of the brokers is not up")
        super()._route_whole(exchange, metadata, principal)

    def _serve(self, exchange: StreamExchange) -> None:
        raise BrokerFrameError("metadata", "the request has no ADDRESS")
