"""Transports: workers that own sockets and join nodes, and what to derive your own from."""

from ._base import Listener, Transport
from ._gate import MAX_RETURNS, Gate
from ._identity import from_certificate
from ._link import Link, TooMuchWork
from ._link_statistics import LinkState, LinkStatistics
from ._memory import MemoryLink, MemoryListener, MemoryTransport
from ._options import Backoff, StreamOptions, parse_uri
from ._place import Place
from ._stream import StreamTransport
from ._stream_listener import ListenerStatistics, StreamListener
from ._tcp import TcpListener, TcpOptions, TcpTransport
from ._tls import TlsOptions
from ._udp import UdpTransport
from ._udp_listener import UdpListener, UdpListenerStatistics
from ._udp_options import UdpOptions
from ._uds import UdsOptions, UdsTransport
from ._ws import WsOptions, WsTransport
from ._ws_options import WebSocketOptions

__all__ = [
    "MAX_RETURNS",
    "Backoff",
    "Gate",
    "Link",
    "LinkState",
    "LinkStatistics",
    "Listener",
    "ListenerStatistics",
    "MemoryLink",
    "MemoryListener",
    "MemoryTransport",
    "Place",
    "StreamListener",
    "StreamOptions",
    "StreamTransport",
    "TcpListener",
    "TcpOptions",
    "TcpTransport",
    "TlsOptions",
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
    "parse_uri",
]
