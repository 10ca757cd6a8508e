"""A route entry: one destination, its figures, and the worker that forwards its requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import ClassVar, Final, Literal
from uuid import UUID

from ....protocol import Address, DeliveryError, Message, NotDelivered, Route
from ....protocol._closed import close_class
from ....protocol.broker import LATENCY_DECAY, NO_OWNER, TagList, format_key, owner_text
from ....protocol.security import ANONYMOUS, Principal
from ..._worker import Worker
from ...runtime._cell import Cell
from .._exchange import Exchange, exchange_of
from .._tally import SAMPLED, SLOW, ServiceTally
from ..local._handlers import Handlers
from ._answer_times import AnswerTimes
from ._events import BrokerEvent, EventKind

__all__ = [
    "BrokerRoute",
    "Destination",
    "LocalRouteWorker",
    "RouteStatistics",
    "RouteWorker",
    "readable",
    "told_owner",
    "weight_of",
]

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Destination:
    """A registered destination and the receiver of its requests.

    Attributes:
        route_id: Its route id; at most one destination has it at a time.
        service: Its service name.
        tags: Its tags as `(name, value)` in the text form of a query.
        worker: The worker that takes its requests: a connection, or a worker of this node. For
            a service it is the broker, which starts a worker for the handlers.
        link: True if `worker` is a connection that relays frames, False if it is a worker
            that handles payloads.
        peer: Its network address as text.
        evict: Called with a reason when another destination takes over the route id.
        busy: Returns whether it is overloaded now, so that another is chosen; `None` if it
            never is.
        handlers: The handlers of a service; `None` if it is no service.
        principal: The principal of a connection; `None` if it is none.
    """

    route_id: UUID
    service: str
    tags: tuple[tuple[str, str], ...]
    worker: Address
    link: bool
    peer: str
    evict: Callable[[str], object] | None = None
    busy: Callable[[], bool] | None = None
    handlers: Handlers | None = None
    principal: Principal | None = None


close_class(Destination)


@dataclass(frozen=True, slots=True)
class RouteStatistics:
    """One row of the broker's table.

    Attributes:
        route_id: The destination's route id.
        service: Its service name.
        tags: All its tags, the default ones included.
        peer: Its network address as text.
        outstanding: Requests forwarded and not yet ended.
        requests: Requests forwarded since it joined.
        since: The time at which it joined, in seconds since the Unix epoch.
        latency: The latency of its answers, in seconds: a moving average that follows slow answers
            at once; 0 if there has been none.
        weight: Its share of the requests with a method that goes by weight.
        busy: Whether it is overloaded now.
        expected: Whether it is expected and has not registered yet, or the link to its broker is
            lost; it gets no requests.
        principal: The name of its principal and the method of authentication, `orders (token)`;
            empty without authentication.
        broker: The name or id of the peer broker it is connected to; empty: this broker.
    """

    route_id: UUID
    service: str
    tags: tuple[tuple[str, str], ...]
    peer: str
    outstanding: int
    requests: int
    since: float
    latency: float
    weight: float
    busy: bool
    expected: bool = False
    principal: str = ""
    broker: str = ""


close_class(RouteStatistics)


class BrokerRoute:
    """A destination in the table, with its counters.

    Args:
        destination: The destination.
        since: The time at which it joined, in seconds since the Unix epoch.
        clock: Returns a monotonic time in seconds.
        decay: See `BrokerOptions.latency_decay`.
        weight: Its share of the requests with a method that goes by weight.
        service: The counts of its service; new ones by default.

    Attributes:
        destination: The destination.
        route_id: Its route id, 16 bytes.
        to: The address of the route's worker, which forwards the requests, or serves them with
            handlers.
        cell: The cell of that worker; `None` once the destination has left.
        connection: The cell of a destination that is a connection, for the express path.
        since: The time at which it joined, in seconds since the Unix epoch.
        owned_since: The time since which its principal has had the route id, in milliseconds since
            the Unix epoch; 0 for the timestamp of its registration.
        outstanding: Requests sent there and not yet ended.
        requests: Requests sent there since it joined.
        service: The counts of its service.
        weight: Its share of the requests with a method that goes by weight.
        unwatch: Ends the watch on a destination that is a worker of this node.
        remote: Whether it is at a peer broker.
        answers: Answers since its latency was last read.
        seconds: The sum of their times.
        slowest: The longest of their times.
    """

    __slots__ = (
        "_clock",
        "_decay",
        "_times",
        "answers",
        "cell",
        "connection",
        "destination",
        "outstanding",
        "owned_since",
        "requests",
        "route_id",
        "seconds",
        "service",
        "since",
        "slowest",
        "to",
        "unwatch",
        "weight",
    )

    remote: ClassVar[Literal[False]] = False

    def __init__(
        self,
        destination: Destination,
        since: float,
        clock: Callable[[], float] = monotonic,
        *,
        decay: float = LATENCY_DECAY,
        weight: float = 1.0,
        service: ServiceTally | None = None,
    ) -> None:
        self.destination = destination
        self.service = service or ServiceTally(destination.service)
        self.route_id = destination.route_id.bytes
        self.to = destination.worker
        self.cell: Cell | None = None
        self.connection: Cell | None = None
        self.since = since
        self.owned_since = 0
        self.outstanding = 0
        self.requests = 0
        self.weight = weight
        self.unwatch: Callable[[], None] | None = None
        self._clock = clock
        self._decay = decay
        self._times = AnswerTimes()
        self.answers = 0
        self.seconds = 0.0
        self.slowest = 0.0

    def ended(self, seconds: float) -> None:
        """Count the end of a request by an answer, and add the latency.

        Args:
            seconds: From the request's first frame to the last of the answer; 0 or less if
                it says nothing about the destination.
        """
        self.outstanding -= 1
        service = self.service
        answered = service.answered + 1
        service.answered = answered
        if seconds > 0.0:
            self.answers += 1
            self.seconds += seconds
            if seconds > self.slowest:
                self.slowest = seconds
        if seconds > SLOW or not answered & (SAMPLED - 1):
            service.took(seconds)

    @property
    def latency(self) -> float:
        """The latency of answers, in seconds: a peak-sensitive moving average; 0 if unknown."""
        if self.answers:
            self._times.add(self.answers, self.seconds, self.slowest, self._clock(), self._decay)
            self.answers, self.seconds, self.slowest = 0, 0.0, 0.0
        return self._times.average

    @property
    def busy(self) -> bool:
        """Whether the destination is overloaded now."""
        destination = self.destination
        busy, handlers = destination.busy, destination.handlers
        if handlers is not None:
            # Requests on their way to the handlers count as well.
            return handlers.busy or self.outstanding >= handlers.max_handling
        return busy is not None and busy()

    @property
    def full(self) -> bool:
        """Whether a request that waits has to wait on."""
        return self.busy

    def room_for(self, origin: Address | None) -> float:
        """Return how many more requests of one peer it may get; infinity if there is no limit.

        Args:
            origin: The peer: the first address of the return route; `None` if there is none.
        """
        handlers = self.destination.handlers
        return inf if handlers is None else handlers.room_for(origin)

    def choose(self, exchange: Exchange | None) -> Address:
        """Count a request for this destination and return the address to send it to."""
        self.requests += 1
        if exchange is not None:
            exchange.route = self
            self.outstanding += 1
        return self.to

    def released(self) -> None:
        """Count that a request sent there has ended, or is taken back."""
        self.outstanding -= 1

    def way(self, asked: Address) -> Route:
        """Return where a plain message has to go.

        Args:
            asked: The query of the message.
        """
        del asked
        return (self.to,)

    def pass_over(self) -> None:
        """Prefer other destinations from now on."""
        self.destination = replace(self.destination, busy=lambda: True)

    def let_go(self) -> None:
        """Release the connection and the workers, which references to the route must not keep."""
        self.destination = replace(self.destination, evict=None, busy=None, handlers=None)
        self.unwatch = self.cell = self.connection = None

    def event(self, kind: EventKind, reason: str = "") -> BrokerEvent:
        """Return an event about the destination, with the current time."""
        destination = self.destination
        return BrokerEvent(
            kind,
            time.time(),
            destination.route_id,
            destination.service,
            destination.tags,
            destination.peer,
            reason,
            principal=_told(destination.principal),
        )

    def row(self) -> RouteStatistics:
        """Return the destination as a row of the broker's table."""
        destination = self.destination
        return RouteStatistics(
            destination.route_id,
            destination.service,
            destination.tags,
            destination.peer,
            self.outstanding,
            self.requests,
            self.since,
            self.latency,
            self.weight,
            self.busy,
            principal=_told(destination.principal),
        )


