"""The transports of RSocket listeners, over each kind of socket."""

from __future__ import annotations

import ssl
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ...actors import Node
from ...actors.access._exposed import Exposed
from ...actors.broker import Broker
from ...actors.security import Authentication
from ...protocol import Address, LinkDown
from ...protocol.options import check_value
from .._base import Transport
from ..streams._endpoint import Endpoint, TcpEndpoint
from ..streams._options import parse_unix_uri, parse_uri, parse_websocket_uri
from ..streams._passed_sockets import passed_socket
from ..streams._tls import TlsOptions, server_context
from ..streams._tls_context import TlsContext
from ..streams._unix_endpoint import UnixEndpoint
from ..streams._ws_endpoint import WebSocketEndpoint
from ._listener import RSocketListener
from ._options import LinkOptions, UnixOptions, WebSocketOptions
from ._peers import PeerDialler
from ._places import SUBPROTOCOL

if TYPE_CHECKING:
    from ...actors.cluster import ConnectPeer, PeerHandlers

__all__ = [
    "RSocketTcpTransport",
    "RSocketTransport",
    "RSocketUnixTransport",
    "RSocketWebSocketTransport",
]


class RSocketTransport(Transport):
    """A transport of listeners for a broker, over one kind of socket, with TLS or without.

    It cannot connect: workers reach RSocket destinations by their tags. A broker may have any
    number of listeners.
    """

    schemes: ClassVar[Mapping[str, bool]]
    """The URI schemes, and whether each of them requires TLS."""

    own_options: ClassVar[dict[str, type[Any]]] = {}
    """Options that `listen` takes besides those of all kinds of sockets, with their types."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._listeners: list[RSocketListener] = []

    @abstractmethod
    def endpoint(self, uri: str, scheme: str, own: dict[str, Any], *, secure: bool) -> Endpoint:
        """Return the endpoint of a URI.

        Args:
            uri: The URI.
            scheme: Its scheme, one of `schemes`.
            own: The options of the kind of socket.
            secure: Whether there is TLS.

        Raises:
            ValueError: The URI is wrong.
        """

    async def listen(
        self, uri: str, *, expose: frozenset[Address], **options: Any
    ) -> RSocketListener:
        """Accept connections for a broker.

        Args:
            uri: The URI to listen at; a port 0 takes a free one.
            expose: The addresses that requests may name by a route, and with `Exposed` those
                that they may go on to; destinations of the broker need not be exposed.
            **options: `broker`, the `Broker`; `options`, `LinkOptions`; `tls`, the encryption, as
                for `tcp`, which the schemes with TLS need; `authentication`, an `Authentication`,
                without which each peer is admitted; `peers`, the `PeerHandlers` of its cluster,
                without which no broker is admitted; `siblings`, whether a broker of the same user
                may be a peer broker without a rule, at a Unix socket; `shared`, whether other
                processes of the user may listen at the same port; and the options of the kind of
                socket. `None` stands for the default.

        Raises:
            OSError: The socket cannot be bound, or a certificate cannot be read.
            ValueError: The URI, a certificate or an option is wrong.
        """
        scheme = uri.partition("://")[0]
        known: dict[str, Any] = {
            "broker": Broker,
            "options": LinkOptions,
            "tls": TlsOptions | ssl.SSLContext,
            "authentication": Authentication,
            "peers": object,
            "siblings": bool,
            "shared": bool,
            **self.own_options,
        }
        for name, value in options.items():
            if name not in known:
                names = ", ".join(f"{each}=" for each in known)
                raise ValueError(f"unknown option {name!r}; {scheme} takes {names}")
            if name not in {"broker", "peers"}:
                check_value(name, value, known[name] | None)
        broker = options.pop("broker", None)
        if not isinstance(broker, Broker) or getattr(broker, "node", None) is not self.node:
            raise ValueError("an RSocket listener needs broker=, a Broker of the same node")
        exposed = expose if isinstance(expose, Exposed) else Exposed(expose)
        limits = options.pop("options", None) or LinkOptions()
        authentication = options.pop("authentication", None)
        peers: PeerHandlers | None = options.pop("peers", None)
        siblings = bool(options.pop("siblings", None))
        shared = bool(options.pop("shared", None))
        tls = options.pop("tls", None)
        if tls is None and self.schemes[scheme]:
            tls = TlsOptions()
        uri, passed = passed_socket(uri)
        endpoint = self.endpoint(uri, scheme, options, secure=tls is not None)
        endpoint.passed, endpoint.shared = passed, shared
        context = None if tls is None else TlsContext(tls, server_context)
        if context is not None:  # the scheme of TLS, if there is one
            scheme = next((name for name, secure in self.schemes.items() if secure), scheme)
        listener = RSocketListener(
            self.node,
            broker,
            limits,
            scheme,
            endpoint,
            context,
            exposed,
            authentication,
            peers,
            siblings=siblings,
        )
        await listener.open()
        self._listeners = [each for each in self._listeners if each.open_now]
        self._listeners.append(listener)
        return listener

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Refuse: this transport only listens.

        Raises:
            LinkDown: Always.
        """
        raise LinkDown(uri, "this transport only listens")

    def peer_dialler(self, broker: Broker) -> ConnectPeer:
        """Return what dials other brokers for one, without credentials; see `PeerDialler`."""
        return PeerDialler(broker).connect

    async def stop(self) -> None:
        """Close every listener."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await listener.close()


class RSocketTcpTransport(RSocketTransport):
    """Listeners for RSocket over TCP: `rsocket+tcp://host:port`, and `rsocket+tls` with TLS."""

    scheme: ClassVar[str] = "rsocket+tcp"
    schemes: ClassVar[Mapping[str, bool]] = {"rsocket+tcp": False, "rsocket+tls": True}

    def endpoint(self, uri: str, scheme: str, own: dict[str, Any], *, secure: bool) -> TcpEndpoint:
        """Return the endpoint of `rsocket+tcp://host:port`."""
        return TcpEndpoint(*parse_uri(uri, scheme))


class RSocketUnixTransport(RSocketTransport):
    """Listeners for RSocket over Unix sockets: `rsocket+unix:///path`.

    `listen` also takes `unix`, a `UnixOptions`. Abstract names are not supported: they have no
    permissions.
    """

    scheme: ClassVar[str] = "rsocket+unix"
    schemes: ClassVar[Mapping[str, bool]] = {"rsocket+unix": False}
    own_options: ClassVar[dict[str, type[Any]]] = {"unix": UnixOptions}

    def endpoint(self, uri: str, scheme: str, own: dict[str, Any], *, secure: bool) -> UnixEndpoint:
        """Return the endpoint of `rsocket+unix:///path`."""
        unix = own.get("unix") or UnixOptions()
        return UnixEndpoint(parse_unix_uri(uri, scheme), unix.mode)


class RSocketWebSocketTransport(RSocketTransport):
    """Listeners for RSocket over WebSocket: `rsocket+ws://host:port/path`; `rsocket+wss` with TLS.

    Each binary message is one frame (RSocket, "WebSocket"). The subprotocol `rsocket` is accepted,
    not required.

    A path in the URI is required of clients; without one, any path is accepted. `listen` also takes
    `websocket`, a `WebSocketOptions`. Pages in browsers may connect only if their origin is listed
    there.
    """

    scheme: ClassVar[str] = "rsocket+ws"
    schemes: ClassVar[Mapping[str, bool]] = {"rsocket+ws": False, "rsocket+wss": True}
    own_options: ClassVar[dict[str, type[Any]]] = {"websocket": WebSocketOptions}

    def endpoint(
        self, uri: str, scheme: str, own: dict[str, Any], *, secure: bool
    ) -> WebSocketEndpoint:
        """Return the endpoint of `rsocket+ws://host:port/path`."""
        host, port, path = parse_websocket_uri(uri, scheme)
        web = own.get("websocket") or WebSocketOptions()
        return WebSocketEndpoint(host, port, path, SUBPROTOCOL, web, secure=secure)
