"""Clients and containers of AMQP 1.0, which send and receive by the names of a dispatcher.

It needs the extra `amqp`: `node.listen("amqp://...", dispatcher=dispatcher)` for clients, and
[`AmqpContainer`][onward.transports.amqp.AmqpContainer] for a container to connect to.
"""

from ._container import AmqpContainer
from ._container_links import AmqpLinkState, AmqpLinkStatistics, AutoLink, LinkRoute
from ._container_rows import AmqpContainerState, AmqpContainerStatistics
from ._options import AmqpOptions, AmqpStatistics
from ._transport import AmqpListener, AmqpTransport

__all__ = [
    "AmqpContainer",
    "AmqpContainerState",
    "AmqpContainerStatistics",
    "AmqpLinkState",
    "AmqpLinkStatistics",
    "AmqpListener",
    "AmqpOptions",
    "AmqpStatistics",
    "AmqpTransport",
    "AutoLink",
    "LinkRoute",
]
