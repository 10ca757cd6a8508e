"""The URIs of brokers, and the endpoints behind them, for all that connect to a broker."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ..streams._dial import Dialler
from ..streams._endpoint import Endpoint, TcpEndpoint
from ..streams._options import parse_unix_uri, parse_uri, parse_websocket_uri
from ..streams._tls import TlsOptions
from ..streams._unix_endpoint import UnixEndpoint
from ..streams._ws_endpoint import Subprotocol, WebSocketEndpoint
from ._ws_socket import FrameSocket

__all__ = ["SUBPROTOCOL", "MakeDialler", "dialler_of", "needs_tls"]

MakeDialler: TypeAlias = Callable[[str, TlsOptions | ssl.SSLContext | None, float, str], Dialler]
"""Makes a dialler, as `dialler_of` does."""

SUBPROTOCOL: Final = Subprotocol("rsocket", offered=False, join=FrameSocket)
"""RSocket over WebSockets, of either side."""

_SECURE: Final[Mapping[str, bool]] = {
    "rsocket+tcp": False,
    "rsocket+tls": True,
    "rsocket+ws": False,
    "rsocket+wss": True,
    "rsocket+unix": False,
}
"""The schemes of brokers, and whether each of them requires TLS."""


def needs_tls(uri: str) -> bool:
    """Whether the scheme of a broker's URI requires TLS."""
    return _SECURE.get(uri.partition("://")[0], False)


def dialler_of(
    uri: str, tls: TlsOptions | ssl.SSLContext | None, timeout: float, address: str = ""
) -> Dialler:
    """Parse the URI of a broker, and load the certificates.

    Args:
        uri: `rsocket+tcp://host:port`, `rsocket+ws://host:port/path` or `rsocket+unix:///path`;
            `rsocket+tls` and `rsocket+wss` with TLS.
        tls: The encryption; `None` for the default of the scheme.
        timeout: Time for the TLS handshake, in seconds.
        address: The address to connect to, where the host is a name that has several; the
            certificate has to be for the name.

    Raises:
        OSError: A certificate cannot be read.
        ValueError: It is no such URI, or a certificate is wrong.
    """
    scheme = uri.partition("://")[0]
    if scheme not in _SECURE:
        raise ValueError(f"{uri!r} is not {', '.join(_SECURE)}")
    if tls is None and _SECURE[scheme]:
        tls = TlsOptions()
    endpoint = _endpoint(uri, scheme, secure=tls is not None)
    endpoint.address = address
    return Dialler(endpoint, tls, timeout)


def _endpoint(uri: str, scheme: str, *, secure: bool) -> Endpoint:
    if scheme == "rsocket+unix":
        return UnixEndpoint(parse_unix_uri(uri, scheme))
    if scheme in {"rsocket+ws", "rsocket+wss"}:
        host, port, path = parse_websocket_uri(uri, scheme, query=True)
        return WebSocketEndpoint(host, port, path, SUBPROTOCOL, secure=secure)
    return TcpEndpoint(*parse_uri(uri, scheme))
