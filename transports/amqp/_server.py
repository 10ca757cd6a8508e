"""The listener for clients of AMQP 1.0: a worker with a socket, for the names of a dispatcher."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final

from ...actors import Worker
from ...actors.security import Authentication
from ...protocol.security import PeerIdentity
from .._log import SeldomLogger
from ..streams._acceptor import StreamAcceptor
from ..streams._endpoint import TcpEndpoint, is_loopback
from ..streams._options import parse_uri
from ..streams._tls import TlsOptions, server_context
from ..streams._tls_context import TlsContext
from ._connection import AmqpConnection
from ._options import AmqpOptions, AmqpStatistics
from ._port import DispatchPort
from ._proton import load_proton

__all__ = ["AmqpServer"]

_logger = logging.getLogger("onward.transports.amqp")

_OPTIONS: Final = AmqpOptions()


class AmqpServer(Worker):
    """A worker that listens for clients of AMQP 1.0 at one URI. It listens once it has started.

    Without TLS, passwords are asked for on the loopback interface only.

    Args:
        uri: `amqp://host:port` or `amqps://host:port`.
        port: The dispatcher.
        options: The limits.
        tls: The certificates for `amqps`.
        authentication: The authentication of clients; `None` admits each that can connect.

    Raises:
        ValueError: The URI or a certificate is wrong.
        OSError: A certificate cannot be read.
        ModuleNotFoundError: The extra `amqp` is not installed.
    """

    def __init__(
        self,
        uri: str,
        port: DispatchPort,
        options: AmqpOptions = _OPTIONS,
        *,
        tls: TlsOptions | ssl.SSLContext | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        super().__init__()
        scheme = uri.partition(":")[0]
        if scheme not in ("amqp", "amqps"):
            raise ValueError(f"{uri!r} is not amqp://host:port or amqps://host:port")
        secure = scheme == "amqps"
        if secure and tls is None:
            raise ValueError(f"{uri} needs a certificate")
        if not secure and tls is not None:
            raise ValueError(f"certificates go with amqps://, not with {uri}")
        host, number = parse_uri(uri, scheme)
        self.options = options
        self.port = port
        self.proton = load_proton()
        self.authentication = authentication
        self.seldom = SeldomLogger(_logger)
        self._scheme = scheme
        self._endpoint = TcpEndpoint(host, number)
        self._private = secure or is_loopback(host)
        self._context = None if tls is None else TlsContext(tls, server_context)
        self._acceptor: StreamAcceptor | None = None
        self._connections: set[AmqpConnection] = set()
        self._closed: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._unwatch: Callable[[], None] = lambda: None

    @property
    def acceptor(self) -> StreamAcceptor:
        """The listening socket and its handshakes."""
        if self._acceptor is None:
            raise AssertionError("the worker has not started")
        return self._acceptor

    @property
    def uri(self) -> str:
        """The URI, with the actual port if port 0 was given."""
        return self.acceptor.uri

    @property
    def container(self) -> str:
        """The name of the container that clients are told: that of the node."""
        return self.node.name

    async def on_start(self) -> None:
        """Listen.

        Raises:
            OSError: The endpoint cannot be listened at.
        """
        self._acceptor = acceptor = StreamAcceptor(
            self.node,
            self._scheme,
            self._endpoint,
            self._context,
            self.options,
            self,
            self.seldom,
        )
        if self.authentication is not None:
            acceptor.admits = self.authentication.admits
            self._unwatch = self.authentication.on_reload(self._check_again)
        try:
            await acceptor.bind()
            await acceptor.serve()
        except BaseException:
            self._unwatch()
            acceptor.abandon()
            raise

    async def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening: what is made in its place listens at the same URI."""
        del exception_type, exception_value, traceback
        await self.on_stop()

    async def on_stop(self) -> None:
        """Stop listening, and close the connections: a client is told, and then cut."""
        self._unwatch()
        await self.acceptor.close()
        connections = tuple(self._connections)
        for each in connections:
            each.shut("amqp:connection:forced", "the listener stops")
        await asyncio.gather(*(each.gone() for each in connections))

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Read the files of the certificates again; see `Listener.prepare_reload`."""
        return self.acceptor.prepare_reload(tls)

    # --- connections ----------------------------------------------------------------------------

    def connect(self, identity: PeerIdentity) -> AmqpConnection:
        """Return the protocol of a new connection."""
        made = AmqpConnection(self, identity, private=self._private)
        self._connections.add(made)
        return made

    def make_room(self, source: str) -> bool:
        """Close no connection in favour of another."""
        return False

    def ended(self, connection: AmqpConnection) -> None:
        """Forget a connection that is closed."""
        self._connections.discard(connection)
        self._closed[connection.closed] += 1
        self.acceptor.release(connection.identity.source)

    def dropped(self, reason: str) -> None:
        """Count a message that was dropped."""
        self._dropped[reason] += 1

    def _check_again(self) -> None:
        for each in tuple(self._connections):
            each.check_again()

    def statistics(self) -> AmqpStatistics:
        """Return the figures at this moment."""
        acceptor = self.acceptor
        return AmqpStatistics(
            uri=self.uri,
            connections=len(self._connections),
            accepted=acceptor.accepted,
            turned_away=acceptor.turned_away,
            handshakes=acceptor.handshakes,
            refused_handshakes=dict(acceptor.refused),
            closed=dict(self._closed),
            dropped=dict(self._dropped),
        )
