"""Dialling other brokers: peer links that this side opens."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final

from ...actors import MailboxOptions
from ...actors.broker import MANAGEMENT_SERVICE
from ...protocol import LinkDown
from ...protocol.broker import (
    ID_SIZE,
    MIME_BROKER_FRAME,
    MIME_FORWARDING,
    AddressFrame,
    Dialect,
    RoutingType,
    WellKnownKey,
)
from ...protocol.cluster import java_places
from ...protocol.options import Range, Seconds, check_options
from ...protocol.rsocket import MAX_REQUEST_N, Setup, composite_entry
from ...protocol.security import AUTHENTICATION_MIME, PeerIdentity
from .._log import SeldomLogger
from ..streams._credentials import CredentialsSource, ShownCredentials
from ..streams._tls import TlsOptions
from ._java_peer import ControlSession, JavaLink, ProxySession
from ._link import Link
from ._options import LinkOptions
from ._peer_link import PeerLink, routing_entry
from ._peer_session import PeerSession
from ._places import MakeDialler, dialler_of
from ._prolonging import CredentialsKeeper
from ._seeds import address_in
from ._shared import Shared
from ._worker import ConnectionWorker

if TYPE_CHECKING:
    from ...actors.broker import Broker
    from ...actors.cluster import PeerHandlers

__all__ = ["PeerDialler", "PeerOptions"]

_logger = logging.getLogger("onward.transports.rsocket")

_MAILBOX: Final = MailboxOptions(limit=20_000)


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """The limits of the links that a broker opens to other brokers.

    Attributes:
        tls: The encryption; `None` for the default of the scheme.
        connect_timeout: Seconds for a connection and its handshakes; then it is given up.
        keepalive: Seconds between two KEEPALIVE frames of the broker that has dialled.
        lifetime: Seconds of silence after which either broker takes the link for lost.
        link: The limits of the connections; `max_connections` and what else is of listeners only is
            not used.

    Raises:
        ValueError: A number is out of its range, or `lifetime` is not longer than `keepalive`.
    """

    tls: TlsOptions | ssl.SSLContext | None = None
    connect_timeout: Seconds = 10.0
    keepalive: Seconds = 1.0
    lifetime: Annotated[float, Range(above=0, most=MAX_REQUEST_N / 1000, unit="seconds")] = 5.0
    link: LinkOptions = field(default_factory=LinkOptions)

    def __post_init__(self) -> None:
        check_options(self)
        if not self.keepalive < self.lifetime:
            raise ValueError("lifetime must be longer than keepalive")


class PeerDialler:
    """The opening side of peer links. Its `connect` is the `ConnectPeer` of a cluster.

    Args:
        broker: The broker, which is attached to its node.
        credentials: The credentials of this broker, which each SETUP shows.
        options: The limits.
        dialler: Makes the dialler of a URI; by default that of its scheme.

    Raises:
        BadCredentials: The credentials are too long, or empty.
        ValueError: They are none.
    """

    def __init__(
        self,
        broker: Broker,
        credentials: CredentialsSource | None = None,
        options: PeerOptions = PeerOptions(),
        *,
        dialler: MakeDialler = dialler_of,
    ) -> None:
        self._broker = broker
        self._node = node = broker.node
        self._credentials = ShownCredentials(credentials)
        self._options = options
        self._dialler = dialler
        self._seldom = SeldomLogger(_logger, node.loop.time)
        self._shared = Shared(node.loop, options.link)

    async def connect(self, uri: str, peers: PeerHandlers) -> PeerLink | JavaLink:
        """Dial a broker, and exchange BROKER_INFO with it.

        Args:
            uri: `rsocket+tcp://host:port`, `rsocket+ws://host:port/path` or `rsocket+unix:///path`;
                `rsocket+tls` and `rsocket+wss` with TLS, and then with `#ADDRESS` at its end where
                the host is a name that has several. With `?proxy=PORT` at its end it is a Java
                broker: its port for brokers, and the one for clients.
            peers: The cluster.

        Raises:
            PeerRefused: Either side refuses the other.
            LinkDown: There is no answer in time, or the other closes the connection.
            NotDelivered: There are no credentials.
            OSError: The connection cannot be opened, or a certificate cannot be read.
            ValueError: It is no such URI, or a certificate is wrong.
        """
        options = self._options
        places = java_places(uri)
        if places is not None:
            return await self._connect_java(uri, places, peers)
        place, address = address_in(uri)
        dialler = self._dialler(place, options.tls, options.connect_timeout, address)
        link = await self._link(uri, await self._setup(uri, peers))
        session = PeerSession(link, peers, link.session)
        link.join(session)
        joined: asyncio.Future[PeerLink] | None = None
        try:
            async with asyncio.timeout(options.connect_timeout):
                await dialler.open(lambda: link)
                joined = session.introduce()
                connection = await joined
        except TimeoutError:
            link.closed_reason = link.closed_reason or "no handshake"
            raise LinkDown(uri, f"no answer within {options.connect_timeout:g} s") from None
        finally:
            if joined is None or joined.cancelled() or joined.exception() is not None:
                self._give_up(link)
            joined = None  # its error has a traceback, which refers to this call
        if not self._credentials.fixed:
            keeper = _PeerCredentials(connection, uri, self._credentials, options.connect_timeout)
            connection.keep(asyncio.ensure_future(keeper.run()))
        return connection

    async def _connect_java(
        self, uri: str, places: tuple[str, str], peers: PeerHandlers
    ) -> JavaLink:
        """Dial a Java broker at both ports, first at the one for forwarded requests."""
        options, pair = self._options, JavaLink(peers, dialled=True)
        mime, told = MIME_BROKER_FRAME.decode(), pair.told()
        control_uri, proxy_uri = places
        proxy = await self._link(proxy_uri, self._timed(composite_entry(mime, told)))
        setup = replace(self._timed(), data_mime=mime, data=told)
        control = await self._link(control_uri, setup)
        proxy.join_java(ProxySession(proxy, peers, proxy.session, pair), pair)
        session = ControlSession(control, peers, control.session, pair)
        control.join_java(session, pair)
        joined = False
        try:
            async with asyncio.timeout(options.connect_timeout):
                for link, place in ((proxy, proxy_uri), (control, control_uri)):
                    dialler = self._dialler(place, options.tls, options.connect_timeout, "")
                    await dialler.open(_returns(link))
                await session.introduce()
                joined = True
        except TimeoutError:
            raise LinkDown(uri, f"no answer within {options.connect_timeout:g} s") from None
        finally:
            for link in () if joined else (proxy, control):
                link.closed_reason = link.closed_reason or "no handshake"
                self._give_up(link)
        return pair

    def _give_up(self, link: Link) -> None:
        """Close a connection that is no peer link."""
        if link.core.setup is not None:
            link.close("no handshake", "the handshake of brokers was given up")
        else:
            link.worker.detach()
            link.worker.stop()

    async def _setup(self, uri: str, peers: PeerHandlers) -> Setup:
        """Return the SETUP, with credentials and the BROKER_INFO of this broker."""
        entries = await _entry_of(self._credentials, uri)
        told = peers.info.serialize(Dialect.SPECIFICATION)
        return self._timed(entries + composite_entry(MIME_FORWARDING.decode(), told))

    def _timed(self, metadata: bytes | None = None) -> Setup:
        """Return a SETUP with the times of peer links."""
        return Setup(
            metadata=metadata,
            keepalive=round(self._options.keepalive * 1000),
            lifetime=round(self._options.lifetime * 1000),
        )

    async def _link(self, uri: str, setup: Setup) -> Link:
        """Return a connection that is not open yet, with its worker."""
        worker = ConnectionWorker()
        await self._node.start(lambda: worker, mailbox=_MAILBOX)
        link = Link(
            worker,
            self._broker,
            self._options.link,
            self._seldom,
            self._shared,
            _on_closed,
            setup,
        )
        link.source, link.identity = uri, PeerIdentity(listener="", source=uri, peer=uri)
        worker.attach(link)
        return link


def _returns(link: Link) -> Callable[[], Link]:
    return lambda: link


async def _entry_of(credentials: ShownCredentials, uri: str) -> bytes:
    """Return the entry of credentials in composite metadata; empty for none.

    Raises:
        NotDelivered: The function has failed, or has returned no credentials.
    """
    content = await credentials.content(uri)
    return composite_entry(AUTHENTICATION_MIME, content) if content else b""


class _PeerCredentials(CredentialsKeeper):
    """The task that keeps the credentials valid that this broker has shown to another.

    Args:
        connection: The peer link.
        uri: The URI of the other broker.
        credentials: The function that returns new credentials.
        timeout: Seconds for an answer.
    """

    def __init__(
        self, connection: PeerLink, uri: str, credentials: ShownCredentials, timeout: float
    ) -> None:
        self.name = uri
        self._connection = connection
        self._credentials = credentials
        self._timeout = timeout
        tags = ((int(WellKnownKey.SERVICE_NAME), MANAGEMENT_SERVICE),)
        asked = AddressFrame(bytes(ID_SIZE), RoutingType.UNICAST, tags)
        frame = asked.serialize(Dialect.SPECIFICATION)
        self._question = b"".join(
            (routing_entry("authenticate"), composite_entry(MIME_FORWARDING.decode(), frame))
        )

    def time(self) -> float:
        """Return the time on the loop's clock, in seconds."""
        return asyncio.get_running_loop().time()

    async def ask(self, *, anew: bool) -> bytes:
        """Send the request that asks for the validity, and return the data of the answer."""
        entry = await _entry_of(self._credentials, self.name) if anew else b""
        async with asyncio.timeout(self._timeout):
            return await self._connection.ask(entry + self._question)


def _on_closed(link: Link) -> None:
    _logger.info(
        "%s: closed: %s",
        link.name,
        link.closed_reason,
        extra={"event": "connection.closed", "peer": link.name, "reason": link.closed_reason},
    )
    link.worker.stop()
