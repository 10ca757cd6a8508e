"""Endpoints that are WebSockets over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from websockets.uri import parse_uri

from ...protocol._principal import PeerIdentity
from ._endpoint import ConnectionHost, TcpEndpoint
from ._options import format_endpoint
from ._pending import PendingConnection
from ._ws_handshake import Handshake, Opener, own_names
from ._ws_options import WebSocketOptions
from ._ws_stream import ClientHandshake, WebSocketStream

__all__ = ["Subprotocol", "WebSocketEndpoint"]

P = TypeVar("P", bound=asyncio.Protocol)

_WEB: Final = WebSocketOptions()


class Subprotocol(NamedTuple):
    """The protocol inside a WebSocket.

    Attributes:
        name: The subprotocol to accept when it is offered. It is not required.
        offered: Whether a client offers it.
        join: Makes the transport of a connection's protocol, which is the protocol of the socket,
            given the socket, the connection's protocol, and whether this side connects.
    """

    name: str
    offered: bool
    join: Callable[[asyncio.Transport, Any, bool], WebSocketStream]


class WebSocketEndpoint(TcpEndpoint):
    """A host, a port and a path.

    Args:
        host: The name or the IP address.
        port: The port; when listening, 0 selects a free port.
        path: The path to request. With "" a client requests `/`, and a listener accepts any.
        subprotocol: The protocol inside the WebSocket.
        web: The limits of a listener's handshakes.
        secure: Whether there is TLS below.

    Attributes:
        web: The limits of a listener's handshakes; a change holds for later ones.
    """

    def __init__(
        self,
        host: str,
        port: int,
        path: str,
        subprotocol: Subprotocol,
        web: WebSocketOptions = _WEB,
        *,
        secure: bool,
    ) -> None:
        super().__init__(host, port)
        self.peer += path
        self._path = path
        self._subprotocol = subprotocol
        self.web = web
        self._scheme = "wss" if secure else "ws"
        self._names = own_names(host)

    async def begin(self, early: PendingConnection, make: Callable[[], P]) -> P:
        """Perform the opening handshake."""
        endpoint = format_endpoint(*self._where)
        uri = parse_uri(f"{self._scheme}://{endpoint}{self._path or '/'}")
        offered = self._subprotocol.name if self._subprotocol.offered else ""
        handshake = ClientHandshake(uri, offered)
        early.hand_over(handshake)
        rest = await handshake.opened
        made = make()
        self._join(early.transport, made, rest, client=True)
        return made

    def entrance(self, host: ConnectionHost, identity: PeerIdentity) -> asyncio.Protocol:
        """Return the protocol that waits for the opening handshake."""

        def admit() -> Opener | None:
            made = host.admit(identity)
            return None if made is None else opener(made)

        def opener(made: asyncio.Protocol) -> Opener:
            return lambda transport, rest: self._join(transport, made, rest, client=False)

        handshake = Handshake(
            host.loop,
            self._names,
            self._subprotocol.name,
            self._path,
            self.web,
            admit,
            host.entered,
        )
        host.entering(handshake, identity.source)
        return handshake

    def where(self, server: asyncio.Server) -> str:
        """Return host, actual port and path."""
        return super().where(server) + self._path

    def _join(
        self, transport: asyncio.Transport, made: asyncio.Protocol, rest: bytes, *, client: bool
    ) -> None:
        """Connect a protocol to a socket through a WebSocket."""
        inner = self._subprotocol.join(transport, made, client)
        transport.set_protocol(inner)
        made.connection_made(inner)
        if rest:
            inner.data_received(rest)
