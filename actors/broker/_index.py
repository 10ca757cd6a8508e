"""The tag index: the worker that turns tags into routes.

It owns the routing table, and it is the node's rule for addresses of type 32: the rule
replaces such an address by the one route that carries the tags, or by the forwarder where
several do. A request that nobody can take waits here for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from ...protocol import TAGS, Address, Message, NoRoute, NotDelivered
from ...protocol.broker import (
    Dialect,
    Entry,
    RoutingTable,
    TagList,
    format_key,
    format_query,
    parse_key,
)
from .._policy import Mailbox
from .._timer import Timer
from .._worker import Worker
from ._events import BrokerEvent, EventKind, Events
from ._exchange import Exchange, exchange_of
from ._options import BrokerOptions
from ._route import BrokerRoute, Destination, RouteStatistics, RouteWorker, weight_of
from ._selector import Ask, Selectors
from ._unicast import Unicast
from ._waiting import Waiters, WaitingStatistics

__all__ = ["TagIndexWorker"]

MAX_PROBES: Final = 16
"""Destinations looked at for one that keeps up, before a busy one is taken."""

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class TagIndexWorker(Worker):
    """Hold the routing table, and resolve tags to routes.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Attributes:
        table: The routing table.
        events: Where it tells of destinations that join and leave, and of refused requests.
        rejected: How many messages nobody could take, since the start.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__()
        self._options = options
        self._broker_id = broker_id
        self.table: RoutingTable[BrokerRoute] = RoutingTable(
            tombstone_lifetime=int(options.tombstone_seconds * 1000)
        )
        self._selectors = Selectors(self.table.queries, options.max_queries)
        self.events = Events(options.max_watchers, options.max_events)
        self._waiters = Waiters(options.max_waiters, options.max_waiting_bytes)
        self._weight_key = parse_key(options.weight_tag)
        self._timer: Timer | None = None
        self._alarm = inf
        self._thread = 0
        self._unicast = Address(0, b"")
        self.rejected = 0

    def on_start(self) -> None:
        """Start the forwarder and become the rule for tag queries."""
        self._thread = threading.get_ident()
        self._unicast = self.spawn(
            lambda: Unicast(self),
            address=Address(0, self.address.value + b"/unicast"),
            mailbox=Mailbox(limit=self._options.max_mailbox),
        )
        self.node.add_rule(TAGS, self.resolve)

    def on_stop(self) -> None:
        """Take the rule away and refuse what still waits."""
        self.node.remove_rule(TAGS)
        for waiter in self._waiters.clear():
            self._refuse(waiter.message, waiter.ask, "the broker stops")
        self.events.end()

    # --- the rule ---------------------------------------------------------------------------

    def resolve(self, message: Message) -> Message | None:
        """Replace the tag query in front of a message by a route.

        Returns:
            The message with its route, or `None` if it waits for one.

        Raises:
            AddressError: The query cannot be read.
            NoRoute: Nobody carries the tags, and the message cannot wait.
        """
        onward, back, payload, source, context = message
        if threading.get_ident() != self._thread:
            # The table belongs to the loop's thread: by way of the mailbox, and its limit.
            onward = (self.address, *onward)
            self.node.route(_new(Message, (onward, back, payload, source, context)))
            return None
        ask = self._selectors.named(onward[0])
        candidates = self.table.candidates(ask.selector.query)
        if not candidates:
            self._wait(message, ask)
            return None
        if len(candidates) == 1:
            onward = (candidates[0].target.choose(exchange_of(message)), *onward[1:])
        else:
            onward = (self._unicast, *onward)
        return _new(Message, (onward, back, payload, source, context))

    def ask(self, frame: bytes, dialect: Dialect) -> Ask:
        """Return what an ADDRESS frame asks for; it does not depend on the table.

        Args:
            frame: The whole frame.
            dialect: How it is written.

        Raises:
            BrokerFrameError: The frame is broken, or asks for something else than unicast.
        """
        return self._selectors.read(frame, dialect)

    def asked(self, address: Address) -> Ask:
        """Return what an address of type 32 asks for.

        Raises:
            AddressError: The query cannot be read.
        """
        return self._selectors.named(address)

    def candidates(self, ask: Ask) -> tuple[Entry[BrokerRoute], ...]:
        """Return the destinations that carry the tags asked for."""
        return self.table.candidates(ask.selector.query)

    def choose(self, ask: Ask, exchange: Exchange | None) -> Address | None:
        """Choose a destination, in turn, among those that carry the tags asked for.

        Args:
            ask: What is asked for.
            exchange: The request, if it came in frames.

        Returns:
            Where to send it, or `None` if nobody carries the tags.
        """
        selector = ask.selector
        candidates = self.table.candidates(selector.query)
        if not candidates:
            return None
        turns = selector.turns
        turn = turns.next
        turns.next = turn + 1
        route: BrokerRoute = candidates[turn % len(candidates)].target
        if len(candidates) > 1 and route.busy:
            route = self._next_free(candidates, turn) or route
        return route.choose(exchange)

    @staticmethod
    def _next_free(candidates: tuple[Entry[BrokerRoute], ...], turn: int) -> BrokerRoute | None:
        """Return the next in turn that keeps up, of those looked at."""
        for number in range(1, min(len(candidates), MAX_PROBES)):
            route: BrokerRoute = candidates[(turn + number) % len(candidates)].target
            if not route.busy:
                return route
        return None

    def handle_message(self, message: Message) -> None:
        """Resolve a message that was sent on another thread."""
        onward, back, payload, source, context = message
        self.node.deliver(_new(Message, (onward[1:], back, payload, source, context)))

    # --- waiting for a route ----------------------------------------------------------------

    def _wait(self, message: Message, ask: Ask) -> None:
        """Let a message wait for a route as long as it may, or refuse it."""
        options = self._options
        asked = options.no_route_timeout if ask.no_route is None else ask.no_route
        patience = options.max_wait if asked is None else min(asked, options.max_wait)
        if patience <= 0:
            self._refuse(message, ask)
            return
        exchange = exchange_of(message)
        size = exchange.size if exchange is not None else len(message.payload)
        waiter = self._waiters.add(message, ask, size, self.node.loop.time(), patience)
        if waiter is None:
            self._refuse(message, ask)
            return
        if exchange is not None:
            exchange.wait()
            exchange.withdraw = partial(self._waiters.withdraw, waiter.number)
        if waiter.until < self._alarm:
            self._set_alarm(waiter.until)

    def _set_alarm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._alarm = at
        self._timer = self.after(max(0.0, at - self.node.loop.time()), self._give_up)

    def _give_up(self) -> None:
        """Refuse those whose time is over and set the alarm for the next."""
        self._timer, self._alarm = None, inf
        for waiter in self._waiters.overdue(self.node.loop.time()):
            self._refuse(waiter.message, waiter.ask)
        soonest = self._waiters.deadline()
        if soonest is not None and soonest < self._alarm:
            self._set_alarm(soonest)

    def _release(self, entry: Entry[BrokerRoute]) -> None:
        """Send the messages on, in order, that wait for what has just joined."""
        for waiter in self._waiters.satisfied(entry.tags):
            self.node.deliver(waiter.message)

    def _refuse(self, message: Message, ask: Ask, reason: str = "") -> None:
        self.rejected += 1
        query = format_query(ask.selector.query)
        error = NoRoute(query, reason)
        if self.events.watched:
            self.events.emit(
                BrokerEvent("rejected", time.time(), reason=str(error), query=ask.text)
            )
        exchange = exchange_of(message)
        if exchange is not None:
            exchange.fail(error)
        self.node.lose(message, error)

    # --- joining and leaving ----------------------------------------------------------------

    def join(
        self, route_id: bytes, service: str, tags: TagList, make: Callable[[TagList], Destination]
    ) -> Entry[BrokerRoute]:
        """Add a destination, or replace the one that has its route id.

        Args:
            route_id: 16 bytes.
            service: Its service name.
            tags: The tags it came with.
            make: Makes the destination of its tags, the default tags included.

        Raises:
            NotDelivered: The table is full, or a connection asks for the route id of a
                worker of this node.
            LimitReached: The node has as many addresses as it may.
            NodeStopped: The node is stopping.
        """
        table = self.table
        if len(table) >= self._options.max_routes and route_id not in table:
            raise NotDelivered("the routing table", f"it has {len(table)} routes, its limit")
        now = time.time()
        millis = int(now * 1000)
        route = self._route(make(tags), tags, now)
        known = table.get(route_id)
        if known is not None and route.destination.link and not known.target.destination.link:
            raise NotDelivered("the route id", "it belongs to a worker of this broker")
        if not route.destination.link:
            # First, as it may fail; then nothing has changed.
            stand_in = route.stand_in = RouteWorker(route.destination)
            route.to = self.spawn(
                lambda: stand_in, mailbox=Mailbox(limit=self._options.max_mailbox)
            )
        timestamp = table.next_timestamp(route_id, millis)
        update = table.add(route_id, self._broker_id, service, tags, timestamp, route, now=millis)
        entry = update.entry
        if entry is None:
            raise AssertionError("the timestamp is newer than all the table knows")
        route.destination = make(entry.tags)
        if update.previous is not None:
            self._leave(update.previous, "another connection has taken over its route id")
        self._tell("joined", entry)
        self._release(entry)
        return entry

    def _route(self, destination: Destination, tags: TagList, now: float) -> BrokerRoute:
        weight = next((value for key, value in tags if key == self._weight_key), None)
        clock, decay = self.node.loop.time, self._options.latency_decay
        return BrokerRoute(destination, now, clock, decay=decay, weight=weight_of(weight))

    def leave(self, entry: Entry[BrokerRoute]) -> bool:
        """Remove a destination; one that was replaced is gone already."""
        if not self.table.discard(entry, now=int(time.time() * 1000)):
            return False
        self._leave(entry, "")
        return True

    def _leave(self, entry: Entry[BrokerRoute], reason: str) -> None:
        route: BrokerRoute = entry.target
        self._tell("replaced" if reason else "left", entry, reason)
        if route.stand_in is not None:
            route.stand_in.stop()
        if route.unwatch is not None:
            route.unwatch()
        if reason and route.destination.evict is not None:
            route.destination.evict(reason)

    def _tell(self, kind: EventKind, entry: Entry[BrokerRoute], reason: str = "") -> None:
        if self.events.watched:
            self.events.emit(entry.target.event(kind, reason))

    # --- looking at it ----------------------------------------------------------------------

    def waiting(self) -> WaitingStatistics:
        """Return the figures of what waits for a route."""
        return self._waiters.statistics(self.node.loop.time())

    def rows(self) -> tuple[RouteStatistics, ...]:
        """Return the table, in the order the routes joined."""
        return tuple(entry.target.row() for entry in self.table)


def readable(tags: TagList) -> tuple[tuple[str, str], ...]:
    """Return tags as people read them; a null value is an empty text."""
    return tuple((format_key(key), value or "") for key, value in tags)
