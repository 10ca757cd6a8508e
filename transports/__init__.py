"""Transports, and the base classes for transports of your own."""

from importlib import import_module
from typing import TYPE_CHECKING

from ._base import Listener, Transport
from .node._gate import MAX_RETURNS, Gate
from .node._identity import from_certificate, from_principal, link_principals
from .node._link import MAX_CROSSINGS, MAX_WORK, Link, TooMuchWork
from .node._link_statistics import LinkState, LinkStatistics
from .streams._endpoint import Endpoint
from .streams._options import Backoff, StreamOptions, parse_uri
from .streams._tls import TlsOptions
from .streams._ws_options import WebSocketOptions

if TYPE_CHECKING:
    from .node._memory import MemoryLink, MemoryListener, MemoryTransport
    from .node._stream import StreamTransport
    from .node._stream_listener import ListenerStatistics, StreamListener
    from .node._tcp import TcpListener, TcpOptions, TcpTransport
    from .node._udp import UdpTransport
    from .node._udp_listener import UdpListener, UdpListenerStatistics
    from .node._udp_options import UdpOptions
    from .node._uds import UdsOptions, UdsTransport
    from .node._ws import WsOptions, WsTransport
    from .streams._tls_context import TlsStatistics

__all__ = [
    "MAX_CROSSINGS",
    "MAX_RETURNS",
    "MAX_WORK",
    "Backoff",
    "Endpoint",
    "Gate",
    "Link",
    "LinkState",
    "LinkStatistics",
    "Listener",
    "ListenerStatistics",
    "MemoryLink",
    "MemoryListener",
    "MemoryTransport",
    "StreamListener",
    "StreamOptions",
    "StreamTransport",
    "TcpListener",
    "TcpOptions",
    "TcpTransport",
    "TlsOptions",
    "TlsStatistics",
    "TooMuchWork",
    "Transport",
    "UdpListener",
    "UdpListenerStatistics",
    "UdpOptions",
    "UdpTransport",
    "UdsOptions",
    "UdsTransport",
    "WebSocketOptions",
    "WsOptions",
    "WsTransport",
    "from_certificate",
    "from_principal",
    "link_principals",
    "parse_uri",
]

_LOADED_LATER = {
    "node._memory": ("MemoryLink", "MemoryListener", "MemoryTransport"),
    "node._stream": ("StreamTransport",),
    "node._stream_listener": ("ListenerStatistics", "StreamListener"),
    "node._tcp": ("TcpListener", "TcpOptions", "TcpTransport"),
    "node._udp": ("UdpTransport",),
    "node._udp_listener": ("UdpListener", "UdpListenerStatistics"),
    "node._udp_options": ("UdpOptions",),
    "node._uds": ("UdsOptions", "UdsTransport"),
    "node._ws": ("WsOptions", "WsTransport"),
    "streams._tls_context": ("TlsStatistics",),
}
"""The transports are imported on first use. A node that uses only TCP imports no WebSockets; the
first message to an address of type 1 imports TCP while its sender waits."""


def __getattr__(name: str) -> object:
    for module, names in _LOADED_LATER.items():
        if name in names:
            found: object = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
