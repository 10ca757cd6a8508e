"""The express path: a request that reaches its destination without a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...actors.broker import Ask
from ...actors.broker.table._route import BrokerRoute
from ...actors.runtime._state import RUNNING
from ...protocol import Address, Context, Message, NotDelivered, ProtocolError, Route
from ...protocol.rsocket import FrameType
from ._forwarded import forward
from ._request import FrameExchange
from ._worker import ConnectionWorker

if TYPE_CHECKING:
    from ...actors.broker.table._choice import Candidates
    from ...actors.broker.table._remote import PeerRoutes
    from ._exchange import StreamExchange
    from ._link import Link
    from ._session import Session

__all__ = ["ExpressPath"]

_PUSH: Final = int(FrameType.METADATA_PUSH)


class ExpressPath:
    """The shortcut of a request past the actors between two connections.

    Without it, the first frame of a request travels as a message: from the requester's connection
    to the tag index, to a forwarder, to the worker of the route, and to the connection or worker of
    the destination. Each of these handles it in a turn. On the express path the connection calls
    them directly: it has the tag index choose the route, or makes a leg for each of several, and
    has the destination's connection open the stream. All that is counted, limited, chosen and
    refused is the same. The path is taken as far as

    - no message waits for one of these actors, so that the order of requests stays as it is;
    - none of them has an access control;
    - no instrument observes each handled message, and the request is not traced hop by hop (the
      counters of an event log are no obstacle);
    - there is a destination, and it is a connection. A request that has to wait for one is a
      message, and so is one to a worker of this node.

    From there on the request is a message. `BrokerOptions.express_path` switches the path off.

    Args:
        link: The requester's connection.
        session: Its session, which makes the messages.
    """

    def __init__(self, link: Link, session: Session) -> None:
        self._index = index = link.broker.index
        self._tags, self._forwarder, self._multicast = index.cells
        self._node = link.node
        self._run_queue = link.node.parts.run_queue
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
        instruments = self._run_queue.instruments
        if (
            self._tags.scheduled
            or self._forwarder.scheduled
            or (instruments is not None and instruments.handles)
        ):
            return (index.address, ask.address)
        to = index.choose(ask, exchange)
        if to is None:
            found = index.candidates(ask)
            if not found or self._multicast.scheduled:
                return (ask.address,)
            self.divide(exchange, *index.divide(ask))
            return ()
        return () if self._hand_over(exchange, exchange, to) else (to,)

    def reach(self, exchange: StreamExchange, to: Address) -> bool:
        """Hand a request to the route that was chosen for it; return whether it went.

        Args:
            exchange: The request.
            to: The address of the route.
        """
        instruments = self._run_queue.instruments
        if instruments is not None and instruments.handles:
            return False
        return self._hand_over(exchange, exchange, to)

    def divide(
        self,
        exchange: StreamExchange,
        own: Candidates,
        peers: tuple[tuple[PeerRoutes, int], ...] = (),
    ) -> None:
        """Hand a request to several destinations, a leg to each, as `Multicast` sends them.

        Args:
            exchange: The request.
            own: The destinations of this broker.
            peers: The peer brokers that get a copy, each with the number of its destinations.
        """
        multicast = exchange.divide(self._index.multicast_rules)
        for entry in own:
            entry.target.choose(multicast.leg())
        for peer, shares in peers:
            peer.every.choose(multicast.leg(shares))
        multicast.begin()
        for leg in tuple(multicast.legs):
            if leg.route is None:
                continue  # it has ended
            to = leg.route.to
            if self._hand_over(exchange, leg, to):
                continue
            onward, back, payload, source, _ = self._session.message(exchange, (to,))
            about = Context(None, None, leg)
            self._node.parts.router.dispatch_or_lose(Message(onward, back, payload, source, about))

    def _hand_over(self, exchange: StreamExchange, part: FrameExchange, to: Address) -> bool:
        """Hand a request, or a leg of one, to the connection of its route; return whether it went.

        Args:
            exchange: The request.
            part: The request itself, or a leg of it, with its route entry chosen.
            to: The address of the route.
        """
        route = part.route
        if route is None:
            return False
        if isinstance(route, BrokerRoute):
            far = False
            passed, cell = route.cell, route.connection
        else:
            # All routes of a peer broker have these in common.
            far = True
            peer: PeerRoutes = route.kind.shared.peer
            passed, cell = peer.cell, peer.connection
        if (
            passed is None
            or passed.scheduled
            or passed.state != RUNNING
            or cell is None
            or cell.scheduled
            or cell.state != RUNNING
        ):
            return False
        worker = cell.worker
        if not isinstance(worker, ConnectionWorker) or worker.link is None:
            return False
        try:
            if far and part is exchange and exchange.kind != _PUSH:
                forward(exchange, worker.link)  # as `hand_to` does, without the call
            else:
                part.hand_to(worker.link)
        except (NotDelivered, ProtocolError):
            return False
        except Exception as error:  # noqa: BLE001 - as at the top of the worker's loop
            cell.raised(error, self._session.message(exchange, (to,)))
        passed.handled += 1
        cell.handled += 1
        return True
