"""Dialling other brokers: peer links that this side opens."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

from ...actors import MailboxOptions
from ...protocol import LinkDown
from ...protocol.broker import MIME_FORWARDING, Dialect
from ...protocol.options import Range, Seconds, check_options
from ...protocol.rsocket import MAX_REQUEST_N, Setup, composite_entry
from ...protocol.security import AUTHENTICATION_MIME, PeerIdentity
from .._log import SeldomLogger
from ..streams._credentials import CredentialsSource, ShownCredentials
from ..streams._tls import TlsOptions
from ._link import Link
from ._options import LinkOptions
from ._peer_session import PeerSession
from ._places import dialler_of
from ._shared import Shared
from ._worker import ConnectionWorker

if TYPE_CHECKING:
    from ...actors.broker import Broker
    from ...actors.cluster import PeerHandlers
    from ._peer_link import PeerLink

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

    Raises:
        BadCredentials: The credentials are too long, or empty.
        ValueError: They are none.
    """

    def __init__(
        self,
        broker: Broker,
        credentials: CredentialsSource | None = None,
        options: PeerOptions = PeerOptions(),
    ) -> None:
        self._broker = broker
        self._node = node = broker.node
        self._credentials = ShownCredentials(credentials)
        self._options = options
        self._seldom = SeldomLogger(_logger, node.loop.time)
        self._shared = Shared(node.loop, options.link)

    async def connect(self, uri: str, peers: PeerHandlers) -> PeerLink:
        """Dial a broker, and exchange BROKER_INFO with it.

        Args:
            uri: `rsocket+tcp://host:port`, `rsocket+ws://host:port/path` or `rsocket+unix:///path`;
                `rsocket+tls` and `rsocket+wss` with TLS.
            peers: The cluster.

        Raises:
            PeerRefused: Either side refuses the other.
            LinkDown: There is no answer in time, or the other closes the connection.
            NotDelivered: There are no credentials.
            OSError: The connection cannot be opened, or a certificate cannot be read.
            ValueError: It is no such URI, or a certificate is wrong.
        """
        options = self._options
        dialler = dialler_of(uri, options.tls, options.connect_timeout)
        link, session = await self._link(uri, await self._setup(uri, peers), peers)
        joined: asyncio.Future[PeerLink] | None = None
        try:
            async with asyncio.timeout(options.connect_timeout):
                await dialler.open(lambda: link)
                joined = session.introduce()
                return await joined
        except TimeoutError:
            link.closed_reason = link.closed_reason or "no handshake"
            raise LinkDown(uri, f"no answer within {options.connect_timeout:g} s") from None
        finally:
            if joined is None or joined.cancelled() or joined.exception() is not None:
                self._give_up(link)

    def _give_up(self, link: Link) -> None:
        """Close a connection that is no peer link."""
        if link.core.setup is not None:
            link.close("no handshake", "the handshake of brokers was given up")
        else:
            link.worker.detach()
            link.worker.stop()

    async def _setup(self, uri: str, peers: PeerHandlers) -> Setup:
        """Return the SETUP, with credentials and the BROKER_INFO of this broker."""
        content = await self._credentials.content(uri)
        entries = composite_entry(AUTHENTICATION_MIME, content) if content else b""
        told = peers.info.serialize(Dialect.SPECIFICATION)
        return Setup(
            metadata=entries + composite_entry(MIME_FORWARDING.decode(), told),
            keepalive=round(self._options.keepalive * 1000),
            lifetime=round(self._options.lifetime * 1000),
        )

    async def _link(self, uri: str, setup: Setup, peers: PeerHandlers) -> tuple[Link, PeerSession]:
        """Return a connection that is not open yet, with its worker and its session."""
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
        session = PeerSession(link, peers, link.session)
        link.join(session)
        worker.attach(link)
        return link, session


def _on_closed(link: Link) -> None:
    _logger.info(
        "%s: closed: %s",
        link.name,
        link.closed_reason,
        extra={"event": "connection.closed", "peer": link.name, "reason": link.closed_reason},
    )
    link.worker.stop()
