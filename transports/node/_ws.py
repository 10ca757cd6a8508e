"""The `ws` and `wss` transports: links over WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from websockets.server import ServerProtocol
from websockets.uri import parse_uri as parse_web_uri

from ...protocol import WEBSOCKET, AddressError
from ..streams._endpoint import ConnectionHost
from ..streams._options import StreamOptions, format_endpoint, parse_endpoint, parse_websocket_uri
from ..streams._pending import PendingConnection
from ..streams._ws_handshake import Handshake, Opener, own_names
from ..streams._ws_options import WebSocketOptions
from ..streams._ws_stream import ClientHandshake, WebSocketStream
from ._stream import StreamTransport
from ._tcp import TcpEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._socket import WireSocket

__all__ = ["WsOptions", "WsTransport"]

SUBPROTOCOL: Final = "onward"
"""The subprotocol to offer, and to accept when offered. It is not required."""

_WEB: Final = WebSocketOptions()


@dataclass(frozen=True, slots=True)
class WsOptions(StreamOptions):
    """The options of `ws` and `wss`: those of all streams, and of the opening handshake.

    A WebSocket message may have any length, as it is not buffered: the limits apply to the frames
    within it.

    Attributes:
        websocket: The browser pages that may connect to a listener, and the limits on size and
            time of the opening handshake.
    """

    websocket: WebSocketOptions = _WEB


class WebSocketEndpoint(TcpEndpoint):
    """A host, a port and a path.

    Args:
        host: The name or the IP address.
        port: The port; when listening, 0 selects a free port.
        path: The path to request. With "" a client requests `/`, and a listener accepts any.
        options: The options.
    """

    def __init__(self, host: str, port: int, path: str, options: WsOptions) -> None:
        super().__init__(host, port)
        self.peer += path
        self._path = path
        self._options = options

    async def begin(self, early: PendingConnection, link: Callable[[], WireSocket]) -> WireSocket:
        """Perform the opening handshake."""
        endpoint = format_endpoint(*self._where)
        scheme = "ws" if self._options.tls is None else "wss"
        uri = parse_web_uri(f"{scheme}://{endpoint}{self._path or '/'}")
        handshake = ClientHandshake(uri, SUBPROTOCOL)
        early.hand_over(handshake)
        rest = await handshake.opened
        return _joined(early.transport, link(), rest, client=True)

    def entrance(self, host: ConnectionHost, source: str) -> asyncio.Protocol:
        """Return the protocol that waits for the opening handshake."""

        def admit() -> Opener | None:
            made = host.admit(source)
            return None if made is None else opener(made)

        def opener(made: WireSocket) -> Opener:
            def opened(transport: asyncio.Transport, _: ServerProtocol, rest: bytes) -> None:
                _joined(transport, made, rest, client=False)

            return opened

        handshake = Handshake(
            host.loop,
            own_names(self._where[0]),
            SUBPROTOCOL,
            self._path,
            self._options.websocket,
            admit,
            host.entered,
        )
        host.entering(handshake, source)
        return handshake

    def where(self, server: asyncio.Server) -> str:
        """Return host, actual port and path."""
        return super().where(server) + self._path


def _joined(
    transport: asyncio.Transport, made: WireSocket, rest: bytes, *, client: bool
) -> WireSocket:
    """Connect a link's socket to a connection through a WebSocket."""
    stream = WebSocketStream(transport, made, client=client)
    transport.set_protocol(stream)
    made.connection_made(stream)
    if rest:
        stream.data_received(rest)
    return made


class WsTransport(StreamTransport):
    """A transport over WebSockets: `ws://host:port/path`, and `wss://…` with TLS.

    The protocol is that of `tcp`: its byte stream is carried in binary messages, with arbitrary
    boundaries. So a proxy for WebSockets needs to know nothing of it. A listener with a path in its
    URI accepts only that path; without one it accepts any. An address `3#host:port` or
    `3#host:port/path` in a route uses the link to that peer, or opens one.

    The options of `listen` and `connect` are the attributes of `WsOptions`.
    """

    scheme: ClassVar[str] = "ws"
    schemes: ClassVar[Mapping[str, bool]] = {"ws": False, "wss": True}
    address_type: ClassVar[int | None] = WEBSOCKET
    options_class: ClassVar[type[StreamOptions]] = WsOptions

    def endpoint(self, uri: str, scheme: str, options: Any) -> WebSocketEndpoint:
        """Return the endpoint of `ws://host:port/path`."""
        return WebSocketEndpoint(*parse_websocket_uri(uri, scheme), options)

    def endpoint_of(self, value: str, options: Any) -> WebSocketEndpoint:
        """Return the endpoint of `host:port/path`."""
        endpoint, slash, path = value.partition("/")
        if any(each in path for each in "?#") or not path.isprintable() or " " in path:
            raise AddressError(value, "not host:port/path")
        return WebSocketEndpoint(
            *parse_endpoint(endpoint), f"/{path}" if slash and path else "", options
        )
