"""A broker of a simulated cluster of several zones: gateway links, groups, filters, duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Final

from onward.protocol.broker import Entry, RouteAdd, RouteRemove, RoutingTable, TagList, Update
from onward.protocol.cluster import (
    AskLater,
    Beaten,
    DuplicateRequest,
    DuplicateSearch,
    Earlier,
    Element,
    ElementKind,
    FilterFeed,
    FilterLog,
    Linked,
    LinkRole,
    PeerInfo,
    PresenceState,
    RouteGroups,
    RouteLog,
    RoutePlace,
    ZoneFilter,
    answer_places,
)
from tests.simulated.cluster_broker import (
    CREDIT,
    QUERY,
    RETRIES,
    SERVICE,
    Broker,
    Client,
    Connection,
    Peer,
    Request,
)
from tests.simulated.cluster_network import Wire

MOST_HOPS: Final = 2
TO_ZONE, FROM_ZONE = LinkRole.TO_ZONE, LinkRole.FROM_ZONE


@dataclass(eq=False, slots=True)
class Gate(Peer):
    """A broker of another zone, as the one end of a gateway link keeps it.

    Attributes:
        role: Which end this is.
        zone: The other zone.
        filter: The filter of that zone.
        follows: The number of its stream that was asked for.
        followed: The number of the stream that is fed to the other end.
        filter_feed: That stream.
        filter_credit: Its credit.
        searched: The request for the places of own routes that is under way over the link.
    """

    role: LinkRole = TO_ZONE
    zone: str = ""
    filter: ZoneFilter | None = None
    follows: int = 0
    followed: int = 0
    filter_feed: FilterFeed | None = None
    filter_credit: int = 0
    searched: DuplicateRequest | None = None


class ZoneBroker(Broker):
    """One process of a broker that has a zone."""

    Groups: ClassVar[type[RouteGroups]] = RouteGroups
    Filter: ClassVar[type[FilterLog]] = FilterLog
    Search: ClassVar[type[DuplicateSearch]] = DuplicateSearch

    def __init__(self, *arguments: Any, **more: Any) -> None:
        # Used before the time when the broker is made.
        self.gates: dict[tuple[bytes, LinkRole], Gate] = {}
        self.zone: str = more["zone"]
        self._ready = False
        super().__init__(*arguments, **more)
        instance = self.membership.own.instance
        self.groups_log = RouteLog(self.id, instance, self.limits)
        self.groups = self.Groups(self.zone, self.groups_log, without=("client",))
        self.filter_log = self.Filter(
            self.id, instance, lambda: self.network.draw.randbytes(16), self.limits
        )
        self.zone_table = RoutingTable["Connection | None"]()
        self.search = self.Search(self.limits)
        # The routes of the zone that were counted: service, tags and timestamp.
        self.counted: dict[bytes, tuple[str, TagList, int, bytes]] = {}
        self._zone_at = -inf
        self._groups_fed = 0
        self._ready = True
        self.poke()

    def tags_of(self, client: Client) -> TagList:
        number = int.from_bytes(client.route_id)
        return ((6, ("eu", "us", "as")[number % 3]), ("client", client.route_id.hex()))

    # --- the routes of the zone -----------------------------------------------------------------

    def observe(self, route_id: bytes) -> None:
        """Count what has changed of a route of the zone, for others."""
        entry, before = self.table.get(route_id), self.counted.pop(route_id, None)
        if entry is not None:
            now = (SERVICE, entry.tags, entry.timestamp, entry.broker_id)
            self.counted[route_id] = now
            if now == before:
                return
            self.groups.joined(SERVICE, entry.tags)
            self.joined_zone(route_id, entry)
        if before is not None:
            self.left_group(before)
            self.filter_log.left()
        self._zone_at = -inf

    def joined_zone(self, route_id: bytes, entry: Entry[Connection | None]) -> None:
        self.filter_log.joined(route_id)

    def left_group(self, before: tuple[str, TagList, int, bytes]) -> None:
        self.groups.left(before[0], before[1])

    def add_remote(self, peer: Peer, route: RouteAdd) -> None:
        if isinstance(peer, Gate):
            # Two gateways of one zone tell the same groups: each has its own in the table.
            super().add_remote(peer, replace(route, route_id=number_of(route)))
        else:
            super().add_remote(peer, route)
            self.observe(route.route_id)

    def remove_remote(self, peer: Peer, route: RouteRemove) -> None:
        if isinstance(peer, Gate):
            super().remove_remote(peer, replace(route, route_id=number_of(route)))
        else:
            super().remove_remote(peer, route)
            self.observe(route.route_id)

    def table_for(self, peer: Peer) -> RoutingTable[Connection | None]:
        return self.zone_table if isinstance(peer, Gate) else self.table

    def lost_routes(self, peer: Peer, removed: Sequence[Update[Connection | None]]) -> None:
        super().lost_routes(peer, removed)
        for update in () if isinstance(peer, Gate) else removed:
            if update.previous is not None:
                self.observe(update.previous.route_id)

    def register(self, client: Client) -> Connection:
        connection = super().register(client)
        self.observe(client.route_id)
        for gate in self.gates.values():
            if gate.filter is not None and gate.filter.may_have(client.route_id):
                self.search.suspect(gate.zone, [client.route_id])
        self.poke()
        return connection

    def close(self, connection: Connection) -> None:
        super().close(connection)
        self.observe(connection.client.route_id)
        if self.alive:
            self.poke()

    # --- links ----------------------------------------------------------------------------------

    def linked(self, wire: Wire, info: PeerInfo, found: Linked) -> None:
        if found.role is LinkRole.MESH:
            super().linked(wire, info, found)
            return
        now = self.network.clock.now
        key = info.broker_id, found.role
        gate = self.gates.get(key)
        if gate is None:
            gate = self.gates[key] = Gate(
                info.broker_id,
                self.Presence(self.limits, now),
                self.Subscription(info.broker_id, self.limits),
                info,
                role=found.role,
                zone=info.zone,
            )
        old: Wire | None = found.replaces
        if old is not None:
            before = self._peer_of(old)
            old.close(self, "replaced")
            if before is not None:
                self._unlink(before, "replaced")
        gate.wire, gate.info, gate.feed, gate.filter_feed = wire, info, None, None
        wire.peers[wire.side(self)] = gate
        if gate.role is TO_ZONE:
            self.on_linked(gate)
            gate.filter = gate.filter or ZoneFilter(gate.broker_id, self.limits)
            gate.filter.lost()
            gate.follows += 1
            self._send(gate, "follow", gate.follows)

    def _unlink(self, peer: Peer, reason: str) -> None:
        peer.wire = peer.feed = None
        if not isinstance(peer, Gate):
            raise AssertionError("a mesh link is replaced by one with the same broker")
        peer.filter_feed = None
        if peer.role is TO_ZONE:
            peer.subscription.lost(self.network.clock.now)
            super().on_lost(peer, reason)
            self._cancel(peer)
            if peer.filter is not None:
                peer.filter.lost()
            asked, peer.searched = peer.searched, None
            if asked is not None:
                self.search.failed(asked)
            if not self._has_other(peer):
                self.search.forget(peer.zone)

    def _has_other(self, gate: Gate) -> bool:
        """Whether there is a link with another broker of a zone."""
        return any(
            each.zone == gate.zone and each.role is TO_ZONE and each.wire is not None
            for each in self.gates.values()
            if each is not gate
        )

    def on_lost(self, peer: Peer, reason: str) -> None:
        if isinstance(peer, Gate):
            self._unlink(peer, reason)
        else:
            super().on_lost(peer, reason)

    def _cancel(self, peer: Peer) -> None:
        if not isinstance(peer, Gate) or peer.role is TO_ZONE:
            super()._cancel(peer)

    def peer_for(self, broker_id: bytes) -> Peer:
        gates = (self.gates.get((broker_id, role)) for role in (TO_ZONE, FROM_ZONE))
        found = [peer for peer in (self.peers.get(broker_id), *gates) if peer is not None]
        return next((peer for peer in found if peer.wire is not None), found[0])

    # --- time -----------------------------------------------------------------------------------

    def poke(self) -> None:
        if self._ready:
            super().poke()
            self._zone_at = -inf
            self._zone_turn()

    def receive(self, wire: Wire, message: Any) -> None:
        super().receive(wire, message)
        if self.alive and self._zone_at <= self.network.clock.now:
            self._zone_turn()

    def _zone_turn(self) -> None:
        """Do for other zones what is to be done now."""
        now = self.network.clock.now
        self.groups.due(now, self.clock())
        while self.filter_log.get_timer() <= now:
            self.make_filter(now)
        at = min(self.groups.get_timer(), self.filter_log.get_timer())
        log = self.groups_log
        changed, self._groups_fed = log.sequence != self._groups_fed, log.sequence
        for gate in self.gates.values():
            at = min(at, self._serve(gate, changed=changed))
        self._zone_at = at
        self._schedule_at(at)

    def make_filter(self, now: float) -> None:
        ids = self.filtered()
        self.filter_log.begin(len(ids))
        self.filter_log.add(ids)
        self.filter_log.finish(now)

    def filtered(self) -> list[bytes]:
        """Return the route ids that a filter has to have."""
        return [entry.route_id for entry in self.table]

    def own_ids(self) -> list[bytes]:
        """Return the route ids that other zones are asked for."""
        return list(self.own)

    def _timer_of(self, peer: Peer) -> float:
        at = super()._timer_of(peer)
        if isinstance(peer, Gate) and peer.filter_feed is not None and peer.filter_credit:
            at = min(at, peer.filter_feed.get_timer())
        return at

    def _serve(self, peer: Peer, *, changed: bool) -> float:
        if isinstance(peer, Gate) and peer.role is TO_ZONE and peer.wire is not None:
            request = self.search.next(peer.zone, self.salt())
            if request is not None:
                peer.searched = request
                self._send(peer, "places", request.data)
        return super()._serve(peer, changed=changed)

    def _pump(self, peer: Peer) -> None:
        super()._pump(peer)
        if not isinstance(peer, Gate):
            return
        while peer.filter_feed is not None and peer.filter_credit:
            data = peer.filter_feed.next(self.network.clock.now)
            if data is None:
                break
            peer.filter_credit -= 1
            self._send(peer, "filter", peer.followed, data)

    # --- streams between zones ------------------------------------------------------------------

    def log_for(self, peer: Peer) -> RouteLog:
        return self.groups_log if isinstance(peer, Gate) else self.log

    def on_follow(self, peer: Peer, number: int) -> None:
        assert isinstance(peer, Gate)
        peer.filter_feed = FilterFeed(self.filter_log)
        peer.followed, peer.filter_credit = number, CREDIT

    def on_taken(self, peer: Peer, number: int) -> None:
        assert isinstance(peer, Gate)
        if number == peer.followed:
            peer.filter_credit += 1

    def on_filter(self, peer: Peer, number: int, data: bytes) -> None:
        assert isinstance(peer, Gate)
        if number != peer.follows or peer.filter is None:
            return
        now = self.network.clock.now
        news = peer.filter.receive(Element.parse(data), now)
        known = peer.filter.may_have
        own = self.own_ids()
        found = [route_id for route_id in own if route_id in news.ids]
        if news.unnamed:
            found += [route_id for route_id in own if known(route_id)]
        self.search.suspect(peer.zone, found)
        if peer.wire is not None:
            self.network.clock.at(now + self.slow, self._take, peer, peer.wire, number)

    def _take(self, gate: Gate, wire: Wire, number: int) -> None:
        if gate.wire is wire and number == gate.follows and self.alive:
            wire.send(self, ("taken", number))

    # --- routes in two zones --------------------------------------------------------------------

    def salt(self) -> bytes:
        """Return the salt of a request for owners; it is empty without rules."""
        return b""

    def on_places(self, peer: Peer, data: bytes) -> None:
        self._send(peer, "placed", answer_places(data, self._place_of))

    def _place_of(self, route_id: bytes) -> RoutePlace | None:
        entry = self.table.get(route_id)
        return None if entry is None else RoutePlace(entry.timestamp, entry.broker_id)

    def _own_place(self, route_id: bytes) -> RoutePlace | None:
        connection = self.own.get(route_id)
        return None if connection is None else RoutePlace(connection.timestamp, self.id)

    def on_placed(self, peer: Peer, data: bytes) -> None:
        assert isinstance(peer, Gate)
        asked, peer.searched = peer.searched, None
        assert asked is not None
        now = self.network.clock.now
        for each in self.search.answered(asked, data, self._own_place, self.clock(), now):
            if isinstance(each, Earlier):
                self.owned_before(each)
            elif isinstance(each, AskLater):
                self.network.clock.at(now + each.after, self._ask_again, peer, peer.wire, each)
            else:
                self.network.counts["replaced in another zone"] += 1
                self.end_beaten(each)

    def _ask_again(self, gate: Gate, wire: Wire | None, what: AskLater) -> None:
        """Ask a zone once more, unless its only link is a new one: all is looked up anew then."""
        kept = gate.wire is wire and wire is not None
        if (kept or self._has_other(gate)) and self.alive:
            self.search.suspect(gate.zone, (what.route_id,), what.times)
            self.poke()

    def owned_before(self, earlier: Earlier) -> None:
        """Know that an owner has had its route id in another zone before."""
        raise AssertionError("an owner without rules")

    def end_beaten(self, beaten: Beaten) -> None:
        self.close(self.own[beaten.route_id])
        self.remember(beaten)

    def remember(self, beaten: Beaten) -> None:
        """See to it that the next registration is newer than the one that has won."""
        self.table.remove(
            beaten.route_id, beaten.place.timestamp, broker_id=self.id, now=self.clock()
        )

    # --- requests -------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        if not request.multicast:
            super().request(request)
            return
        self.multicast(request, zones=True)

    def multicast(self, request: Request, *, zones: bool) -> None:
        """Send a request to all of the zone, and if it is a client's to other zones."""
        found = self.table.candidates(QUERY)
        homes = dict.fromkeys(entry.broker_id for entry in found if entry.broker_id != self.id)
        request.legs += 1
        self._deliver_all(request, found)
        for home in homes:
            request.legs += 1
            self._forward(request, self.peers[home], None)
        for gate in self.zones_with_group().values() if zones else ():
            request.legs += 1
            self._forward(request, gate, None)
        self._ended(request, "done")

    def zones_with_group(self) -> dict[str, Gate]:
        """Return the zones that have a group that matches, each with its gateway."""
        found: dict[str, Gate] = {}
        for entry in self.zone_table.candidates(QUERY):
            gate = self.gates[entry.broker_id, TO_ZONE]
            if gate.wire is None:
                self.watcher.violation("a group of a zone without a link was chosen")
            found.setdefault(gate.zone, gate)
        return found

    def no_route(self, request: Request) -> None:
        """Try other zones, if the request is a client's."""
        if request.parent is not None:
            super().no_route(request)
            return
        if request.route_id is None:
            zones = self.zones_with_group()
        else:
            zones = {
                gate.zone: gate
                for gate in self.gates.values()
                if gate.wire is not None
                and gate.filter is not None
                and gate.filter.may_have(request.route_id)
            }
        left = [gate for zone, gate in zones.items() if zone not in request.tried]
        if not left or request.tries > RETRIES:
            super().no_route(request)
            return
        gate = self.network.draw.choice(left)
        request.tried.add(gate.zone)
        request.legs += 1
        self._forward(request, gate, request.route_id)

    def on_request(
        self, peer: Peer, request: Request, route_id: bytes | None, via: tuple[bytes, ...]
    ) -> None:
        if self.id in via or len(via) > MOST_HOPS:
            self.watcher.violation("a request has passed too many brokers")
        elif not isinstance(peer, Gate):
            self.serve(peer, request, route_id, via)
        elif peer.role is TO_ZONE or len(via) != 1:
            self.watcher.violation("a request came by a link that is not for it")
        else:
            self.serve_zone(peer, request, route_id, via)

    def serve_zone(
        self, gate: Gate, request: Request, route_id: bytes | None, via: tuple[bytes, ...]
    ) -> None:
        """Be the first broker of this zone for a request of another one."""
        inside = Request(request.number, request.multicast, route_id, via=via)
        inside.parent = gate, gate.wire, request
        if request.multicast:
            self.multicast(inside, zones=False)
        else:
            self._unicast(inside, list(self.table.candidates(QUERY)))

    def finish(self, request: Request, outcome: str) -> None:
        super().finish(request, outcome)
        if request.parent is not None:
            gate, wire, asked = request.parent
            if gate.wire is wire and self.alive:
                self._send(gate, "answer", asked, outcome, asked.route_id)

    def on_answer(self, peer: Peer, request: Request, outcome: str, route_id: bytes | None) -> None:
        # Within the zone, a request is known by the one that waits for it.
        inside = self.requests.get((request.number, peer.broker_id), request)
        super().on_answer(peer, inside, outcome, route_id)

    # --- what is shown --------------------------------------------------------------------------

    @property
    def shown_gates(self) -> set[bytes]:
        """The brokers of other zones the groups of which are used."""
        used = (PresenceState.JOINING, PresenceState.UP)
        return {
            gate.broker_id
            for gate in self.gates.values()
            if gate.role is TO_ZONE and gate.presence.state in used
        }

    def _count(self, peer: Peer, element: Element) -> None:
        if not isinstance(peer, Gate):
            super()._count(peer, element)
        elif element.kind is ElementKind.MARK:
            self.network.counts["elements: mark"] += 1
        else:
            self.network.counts[f"groups: {element.kind.name.lower()}"] += 1


def number_of(route: RouteAdd | RouteRemove) -> bytes:
    """Return the id of a group in the table."""
    return (int.from_bytes(route.route_id) ^ int.from_bytes(route.broker_id)).to_bytes(16)
