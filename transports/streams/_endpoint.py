"""Endpoints of stream transports: where to listen or connect, and how to open the socket.

Links of nodes and RSocket connections stand on the same kinds of sockets: TCP, Unix, and WebSocket
over TCP. An `Endpoint` is the part that differs: opening a socket, listening, its text in a URI and
the name of a peer. The rest is common to all: the `Acceptor`, TLS, and the limits.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from ...protocol._principal import PeerIdentity
from ._options import format_endpoint
from ._pending import PendingConnection
from ._source import source_of

__all__ = [
    "ConnectionHost",
    "Endpoint",
    "EnteringConnection",
    "ProtocolFactory",
    "TcpEndpoint",
    "TurnedAway",
    "endpoint_of",
    "ends_of",
    "is_loopback",
]

BACKLOG: Final = 1024
"""The maximum number of connections that wait to be accepted."""

P = TypeVar("P", bound=asyncio.Protocol)

ProtocolFactory: TypeAlias = Callable[[], asyncio.Protocol]
"""The factory of the protocol of an accepted connection."""


class ConnectionHost(Protocol):
    """The interface of an acceptor towards its endpoint."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its sockets."""
        ...

    def admit(self, identity: PeerIdentity) -> asyncio.Protocol | None:
        """Return the protocol of a new connection, or `None` if there is no room."""
        ...

    def entering(self, entrance: EnteringConnection, source: str) -> None:
        """Add a connection from a source with a handshake in progress."""
        ...

    def entered(self, entrance: EnteringConnection, refused: str) -> None:
        """Remove a connection after its handshake, with the reason if it failed, or ""."""
        ...


class EnteringConnection(Protocol):
    """A connection with a handshake in progress.

    Attributes:
        detail: The text for the log if the handshake fails, or empty for its short reason.
    """

    detail: str

    def abort(self, outcome: str) -> None:
        """Close the connection at once, unless it is closed for another reason."""
        ...


class Endpoint(ABC):
    """An address to listen at or connect to, made from a URI or from an address of a route."""

    peer: str
    """The endpoint's text in an address and in logs."""

    host: str | None = None
    """The name that the peer's certificate must have, or `None`."""

    address: str = ""
    """The address to connect to, where the host is a name that has several; empty for any."""

    passed: socket.socket | None = None
    """The listening socket that was passed to the process; `None` to open one."""

    shared: bool = False
    """Whether other processes of the user may listen at the same port (`SO_REUSEPORT`)."""

    @abstractmethod
    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Open a socket.

        Raises:
            OSError: The connection cannot be opened.
        """

    @abstractmethod
    async def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol_factory: ProtocolFactory,
    ) -> asyncio.Server:
        """Open a listening socket that does not accept connections yet.

        Raises:
            OSError: The endpoint cannot be listened at.
        """

    @abstractmethod
    def where(self, server: asyncio.Server) -> str:
        """Return the text of the endpoint in a URI, without the scheme."""

    def left(self) -> None:  # noqa: B027 - most endpoints have nothing to clean up
        """Clean up after a listener has closed."""

    async def begin(self, early: PendingConnection, make: Callable[[], P]) -> P:
        """Make the protocol of an open connection, after the TLS handshake if any.

        Raises:
            OSError: The opening handshake failed.
        """
        made = make()
        early.hand_over(made)
        return made

    def entrance(self, host: ConnectionHost, identity: PeerIdentity) -> asyncio.Protocol:
        """Return the protocol of an accepted connection, after the TLS handshake if any."""
        return host.admit(identity) or TurnedAway()

    def identify(self, transport: asyncio.BaseTransport) -> PeerIdentity:
        """Return what the socket of an accepted connection reports about its peer."""
        source = source_of(transport.get_extra_info("peername"))
        return PeerIdentity(source=source, peer=endpoint_of(transport))


class TcpEndpoint(Endpoint):
    """A host and a port.

    Args:
        host: The name or the IP address.
        port: The port; when listening, 0 selects a free port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._where = (host, port)
        self.peer = format_endpoint(host, port)

    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Open a connection."""
        host, port = self._where
        return (await loop.create_connection(PendingConnection, self.address or host, port))[1]

    async def listen(
        self, loop: asyncio.AbstractEventLoop, protocol_factory: ProtocolFactory
    ) -> asyncio.Server:
        """Open a listening socket, unless one was passed."""
        if self.passed is not None:
            return await loop.create_server(
                protocol_factory, sock=self.passed, backlog=BACKLOG, start_serving=False
            )
        return await loop.create_server(
            protocol_factory,
            *self._where,
            backlog=BACKLOG,
            start_serving=False,
            reuse_port=self.shared or None,
        )

    def where(self, server: asyncio.Server) -> str:
        """Return host and port, with the actual port in place of 0."""
        return format_endpoint(self._where[0], server.sockets[0].getsockname()[1])


class TurnedAway(asyncio.Protocol):
    """A connection that is closed at once, for lack of room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection."""
        transport.close()


def endpoint_of(transport: asyncio.BaseTransport) -> str:
    """Return the `host:port` of the peer."""
    name = transport.get_extra_info("peername")
    return format_endpoint(name[0], name[1]) if name else "unknown"


def ends_of(transport: asyncio.BaseTransport) -> tuple[str, str]:
    """Return the addresses of this end and the other: `host:port`, or a path.

    The connecting end of a Unix socket has no name.
    """
    near, far = (transport.get_extra_info(name) for name in ("sockname", "peername"))
    return _end(near), _end(far)


def _end(name: object) -> str:
    if isinstance(name, tuple):
        host, port = cast("tuple[str, int]", name[:2])
        return format_endpoint(host, port)
    if isinstance(name, bytes):
        return name.decode("utf-8", "replace")
    return name if isinstance(name, str) else ""


def is_loopback(host: str) -> bool:
    """Whether a host is this machine only: `localhost`, or an address of the loopback interface."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
