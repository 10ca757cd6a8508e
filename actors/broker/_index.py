"""The tag index: the worker that turns tags into routes.

It owns the routing table, and it is the node's rule for addresses of type 32: the rule
replaces such an address by the one route that carries the tags, or by the forwarder where
several do. A request that nobody can take waits here for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from typing import Final, cast

from ...protocol import TAGS, Address, Message, NoRoute, NotDelivered
from ...protocol.broker import (
    Dialect,
    Entry,
    Query,
    RoutingTable,
    TagList,
    format_key,
    format_query,
)
from .._policy import Mailbox
from .._timer import Timer
from .._worker import Worker
from ._exchange import Exchange, exchange_of
from ._options import BrokerOptions
from ._route import BrokerRoute, Destination, RouteStatistics, RouteWorker
from ._selector import Ask, Selectors
from ._unicast import Unicast

__all__ = ["TagIndexWorker"]

MAX_PROBES: Final = 16
"""Destinations looked at for one that keeps up, before a busy one is taken."""

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class _Waiter:
    """A message that waits for a route."""

    __slots__ = ("message", "query", "size", "until")

    def __init__(self, message: Message, query: Query, size: int, until: float) -> None:
        self.message: Final = message
        self.query: Final = query
        self.size: Final = size
        self.until: Final = until


class TagIndexWorker(Worker):
    """Hold the routing table, and resolve tags to routes.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__()
        self._options = options
        self._broker_id = broker_id
        self.table: RoutingTable[BrokerRoute] = RoutingTable(
            tombstone_lifetime=int(options.tombstone_seconds * 1000)
        )
        self._selectors = Selectors(self.table.queries, options.max_queries)
        # Oldest first: all wait equally long, so the first is also the first to give up.
        self._waiters: dict[int, _Waiter] = {}
        self._waiting_bytes = 0
        self._next_waiter = 0
        self._timer: Timer | None = None
        self._thread = 0
        self._unicast = Address(0, b"")
        self.rejected = 0
        self.waited = 0

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
        for waiter in list(self._waiters.values()):
            self._refuse(waiter.message, NoRoute(format_query(waiter.query), "the broker stops"))
        self._waiters.clear()

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
        query = self._selectors.named(onward[0]).selector.query
        candidates = self.table.candidates(query)
        if not candidates:
            self._wait(message, query)
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

    def choose(self, ask: Ask | Address, exchange: Exchange | None) -> Address | None:
        """Choose a destination, in turn, among those that carry the tags asked for.

        Args:
            ask: What is asked for; an address of type 32 is read first.
            exchange: The request, if it came in frames.

        Returns:
            Where to send it, or `None` if nobody carries the tags.

        Raises:
            AddressError: The address cannot be read.
        """
        if type(ask) is not Ask:
            ask = self._selectors.named(cast(Address, ask))
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

    def address_of(self, frame: bytes, dialect: Dialect) -> Address:
        """Return the address of type 32 that an ADDRESS frame stands for.

        What a repeated frame asks for is remembered; it does not depend on the table.

        Args:
            frame: The whole frame.
            dialect: How it is written.

        Raises:
            BrokerFrameError: The frame is broken, or asks for something else than unicast.
        """
        return self.ask(frame, dialect).address

    # --- waiting for a route ----------------------------------------------------------------

    def _wait(self, message: Message, query: Query) -> None:
        exchange = exchange_of(message)
        size = exchange.size if exchange is not None else len(message.payload)
        options = self._options
        patience = inf if options.no_route_timeout is None else options.no_route_timeout
        if (
            patience <= 0
            or len(self._waiters) >= options.max_waiters
            or self._waiting_bytes + size > options.max_waiting_bytes
        ):
            self._refuse(message, NoRoute(format_query(query)))
            return
        now = self.node.loop.time()
        number = self._next_waiter = self._next_waiter + 1
        self._waiters[number] = _Waiter(message, query, size, now + patience)
        self._waiting_bytes += size
        self.waited += 1
        if exchange is not None:
            exchange.wait()
            exchange.withdraw = lambda: self._withdraw(number)
        if self._timer is None and patience < inf:
            self._timer = self.after(patience, self._give_up)

    def _withdraw(self, number: int) -> _Waiter | None:
        waiter = self._waiters.pop(number, None)
        if waiter is not None:
            self._waiting_bytes -= waiter.size
        return waiter

    def _give_up(self) -> None:
        """Refuse those whose time is over and set the timer for the next."""
        self._timer = None
        now = self.node.loop.time()
        while self._waiters:
            number, waiter = next(iter(self._waiters.items()))
            if waiter.until > now:
                self._timer = self.after(waiter.until - now, self._give_up)
                return
            self._withdraw(number)
            self._refuse(waiter.message, NoRoute(format_query(waiter.query)))

    def _release(self, entry: Entry[BrokerRoute]) -> None:
        """Send the messages on, in order, that wait for what has just joined."""
        tags = frozenset(entry.tags)
        ready = [number for number, each in self._waiters.items() if each.query <= tags]
        for number in ready:
            waiter = self._withdraw(number)
            if waiter is not None:
                self.node.deliver(waiter.message)

    def _refuse(self, message: Message, error: NotDelivered) -> None:
        self.rejected += 1
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
        route = BrokerRoute(make(tags), now)
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
        self._release(entry)
        return entry

    def leave(self, entry: Entry[BrokerRoute]) -> bool:
        """Remove a destination; one that was replaced is gone already."""
        if not self.table.discard(entry, now=int(time.time() * 1000)):
            return False
        self._leave(entry, "")
        return True

    def _leave(self, entry: Entry[BrokerRoute], reason: str) -> None:
        route: BrokerRoute = entry.target
        if route.stand_in is not None:
            route.stand_in.stop()
        if route.unwatch is not None:
            route.unwatch()
        if reason and route.destination.evict is not None:
            route.destination.evict(reason)

    # --- looking at it ----------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """How many messages wait for a route."""
        return len(self._waiters)

    def rows(self) -> tuple[RouteStatistics, ...]:
        """Return the table, in the order the routes joined."""
        return tuple(entry.target.row() for entry in self.table)


def readable(tags: TagList) -> tuple[tuple[str, str], ...]:
    """Return tags as people read them; a null value is an empty text."""
    return tuple((format_key(key), value or "") for key, value in tags)