close_class(BrokerRoute)


def readable(tags: TagList) -> tuple[tuple[str, str], ...]:
    """Return tags in text form; a null value is an empty text."""
    return tuple((format_key(key), value or "") for key, value in tags)


def _told(principal: Principal | None) -> str:
    """Return a principal as text; empty without authentication."""
    return "" if principal is None or principal is ANONYMOUS else str(principal)


def told_owner(principal: Principal | None) -> str:
    """Return the owner of a route as other brokers are told it.

    Args:
        principal: The principal of its connection; `None` for a worker of this broker.
    """
    if principal is None:
        return NO_OWNER
    return owner_text(principal.name, principal.method, principal.issuer)


def weight_of(text: str | None) -> float:
    """Return the weight in a tag's value, a decimal of 0 or more; for other values 1."""
    if text is None or not _DECIMAL.fullmatch(text):
        return 1.0
    return float(text)


class RouteWorker(Worker):
    """The worker of a route: it forwards the requests for one destination, a connection.

    It does not add itself to the return route.

    Args:
        destination: The destination.
    """

    # There is one for each connection, so it is small, and the log counts requests instead.
    __slots__ = ("_to",)
    has_flows: ClassVar[bool] = False

    def __init__(self, destination: Destination) -> None:
        self._to: Final = destination.worker

    def handle_message(self, message: Message) -> None:
        """Forward a message to the destination."""
        onward, back, payload, source, context = message
        exchange = exchange_of(message)
        if exchange is None or not exchange.ended:
            self._send(_new(Message, ((self._to, *onward[1:]), back, payload, source, context)))

    def _send(self, message: Message) -> bool:
        """Send a message to the destination, or make it a dead letter; return whether it went."""
        try:
            self.node.parts.router.dispatch(message)
        except DeliveryError as error:
            self.node.lose(message, error)
            return False
        return True


