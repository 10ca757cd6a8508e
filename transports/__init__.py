"""Transports: workers that own sockets and join nodes, and what to derive your own from."""

from ._base import Listener, Transport
from ._gate import MAX_RETURNS, Gate
from ._link import Link
from ._link_statistics import LinkState, LinkStatistics
from ._memory import MemoryLink, MemoryListener, MemoryTransport
from ._options import Backoff, TcpOptions, parse_uri
from ._tcp import ListenerStatistics, TcpListener, TcpTransport

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
    "TcpListener",
    "TcpOptions",
    "TcpTransport",
    "Transport",
    "parse_uri",
]
