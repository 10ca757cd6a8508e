"""Where a stream transport listens or connects, and how a socket is had there.

`tcp`, `uds` and `ws` are one kind of link over different sockets. They differ in their `Endpoint`:
how a socket is opened and listened on, how it is written in an address, and how a peer is called.
The rest, TLS included, is common to all.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from ._options import StreamOptions, format_endpoint
from ._pending import PendingConnection
from ._source import source_of

if TYPE_CHECKING:
    from ..node._socket import WireSocket

__all__ = ["ConnectionHost", "Endpoint", "ProtocolFactory", "TurnedAway", "endpoint_of", "ends_of"]

ProtocolFactory: TypeAlias = Callable[[], asyncio.Protocol]
"""What makes the protocol of a connection that has come."""


class ConnectionHost(Protocol):
    """What a place needs of a listener."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of its sockets."""
        ...

    def admit(self, source: str) -> WireSocket | None:
        """Make a link, or return `None`: there can be none more."""
        ...

    def entering(self, entrance: EnteringConnection, source: str) -> None:
        """Note a connection whose handshake is under way."""
        ...

    def entered(self, entrance: EnteringConnection, refused: str) -> None:
        """Note that it is no more: what was wrong with it, or "" if all is well."""
        ...


class EnteringConnection(Protocol):
    """A connection whose handshake is under way.

    Attributes:
        detail: What the log says of a refusal instead of its short name, if anything.
    """

    detail: str

    def abort(self, outcome: str) -> None:
        """Close it at once, if it is not closed for another reason."""
        ...


class Endpoint(ABC):
    """Where to listen or to connect. Made of a URI or of an address."""

    peer: str
    """How it is written in an address, and shown."""

    host: str | None = None
    """The name that a certificate must be for; `None` if there is none."""

    @abstractmethod
    async def open(self, loop: asyncio.AbstractEventLoop) -> PendingConnection:
        """Open a socket.

        Raises:
            OSError: It cannot be had.
        """

    @abstractmethod
    async def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        options: StreamOptions,
        protocol_factory: ProtocolFactory,
    ) -> asyncio.Server:
        """Listen, without taking anybody in yet.

        Raises:
            OSError: It cannot be done.
        """

    @abstractmethod
    def where(self, server: asyncio.Server) -> str:
        """Return how others have to write it, without the scheme."""

    def left(self) -> None:  # noqa: B027 - most have nothing to do
        """Clean up, after a listener has closed."""

    async def begin(self, early: PendingConnection, link: Callable[[], WireSocket]) -> WireSocket:
        """Make a link's socket of one that is open, and secure if it is to be.

        Raises:
            OSError: The other side does not take part.
        """
        made = link()
        early.hand_over(made)
        return made

    def entrance(self, host: ConnectionHost, source: str) -> asyncio.Protocol:
        """Make the protocol of a connection that has come, and is secure if it is to be."""
        return host.admit(source) or TurnedAway()

    def source(self, transport: asyncio.BaseTransport) -> str:
        """Return where a connection that has come is from: see `source_of`."""
        return source_of(transport.get_extra_info("peername"))

    def name(self, transport: asyncio.BaseTransport) -> str:
        """Say who is at the other end of a connection that has come."""
        return endpoint_of(transport)


class TurnedAway(asyncio.Protocol):
    """A connection we have no room for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()


def endpoint_of(transport: asyncio.BaseTransport) -> str:
    """Return the `host:port` of the other end."""
    name = transport.get_extra_info("peername")
    return format_endpoint(name[0], name[1]) if name else "unknown"


def ends_of(transport: asyncio.BaseTransport) -> tuple[str, str]:
    """Return where a socket is and where its other end: `host:port`, or a path.

    Of a Unix socket the end that connects has no name.
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
