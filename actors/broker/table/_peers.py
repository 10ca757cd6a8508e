"""The peer brokers in a table: their updates, and what they mean for the routes of this broker.

Nothing is told of single routes of peer brokers: neither as events of the broker nor in its event
log. The log of each broker has its own destinations, and events of peer brokers say when many come
or go at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ....protocol.broker import (
    Entry,
    RouteAdd,
    RouteKind,
    RouteRemove,
    RoutingTable,
    Update,
)
from ....protocol.cluster import SUSPENDED_SERVICE, RoutePlace, SuspendedPlaces, suspended_place
from ._release import Releases
from ._remote import AnyRoute, OwnedRoute, PeerRoutes, RemoteKind, RemoteRoute
from ._services import Services

__all__ = ["RESERVED_SERVICES", "TABLE_FULL", "Peers", "ZoneFollower"]

RESERVED_SERVICES: Final = "onward."
"""The prefix of service names that only workers of a broker's node may use. Such services belong to
their broker: no other is told of them, and none is believed to have one for others."""

TABLE_FULL: Final = "the table has as many routes of peer brokers as it may"
_RESERVED_NAME: Final = "its service name is reserved"
_LOCAL: Final = "its id is that of a worker of this broker"
_OLDER: Final = "a later change of the route is known"
_OTHER_HOME: Final = "it is connected to another broker"


class ZoneFollower(Protocol):
    """The one that is told of all destinations of a zone, hidden ones included."""

    def joined(self, kind: RouteKind, route_id: bytes) -> None:
        """Receive a destination that has joined a broker of the zone."""

    def left(self, kind: RouteKind, route_id: bytes) -> None:
        """Receive one that has left, or is replaced."""

    def kept(self, route_id: bytes) -> None:
        """Receive the id of one with a suspended session, for which it is kept."""

    def kept_no_more(self) -> None:
        """See that the id of one of these is free, or registered again."""


class Peers:
    """The peer brokers in a table.

    Args:
        table: The table.
        own: The id of this broker.
        limit: See `BrokerOptions.max_peer_routes`.
        services: The counts of services.
        releases: The release of waiting messages.
        suspended: The suspended sessions that they have told of.
        make_kind: Makes what routes of a kind share.
        beaten: Called with an own route that another one has replaced, of a peer broker.
        kept: Called with the route id and the place of a suspended session that was told.
        gone: Called with a route id that no broker has a registration of any more.

    Attributes:
        known: The peer brokers by id.
        count: Their routes in the table, those that others hide included.
        refused: Routes that were not added as there were too many, since the start.
        follower: Told of all changes; `None` if there is none.
    """

    def __init__(
        self,
        table: RoutingTable[AnyRoute],
        own: bytes,
        limit: int,
        services: Services,
        releases: Releases,
        suspended: SuspendedPlaces,
        make_kind: Callable[[PeerRoutes, RouteKind], RemoteKind],
        beaten: Callable[[Entry[AnyRoute], Entry[AnyRoute]], object],
        kept: Callable[[bytes, RoutePlace], object],
        gone: Callable[[bytes], object],
    ) -> None:
        self._table = table
        self._own = own
        self._limit = limit
        self._services = services
        self._releases = releases
        self._make_kind = make_kind
        self._beaten = beaten
        self._suspended = suspended
        self._kept = kept
        self._on_gone = gone
        self.known: dict[bytes, PeerRoutes] = {}
        self.count = 0
        self.refused = 0
        self.follower: ZoneFollower | None = None

    def of(self, entry: Entry[AnyRoute]) -> PeerRoutes | None:
        """Return the peer broker of a route; `None` if it is connected to this broker."""
        return self.known.get(entry.kind.broker_id)

    def add(self, peer: PeerRoutes, route: RouteAdd) -> str:
        """Add a route of a peer broker, or replace it.

        Returns:
            Why it was not added, in a few fixed words; empty if it was, or was known already.
        """
        table, route_id, text = self._table, route.route_id, route.text
        if route.broker_id != peer.broker_id:
            return _OTHER_HOME
        if text.service_name.startswith(RESERVED_SERVICES):
            return self._add_reserved(peer, route)
        if self._suspended.count:
            self._remove_suspended(peer, route_id)
        if route_id in table.ids or self.count >= self._limit or peer.java:
            reason = self._refusal(peer, route_id, route.timestamp)
            if reason:
                return reason
        kind = table.kind_of_text(peer.broker_id, text, route_id)
        shared: RemoteKind | None = kind.shared
        if shared is None or not shared.routes:
            # Its service may be counted elsewhere by now.
            shared = kind.shared = self._make_kind(peer, kind)
        owned = route.ownership
        made = (
            RemoteRoute(route_id, kind, route.timestamp)
            if owned is None
            else OwnedRoute(route_id, kind, route.timestamp, owned[0], owned[1])
        )
        if not table.put_new(made):
            self._replace(peer, made, shared)
            return ""
        peer.count += 1
        self.count += 1
        # As `_count` does, without the call: this runs for each route of a cluster.
        if not shared.routes:
            peer.kinds[shared] = None
        shared.routes += 1
        if shared.service.elsewhere:
            shared.service.elsewhere += 1
        else:
            self._services.joined_elsewhere(shared.service)
        if self.follower is not None:
            self.follower.joined(kind, route_id)
        if self._releases.waiting:
            self._releases.begin(made)
        return ""

    def _add_reserved(self, peer: PeerRoutes, route: RouteAdd) -> str:
        """Add a suspended session that a peer broker tells of; refuse what is none."""
        place, suspended, route_id = suspended_place(route), self._suspended, route.route_id
        if route.text.service_name != SUSPENDED_SERVICE or place.owner is None or peer.java:
            return _RESERVED_NAME
        full = len(suspended) >= self._limit
        if full and not suspended.has(route_id, peer.broker_id):
            self.refused += 1
            return TABLE_FULL
        if suspended.add(route_id, place):
            peer.kept += 1
            if self.follower is not None:
                self.follower.kept(route_id)
        self._kept(route_id, place)
        return ""

    def _remove_suspended(self, peer: PeerRoutes, route_id: bytes) -> bool:
        """Remove a suspended session; return whether the peer broker had told of one."""
        removed = self._suspended.remove(route_id, peer.broker_id)
        return self._forgotten(peer, int(removed)) > 0

    def _replace(self, peer: PeerRoutes, made: RemoteRoute, shared: RemoteKind) -> None:
        """Add a route with an id that the table knows, if it is newer than what it knows."""
        update = self._table.put(made, now=int(time.time() * 1000))
        if not update.applied:
            known = self._table.entry_of(made.route_id, peer.broker_id)
            if not isinstance(known, RemoteRoute) or known.timestamp != made.timestamp:
                return
            if known.owner == made.owner:
                self._own_since(known, made.owned_since)
                return
            update = self._table.renew(made)  # its home broker has rules now, or none any more
        if update.previous is None:
            peer.count += 1
            self.count += 1
        else:
            self._let_go(update.previous)
        self._count(peer, made, shared)
        if update.other is not None:
            self._on_elected(update.other)
        elif update.entry is made:
            self._releases.begin(made)

    def _own_since(self, entry: Entry[AnyRoute], since: int) -> None:
        """Set since when a route's owner has had it: longer than its home broker knew."""
        entry.own_since(since)
        other = self._table.elect(entry.route_id)
        if other is not None:
            self._on_elected(other)

    def _on_elected(self, other: Entry[AnyRoute]) -> None:
        """Release what waits for the route that is shown in the place of another one, now hidden.

        It may be of a third broker: one that the owner has registered later than what was told.
        """
        shown = self._table.get(other.route_id)
        if shown is not None:
            self._releases.begin(shown)
            self._on_moved(other, shown)

    def _count(self, peer: PeerRoutes, made: RemoteRoute, shared: RemoteKind) -> None:
        """Count one more route of a kind."""
        if not shared.routes:
            peer.kinds[shared] = None
        shared.routes += 1
        self._services.joined_elsewhere(shared.service)
        if self.follower is not None:
            self.follower.joined(made.kind, made.route_id)

    def _on_moved(self, entry: Entry[AnyRoute], shown: Entry[AnyRoute]) -> None:
        """Close or remove the other route of a destination that is elsewhere now."""
        # Handling ROUTE_SETUP Frames: "the Broker or Broker cluster MUST close the existing route,
        # and remove it from the table, and replace it with the information from the new
        # ROUTE_SETUP."
        if entry.kind.broker_id == self._own:
            self._beaten(entry, shown)
            return
        peer = self.of(entry)
        if peer is not None and peer.java:
            # A Java broker never says that it has gone.
            gone = RouteRemove(peer.broker_id, entry.route_id, shown.timestamp)
            self.remove(peer, gone, remember=True)

    def _refusal(self, peer: PeerRoutes, route_id: bytes, timestamp: int) -> str:
        """Return why a route with an id is refused; empty if it is not."""
        table = self._table
        if peer.java and timestamp < table.last_change(route_id):
            # It tells in no order, and does not say later that the destination has gone.
            return _OLDER
        there = table.get(route_id)
        own = there is not None and there.kind.broker_id == self._own
        if there is not None and own and not there.target.destination.link:
            return _LOCAL
        full = self.count >= self._limit
        if full and table.entry_of(route_id, peer.broker_id) is None:
            self.refused += 1
            return TABLE_FULL
        return ""

    def remove(self, peer: PeerRoutes, route: RouteRemove, *, remember: bool = False) -> bool:
        """Remove a route of a peer broker; return whether it was there.

        Args:
            peer: The peer broker.
            route: The route.
            remember: Whether what the peer broker has said of it may still come.
        """
        if self._suspended:
            self._remove_suspended(peer, route.route_id)
        update = self._table.remove(
            route.route_id,
            route.timestamp,
            broker_id=peer.broker_id,
            now=int(time.time() * 1000),
            remember=remember,
        )
        return self._gone(peer, (update,)) > 0

    def begin_round(self, peer: PeerRoutes) -> None:
        """Begin a round of a peer broker, which tells all its routes anew."""
        self._table.begin_round(peer.broker_id)
        self._suspended.begin_round(peer.broker_id)

    def sweep(self, peer: PeerRoutes, limit: int) -> int:
        """Remove what a peer broker has not told in its round; return how many."""
        removed = self._gone(peer, self._table.sweep(peer.broker_id, limit))
        if removed < limit:
            forgotten = self._suspended.sweep(peer.broker_id, limit - removed)
            removed += self._forgotten(peer, forgotten)
        return removed

    def drop(self, peer: PeerRoutes, limit: int) -> int:
        """Remove what a peer broker has told; return how many."""
        removed = self._gone(peer, self._table.drop(peer.broker_id, limit))
        if removed < limit:
            forgotten = self._suspended.drop(peer.broker_id, limit - removed)
            removed += self._forgotten(peer, forgotten)
        return removed

    def _forgotten(self, peer: PeerRoutes, suspended: int) -> int:
        """Count suspended sessions of a peer broker out that were removed; return how many."""
        peer.kept -= suspended
        if suspended and self.follower is not None:
            self.follower.kept_no_more()
        return suspended

    def _gone(self, peer: PeerRoutes, updates: Sequence[Update[AnyRoute]]) -> int:
        removed = 0
        for update in updates:
            if update.previous is not None:
                removed += 1
                self._let_go(update.previous)
                if update.entry is None:
                    self._on_gone(update.previous.route_id)
                elif update.other is not None:
                    self._releases.begin(update.entry)
                    if update.other is not update.entry:
                        self._on_moved(update.other, update.entry)
        peer.count -= removed
        self.count -= removed
        return removed

    def _let_go(self, entry: Entry[AnyRoute]) -> None:
        """Count that a route of a peer broker has left."""
        route = entry.target
        if not isinstance(route, RemoteRoute):
            raise AssertionError("an own route as one of a peer broker")  # noqa: TRY004
        shared = route.shared
        if self.follower is not None:
            self.follower.left(entry.kind, entry.route_id)
        shared.routes -= 1
        if not shared.routes:
            del shared.peer.kinds[shared]
        self._services.left_elsewhere(shared.service, route.requests)
        # What its kind has counted stays with the routes that are there.
        shared.left += route.requests
