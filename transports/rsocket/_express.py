"""The express path: a request that reaches its destination without a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...actors.broker import Ask
from ...actors.runtime._state import RUNNING
from ...protocol import NotDelivered, ProtocolError, Route
from ._worker import ConnectionWorker

if TYPE_CHECKING:
    from ._exchange import StreamExchange
    from ._link import Link
    from ._session import Session

__all__ = ["ExpressPath"]


class ExpressPath:
    """The shortcut of a request past the actors between two connections.

    Without it, the first frame of a request travels as a message: from the requester's connection
    to the tag index, to a forwarder, to the worker of the route, and to the connection or worker of
    the destination. Each of these handles it in a turn. On the express path the connection calls
    them directly: it has the tag index choose the route, and the destination's connection open the
    stream. All that is counted, limited, chosen and refused is the same. The path is taken as far
    as

    - no message waits for one of these actors, so that the order of requests stays as it is;
    - none of them has an access control;
    - no instrument observes each handled message, and the request is not traced hop by hop (the
      counters of an event log are no obstacle);
    - one destination is to be chosen. A request for several, or one that has to wait for a
      destination, is a message.

    From there on the request is a message. `BrokerOptions.express_path` switches the path off.

    Args:
        link: The requester's connection.
        session: Its session, which makes the messages.
    """

    def __init__(self, link: Link, session: Session) -> None:
        self._index = index = link.broker.index
        self._tags, self._forwarder = index.cells
        self._node = link.node
        self._session = session

    def take(self, exchange: StreamExchange, ask: Ask) -> Route:
        """Hand a request to its destination, or go as far as possible.

        A request that the destination's connection refuses is sent as a message as well: the
        connection's worker reports the failure.

        Returns:
            The onward route of the message that goes the rest of the way; empty if the request
            has been handed over.
        """
        index = self._index
        instruments = self._node.instruments
        if (
            self._tags.scheduled
            or self._forwarder.scheduled
            or (instruments is not None and instruments.handles)
        ):
            return (index.address, ask.address)
        to = index.choose(ask, exchange)
        route = exchange.route
        if to is None or route is None:
            return (ask.address,)
        passed, cell = route.cell, route.connection
        if (
            passed is None
            or passed.scheduled
            or passed.state != RUNNING
            or cell is None
            or cell.scheduled
            or cell.state != RUNNING
        ):
            return (to,)
        worker = cell.worker
        if not isinstance(worker, ConnectionWorker) or worker.link is None:
            return (to,)
        try:
            exchange.hand_to(worker.link)
        except (NotDelivered, ProtocolError):
            return (to,)
        except Exception as error:  # noqa: BLE001 - as at the top of the worker's loop
            cell.raised(error, self._session.message(exchange, (to,)))
        passed.handled += 1
        cell.handled += 1
        return ()
