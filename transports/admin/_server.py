"""The admin interface: a worker with an HTTP listener."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ...actors import Worker
from ...actors.security import Authentication
from ...protocol.security import PeerIdentity
from .._log import SeldomLogger
from ..streams._acceptor import StreamAcceptor
from ..streams._endpoint import Endpoint, TcpEndpoint, is_loopback
from ..streams._options import parse_unix_uri, parse_uri
from ..streams._tls import TlsOptions, server_context
from ..streams._tls_context import TlsContext
from ..streams._unix_endpoint import UnixEndpoint
from ._guard import Permits, RequestGuard
from ._options import AdminOptions, AdminStatistics
from ._paths import AdminPaths

if TYPE_CHECKING:
    from ._connection import HttpConnection

__all__ = ["AdminServer"]

_logger = logging.getLogger("onward.transports.admin")

_OPTIONS: Final = AdminOptions()


class AdminServer(Worker):
    """A worker that serves the admin interface at one URI. It listens once it has started.

    ```python
    paths = admin_paths(Monitor(node, broker))
    await node.start(lambda: AdminServer("http://127.0.0.1:8601", paths), address="admin")
    ```

    Args:
        uri: `http://host:port`, `https://host:port` or `unix:///path`. Beyond the loopback
            interface it must be `https`, with an authentication.
        paths: The handlers.
        options: The limits.
        tls: The certificates for `https`.
        authentication: The authentication of peers; `None` admits each that can connect.
        permits: Whether a principal may `read` or `operate`; `None` permits both. Without an
            authentication each peer is `anonymous`.

    Raises:
        ValueError: The URI or a certificate is wrong, or the interface would be open to others.
        OSError: A certificate cannot be read.
        ModuleNotFoundError: The extra `admin` is not installed.
    """

    def __init__(
        self,
        uri: str,
        paths: AdminPaths,
        options: AdminOptions = _OPTIONS,
        *,
        tls: TlsOptions | ssl.SSLContext | None = None,
        authentication: Authentication | None = None,
        permits: Permits | None = None,
    ) -> None:
        # Only the server needs the extra: the paths are asked through a broker as well.
        from ._connection import HttpConnection

        super().__init__()
        self._make_connection = HttpConnection
        self.options = options
        self.paths = paths
        self._scheme, self._endpoint = endpoint_of_uri(uri, options)
        secure = self._scheme == "https"
        if secure and tls is None:
            raise ValueError(f"{uri} needs a certificate")
        if not secure and tls is not None:
            raise ValueError(f"certificates go with https://, not with {uri}")
        if isinstance(self._endpoint, TcpEndpoint) and not is_loopback(self._endpoint.host or ""):
            missing = [
                word
                for word, given in (("TLS", secure), ("authentication", authentication is not None))
                if not given
            ]
            if missing:
                text = f"{uri} is not of the loopback interface: it needs {' and '.join(missing)}"
                raise ValueError(text)
        self._context = None if tls is None else TlsContext(tls, server_context)
        own = () if self._endpoint.host is None else (_bracketed(self._endpoint.host),)
        self.guard = RequestGuard((*options.hosts, *own), authentication, permits)
        self.seldom = SeldomLogger(_logger)
        self._acceptor: StreamAcceptor | None = None
        self._connections: set[HttpConnection] = set()
        # Without a request in hand, the one that has waited longest first.
        self._idle: dict[HttpConnection, None] = {}
        self._answers: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()

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
        # A source with too many failures is not turned away here: probes come from it, too.
        try:
            await acceptor.bind()
            await acceptor.serve()
        except BaseException:
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
        """Stop listening, and cut the connections."""
        await self.acceptor.close()
        connections = tuple(self._connections)
        for each in connections:
            each.abort("stopped")
        await asyncio.gather(*(each.gone() for each in connections))

    def reload(self) -> None:
        """Read the files of the certificates again, for later connections.

        Raises:
            OSError: As for `prepare_reload`.
            ValueError: As for `prepare_reload`.
        """
        self.prepare_reload()()

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Read the files of the certificates again; see `Listener.prepare_reload`."""
        return self.acceptor.prepare_reload(tls)

    # --- connections --------------------------------------------------------------------------

    def connect(self, identity: PeerIdentity) -> HttpConnection:
        """Return the protocol of a new connection."""
        made = self._make_connection(self, identity, secure=self._context is not None)
        self._connections.add(made)
        return made

    def make_room(self, source: str) -> bool:
        """Close a connection without a request in hand; return whether there was one."""
        spare = next(iter(self._idle), None)
        if spare is None:
            return False
        self._idle.pop(spare)
        spare.abort("idle")
        return True

    def idle(self, connection: HttpConnection, *, idle: bool) -> None:
        """Record whether a connection has no request in hand."""
        self._idle.pop(connection, None)
        if idle:
            self._idle[connection] = None

    def answered(self, status: HTTPStatus) -> None:
        """Count an answer."""
        self._answers[str(status.value)] += 1

    def ended(self, connection: HttpConnection) -> None:
        """Forget a connection that is closed."""
        self._connections.discard(connection)
        self._idle.pop(connection, None)
        self._closed[connection.closed] += 1
        self.acceptor.release(connection.identity.source)

    def statistics(self) -> AdminStatistics:
        """Return the figures at this moment."""
        acceptor = self.acceptor
        return AdminStatistics(
            uri=self.uri,
            connections=len(self._connections),
            accepted=acceptor.accepted,
            turned_away=acceptor.turned_away,
            handshakes=acceptor.handshakes,
            refused_handshakes=dict(acceptor.refused),
            answers=dict(self._answers),
            closed=dict(self._closed),
        )


def endpoint_of_uri(uri: str, options: AdminOptions) -> tuple[str, Endpoint]:
    """Return scheme and endpoint of the URI of an admin interface.

    Raises:
        ValueError: The URI is wrong.
    """
    scheme = uri.partition(":")[0]
    if scheme == "unix":
        return scheme, UnixEndpoint(parse_unix_uri(uri, scheme), options.mode)
    if scheme in ("http", "https"):
        return scheme, TcpEndpoint(*parse_uri(uri, scheme))
    raise ValueError(f"{uri!r} is not http://host:port, https://host:port or unix:///path")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
