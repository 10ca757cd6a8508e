"""RSocket for the broker: listeners whose connections bring in destinations and requesters."""

from ._exchange import DestinationSlow
from ._listener import ListenerStatistics, RSocketListener, RSocketTcpTransport
from ._local import DestinationError
from ._options import LinkOptions

__all__ = [
    "DestinationError",
    "DestinationSlow",
    "LinkOptions",
    "ListenerStatistics",
    "RSocketListener",
    "RSocketTcpTransport",
]
