"""The destinations of this broker: they join, are suspended, resume and leave."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ....protocol import Address, NotDelivered, counted
from ....protocol.broker import Entry, RouteAdd, RouteRemove, SnapshotRoute, TagList, parse_key
from ....protocol.cluster import SUSPENDED_SERVICE, RoutePlace, SuspendedPlaces, inherited
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

__all__ = ["JoiningIndex", "route_add", "suspended_add"]

_TAKEN_OVER: Final = "another connection has taken over its route id"


class JoiningIndex(WaitingIndex):
    """A routing table with the destinations of this broker.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Attributes:
        suspended: The destinations with a suspended session, by route id; the table expects them.
        suspended_elsewhere: The suspended sessions that peer brokers have told of.
        full: Registrations refused because the table was full, since the start.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__(options, broker_id)
        self.suspended: dict[bytes, Entry[AnyRoute]] = {}
        self.suspended_elsewhere = SuspendedPlaces()
        self._followers: list[Callable[[RouteAdd | RouteRemove], object]] = []
        self._follower: ZoneFollower | None = None
        # Of suspended sessions that other brokers were told of: the route ids.
        self._told_suspended: set[bytes] = set()
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
        if known is not None and known.kind.broker_id != self._broker_id:
            known = None
        if routes >= self._options.max_routes and known is None and suspended is None:
            self.full += 1
            raise NotDelivered("the routing table", f"it has {counted(routes, 'route')}, its limit")
        now = time.time()
        millis = int(now * 1000)
        route = self._route(make(tags), tags, now)
        if self.ruled:
            owner = told_owner(route.destination.principal)
            route.owned_since = inherited(self.places_of(route_id), owner)
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
        timestamp = self._next_timestamp(route_id, millis)
        update = table.add(route_id, self._broker_id, service, tags, timestamp, route, now=millis)
        entry = table.entry_of(route_id, self._broker_id)
        if entry is None or entry.target is not route:
            raise AssertionError("the timestamp is newer than any in the table")
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
            self._forget_suspended(route_id)
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
            self._forget_suspended(entry.route_id, told=True)
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
        update = table.remove(route_id, timestamp, broker_id=own, now=now)
        if update.other is not None and update.entry is not None:
            self._releases.begin(update.entry)  # of a peer broker
        self._follow_left(entry)
        if self._followers and not entry.service_name.startswith(RESERVED_SERVICES):
            self._follow(RouteRemove(own, route_id, timestamp))
        return True

    def _follow(self, change: RouteAdd | RouteRemove) -> None:
        for follow in tuple(self._followers):
            follow(change)

    # --- owners -----------------------------------------------------------------------------------

    def places_of(self, route_id: bytes) -> list[RoutePlace]:
        """Return where a route id is registered in the zone, as far as it is known here.

        With rules that includes suspended sessions, for which the id is kept.
        """
        entries = self.table.entries_of(route_id)
        if not self.ruled:
            return [self.place_of(entry) for entry in entries]
        suspended = self.suspended.get(route_id)
        if suspended is not None:
            entries.append(suspended)
        return [*map(self.place_of, entries), *self.suspended_elsewhere.of(route_id)]

    def _next_timestamp(self, route_id: bytes, now: int) -> int:
        """Return a timestamp for a registration that is newer than all that is known of its id.

        A suspended session of another broker has that of a clock which may be ahead of this one.
        """
        suspended = self.suspended_elsewhere.of(route_id) if self.suspended_elsewhere else ()
        latest = max((place.timestamp for place in suspended), default=0)
        return self.table.next_timestamp(route_id, max(now, latest + 1))

    def own_place(self, route_id: bytes) -> RoutePlace | None:
        """Return where a destination of this broker is registered, by its route id.

        With rules one with a suspended session is one of them.
        """
        entry = self.table.entry_of(route_id, self._broker_id)
        if entry is None and self.ruled:
            entry = self.suspended.get(route_id)
        return None if entry is None else self.place_of(entry)

    def _tell_suspended(self, entry: Entry[AnyRoute]) -> None:
        """Announce a suspended session to other brokers, as its route id is kept for it."""
        if self.ruled and not entry.service_name.startswith(RESERVED_SERVICES):
            self._told_suspended.add(entry.route_id)
            self._follow(suspended_add(entry))
            if self._follower is not None:
                self._follower.kept(entry.route_id)

    def _forget_suspended(self, route_id: bytes, *, told: bool = False) -> None:
        """Remove a suspended session.

        Args:
            route_id: Its route id.
            told: Whether other brokers are to be told of its end, as no registration follows.
        """
        del self.suspended[route_id]
        self.table.forget(route_id)
        self._forget_told(route_id, told=told)

    def _forget_told(self, route_id: bytes, *, told: bool) -> None:
        """See that the route id of a suspended session is kept no more; `told` is as above."""
        if route_id not in self._told_suspended:
            return
        self._told_suspended.discard(route_id)
        if told:
            self._tell_end(route_id)
        if self._follower is not None:
            self._follower.kept_no_more()

    def _tell_end(self, route_id: bytes) -> None:
        """Announce to other brokers that a route id is not kept for a suspended session."""
        timestamp = self.table.next_timestamp(route_id, int(time.time() * 1000))
        self._follow(RouteRemove(self._broker_id, route_id, timestamp))

    def suspend(self, entry: Entry[AnyRoute]) -> bool:
        """Hide a destination with a suspended session; return False if it has left.

        It gets no requests, and those that only it could take wait for it.
        """
        if not self._discard(entry):
            return False
        self.suspended[entry.route_id] = entry
        self._expect_suspended(entry.route_id)
        self._tell_suspended(entry)
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.left(entry, SESSION_SUSPENDED)
        self._tell("left", entry, SESSION_SUSPENDED)
        return True

    def _expect_suspended(self, route_id: bytes) -> None:
        """Expect the destination of a suspended session, if a route id has one.

        That has no effect while another broker has a registration of the id: then this is called
        again once that has gone.
        """
        entry = self.suspended.get(route_id)
        if entry is None:
            return
        self.table.expect(
            SnapshotRoute(
                route_id,
                entry.service_name,
                entry.tags,
                entry.broker_id,
                entry.timestamp,
                entry.target.weight,
            ),
            lasting=True,
        )

    def resume(self, entry: Entry[AnyRoute]) -> Entry[AnyRoute] | None:
        """Show a destination again that was hidden; return its new entry, or `None` if it has left.

        Args:
            entry: The entry that was hidden.
        """
        route_id = entry.route_id
        if self.suspended.get(route_id) is not entry:
            return None
        own_route(entry).owned_since = owned_since(entry)
        table, millis = self.table, int(time.time() * 1000)
        update = table.add(
            route_id,
            entry.broker_id,
            entry.service_name,
            entry.tags,
            self._next_timestamp(route_id, millis),
            entry.target,
            now=millis,
        )
        self._forget_suspended(route_id)
        resumed = table.entry_of(route_id, entry.broker_id)
        if not update.applied or resumed is None:
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
            self._follow(route_add(entry))

    def _follow_left(self, entry: Entry[AnyRoute]) -> None:
        if self._follower is not None and not entry.service_name.startswith(RESERVED_SERVICES):
            self._follower.left(entry.kind, entry.route_id)


def route_add(entry: Entry[AnyRoute]) -> RouteAdd:
    """Return the frame that tells of a destination."""
    return RouteAdd(
        entry.broker_id, entry.route_id, entry.timestamp, entry.service_name, entry.tags
    )


def suspended_add(entry: Entry[AnyRoute]) -> RouteAdd:
    """Return the frame that tells of a suspended session, but for its owner."""
    return RouteAdd(entry.broker_id, entry.route_id, entry.timestamp, SUSPENDED_SERVICE)
