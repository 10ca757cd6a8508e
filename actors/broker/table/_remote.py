"""The routes of peer brokers in the table: what each has of its own, and what they share.

There may be hundreds of thousands, of a few hundred kinds. A route has its id and two counters; all
else belongs to its kind or to its peer broker. So nothing has to be changed at each route when a
link is lost or comes back.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from math import inf
from typing import Any, ClassVar, Final, Literal, TypeAlias
from uuid import UUID

from ....protocol import TAGS, Address, DeliveryError, Message, NotDelivered, Route
from ....protocol._closed import close_class
from ....protocol.broker import Entry, Key, RouteKind, TagList, bounded_since, format_id, times_of
from ..._worker import Worker
from ...runtime._cell import Cell
from .._exchange import Exchange, exchange_of
from .._tally import SAMPLED, SLOW, ServiceTally
from ._answer_times import AnswerTimes
from ._events import BrokerEvent, EventKind
from ._route import BrokerRoute, Destination, RouteStatistics, readable

__all__ = [
    "AnyRoute",
    "OwnedRoute",
    "PeerRouteWorker",
    "PeerRoutes",
    "RemoteKind",
    "RemoteRoute",
    "own_route",
    "owned_since",
]

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

_NOWHERE: Final = Address(0, b"")


class PeerRoutes:
    """The routes of one peer broker, as far as they have something in common.

    Args:
        broker_id: The id of the peer broker, 16 bytes.
        name: Its name for operators; empty: its id.

    Attributes:
        broker_id: As given.
        name: As given; it may change.
        draining: Whether the peer broker drains: others are preferred then.
        suspended: Whether its routes are hidden, as there is no link.
        count: Its routes in the table, those included that newer ones of other brokers hide.
        kept: The suspended sessions that it has told of, for which their route ids are kept.
        to: The address of the worker that forwards requests to it.
        cell: The cell of that worker; `None` while the peer broker is not in a table.
        address: The address of the link's worker; `None` without a link.
        connection: The cell of the link's worker; `None` without a link.
        peer: The network address of the other end of the link, as text.
        java: Whether it is a Java broker: it gets a copy of a multicast for each destination, each
            pinned, and takes nothing back that it has told.
        every: The route entry for a copy of a multicast to all of its destinations that match.
        gateway: Whether it is a broker of another zone, at the other end of a gateway link: its
            routes here are the groups of that zone.
        zone: The name of that zone; empty for brokers of the own one.
        without: The keys of tags that its groups lack.
        told: The routes that its groups stand for.
        told_at: The timestamp of the group that it has told last, in milliseconds.
        folded: Its groups into which others of the same service are folded.
        may_have: Whether its zone may have a route, by the id.
        kinds: The kinds of its routes.
        services: What its groups have in common, by service.
        most: Most groups that it may tell.
        mask: A secret number by which the ids of its groups differ from those of other gateways.
        clock: Returns a monotonic time in seconds.
        decay: See `ChoiceOptions.latency_decay`.
    """

    def __init__(self, broker_id: bytes, name: str = "") -> None:
        self.broker_id: Final = broker_id
        self.name = name
        self.draining = False
        self.suspended = False
        self.java = False
        self.gateway = False
        self.zone = ""
        self.without: frozenset[Key] = frozenset()
        self.told = 0
        self.told_at = 0
        self.folded = 0
        self.may_have: Callable[[bytes], bool] = _unknown
        self.count = 0
        self.kept = 0
        self.to: Address = _NOWHERE
        self.cell: Cell | None = None
        self.address: Address | None = None
        self.connection: Cell | None = None
        self.peer = ""
        self.kinds: dict[RemoteKind, None] = {}
        self.services: dict[str, RemoteKind] = {}
        self.most: float = inf
        self.mask: Final = secrets.randbits(128)
        self.clock: Callable[[], float] = time.monotonic
        self.decay = 0.0
        kind = RouteKind(broker_id, "", ())
        kind.shared = RemoteKind(self, kind, ServiceTally(""))
        self.every: Final = RemoteRoute(broker_id, kind, 0)
        self._busy: Callable[[], bool] | None = None
        self._cell_of: Callable[[Address], Cell | None] | None = None

    @property
    def label(self) -> str:
        """A name for people: the one that it has told, or its id."""
        return self.name or format_id(self.broker_id)

    def joined(
        self,
        to: Address,
        cell_of: Callable[[Address], Cell | None],
        clock: Callable[[], float],
        decay: float,
    ) -> None:
        """Set what a table has for it.

        Args:
            to: The address of the worker that forwards requests to it.
            cell_of: Returns the cell of a worker.
            clock: See `clock`.
            decay: See `decay`.
        """
        self.to = to
        self.clock = clock
        self.decay = decay
        self.cell = cell_of(to)
        self._cell_of = cell_of
        if self.address is not None:
            self.connection = cell_of(self.address)

    def connected(
        self, address: Address, peer: str = "", busy: Callable[[], bool] | None = None
    ) -> None:
        """Forward requests over a link from now on.

        Args:
            address: The address of the connection's worker.
            peer: The network address of the other end, as text.
            busy: Whether the connection is overloaded now.
        """
        self.address = address
        self.peer = peer
        self._busy = busy
        self.connection = None if self._cell_of is None else self._cell_of(address)

    def disconnected(self) -> None:
        """Forward nothing until there is a link again."""
        self.address = self.connection = self._busy = None
        self.peer = ""

    def left(self) -> None:
        """Release what a table has for it."""
        self.disconnected()
        self.cell = self._cell_of = None

    @property
    def busy(self) -> bool:
        """Whether another destination is to be preferred now."""
        busy = self._busy
        return self.suspended or self.draining or (busy is not None and busy())

    @property
    def full(self) -> bool:
        """Whether a request that waits has to wait on: its link is away, or overloaded."""
        busy = self._busy
        return self.suspended or (busy is not None and busy())


def _unknown(route_id: bytes) -> bool:
    """Whether a zone has a route, as long as it has told none."""
    del route_id
    return False


class RemoteKind:
    """The properties and counters that the routes of a peer broker with equal tags share.

    Args:
        peer: The peer broker.
        kind: Their name and tags.
        service: The counts of their service.
        weight: Their share of the requests with a method that goes by weight.

    Attributes:
        peer: As given.
        kind: As given.
        service: As given.
        tally: Those of requests to peer brokers among them.
        weight: As given.
        routes: How many there are.
        begun: Requests sent there, those to routes that have left included.
        left: Those of them to routes that have left.
        answers: Answers that have told a time.
        others: Requests that have ended in another way.
        read: The answers until the latency was last read.
        seconds: The sum of the times of those since.
        slowest: The longest of their times.
        times: The times of earlier answers; `None` if there were none.
    """

    __slots__ = (
        "answers",
        "begun",
        "kind",
        "left",
        "others",
        "peer",
        "read",
        "routes",
        "seconds",
        "service",
        "slowest",
        "tally",
        "times",
        "weight",
    )

    def __init__(
        self, peer: PeerRoutes, kind: RouteKind, service: ServiceTally, weight: float = 1.0
    ) -> None:
        self.peer: Final = peer
        self.kind: Final = kind
        self.service: Final = service
        self.tally: Final = service.at_peers()
        self.weight: Final = weight
        self.times: AnswerTimes | None = None
        self.routes = 0
        self.begun = 0
        self.left = 0
        self.answers = 0
        self.others = 0
        self.read = 0
        self.seconds = 0.0
        self.slowest = 0.0

    @property
    def requests(self) -> int:
        """The requests sent to the routes that there are."""
        return self.begun - self.left

    @property
    def outstanding(self) -> int:
        """The requests sent there and not yet ended, those to routes that have left included."""
        return self.begun - self.answers - self.others

    def follow(self, before: RemoteKind) -> None:
        """Add the requests of another object for the same routes that have not ended."""
        self.begun = self.left = before.outstanding

    @property
    def latency(self) -> float:
        """The latency of their answers, in seconds, with the way to the peer broker.

        It is a moving average that follows slow answers at once; 0 if there has been none.
        """
        times, fresh = self.times, self.answers - self.read
        if fresh:
            if times is None:
                times = self.times = AnswerTimes()
            peer = self.peer
            times.add(fresh, self.seconds, self.slowest, peer.clock(), peer.decay)
            self.read, self.seconds, self.slowest = self.answers, 0.0, 0.0
        return 0.0 if times is None else times.average


class RemoteRoute(Entry[Any]):
    """A destination at a peer broker, in the table of this one; compare `BrokerRoute`.

    It is its own entry.

    Args:
        route_id: Its route id, 16 bytes; for `PeerRoutes.every` the id of the peer broker.
        kind: What it has in common with others; its `shared` is a `RemoteKind`.
        timestamp: Time of the registration, in milliseconds since the Unix epoch.

    Attributes:
        owner: The principal of its connection, as its broker has told it; see `owner_text`. `None`
            if that has no rules.
    """

    __slots__ = ("outstanding", "requests")

    remote: ClassVar[Literal[True]] = True
    owner: str | None = None

    def __init__(self, route_id: bytes, kind: RouteKind, timestamp: int) -> None:
        # As `Entry` does, without the call: there are many.
        self.route_id = route_id  # type: ignore[misc]
        self.kind = kind  # type: ignore[misc]
        self.times = timestamp
        self.outstanding = 0
        self.requests = 0

    @property
    def target(self) -> RemoteRoute:
        """The destination itself."""
        return self

    @property
    def common(self) -> TagList:
        """Its tags without a RouteId of its own."""
        return self.kind.common

    @property
    def shared(self) -> RemoteKind:
        """The properties and counters that it shares with others."""
        shared: RemoteKind = self.kind.shared
        return shared

    @property
    def peer(self) -> PeerRoutes:
        """Its peer broker."""
        return self.shared.peer

    @property
    def to(self) -> Address:
        """The address of the worker that forwards requests to the peer broker."""
        peer: PeerRoutes = self.kind.shared.peer
        return peer.to

    @property
    def cell(self) -> Cell | None:
        """The cell of that worker."""
        peer: PeerRoutes = self.kind.shared.peer
        return peer.cell

    @property
    def connection(self) -> Cell | None:
        """The cell of the link's worker; `None` without a link."""
        peer: PeerRoutes = self.kind.shared.peer
        return peer.connection

    @property
    def service(self) -> ServiceTally:
        """The counts of its service for destinations at peer brokers."""
        return self.shared.tally

    @property
    def weight(self) -> float:
        """Its share of the requests with a method that goes by weight."""
        return self.shared.weight

    @property
    def latency(self) -> float:
        """The latency of the answers of its kind, in seconds; 0 if unknown."""
        return self.shared.latency

    @property
    def busy(self) -> bool:
        """Whether another destination is to be preferred now."""
        peer: PeerRoutes = self.kind.shared.peer
        return peer.busy

    @property
    def full(self) -> bool:
        """Whether a request that waits has to wait on. It goes to a draining broker at last."""
        peer: PeerRoutes = self.kind.shared.peer
        return peer.full

    def released(self) -> None:
        """Count that a request sent there has ended, or is taken back."""
        self.outstanding -= 1
        self.shared.others += 1

    def ended(self, seconds: float) -> None:
        """Count the end of a request by an answer; see `BrokerRoute.ended`."""
        self.outstanding -= 1
        shared: RemoteKind = self.kind.shared
        service = shared.tally
        answered = service.answered + 1
        service.answered = answered
        if seconds > 0.0:
            shared.answers += 1
            shared.seconds += seconds
            if seconds > shared.slowest:
                shared.slowest = seconds
        else:
            shared.others += 1
        if seconds > SLOW or not answered & (SAMPLED - 1):
            service.took(seconds)

    def room_for(self, origin: Address | None) -> float:
        """Return how many more requests of one peer it may get: as many as there are."""
        del origin
        return inf

    def choose(self, exchange: Exchange | None) -> Address:
        """Count a request for this destination and return the address to send it to."""
        shared: RemoteKind = self.kind.shared
        self.requests += 1
        shared.begun += 1
        if exchange is None:
            shared.others += 1
        else:
            exchange.route = self
            self.outstanding += 1
        return shared.peer.to

    def way(self, asked: Address) -> Route:
        """Return where a plain message has to go: by the peer broker's worker, and by the id.

        Args:
            asked: The query of the message, which a broker of another zone gets as it is.
        """
        if self.peer.gateway:
            return (self.to, asked)
        return (self.to, Address(TAGS, b"route=" + format_id(self.route_id).encode()))

    @property
    def destination(self) -> Destination:
        """It, as destinations of this broker are described; made anew at each call."""
        kind, peer = self.kind, self.peer
        return Destination(
            UUID(bytes=self.route_id),
            kind.service_name,
            readable(self.tags),
            worker=peer.to,
            link=True,
            peer=peer.peer or "-",
        )

    def event(self, kind: EventKind, reason: str = "") -> BrokerEvent:
        """Return an event about the destination, with the current time."""
        about = self.destination
        return BrokerEvent(
            kind, time.time(), about.route_id, about.service, about.tags, about.peer, reason
        )

    def row(self) -> RouteStatistics:
        """Return the destination as a row of the broker's table."""
        about = self.destination
        hidden = self.shared.peer.suspended
        return RouteStatistics(
            about.route_id,
            about.service,
            about.tags,
            about.peer,
            self.outstanding,
            self.requests,
            self.timestamp / 1000,
            self.latency,
            self.weight,
            self.busy and not hidden,
            expected=hidden,
            broker=self.shared.peer.label,
        )


