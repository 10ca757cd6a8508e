"""The destinations of this broker: they join, are suspended, resume and leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from ....protocol import Address, NotDelivered, counted
from ....protocol.broker import Entry, RouteAdd, RouteRemove, SnapshotRoute, TagList, parse_key
from ..._worker import Worker
from ...runtime._cell import Cell
from ...runtime._policy import MailboxOptions
from .._instrument import part_of
from .._options import BrokerOptions
from ..local._served import ServiceWorker
from ._events import EventKind
from ._index_waiting import WaitingIndex
from ._leaving import SESSION_SUSPENDED, WITHDRAWN
from ._peers import RESERVED_SERVICES, ZoneFollower
from ._remote import AnyRoute, own_route, owned_since
from ._route import (
    BrokerRoute,
    Destination,
    LocalRouteWorker,
    RouteWorker,
    told_owner,
    weight_of,
)

__all__ = ["JoiningIndex", "route_add"]

_TAKEN_OVER: Final = "another connection has taken over its route id"


class JoiningIndex(WaitingIndex):
    """A routing table with the destinations of this broker.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Attributes:
        suspended: The destinations with a suspended session, by route id; the table expects them.
        full: Registrations refused because the table was full, since the start.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__(options, broker_id)
        self.suspended: dict[bytes, Entry[AnyRoute]] = {}
        self._followers: list[Callable[[RouteAdd | RouteRemove], object]] = []
        self._follower: ZoneFollower | None = None
        self._weight_key = parse_key(options.choice.weight_tag)
        self._mailbox = MailboxOptions(limit=options.max_mailbox)
        self._left = False  # whether all have left, as the index stops
        self.full = 0

    @property
    def own_routes(self) -> int:
        """Number of destinations of this broker."""
        return self.table.count_of(self._broker_id)

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
        before = known, suspended
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
        _inherit(route, before)
        self.services.joined(route.service)
        if expected:
            self.expectations.came()
        route.destination = make(entry.tags)
        if update.previous is not None:
            # Handling ROUTE_SETUP Frames: "the Broker or Broker cluster MUST close the existing
            # route, and remove it from the table, and replace it with the information from the new
            # ROUTE_SETUP."
            self._follow_left(update.previous)
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

    def _discard(self, entry: Entry[AnyRoute], since: int = 0) -> bool:
        """Remove an own destination from the table, and tell of it; return whether it was there."""
        table, route_id, own = self.table, entry.route_id, self._broker_id
        if table.entry_of(route_id, own) is not entry:
            return False
        now = int(time.time() * 1000)
        timestamp = max(table.next_timestamp(route_id, now), since)
        table.remove(route_id, timestamp, broker_id=own, now=now)
        self._follow_left(entry)
        if self._followers and not entry.service_name.startswith(RESERVED_SERVICES):
            removal = RouteRemove(own, route_id, timestamp)
            for follow in tuple(self._followers):
                follow(removal)
        return True

    def owner_of(self, route_id: bytes) -> BrokerRoute | None:
        """Return the own destination that has a route id, be its session suspended or not.

        Of a destination at a peer broker, `owner_elsewhere` returns the owner.
        """
        entry = self._owned(route_id)
        route = None if entry is None else entry.target
        return route if isinstance(route, BrokerRoute) else None

    def _owned(self, route_id: bytes) -> Entry[AnyRoute] | None:
        """Return the route of the owner of a route id: of two the one that has had it longer.

        There are two if a session here is suspended, of which no peer broker is told, and a
        principal has registered at one of those.
        """
        entry, suspended = self.table.get(route_id), self.suspended.get(route_id)
        if entry is None or suspended is None:
            return entry or suspended
        return entry if owned_since(entry) < owned_since(suspended) else suspended

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
        own_route(entry).owned_since = owned_since(entry)
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

    def _announce(self, entry: Entry[AnyRoute]) -> None:
        if entry.service_name.startswith(RESERVED_SERVICES):
            return
        if self._follower is not None:
            self._follower.joined(entry.kind, entry.route_id)
        if self._followers:
            addition = route_add(entry)
            for follow in tuple(self._followers):
                follow(addition)

    def _follow_left(self, entry: Entry[AnyRoute]) -> None:
        if self._follower is not None and not entry.service_name.startswith(RESERVED_SERVICES):
            self._follower.left(entry.kind, entry.route_id)


def _inherit(route: BrokerRoute, before: Iterable[Entry[AnyRoute] | None]) -> None:
    """Set since when an owner has had its route id, from the routes of the id before."""
    for each in before:
        if each is not None and _is_same_owner(route, each.target):
            route.owned_since = owned_since(each)


def _is_same_owner(route: BrokerRoute, before: AnyRoute) -> bool:
    """Whether a connection belongs to the principal of the route that has its id already."""
    principal = route.destination.principal
    if principal is None:
        return False
    if isinstance(before, BrokerRoute):
        owner = before.destination.principal
        return owner is not None and owner.is_same(principal)
    return before.owner is not None and before.owner == told_owner(principal)


def route_add(entry: Entry[AnyRoute]) -> RouteAdd:
    """Return the frame that tells of a destination."""
    return RouteAdd(
        entry.broker_id, entry.route_id, entry.timestamp, entry.service_name, entry.tags
    )
