"""A listener for clients of AMQP 1.0, which send and receive by the names of a dispatcher.

It needs the extra `amqp`: `node.listen("amqp://...", dispatcher=dispatcher)`.
"""

from ._options import AmqpOptions, AmqpStatistics
from ._transport import AmqpListener, AmqpTransport

__all__ = ["AmqpListener", "AmqpOptions", "AmqpStatistics", "AmqpTransport"]