class OwnedRoute(RemoteRoute):
    """A destination at a peer broker that has rules.

    Args:
        route_id: As for any other.
        kind: As for any other.
        timestamp: As for any other.
        owner: See `RemoteRoute`.
        since: See `Entry.owned_since`.
    """

    __slots__ = ("owner",)

    # The member descriptor of the slot takes the place of the attribute of the class.
    owner: str | None

    def __init__(
        self, route_id: bytes, kind: RouteKind, timestamp: int, owner: str, since: int = 0
    ) -> None:
        # As its base does, without the call.
        self.route_id = route_id  # type: ignore[misc]
        self.kind = kind  # type: ignore[misc]
        self.times = times_of(timestamp, since) if since else timestamp
        self.outstanding = 0
        self.requests = 0
        self.owner = owner


close_class(PeerRoutes)
close_class(RemoteKind)
close_class(RemoteRoute)

AnyRoute: TypeAlias = BrokerRoute | RemoteRoute
"""A destination in the table: of this broker, or of a peer broker."""


def owned_since(entry: Entry[AnyRoute]) -> int:
    """Return since when the owner of a route has had its id, in milliseconds.

    That is the time of the first of its registrations that have followed each other without a gap.
    """
    return bounded_since(entry.target.owned_since, entry.timestamp)


def own_route(entry: Entry[AnyRoute]) -> BrokerRoute:
    """Return a route that is one of this broker."""
    route = entry.target
    if not isinstance(route, BrokerRoute):
        raise AssertionError("a route of a peer broker as an own one")  # noqa: TRY004
    return route


class PeerRouteWorker(Worker):
    """The worker of all routes of a peer broker: it forwards requests to the link.

    It does not add itself to the return route. A plain message has the query for the peer broker
    behind the address of this worker.

    Args:
        peer: The routes.
    """

    __slots__ = ("_peer",)
    has_flows: ClassVar[bool] = False

    def __init__(self, peer: PeerRoutes) -> None:
        self._peer: Final = peer

    def handle_message(self, message: Message) -> None:
        """Forward a message to the link, or make it a dead letter if there is none."""
        onward, back, payload, source, context = message
        exchange = exchange_of(message)
        if exchange is not None and exchange.ended:
            return
        to = self._peer.address
        try:
            if to is None:
                raise NotDelivered(self._peer.label, "there is no link to this broker")
            self.node.parts.router.dispatch(
                _new(Message, ((to, *onward[1:]), back, payload, source, context))
            )
        except DeliveryError as error:
            self.node.lose(message, error)