class LocalRouteWorker(RouteWorker):
    """The worker of a route to a worker of this node, which takes payloads and not frames.

    It turns an exchange into a message with the request's data as payload and a return route
    for the answer.

    Args:
        destination: The destination.
    """

    __slots__ = ("_service",)
    has_flows: ClassVar[bool] = True

    def __init__(self, destination: Destination) -> None:
        super().__init__(destination)
        self._service: Final = destination.service

    def handle_message(self, message: Message) -> None:
        """Forward a request, or refuse one that the destination cannot take."""
        onward, back, payload, _, context = message
        exchange = exchange_of(message)
        if exchange is not None:
            if exchange.ended:
                return
            if not exchange.answered_once():
                text = "the destination takes request/response and fire-and-forget only"
                exchange.fail(NotDelivered(self._service, text))
                return
            if not exchange.whole(lambda: self.handle_message(message)):
                return
            payload, back = exchange.data(), exchange.return_route()
            # Before the message goes: the worker may pass it on at once, on another thread.
            exchange.handed = back
            account = exchange.account
            if account is not None and context is not None:
                # The worker's hops belong to the same trace.
                context = context._replace(trace=account.mark(context.trace))
        to = (self._to, *onward[1:])
        passed = self._send(_new(Message, (to, back, payload, onward[0], context)))
        if passed and exchange is not None:
            exchange.forwarded()
            if not back:
                exchange.end()
