"""The tag index: the worker that resolves tags to destinations.

It holds the routing table and is the node's rule for addresses of type 32. The rule replaces
such an address by the route of the one destination that carries the tags, or by a forwarder if
several do. A request without a destination waits here for a while.

The destinations of peer brokers are in the same table. A request of a client may go to any of them;
one of a peer broker only to those of this broker (`own_candidates`, `choose_own`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from math import inf
from random import random
from typing import Final

from ....protocol import TAGS, Address, Message, NoRoute, NotDelivered, Route, counted
from ....protocol.broker import (
    CachedAnswer,
    Dialect,
    Entry,
    RouteAdd,
    RouteKind,
    RouteRemove,
    RoutingTable,
    RoutingType,
    SnapshotRoute,
    TagList,
    TagSet,
    format_query,
    parse_key,
)
from ....protocol.metrics import DurationHistogram
from ..._worker import Worker
from ...runtime._cell import Cell
from ...runtime._policy import MailboxOptions
from ...runtime._timer import Timer
from .._exchange import (
    ALL_BUSY,
    DELIVER,
    REQUESTER_GONE,
    Exchange,
    MulticastRules,
    exchange_of,
    outcome_of,
    requester_of,
)
from .._instrument import part_of
from .._multicast import Multicast
from .._options import BrokerOptions
from .._unicast import Unicast
from ..local._served import ServiceWorker
from ._choice import Candidates, Choice, next_free
from ._events import BrokerEvent, EventKind, Events
from ._expected import Expectations
from ._leaving import BROKER_DRAINS, BROKER_STOPS, SESSION_SUSPENDED, WITHDRAWN
from ._methods import Methods
from ._peers import RESERVED_SERVICES, Peers
from ._release import Releases
from ._remote import AnyRoute, PeerRoutes, PeerRouteWorker, RemoteKind, own_route
from ._route import (
    BrokerRoute,
    Destination,
    LocalRouteWorker,
    RouteStatistics,
    RouteWorker,
    weight_of,
)
from ._selector import Ask, Selectors
from ._services import Services, ServiceStatistics
from ._waiting import Place, Waiter, Waiters, WaitingQuery, WaitingStatistics

__all__ = ["TagIndexWorker"]

_TAKEN_OVER: Final = "another connection has taken over its route id"
_BEATEN: Final = "replaced by a newer connection"

UNICAST: Final = RoutingType.UNICAST
MULTICAST: Final = RoutingType.MULTICAST
SHARD: Final = RoutingType.SHARD

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class _Chosen(Exchange):
    """An exchange that only records the chosen route entry."""

    __slots__ = ()

    def __init__(self) -> None:
        self.route = None


class TagIndexWorker(Worker):
    """The worker that holds the routing table and resolves tags to destinations.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Raises:
        ValueError: A method of the options is unknown.

    Attributes:
        table: The routing table.
        events: The events of destinations that join and leave, and of refused requests.
        choice: The choice among several destinations, except by plain round robin.
        expectations: The destinations that are expected to register.
        suspended: The destinations with a suspended session, by route id; the table expects them.
        peers: The peer brokers with routes in the table.
        services: The counts of each service.
        waits: How long messages have waited until they were sent to a destination, or refused.
        cells: The cells of the tag index and of the forwarders to one destination and to several,
            for the express path.
        multicast_rules: The limits and counters for merging the responses to multicasts.
        rejected: Messages that no destination could take, since the start.
        full: Registrations refused because the table was full, since the start.
        closing: Whether no connection is accepted any more, so that no message waits.
        epoch: How often the rules of the broker have been replaced: what connections remember of
            decisions holds for one epoch.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__()
        self._options = options
        self._broker_id = broker_id
        self.table: RoutingTable[AnyRoute] = RoutingTable(
            tombstone_lifetime=int(options.tombstone_seconds * 1000), near=broker_id
        )
        self._answers = self.table.answers
        self._methods = methods = Methods(options.choice)
        self._selectors = Selectors(self.table.queries, methods, options.max_queries)
        self.choice = Choice(options.choice.max_sticky, options.choice.max_placed, self._now)
        self.events = Events(options.max_watchers, options.max_events)
        self._waiters = Waiters(options.waiting)
        self._releases = Releases(self._waiters, self.table, self._send_on, self.after)
        self.expectations = Expectations(
            self.table, broker_id, options.max_routes, options.expected_seconds, self.after
        )
        self.services = Services(options.max_services)
        self.waits = DurationHistogram()
        self.peers = Peers(
            self.table,
            broker_id,
            options.max_peer_routes,
            self.services,
            self._releases,
            self._remote_kind,
            self._beaten,
        )
        self.suspended: dict[bytes, Entry[AnyRoute]] = {}
        self._followers: list[Callable[[RouteAdd | RouteRemove], object]] = []
        self._weight_key = parse_key(options.choice.weight_tag)
        self._timer: Timer | None = None
        self._alarm = inf
        self._thread_id = 0
        self._mailbox = MailboxOptions(limit=options.max_mailbox)
        self._unicast = self._multicast = Address(0, b"")
        self.cells: tuple[Cell, ...] = ()
        self._left = False
        self.multicast_rules = MulticastRules(
            window=options.multicast.window,
            max_held=options.multicast.max_held,
            max_total=options.multicast.max_held_total,
            patience=options.multicast.patience,
            fail_on_leave=options.multicast.on_leave == "error",
        )
        self.rejected = 0
        self.full = 0
        self.closing = False
        self.epoch = 0

    def on_start(self) -> None:
        """Start the forwarders and become the rule for tag queries.

        Raises:
            RuleInUse: The node has a broker, or another rule for tag queries.
        """
        self._thread_id = threading.get_ident()
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.defaults = {
                UNICAST: self._methods.balancer,
                SHARD: self._methods.sharding,
            }
        own, mailbox = self.address.value, self._mailbox
        self._unicast = self.spawn(
            lambda: Unicast(self), address=Address(0, own + b"/unicast"), mailbox=mailbox
        )
        self._multicast = self.spawn(
            lambda: Multicast(self, self.multicast_rules),
            address=Address(0, own + b"/multicast"),
            mailbox=mailbox,
        )
        cells = map(self._cell_of, (self.address, self._unicast, self._multicast))
        self.cells = tuple(cell for cell in cells if cell is not None)
        self.node.add_rule(TAGS, self.resolve, owner=self._placed)

    def on_stop(self) -> None:
        """Remove the rule and refuse the waiting messages."""
        self.node.remove_rule(TAGS, owner=self._placed)
        self.refuse_waiting(BROKER_STOPS)
        instrument = part_of(self.node)
        if instrument is not None:
            for entry in self.table:
                instrument.left(entry, BROKER_STOPS)
            self._left = True
        self.events.end()

    def _now(self) -> float:
        return self.node.loop.time()

    # --- the rule ---------------------------------------------------------------------------

    def resolve(self, message: Message) -> Message | None:
        """Replace the tag query in front of a message by a destination or a forwarder.

        Returns:
            The resolved message, or `None` if it waits for a destination.

        Raises:
            AddressError: The query cannot be read.
            NoRoute: No destination carries the tags, and the message cannot wait.
        """
        onward, back, payload, source, context = message
        if threading.get_ident() != self._thread_id:
            # The table belongs to the loop's thread: go through the mailbox, and its limit.
            onward = (self.address, *onward)
            self.node.parts.router.dispatch(_new(Message, (onward, back, payload, source, context)))
            return None
        ask = self._selectors.named(onward[0])
        candidates = self.table.candidates(ask.query)
        if not candidates:
            # Creating list of Routable Destinations: "If the index is empty, there are no valid
            # routable destinations."
            self._wait(message, ask)
            return None
        # A connection's requests all take the same number of hops, so that they stay in order.
        if len(candidates) == 1 and exchange_of(message) is None:
            route = candidates[0].target
            route.choose(None)
            onward = (*route.way(), *onward[1:])
            instruments = self.node.instruments
            if instruments is not None and instruments.broker is not None:
                self.note_message(ask, message, (route,))
        elif ask.routing is MULTICAST:
            # Multicast Routing: "When the multicast route flag is set, a broker must forward a
            # request to all routes in the list of routes."
            onward = (self._multicast, *onward)
        else:
            # Unicast Routing: "a broker will use a list of routes and select one routable
            # destination from the list of routes."
            onward = (self._unicast, *onward)
        return _new(Message, (onward, back, payload, source, context))

    def ask(self, frame: bytes, dialect: Dialect) -> Ask:
        """Parse an ADDRESS frame into a query; it does not depend on the table.

        Args:
            frame: The whole frame.
            dialect: The dialect of the frame.

        Raises:
            BrokerFrameError: The frame is broken.
        """
        return self._selectors.read(frame, dialect)

    def asked(self, address: Address) -> Ask:
        """Parse an address of type 32 into a query.

        Raises:
            AddressError: The query cannot be read.
        """
        return self._selectors.named(address)

    def narrowed(self, ask: Ask, forced: TagSet) -> Ask:
        """Return a query with the forced tags of its requester; see `Selectors.narrowed`."""
        self.table.isolate(forced)
        return self._selectors.narrowed(ask, forced)

    def candidates(self, ask: Ask) -> Candidates:
        """Return the destinations that carry the tags of a query."""
        return self.table.candidates(ask.query)

    def choose(self, ask: Ask, exchange: Exchange | None) -> Address | None:
        """Choose a destination among those that carry the tags of a query.

        A busy destination is passed over if another is free, except for shard requests and
        sticky keys, which belong to one destination.

        Args:
            ask: The query.
            exchange: The request, if it came in frames.

        Returns:
            The address to send it to, or `None` if there is no destination or the message is
            for several.
        """
        # As `table.answer` does for a kept answer, without the call.
        answer = self._answers.get(ask.query)
        if answer is None or not (candidates := answer.near):
            answer = self.table.answer(ask.query)
            candidates = answer.near
            if not candidates:
                return None
        turn = ask.turn
        if turn is not None:
            at = turn(candidates, 0.0, random) if len(candidates) > 1 else 0
        else:
            near = 0
            if ask.everywhere:
                near = len(candidates)
                candidates = answer.candidates or ()
            picked = self.choice.pick(ask, candidates, near)
            if picked is None:
                return None
            at = picked
        if answer.mixed:
            return self._choose_any(ask, exchange, answer, candidates[at].target, at)
        route: BrokerRoute = candidates[at].target
        if answer.several and route.busy and not ask.everywhere:
            free = next_free(candidates, at)
            route = route if free is None else candidates[free].target
        # As `route.choose` does, without the call: this runs for each request.
        route.requests += 1
        if exchange is not None:
            exchange.route = route
            route.outstanding += 1
        return route.to

    def _choose_any(
        self, ask: Ask, exchange: Exchange | None, answer: CachedAnswer, route: AnyRoute, at: int
    ) -> Address:
        """Choose as `choose` does, where a destination may be one of a peer broker."""
        if answer.several and route.busy and not ask.everywhere:
            route = self._free(answer, at) or route
        return route.choose(exchange)

    def _free(self, answer: CachedAnswer, at: int) -> AnyRoute | None:
        """Return a candidate that is not busy, in place of one that is; `None` if none is found.

        Args:
            answer: The candidates.
            at: The busy one, of those to prefer. Others are taken if these are all busy.
        """
        near: Candidates = answer.near
        every: Candidates = answer.candidates or ()
        free = next_free(near, at)
        if free is not None:
            return near[free].target
        far = len(every) - len(near)
        if not far:
            return None
        free = next_free(every, len(near) - 1 + int(self.choice.random() * far))
        return None if free is None else every[free].target

    def chosen(self, ask: Ask, message: Message) -> Route | None:
        """Choose a destination for a message in progress; return the way there. See `choose`."""
        exchange = exchange_of(message)
        if exchange is not None:
            to = self.choose(ask, exchange)
            return None if to is None else (to,)
        chosen = _Chosen()
        self.choose(ask, chosen)
        route = chosen.route
        if route is None:
            return None
        route.outstanding -= 1  # the end of a plain message is not known
        instruments = self.node.instruments
        if instruments is not None and instruments.broker is not None:
            self.note_message(ask, message, (route,))
        return route.way()

    def preview(self, ask: Ask) -> AnyRoute | None:
        """Return the route entry that `choose` would choose now.

        `None` if there is none, if all are chosen, or if the choice is random.
        """
        answer = self.table.answer(ask.query)
        candidates: Candidates = (answer.candidates or ()) if ask.everywhere else answer.near
        at = self.choice.preview(ask, candidates) if candidates else None
        return None if at is None else candidates[at].target

    # --- requests of peer brokers, and copies for them --------------------------------------------

    def own_candidates(self, ask: Ask) -> Candidates:
        """Return the destinations of this broker that carry the tags of a query."""
        if not self.peers.known:
            return self.table.candidates(ask.query)
        return self.table.candidates(self.table.at(ask.query, self._broker_id))

    def choose_own(self, ask: Ask, exchange: Exchange | None) -> Address | None:
        """Choose a destination of this broker, for a request of a peer broker; see `choose`."""
        candidates = self.own_candidates(ask)
        at = self.choice.pick(ask, candidates) if candidates else None
        if at is None:
            return None
        route = candidates[at].target
        if route.busy and not ask.everywhere:
            free = next_free(candidates, at)
            route = route if free is None else candidates[free].target
        return route.choose(exchange)

    def choose_other(
        self, ask: Ask, exchange: Exchange | None, refused: Collection[bytes]
    ) -> Address | None:
        """Choose a destination for a unicast request that others have refused; see `choose`.

        Args:
            ask: The query.
            exchange: The request, if it came in frames.
            refused: The route ids of those others.
        """
        found = [each for each in self.candidates(ask) if each.route_id not in refused]
        if not found:
            return None
        at = int(self.choice.random() * len(found))
        free = next_free(tuple(found), at) if found[at].target.busy else None
        return found[at if free is None else free].target.choose(exchange)

    def divide(self, ask: Ask) -> tuple[Candidates, tuple[tuple[PeerRoutes, int], ...]]:
        """Return the destinations of a multicast: those of this broker, and the peer brokers.

        Returns:
            The destinations of this broker, with those of Java brokers, and each other peer broker
            that has some with their number: it gets one copy for all of them, by its
            `PeerRoutes.every`.
        """
        table = self.table
        if not self.peers.known:
            return table.candidates(ask.query), ()
        single, counts = self.own_candidates(ask), list[tuple[PeerRoutes, int]]()
        for peer in self.peers.known.values():
            there = table.at(ask.query, peer.broker_id)
            if peer.java:
                single = (*single, *table.candidates(there))
            elif count := table.count(there):
                counts.append((peer, count))
        return single, tuple(counts)

    def handle_message(self, message: Message) -> None:
        """Resolve a request of a connection, or a message that was sent on another thread."""
        onward, back, payload, source, context = message
        exchange = exchange_of(message)
        if exchange is None or not exchange.ended:
            self.node.parts.router.dispatch_or_lose(
                _new(Message, (onward[1:], back, payload, source, context))
            )

    # --- waiting for a route ----------------------------------------------------------------

    def adjust(self, options: BrokerOptions) -> None:
        """Change the times of requests that wait from now on."""
        self._options = options

    def patience(self, ask: Ask) -> float:
        """Return how long a request without a destination waits, in seconds; 0 if not at all."""
        options, asked = self._options.waiting, ask.no_route
        if asked is None and not self.expectations.waits(ask.query):
            asked = options.no_route_timeout
        return options.max_wait if asked is None else min(asked, options.max_wait)

    def _wait(self, message: Message, ask: Ask) -> None:
        """Store a message until there is a destination or its time is over, or refuse it."""
        if self.closing:
            self._refuse(message, ask, BROKER_DRAINS)
            return
        patience = self.patience(ask)
        # Creating list of Routable Destinations: "Reject the route immediately and send an error to
        # the client".
        if patience <= 0:
            self._refuse(message, ask)
            return
        # Creating list of Routable Destinations: "Wait for the route to become available with a
        # timeout. If the timeout expires, send an error to the client".
        self._keep(message, ask, self._now(), patience)

    def _keep(self, message: Message, ask: Ask, since: float, patience: float) -> None:
        exchange = exchange_of(message)
        size = exchange.size if exchange is not None else len(message.payload)
        requester = exchange or requester_of(message)
        source = requester.source if requester is not None else ""
        waiter = self._waiters.add(message, ask, size, since, patience, source)
        if waiter is None:
            self._refuse(message, ask)
            return
        if exchange is not None:
            exchange.wait()
            exchange.withdraw = self._waiters.place(waiter)
        if waiter.until < self._alarm:
            self._set_alarm(waiter.until)

    def _set_alarm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._alarm = at
        self._timer = self.after(max(0.0, at - self.node.loop.time()), self._give_up)

    def _give_up(self) -> None:
        """Refuse the overdue messages and set the alarm for the next."""
        # A loop's timer may be early by less than the resolution of its clock.
        now = max(self.node.loop.time(), self._alarm)
        self._timer, self._alarm = None, inf
        for waiter in self._waiters.overdue(now):
            self.waits.add(now - waiter.since)
            there = self.table.candidates(waiter.ask.query)
            self._refuse(waiter.message, waiter.ask, ALL_BUSY if there else "")
        soonest = self._waiters.deadline()
        if soonest is not None and soonest < self._alarm:
            self._set_alarm(soonest)

    def refuse_waiting(self, reason: str = BROKER_DRAINS) -> None:
        """Refuse all waiting messages."""
        for waiter in self._waiters.clear():
            self._refuse(waiter.message, waiter.ask, reason)

    @staticmethod
    def grew(exchange: Exchange, size: int) -> bool:
        """Count more bytes for a request that may wait; return whether there is room."""
        place = exchange.withdraw
        return not isinstance(place, Place) or place.grow(size)

    def forget(self, origin: Address) -> None:
        """Refuse the waiting requests of a connection that has ended."""
        for waiter in self._waiters.of(origin):
            self._refuse(waiter.message, waiter.ask, REQUESTER_GONE)

    def _send_on(self, waiter: Waiter) -> None:
        """Send a waiting message to a destination that can take it now.

        The choice uses the query of the message as it arrived. If the message has to wait again,
        its deadline stays.
        """
        message, ask = waiter.message, waiter.ask
        way = self.chosen(ask, message)
        onward, back, payload, source, context = message
        rest = onward[1:]
        if way is None and ask.routing is MULTICAST and len(self.candidates(ask)) > 1:
            way, rest = (self._multicast,), onward  # several destinations match by now
        if way is None:  # the destination that joined has left again
            self._keep(message, ask, waiter.since, waiter.until - waiter.since)
            return
        self.waits.add(self._now() - waiter.since)
        self.node.parts.router.dispatch_or_lose(
            _new(Message, ((*way, *rest), back, payload, source, context))
        )

    def _refuse(self, message: Message, ask: Ask, reason: str = "") -> None:
        self.rejected += 1
        error = NoRoute(format_query(ask.query), reason)
        self.services.refused(ask.query, outcome_of(error))
        if self.events.watched:
            self.events.emit(
                BrokerEvent("rejected", time.time(), reason=str(error), query=ask.text)
            )
        exchange = exchange_of(message)
        instrument = part_of(self.node)
        if instrument is not None:
            if reason != REQUESTER_GONE:
                instrument.rejected(ask, reason or error.reason)
            if exchange is None:
                self.note_message(ask, message, (), outcome_of(error))
        if exchange is not None:
            exchange.fail(error)
        self.node.lose(message, error)

    # --- for the event log ------------------------------------------------------------------

    def note_message(
        self,
        ask: Ask,
        message: Message,
        routes: tuple[AnyRoute, ...],
        outcome: int = DELIVER,
    ) -> None:
        """Record the outcome of a plain message, which has no exchange."""
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.message(ask, message[3], len(message[2]), routes, outcome)

    # --- joining and leaving ----------------------------------------------------------------

    def join(
        self, route_id: bytes, service: str, tags: TagList, make: Callable[[TagList], Destination]
    ) -> Entry[AnyRoute]:
        """Add a destination, or replace the one that has its route id.

        Args:
            route_id: 16 bytes.
            service: Its service name.
            tags: The tags it registers with.
            make: Makes the destination from its tags, the default tags included.

        Raises:
            NotDelivered: The table is full, or a connection asks for the route id of a
                worker of this node.
            LimitReached: The node has as many addresses as it may.
            NodeStopped: The node is stopping.
        """
        table, suspended = self.table, self.suspended.get(route_id)
        routes = self.own_routes + len(self.suspended)
        known = table.get(route_id)
        if known is not None and known.kind.broker_id != self._broker_id:
            known = None
        if routes >= self._options.max_routes and known is None and suspended is None:
            self.full += 1
            raise NotDelivered("the routing table", f"it has {counted(routes, 'route')}, its limit")
        now = time.time()
        millis = int(now * 1000)
        route = self._route(make(tags), tags, now)
        # Route Id: "Brokers can only allow one connection for a given Route Id to be connected at a
        # time."
        if known is not None and route.destination.link and not known.target.destination.link:
            raise NotDelivered("the route id", "it belongs to a worker of this broker")
        # This may fail, so it precedes all changes.
        worker = self._worker_of(route.destination)
        route.to = self.spawn(lambda: worker, mailbox=self._mailbox)
        route.cell = self._cell_of(route.to)
        if route.cell is not None:
            route.cell.factory = None  # it is never restarted, and there is one for each connection
        if route.destination.link:
            route.connection = self._cell_of(route.destination.worker)
        expected = self.expectations.coming(route_id)
        # Routing Table: "The broker will use the timestamp of events to determine if the update
        # will be applied."
        timestamp = table.next_timestamp(route_id, millis)
        update = table.add(route_id, self._broker_id, service, tags, timestamp, route, now=millis)
        entry = update.entry
        if entry is None:
            raise AssertionError("the timestamp is newer than any in the table")
        self.services.joined(route.service)
        if expected:
            self.expectations.came()
        route.destination = make(entry.tags)
        if update.previous is not None:
            # Handling ROUTE_SETUP Frames: "the Broker or Broker cluster MUST close the existing
            # route, and remove it from the table, and replace it with the information from the new
            # ROUTE_SETUP."
            self._leave(update.previous, _TAKEN_OVER)
        if suspended is not None:
            del self.suspended[route_id]
            self._leave(suspended, _TAKEN_OVER)
        self._tell("joined", entry)
        self._announce(entry)
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.joined(entry, replaced=update.previous is not None)
        self._releases.begin(entry)
        return entry

    def _cell_of(self, address: Address) -> Cell | None:
        """Return the cell of a worker without access controls."""
        target = self.node.parts.table.targets.get(address)
        return target if isinstance(target, Cell) else None

    @staticmethod
    def _worker_of(destination: Destination) -> Worker:
        """Return a new worker for a route."""
        if destination.handlers is not None:
            return ServiceWorker(destination.handlers)
        return RouteWorker(destination) if destination.link else LocalRouteWorker(destination)

    def _route(self, destination: Destination, tags: TagList, now: float) -> BrokerRoute:
        weight = next((value for key, value in tags if key == self._weight_key), None)
        clock, decay = self.node.loop.time, self._options.choice.latency_decay
        service = self.services.of(destination.service)
        return BrokerRoute(
            destination, now, clock, decay=decay, weight=weight_of(weight), service=service
        )

    def leave(self, entry: Entry[AnyRoute], reason: str = WITHDRAWN) -> bool:
        """Remove a destination; return False if it has left or been replaced.

        Args:
            entry: The destination.
            reason: The reason, for the event log.
        """
        if self.suspended.get(entry.route_id) is entry:
            del self.suspended[entry.route_id]
            self.table.forget(entry.route_id)
            self._let_go(entry, "")  # it was told that it has left
            return True
        # Routable Destinations: "The route is considered valid for as long as the connection is
        # valid."
        if not self._discard(entry):
            return False
        instrument = part_of(self.node)
        if instrument is not None and not self._left:
            instrument.left(entry, reason)
        self._leave(entry, "")
        return True

    def _discard(self, entry: Entry[AnyRoute]) -> bool:
        """Remove an own destination from the table, and tell of it; return whether it was there."""
        table, route_id, own = self.table, entry.route_id, self._broker_id
        if table.entry_of(route_id, own) is not entry:
            return False
        now = int(time.time() * 1000)
        timestamp = table.next_timestamp(route_id, now)
        table.remove(route_id, timestamp, broker_id=own, now=now)
        if self._followers and not entry.service_name.startswith(RESERVED_SERVICES):
            removal = RouteRemove(own, route_id, timestamp)
            for follow in tuple(self._followers):
                follow(removal)
        return True

    def owner_of(self, route_id: bytes) -> BrokerRoute | None:
        """Return the own destination that has a route id, be its session suspended or not.

        A destination that comes here from a peer broker takes over the route id: of the one that it
        had there, no principal is known.
        """
        entry = self.table.get(route_id) or self.suspended.get(route_id)
        route = None if entry is None else entry.target
        return route if isinstance(route, BrokerRoute) else None

    def suspend(self, entry: Entry[AnyRoute]) -> bool:
        """Hide a destination with a suspended session; return False if it has left.

        It gets no requests, and those that only it could take wait for it.
        """
        if not self._discard(entry):
            return False
        route_id, route = entry.route_id, entry.target
        self.suspended[route_id] = entry
        self.table.expect(
            SnapshotRoute(
                route_id,
                entry.service_name,
                entry.tags,
                entry.broker_id,
                entry.timestamp,
                route.weight,
            ),
            lasting=True,
        )
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.left(entry, SESSION_SUSPENDED)
        self._tell("left", entry, SESSION_SUSPENDED)
        return True

    def resume(self, entry: Entry[AnyRoute]) -> Entry[AnyRoute] | None:
        """Show a destination again that was hidden; return its new entry, or `None` if it has left.

        Args:
            entry: The entry that was hidden.
        """
        route_id = entry.route_id
        if self.suspended.get(route_id) is not entry:
            return None
        del self.suspended[route_id]
        table, millis = self.table, int(time.time() * 1000)
        update = table.add(
            route_id,
            entry.broker_id,
            entry.service_name,
            entry.tags,
            table.next_timestamp(route_id, millis),
            entry.target,
            now=millis,
        )
        resumed = update.entry
        if resumed is None:
            raise AssertionError("the timestamp is newer than any in the table")
        self._tell("joined", resumed)
        self._announce(resumed)
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.joined(resumed, replaced=False)
        self._releases.begin(resumed)
        return resumed

    def _leave(self, entry: Entry[AnyRoute], reason: str) -> None:
        self._tell("replaced" if reason else "left", entry, reason)
        self._let_go(entry, reason)

    def _let_go(self, entry: Entry[AnyRoute], reason: str) -> None:
        """End the workers of a destination, and notify the peer if another takes its place."""
        route = own_route(entry)
        self.services.left(route)
        if route.cell is not None:
            route.cell.worker.stop()
        if route.unwatch is not None:
            route.unwatch()
        evict = route.destination.evict
        route.let_go()
        if reason and evict is not None:
            evict(reason)

    def _tell(self, kind: EventKind, entry: Entry[AnyRoute], reason: str = "") -> None:
        if self.events.watched:
            self.events.emit(entry.target.event(kind, reason))

    # --- peer brokers -------------------------------------------------------------------------

    def own_changes(self, follow: Callable[[RouteAdd | RouteRemove], object]) -> Callable[[], None]:
        """Call a function with each change of an own destination, and first with those there are.

        Workers of reserved services are none of them.

        Args:
            follow: Called with a ROUTE_ADD or a ROUTE_REMOVE, in order.

        Returns:
            The function that ends this.
        """
        for entry in self.own_entries():
            if not entry.service_name.startswith(RESERVED_SERVICES):
                follow(_route_add(entry))
        self._followers.append(follow)
        return lambda: self._unfollow(follow)

    def _unfollow(self, follow: Callable[[RouteAdd | RouteRemove], object]) -> None:
        if follow in self._followers:
            self._followers.remove(follow)

    def _announce(self, entry: Entry[AnyRoute]) -> None:
        if self._followers and not entry.service_name.startswith(RESERVED_SERVICES):
            addition = _route_add(entry)
            for follow in tuple(self._followers):
                follow(addition)

    def prefer_own(self, *, prefer: bool) -> None:
        """Set whether `choose` prefers destinations of this broker as long as they keep up.

        Otherwise those of all brokers are alike. Shard requests and sticky keys that have a
        destination are not concerned.
        """
        self.table.prefer(self._broker_id if prefer else None)

    def peer_joined(self, peer: PeerRoutes) -> None:
        """Add a peer broker, which has no routes yet.

        Raises:
            LimitReached: The node has as many addresses as it may.
        """
        worker = PeerRouteWorker(peer)
        to = self.spawn(lambda: worker, mailbox=self._mailbox)
        peer.joined(to, self._cell_of, self.node.loop.time, self._options.choice.latency_decay)
        self.peers.known[peer.broker_id] = peer

    def peer_left(self, peer: PeerRoutes) -> None:
        """Remove a peer broker, the routes of which are removed already."""
        if self.peers.known.get(peer.broker_id) is peer:
            del self.peers.known[peer.broker_id]
        if peer.cell is not None:
            peer.cell.worker.stop()
        peer.left()

    def add_remote(self, peer: PeerRoutes, route: RouteAdd) -> str:
        """Add a route of a peer broker, or replace it, and release what waits for it.

        An own destination with the same id and an older timestamp is closed.

        Returns:
            Why the route is refused, in a few fixed words; empty if it is not.
        """
        table, route_id = self.table, route.route_id
        if route_id not in table.ids and not self.suspended:
            return self.peers.add(peer, route)
        expected = table.is_expected(route_id)
        suspended = self.suspended.get(route_id)
        refused = self.peers.add(peer, route)
        if expected and not table.is_expected(route_id):
            self.expectations.came()
        if not refused and suspended is not None and suspended.timestamp < route.timestamp:
            del self.suspended[route_id]
            self._let_go(suspended, _BEATEN)
        return refused

    def remove_remote(self, peer: PeerRoutes, route: RouteRemove) -> bool:
        """Remove a route of a peer broker; return whether it was there."""
        return self.peers.remove(peer, route)

    def moved_here(self, peer: PeerRoutes, route: RouteAdd) -> None:
        """Remove a route of a Java broker that is one of this broker now.

        It does not say that it has gone, and what it has said of it may still come.
        """
        if self.table.entry_of(route.route_id, peer.broker_id) is not None:
            gone = RouteRemove(peer.broker_id, route.route_id, route.timestamp)
            self.peers.remove(peer, gone, remember=True)

    def suspend_peer(self, peer: PeerRoutes) -> None:
        """Hide the routes of a peer broker; requests that only they could take wait for them."""
        peer.suspended = True
        self.table.suspend(peer.broker_id)

    def reveal_peer(self, peer: PeerRoutes) -> None:
        """Show the routes of a peer broker again, and release what waits for them."""
        peer.suspended = False
        self.table.reveal(peer.broker_id)
        self._releases.begin_all()

    def begin_round(self, peer: PeerRoutes) -> None:
        """Begin a round of a peer broker, which tells all its routes anew."""
        self.table.begin_round(peer.broker_id)

    def sweep_peer(self, peer: PeerRoutes, limit: int) -> int:
        """Remove routes that a peer broker has not told in its round.

        Returns:
            How many were removed; fewer than the limit: there are no more, and the round has ended.
        """
        return self.peers.sweep(peer, limit)

    def drop_peer(self, peer: PeerRoutes, limit: int) -> int:
        """Remove routes of a peer broker.

        Returns:
            How many were removed; fewer than the limit: there are no more.
        """
        return self.peers.drop(peer, limit)

    def _remote_kind(self, peer: PeerRoutes, kind: RouteKind) -> RemoteKind:
        weight = next((value for key, value in kind.common if key == self._weight_key), None)
        made = RemoteKind(peer, kind, self.services.of(kind.service_name), weight_of(weight))
        if kind.shared is not None:
            made.outstanding = kind.shared.outstanding  # of routes that have left
        return made

    def _beaten(self, entry: Entry[AnyRoute]) -> None:
        """Close an own destination, as a peer broker has a newer one with its route id."""
        self._discard(entry)
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.left(entry, _BEATEN)
        self._leave(entry, _BEATEN)

    # --- inspection -------------------------------------------------------------------------

    @property
    def own_routes(self) -> int:
        """Number of destinations of this broker."""
        return self.table.count_of(self._broker_id)

    def own_entries(self) -> tuple[Entry[AnyRoute], ...]:
        """Return the destinations of this broker; without peers in the order they joined."""
        return tuple(self.table.of(self._broker_id) if self.peers.known else self.table)

    def entries(self) -> Iterator[Entry[AnyRoute]]:
        """Yield the destinations of all brokers, those of this one first, as of the first one.

        Those of each peer broker are as of the first of them.
        """
        yield from self.own_entries()
        for broker_id in tuple(self.peers.known):
            yield from self.table.of(broker_id)

    def service_statistics(
        self, view: Callable[[TagSet], bool] | None = None
    ) -> Iterator[ServiceStatistics | None]:
        """Yield the figures of the services; see `Services.statistics`."""
        kinds = [kind for peer in self.peers.known.values() for kind in peer.kinds]
        return self.services.statistics(self.own_entries(), view, kinds)

    def waiting(self) -> WaitingStatistics:
        """Return the figures of the messages that wait for a destination."""
        return self._waiters.statistics(self.node.loop.time())

    def asked_by_routing(self) -> dict[RoutingType, list[int]]:
        """Return the requests of connections by routing, and by the number of their interaction."""
        return self._selectors.counts

    def waiting_by_query(self) -> tuple[WaitingQuery, ...]:
        """Return the messages that wait for a destination, by query."""
        return self._waiters.by_query()

    def rows(self) -> tuple[RouteStatistics, ...]:
        """Return the rows of the table, those of this broker first, in the order they joined."""
        return tuple(entry.target.row() for entry in self.entries())

    def saved(self) -> Iterator[SnapshotRoute]:
        """Yield the routes of this broker as of the first item, expected destinations included."""
        there, expected = self.own_entries(), tuple(self.table.expected())
        for entry in there:
            yield SnapshotRoute(
                entry.route_id,
                entry.service_name,
                entry.tags,
                entry.broker_id,
                entry.timestamp,
                entry.target.weight,
            )
        for each in expected:
            yield SnapshotRoute(
                each.route_id,
                each.service_name,
                each.tags,
                each.broker_id,
                each.timestamp,
                each.weight,
                expected=True,
            )


def _route_add(entry: Entry[AnyRoute]) -> RouteAdd:
    return RouteAdd(
        entry.broker_id, entry.route_id, entry.timestamp, entry.service_name, entry.tags
    )
