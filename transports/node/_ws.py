"""The `ws` and `wss` transports: links over WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...protocol import WEBSOCKET, AddressError
from ..streams._options import StreamOptions, parse_endpoint, parse_websocket_uri
from ..streams._ws_endpoint import Subprotocol, WebSocketEndpoint
from ..streams._ws_frames import WebSocketFrameReader
from ..streams._ws_options import WebSocketOptions
from ..streams._ws_stream import WebSocketStream
from ._stream import StreamTransport

if TYPE_CHECKING:
    from ._socket import WireSocket

__all__ = ["WsOptions", "WsTransport"]

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


class LinkStream(WebSocketStream):
    """The byte stream of a link, in messages of a WebSocket without a meaning of their own."""

    def __init__(self, transport: asyncio.Transport, inner: WireSocket, client: bool) -> None:
        super().__init__(transport, inner, WebSocketFrameReader(masked=not client), client=client)
        self._wire_socket = inner

    def _broken(self, text: str) -> None:
        self._wire_socket.close(f"broken WebSocket: {text}")


SUBPROTOCOL: Final = Subprotocol("onward", offered=True, join=LinkStream)


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
        return _endpoint(*parse_websocket_uri(uri, scheme), options)

    def endpoint_of(self, value: str, options: Any) -> WebSocketEndpoint:
        """Return the endpoint of `host:port/path`."""
        endpoint, slash, path = value.partition("/")
        if any(each in path for each in "?#") or not path.isprintable() or " " in path:
            raise AddressError(value, "not host:port/path")
        return _endpoint(*parse_endpoint(endpoint), f"/{path}" if slash and path else "", options)


def _endpoint(host: str, port: int, path: str, options: WsOptions) -> WebSocketEndpoint:
    secure = options.tls is not None
    return WebSocketEndpoint(host, port, path, SUBPROTOCOL, options.websocket, secure=secure)
