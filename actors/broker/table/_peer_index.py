"""The destinations of peer brokers in the tag index, and requests from and to peer brokers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Final

from ....protocol import Address
from ....protocol.broker import Entry, RouteAdd, RouteKind, RouteRemove
from ....protocol.cluster import RoutePlace, is_foreign, standing
from .._exchange import Exchange
from .._instrument import part_of
from .._options import BrokerOptions
from ._choice import Candidates, next_free
from ._joining import JoiningIndex, route_add, suspended_add
from ._leaving import NOT_ALLOWED, OTHER_OWNER
from ._peers import RESERVED_SERVICES, Peers
from ._remote import AnyRoute, PeerRoutes, PeerRouteWorker, RemoteKind, own_route
from ._route import weight_of
from ._selector import Ask

__all__ = ["BEATEN", "PeerIndex"]

RULED: Final = 500
"""Most destinations that are told again before the loop does other things, as rules have come or
gone."""
BEATEN: Final = "replaced by a newer connection"


class PeerIndex(JoiningIndex):
    """A routing table with the destinations of peer brokers beside those of this one.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Attributes:
        peers: The peer brokers with routes in the table.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__(options, broker_id)
        self.peers = Peers(
            self.table,
            broker_id,
            options.max_peer_routes,
            self.services,
            self._releases,
            self.suspended_elsewhere,
            self._remote_kind,
            self._on_beaten,
            self._on_kept,
            self._expect_suspended,
        )
        # Of own destinations that other brokers have to be told of again.
        self._to_rule: deque[bytes] = deque()

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

    def others(self, ask: Ask, refused: Collection[AnyRoute]) -> list[Entry[AnyRoute]]:
        """Return the destinations that carry the tags of a query, without some of them.

        Args:
            ask: The query.
            refused: The routes to leave out. One that has registered anew since is another route.
        """
        return [each for each in self.candidates(ask) if each.target not in refused]

    def choose_among(self, found: list[Entry[AnyRoute]], exchange: Exchange | None) -> Address:
        """Choose one of some destinations for a unicast request; see `choose`."""
        at = int(self.choice.random() * len(found))
        free = next_free(tuple(found), at) if found[at].target.busy else None
        return found[at if free is None else free].target.choose(exchange)

    def divide_within(self, ask: Ask) -> tuple[Candidates, tuple[tuple[PeerRoutes, int], ...]]:
        """Return the destinations of a multicast in the own zone: those here, and peer brokers.

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

    # --- what is told -----------------------------------------------------------------------------

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

    def own_changes(self, follow: Callable[[RouteAdd | RouteRemove], object]) -> Callable[[], None]:
        """Call a function with each change of an own destination, and first with those there are.

        Workers of reserved services are none of them. With rules a suspended session is told by a
        ROUTE_ADD of `SUSPENDED_SERVICE`.

        Args:
            follow: Called with a ROUTE_ADD or a ROUTE_REMOVE, in order.

        Returns:
            The function that ends this.
        """
        for entry in self.own_entries():
            if not entry.service_name.startswith(RESERVED_SERVICES):
                follow(route_add(entry))
        for entry in self.suspended.values() if self.ruled else ():
            if not entry.service_name.startswith(RESERVED_SERVICES):
                self._told_suspended.add(entry.route_id)
                follow(suspended_add(entry))
        self._followers.append(follow)
        return lambda: self._unfollow(follow)

    @property
    def followed(self) -> bool:
        """Whether changes of own destinations are followed, as other brokers are told them."""
        return bool(self._followers)

    def _unfollow(self, follow: Callable[[RouteAdd | RouteRemove], object]) -> None:
        if follow in self._followers:
            self._followers.remove(follow)

    def rule(self, *, ruled: bool) -> None:
        """Set whether the broker has rules.

        Other brokers are told again of all own destinations, with their owners if it has some, and
        of all suspended sessions, of none otherwise. What is known of their route ids is compared
        anew. That is done in slices, soon.
        """
        if ruled == self.ruled:
            return
        self.ruled = ruled
        idle = not self._to_rule
        own = [entry.route_id for entry in self.own_entries()]
        self._to_rule = deque((*own, *self.suspended))
        if self._follower is not None:
            self._follower.kept_no_more()  # those of other brokers count from now on, or no more
        if idle and self._to_rule:
            self.after(0.0, self._rule_some)

    def _rule_some(self) -> None:
        """Announce a slice of destinations to other brokers again, by the rules of now."""
        for _ in range(min(RULED, len(self._to_rule))):
            self._rule_one(self._to_rule.popleft())
        if self._to_rule:
            self.after(0.0, self._rule_some)

    def _rule_one(self, route_id: bytes) -> None:
        """Announce one destination again, and compare what is known of its route id."""
        suspended = self.suspended.get(route_id)
        entry = self.table.entry_of(route_id, self._broker_id)
        if suspended is not None:
            if self.ruled:
                self._tell_suspended(suspended)
            else:
                self._forget_told(route_id, told=True)
        elif entry is not None and not entry.service_name.startswith(RESERVED_SERVICES):
            self._follow(route_add(entry))
        mine = self.own_place(route_id)
        others = [each for each in self.places_of(route_id) if each.broker_id != self._broker_id]
        if mine is None or not others:
            return
        if self.table.elect(route_id) is not None:
            self._releases.begin(self.table.entries_of(route_id)[0])
        stays = standing((mine, *others))
        if stays is mine:
            return
        if entry is not None:
            self.end_beaten(entry, foreign=is_foreign(mine, stays))
        elif suspended is not None:
            self.end_suspended(suspended, foreign=is_foreign(mine, stays))

    def prefer_own(self, *, prefer: bool) -> None:
        """Set whether `choose` prefers destinations of this broker as long as they keep up.

        Otherwise those of all brokers are alike. Shard requests and sticky keys that have a
        destination are not concerned.
        """
        self.table.prefer(self._broker_id if prefer else None)

    # --- their destinations -----------------------------------------------------------------------

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

        An own destination with the same id is closed, unless it is the one that stays.

        Returns:
            Why the route is refused, in a few fixed words; empty if it is not.
        """
        table, route_id = self.table, route.route_id
        if route_id not in table.ids and not self.suspended:
            return self.peers.add(peer, route)
        expected = table.is_expected(route_id)
        refused = self.peers.add(peer, route)
        if expected and not table.is_expected(route_id):
            self.expectations.came()
        entry = table.entry_of(route_id, peer.broker_id)
        if not refused and entry is not None:
            self._compare_suspended(route_id, self.place_of(entry))
        return refused

    def _compare_suspended(self, route_id: bytes, place: RoutePlace) -> None:
        """End the suspended session of a route id, if it is registered elsewhere and that stays."""
        suspended = self.suspended.get(route_id)
        if suspended is None:
            return
        mine = self.place_of(suspended)
        if standing((mine, place)) is place:
            self.end_suspended(suspended, foreign=is_foreign(mine, place))

    def end_suspended(self, entry: Entry[AnyRoute], *, foreign: bool) -> None:
        """End a suspended session, as its route id is registered elsewhere.

        Args:
            entry: The destination.
            foreign: Whether it belongs to another principal there, which has had the id first.
        """
        self._forget_suspended(entry.route_id, told=True)
        self._end(entry, foreign=foreign)  # it was recorded that it has left

    def own_route(self, route_id: bytes) -> Entry[AnyRoute] | None:
        """Return the connection of this broker that has a route id, if it is one."""
        entry = self.table.entry_of(route_id, self._broker_id)
        return entry if entry is not None and own_route(entry).destination.link else None

    def _on_kept(self, route_id: bytes, place: RoutePlace) -> None:
        """Compare a suspended session that a peer broker has told of with own destinations."""
        entry = self.table.entry_of(route_id, self._broker_id)
        if entry is not None:
            mine = self.place_of(entry)
            if standing((mine, place)) is place:
                self.end_beaten(entry, foreign=is_foreign(mine, place))
        self._compare_suspended(route_id, place)

    def room_for(self, peer: PeerRoutes) -> int:
        """Return how many more routes a peer broker may tell, and as many suspended sessions."""
        del peer  # they share the room
        most = max(self.peers.count, len(self.suspended_elsewhere))
        return max(0, self._options.max_peer_routes - most)

    def most_of(self, peer: PeerRoutes) -> int:
        """Return how many routes a peer broker may tell if no other has told any."""
        del peer
        return self._options.max_peer_routes

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
        self.peers.begin_round(peer)

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
        weight: str | None = None
        for key, value in kind.tags:
            if key == self._weight_key:
                weight = value
                break
        made = RemoteKind(peer, kind, self.services.of(kind.service_name), weight_of(weight))
        if kind.shared is not None:
            made.follow(kind.shared)  # of routes that have left
        return made

    def _on_beaten(self, entry: Entry[AnyRoute], other: Entry[AnyRoute]) -> None:
        """Close an own destination, as that of a peer broker stays."""
        self.end_beaten(entry, foreign=is_foreign(self.place_of(entry), self.place_of(other)))

    def end_beaten(self, entry: Entry[AnyRoute], by: int = 0, *, foreign: bool = False) -> None:
        """Close an own destination, as the one with its route id at another broker stays.

        Args:
            entry: The destination.
            by: The timestamp of the other one, if it is in no table and the newer one.
            foreign: Whether the other one belongs to another principal, which has had the id first.
        """
        self._discard(entry, by)
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.left(entry, OTHER_OWNER if foreign else BEATEN)
        self._end(entry, foreign=foreign)

    def _end(self, entry: Entry[AnyRoute], *, foreign: bool) -> None:
        """Notify watchers why a destination has left, and close its connection."""
        if foreign:
            self._tell("left", entry, OTHER_OWNER)
            self._let_go(entry, NOT_ALLOWED)
        else:
            self._leave(entry, BEATEN)
