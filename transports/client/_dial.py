"""The endpoints of brokers, and connecting to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..rsocket._ws_socket import FrameSocket
from ..streams._dial import Dialler
from ..streams._endpoint import Endpoint, TcpEndpoint
from ..streams._options import parse_unix_uri, parse_uri, parse_websocket_uri
from ..streams._tls import TlsOptions
from ..streams._unix_endpoint import UnixEndpoint
from ..streams._ws_endpoint import Subprotocol, WebSocketEndpoint

if TYPE_CHECKING:
    from ._options import ClientOptions

__all__ = ["BrokerEndpoint", "parse_place"]

_SECURE: Final[Mapping[str, bool]] = {
    "rsocket+tcp": False,
    "rsocket+tls": True,
    "rsocket+ws": False,
    "rsocket+wss": True,
    "rsocket+unix": False,
}
"""The schemes of brokers, and whether each of them requires TLS."""


class BrokerEndpoint(NamedTuple):
    """The endpoint of a broker.

    Attributes:
        uri: The URI as given.
        dialler: The endpoint, and its TLS.
    """

    uri: str
    dialler: Dialler


def parse_place(uri: str, options: ClientOptions) -> BrokerEndpoint:
    """Parse the URI of a broker, and load the certificates.

    Args:
        uri: `rsocket+tcp://host:port`, `rsocket+ws://host:port/path` or `rsocket+unix:///path`;
            `rsocket+tls` and `rsocket+wss` with TLS.
        options: The TLS, and the time for its handshake.

    Raises:
        OSError: A certificate cannot be read.
        ValueError: It is no such URI, or a certificate is wrong.
    """
    scheme = uri.partition("://")[0]
    if scheme not in _SECURE:
        raise ValueError(f"{uri!r} is not {', '.join(_SECURE)}")
    tls = options.tls
    if tls is None and _SECURE[scheme]:
        tls = TlsOptions()
    endpoint = _endpoint(uri, scheme, secure=tls is not None)
    return BrokerEndpoint(uri, Dialler(endpoint, tls, options.connect_timeout))


def _endpoint(uri: str, scheme: str, *, secure: bool) -> Endpoint:
    if scheme == "rsocket+unix":
        return UnixEndpoint(parse_unix_uri(uri, scheme))
    if scheme in {"rsocket+ws", "rsocket+wss"}:
        host, port, path = parse_websocket_uri(uri, scheme, query=True)
        return WebSocketEndpoint(host, port, path, SUBPROTOCOL, secure=secure)
    return TcpEndpoint(*parse_uri(uri, scheme))


SUBPROTOCOL: Final = Subprotocol("rsocket", offered=False, join=FrameSocket)
