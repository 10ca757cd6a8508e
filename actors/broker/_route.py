"""A route: one routable destination, and the worker that stands for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ...protocol import Address, DeliveryError, Message, NotDelivered
from .._worker import Worker
from ._events import BrokerEvent, EventKind
from ._exchange import Exchange, exchange_of

__all__ = ["BrokerRoute", "Destination", "RouteStatistics", "RouteWorker"]

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@dataclass(frozen=True, slots=True)
class Destination:
    """What can be routed to, and where its requests go.

    Attributes:
        route_id: Its identity; one destination at a time has it.
        service: Its service name.
        tags: Its tags as `(name, value)` in the text form of a query, for people to read.
        worker: The worker that takes its requests: a connection, or a worker of this node.
        link: True if `worker` is a connection that relays frames, False if it is a worker
            that handles payloads.
        peer: Where it is, for people to read.
        evict: Called with a reason when another destination takes over the route id.
        busy: Says whether it cannot keep up just now, so that another is chosen; `None` if
            it always can.
    """

    route_id: UUID
    service: str
    tags: tuple[tuple[str, str], ...]
    worker: Address
    link: bool
    peer: str
    evict: Callable[[str], object] | None = None
    busy: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class RouteStatistics:
    """One row of the broker's table.

    Attributes:
        route_id: The destination's identity.
        service: Its service name.
        tags: All its tags, the default ones included.
        peer: Where it is.
        outstanding: Requests handed over and not yet ended.
        requests: Requests handed over since it joined.
        since: When it joined, in seconds since the Unix epoch.
    """

    route_id: UUID
    service: str
    tags: tuple[tuple[str, str], ...]
    peer: str
    outstanding: int
    requests: int
    since: float


class BrokerRoute:
    """One destination in the table, and what is counted for it.

    Attributes:
        destination: What it is.
        stand_in: The worker that stands for it, if the destination is no connection.
        to: The worker that takes its requests: a connection's own, or the `stand_in`.
        since: When it joined, in seconds since the Unix epoch.
        outstanding: Requests sent there and not yet ended.
        requests: Requests sent there since it joined.
        unwatch: Ends the watch on a destination that is a worker of this node.
    """

    __slots__ = ("destination", "outstanding", "requests", "since", "stand_in", "to", "unwatch")

    def __init__(self, destination: Destination, since: float) -> None:
        self.destination = destination
        self.stand_in: RouteWorker | None = None
        self.to = destination.worker
        self.since = since
        self.outstanding = 0
        self.requests = 0
        self.unwatch: Callable[[], None] | None = None

    @property
    def busy(self) -> bool:
        """Whether the destination cannot keep up just now."""
        busy = self.destination.busy
        return busy is not None and busy()

    def choose(self, exchange: Exchange | None) -> Address:
        """Count a request for this destination and return where to send it."""
        self.requests += 1
        if exchange is not None:
            exchange.route = self
            self.outstanding += 1
        return self.to

    def event(self, kind: EventKind, reason: str = "") -> BrokerEvent:
        """Return an event about the destination, as of now."""
        destination = self.destination
        return BrokerEvent(
            kind,
            time.time(),
            destination.route_id,
            destination.service,
            destination.tags,
            destination.peer,
            reason,
        )

    def row(self) -> RouteStatistics:
        """Return the route as a row of the broker's table."""
        destination = self.destination
        return RouteStatistics(
            destination.route_id,
            destination.service,
            destination.tags,
            destination.peer,
            self.outstanding,
            self.requests,
            self.since,
        )


class RouteWorker(Worker):
    """Stand for a destination that is a worker of this node.

    It turns a request that came in frames into a message with the request's data as
    payload and a way back for the answer. It steps aside rather than staying on the return
    route: an answer goes straight back. A connection needs no such worker: it takes the
    frames as they are.
    """

    def __init__(self, destination: Destination) -> None:
        super().__init__()
        self._destination = destination

    def handle_message(self, message: Message) -> None:
        """Hand one request over, or refuse what the destination cannot take."""
        onward, back, payload, _, context = message
        exchange = exchange_of(message)
        if exchange is not None:
            if exchange.ended:
                return
            if not exchange.answered_once():
                text = "the destination takes request/response and fire-and-forget only"
                exchange.fail(NotDelivered(self._destination.service, text))
                return
            if not exchange.whole(lambda: self.handle_message(message)):
                return
            payload, back = exchange.data(), exchange.return_route()
        to = (self._destination.worker, *onward[1:])
        passed = _new(Message, (to, back, payload, onward[0], context))
        try:
            self.node.route(passed)
        except DeliveryError as error:
            self.node.lose(passed, error)
            return
        if exchange is not None:
            exchange.handed = back
            if not back:
                exchange.end()
