"""RSocket listeners of the broker; their connections are destinations and requesters."""

from ._errors import DestinationError
from ._listener import RSocketListener, RSocketListenerStatistics, number_connections
from ._options import (
    FlowOptions,
    GatheringOptions,
    LeaseOptions,
    LinkOptions,
    ResumeOptions,
    UnixOptions,
    WebSocketOptions,
)
from ._peers import PeerDialler, PeerOptions
from ._request import DestinationSlow, DestinationUnleased
from ._seeds import seed_addresses
from ._transport import (
    RSocketTcpTransport,
    RSocketTransport,
    RSocketUnixTransport,
    RSocketWebSocketTransport,
)

__all__ = [
    "DestinationError",
    "DestinationSlow",
    "DestinationUnleased",
    "FlowOptions",
    "GatheringOptions",
    "LeaseOptions",
    "LinkOptions",
    "PeerDialler",
    "PeerOptions",
    "RSocketListener",
    "RSocketListenerStatistics",
    "RSocketTcpTransport",
    "RSocketTransport",
    "RSocketUnixTransport",
    "RSocketWebSocketTransport",
    "ResumeOptions",
    "UnixOptions",
    "WebSocketOptions",
    "number_connections",
    "seed_addresses",
]
