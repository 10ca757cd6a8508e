"""Two zones with rules in virtual time: a route id stays with the principal that has had it first.

Each destination of `zones` is a principal of its own here, and for each there is another principal
that tries to get its route id, at any broker and at any time, with all the trouble of `clusters`.
A principal that is refused tries again; one that loses its connection to an earlier one gives up,
but for a last attempt. Connections are lost with and without a suspended session; a session is
resumed, given up, or its principal connects anew at any broker. When everything is healed,

1. one of both has a connection, and one only, if any of them wants it;
2. the owner has it once the other has left, and all that is promised of `zones` holds;
3. then an owner keeps its route id while the other principal tries to take it: in the other zone as
   it connects anew, in both zones while its session is suspended, and in its own zone while the two
   brokers are cut off from each other. It is known everywhere since when it has had it, also when
   it has moved to the other zone.

The rule of owners is that of `protocol.cluster`. There are two zones: of three that know of each
other too late, each may beat another one in a circle, until one of the principals connects again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from onward.protocol.broker import (
    Entry,
    RouteAdd,
    RouteRemove,
    RoutingTable,
    Update,
    split_owner,
    with_owner,
)
from onward.protocol.cluster import (
    SUSPENDED_SERVICE,
    Beaten,
    DuplicateSearch,
    Earlier,
    PresenceAction,
    RoundBegan,
    RoutePlace,
    SubscriptionEvent,
    SuspendedPlaces,
    answer_owned_places,
    inherited,
    is_foreign,
    may_take,
    standing,
    suspended_place,
    zone_ids,
)
from tests.simulated.cluster_broker import Broker, Client, Connection, Peer
from tests.simulated.cluster_network import LIFETIME
from tests.simulated.clusters import Destination, Outcome, drive
from tests.simulated.zone_broker import Gate, ZoneBroker
from tests.simulated.zones import FILTER_EVERY, ZonePlan, ZoneWorld, draw_zone_plan, to_zones

CLIENTS: Final = 12
AGAIN: Final = 40.0
"""Time after which a principal gets an id that is free, in seconds: longer than a route is held."""
SESSION: Final = 80.0
"""Time after which a suspended session is given up at the latest, in seconds."""


class Principal(Destination):
    """A destination with a principal of its own.

    Attributes:
        owner: Its principal.
        interested: Whether it is to have a connection, be it that it has given up.
        session: Its suspended session, as far as it knows.
    """

    def __init__(self, world: OwnedWorld, number: int, owner: str) -> None:
        super().__init__(world, number)
        self.owner = owner
        self.interested = False
        self.session: Connection | None = None

    def connect(self) -> None:
        super().connect()
        if self.connection is not None:
            self.session = None
            if not self.connection.open:
                self.connection = None
                self.later()

    def come(self) -> None:
        self.wanted = True
        self.connect()

    def give_up(self) -> None:
        """See that another principal has had the route id first."""
        self.interested, self.wanted = True, False

    def suspend(self) -> None:
        """Lose the connection, and keep the session."""
        connection = self.connection
        if connection is not None and isinstance(connection.broker, OwnedBroker):
            self.connection, self.session = None, connection
            connection.broker.suspend(connection)

    def resume(self) -> None:
        """Resume the session, or connect anew if it is gone."""
        session, self.session = self.session, None
        if session is None or self.connection is not None or not self.wanted:
            return
        broker = session.broker
        assert isinstance(broker, OwnedBroker)
        self.connection = broker.resume(session)
        if self.connection is None:
            self.connect()

    def expire(self) -> None:
        """See the session given up, as nothing has come of it.

        A principal that does not come back has no other connection either: one that its broker has
        not noticed yet, as it hung when the principal went elsewhere, ends by its lifetime.
        """
        session = self.session
        if session is not None and isinstance(session.broker, OwnedBroker):
            session.broker.expire(session)
        if not self.wanted:
            self.leave()


class OwnedBroker(ZoneBroker):
    """One process of a broker that has a zone, and rules."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        # By home broker and route id: the owner, and since when it has had the id.
        self.owners: dict[tuple[bytes, bytes], tuple[str | None, int]] = {}
        self.suspended: dict[bytes, Connection] = {}
        self.kept = SuspendedPlaces()
        super().__init__(*arguments, **more)

    def make_table(self) -> RoutingTable[Connection | None]:
        return RoutingTable(best=self.best_of)

    # --- the rule of owners ---------------------------------------------------------------------

    def inherited(self, places: list[RoutePlace], owner: str) -> int:
        return inherited(places, owner)

    def standing(self, places: Sequence[RoutePlace]) -> RoutePlace:
        return standing(places)

    def place_of(self, entry: Entry[Connection | None]) -> RoutePlace:
        known = self.owners[entry.broker_id, entry.route_id]
        return RoutePlace(entry.timestamp, entry.broker_id, *known)

    def best_of(self, entries: Sequence[Entry[Connection | None]]) -> Entry[Connection | None]:
        places = [self.place_of(entry) for entry in entries]
        return entries[places.index(self.standing(places))]

    def places_of(self, route_id: bytes) -> list[RoutePlace]:
        places = [*map(self.place_of, self.table.entries_of(route_id)), *self.kept.of(route_id)]
        suspended = self.suspended.get(route_id)
        return places if suspended is None else [*places, self.own_place(suspended)]

    def next_timestamp(self, route_id: bytes) -> int:
        latest = max((place.timestamp for place in self.kept.of(route_id)), default=0)
        return self.table.next_timestamp(route_id, max(self.clock(), latest + 1))

    def own_place(self, connection: Connection) -> RoutePlace:
        known = self.owners[self.id, connection.client.route_id]
        return RoutePlace(connection.timestamp, self.id, *known)

    def ends_for(self, connection: Connection, place: RoutePlace) -> bool:
        """End an own connection or session if another place of its id stays; return whether."""
        mine = self.own_place(connection)
        if self.standing((mine, place)) is not place:
            return False
        self.end(connection, foreign=is_foreign(mine, place))
        return True

    def end(self, connection: Connection, *, foreign: bool) -> None:
        client = connection.client
        if foreign and isinstance(client, Principal):
            self.network.counts["closed for the first owner"] += 1
            client.give_up()
        if self.suspended.get(client.route_id) is connection:
            self.expire(connection)
        else:
            self.close(connection)

    # --- own destinations -----------------------------------------------------------------------

    def register(self, client: Client) -> Connection:
        """Register a destination; the connection is closed if its principal is refused."""
        assert isinstance(client, Principal)
        route_id, owner, now = client.route_id, client.owner, self.network.clock.now
        places = self.places_of(route_id)
        taken = not inherited(places, owner) and self.search.is_taken(route_id, owner, now)
        if taken:
            self.search.ask_again(route_id, now)
            self.poke()
        if taken or not may_take(places, owner):
            self.network.counts["principals refused"] += 1
            return Connection(client, self, open=False)
        self.owners[self.id, route_id] = owner, self.inherited(places, owner)
        suspended = self.suspended.pop(route_id, None)
        if suspended is not None:
            suspended.open = False
        return super().register(client)

    def suspend(self, connection: Connection) -> None:
        """Hide a destination, as its connection is lost; its session can be resumed."""
        route_id = connection.client.route_id
        if self.own.get(route_id) is not connection or connection.entry is None:
            return
        self.network.counts["sessions suspended"] += 1
        del self.own[route_id]
        self._gone(connection)
        timestamp = self.table.next_timestamp(route_id, self.clock())
        self.table.discard(connection.entry, now=self.clock())
        super().tell(RouteRemove(self.id, route_id, timestamp))
        self.suspended[route_id] = connection
        self.tell_suspended(connection)
        self.network.clock.at(self.network.clock.now + SESSION, self.expire, connection)
        self.observe(route_id)
        self.poke()

    def tell_suspended(self, connection: Connection) -> None:
        route_id = connection.client.route_id
        self.tell(RouteAdd(self.id, route_id, connection.timestamp, SUSPENDED_SERVICE))
        self.filter_log.joined(route_id)

    def resume(self, connection: Connection) -> Connection | None:
        """Show a destination again; return `None` if its session is gone."""
        client = connection.client
        route_id = client.route_id
        if not self.alive or self.suspended.get(route_id) is not connection:
            return None
        self.network.counts["sessions resumed"] += 1
        place = self.own_place(connection)
        self.owners[self.id, route_id] = place.owner, place.claim[0]
        del self.suspended[route_id]
        connection.open = False
        return super().register(client)

    def expire(self, connection: Connection) -> None:
        """Give a suspended session up."""
        route_id = connection.client.route_id
        if self.suspended.get(route_id) is connection:
            del self.suspended[route_id]
            connection.open = False
            self.tell_expired(route_id)
            self.poke()

    def tell_expired(self, route_id: bytes) -> None:
        timestamp = self.table.next_timestamp(route_id, self.clock())
        self.tell(RouteRemove(self.id, route_id, timestamp))
        self.filter_log.left()

    def close(self, connection: Connection) -> None:
        if self.suspended.get(connection.client.route_id) is connection:
            self.expire(connection)
        else:
            super().close(connection)

    def crash(self, *, silently: bool) -> None:
        self.suspended.clear()
        super().crash(silently=silently)

    # --- what peer brokers tell -----------------------------------------------------------------

    def tell(self, change: RouteAdd | RouteRemove) -> None:
        if isinstance(change, RouteAdd):
            owner, since = self.owners[self.id, change.route_id]
            change = with_owner(change, owner or "", since)
        super().tell(change)

    def add_remote(self, peer: Peer, route: RouteAdd) -> None:
        if isinstance(peer, Gate):
            super().add_remote(peer, route)
            return
        route_id, home = route.route_id, peer.broker_id
        if route.service_name == SUSPENDED_SERVICE:
            place = suspended_place(route)
            self.kept.add(route_id, place)
            self.filter_log.joined(route_id)
            if route_id in self.own:
                self.ends_for(self.own[route_id], place)
        else:
            owner, since, tags = split_owner(route.tags)
            self.owners[home, route_id] = owner, since
            self.kept.remove(route_id, home)
            super().add_remote(peer, replace(route, tags=tags))
            # It may be known already, and only the time be an earlier one.
            before = self.table.elect(route_id)
            if before is not None:
                self.beaten(Update(True, self.table.get(route_id), None, before))
            place = RoutePlace(route.timestamp, home, owner, since)
        if route_id in self.suspended:
            self.ends_for(self.suspended[route_id], place)

    def remove_remote(self, peer: Peer, route: RouteRemove) -> None:
        if not isinstance(peer, Gate) and self.kept.remove(route.route_id, peer.broker_id):
            self.filter_log.left()
        super().remove_remote(peer, route)

    def apply(self, peer: Peer, event: SubscriptionEvent) -> None:
        if isinstance(event, RoundBegan) and not isinstance(peer, Gate):
            self.kept.begin_round(peer.broker_id)
        super().apply(peer, event)

    def sweep(self, peer: Peer) -> None:
        super().sweep(peer)
        while not isinstance(peer, Gate) and self.kept.sweep(peer.broker_id, 100):
            self.filter_log.left()

    def act(self, peer: Peer, actions: tuple[PresenceAction, ...]) -> None:
        super().act(peer, actions)
        if PresenceAction.DROP in actions and not isinstance(peer, Gate):
            while self.kept.drop(peer.broker_id, 100):
                self.filter_log.left()

    def beaten(self, update: Update[Connection | None]) -> None:
        other, entry = update.other, update.entry
        if other is entry:
            return  # it was hidden before
        if other is not None and entry is not None and other.target is not None:
            foreign = is_foreign(self.place_of(other), self.place_of(entry))
            self.network.counts["replaced by a newer connection"] += not foreign
            self.end(other.target, foreign=foreign)

    # --- other zones ----------------------------------------------------------------------------

    def filtered(self) -> list[bytes]:
        return zone_ids(super().filtered(), self.suspended, self.kept)

    def own_ids(self) -> list[bytes]:
        return [*super().own_ids(), *self.suspended]

    def salt(self) -> bytes:
        return self.network.draw.randbytes(16)

    def on_places(self, peer: Peer, data: bytes) -> None:
        self._send(peer, "placed", answer_owned_places(data, self._place_of, self.salt()))

    def _place_of(self, route_id: bytes) -> RoutePlace | None:
        places = self.places_of(route_id)
        return self.standing(places) if places else None

    def _own_place(self, route_id: bytes) -> RoutePlace | None:
        connection = self.own.get(route_id) or self.suspended.get(route_id)
        return None if connection is None else self.own_place(connection)

    def end_beaten(self, beaten: Beaten) -> None:
        connection = self.own.get(beaten.route_id) or self.suspended[beaten.route_id]
        self.end(connection, foreign=beaten.foreign)
        if not beaten.foreign:
            self.remember(beaten)

    def owned_before(self, earlier: Earlier) -> None:
        route_id = earlier.route_id
        connection = self.own.get(route_id) or self.suspended[route_id]
        self.owners[self.id, route_id] = self.owners[self.id, route_id][0], earlier.since
        self.network.counts["owned before in another zone"] += 1
        if connection.entry is not None and route_id in self.own:
            entry = connection.entry
            self.tell(RouteAdd(self.id, route_id, entry.timestamp, entry.service_name, entry.tags))
        else:
            self.tell_suspended(connection)
        self.poke()


class OwnedWorld(ZoneWorld):
    """A world of two zones in which each destination has a rival for its route id."""

    HONEST: ClassVar[type[Broker]] = OwnedBroker

    def __init__(self, plan: ZonePlan, seed: int, kind: type[Broker] = OwnedBroker) -> None:
        super().__init__(plan, seed, kind)
        self.owners = [Principal(self, number, "owner") for number in range(plan.clients)]
        self.rivals = [Principal(self, number, "rival") for number in range(plan.clients)]
        self.clients = [*self.owners]

    def everyone(self) -> list[Principal]:
        return [*self.owners, *self.rivals]

    def owned(self) -> list[OwnedBroker]:
        return [broker for broker in self.living() if isinstance(broker, OwnedBroker)]

    def happen(self) -> None:
        chance = self.draw.random()
        if chance < 0.6:
            super().happen()
        elif chance < 0.8:
            self.compete(self.draw.choice(self.rivals), stays=self.draw.random() < 0.7)
        else:
            self.lose(self.draw.choice(self.everyone()), self.draw.choice(OUTCOMES))

    def compete(self, rival: Principal, *, stays: bool) -> None:
        """Let a rival have a try, and leave again or not."""
        rival.come()
        if not stays:
            rival.wanted = False
            rival.leave()

    def lose(self, each: Principal, outcome: str) -> None:
        """Let a principal lose its connection, and something come of its session in a while."""
        if each.connection is None or self.network.is_stalled(each.connection.broker):
            return
        each.suspend()
        at = self.clock.now + self.draw.uniform(0.1, 30.0)
        self.clock.at(at, {"resume": each.resume, "anew": each.connect}.get(outcome, each.expire))
        each.wanted &= outcome != "expire"

    def heal(self) -> None:
        super().heal()
        for each in self.everyone():
            each.interested |= each.wanted
            each.wanted = each.interested
            if not each.wanted:
                each.expire()
            elif each.connection is None:
                each.later()

    def connections(self, each: Principal) -> int:
        """Return how many connections have the route id of a principal."""
        return sum(each.route_id in broker.own for broker in self.owned())

    def check(self) -> None:
        for each in self.everyone():
            # One that has given up has lost to a route of a broker that is gone, and was held.
            if each.interested and not self.connections(each):
                each.wanted = True
                each.later()
        self.advance(AGAIN)
        for owner, rival in zip(self.owners, self.rivals, strict=True):
            found, wanted = self.connections(owner), owner.interested or rival.interested
            if found != wanted:
                self.violation(f"an id of two principals has {found} connections")
            rival.wanted = False
            rival.leave()
            owner.wanted = owner.interested
            if owner.connection is None:
                owner.later()
        self.advance(AGAIN)
        super().check()
        for broker in self.owned():
            if len(broker.kept) or broker.suspended:
                self.violation("a session is kept that is gone")

    def rest(self) -> None:
        super().rest()
        for broker in self.owned():
            broker.clock_skew = 0
        self.defend_anew()
        self.defend_sessions()
        self.defend_apart()
        self.defend_moves()

    # --- owners at rest -------------------------------------------------------------------------

    def held(self) -> list[tuple[Principal, Principal, OwnedBroker, int]]:
        """Return the owners with a connection, their rivals, brokers, and since when they own."""
        found: list[tuple[Principal, Principal, OwnedBroker, int]] = []
        for owner, rival in zip(self.owners, self.rivals, strict=True):
            connection = owner.connection
            broker = None if connection is None else connection.broker
            # The clock of its broker may have been ahead.
            if (
                connection is not None
                and isinstance(broker, OwnedBroker)
                and connection.timestamp < broker.clock()
            ):
                found.append((owner, rival, broker, broker.own_place(connection).claim[0]))
        return found

    def attempt(self, each: Principal, brokers: Sequence[Broker]) -> bool:
        """Let a principal register at one of some brokers; return whether it is not refused."""
        return bool(brokers) and self.register(each, self.draw.choice(brokers))

    def come_back(self, owner: Principal, brokers: Sequence[Broker]) -> None:
        """Let an owner register at one of some brokers.

        The first try may be refused: if another principal has had the id in the other zone, that is
        asked for it then, and the next one is not.
        """
        broker = self.draw.choice(brokers)
        if not self.register(owner, broker):
            self.clock.run(self.clock.now + 1.0 + 4 * self.plan.delays[1])
            if not self.register(owner, broker):
                self.violation("an owner was refused")

    def register(self, each: Principal, broker: Broker) -> bool:
        """Let a principal register at a broker; return whether it is not refused."""
        each.wanted = True
        made = broker.register(each)
        each.connection = made if made.open else None
        return made.open

    def pause(self) -> None:
        self.advance(10.0 + 10 * self.plan.delays[1] + 6 * self.plan.slow)

    def verify(self, held: Sequence[tuple[Principal, Principal, OwnedBroker, int]]) -> None:
        """Check that owners have their ids, and have had them as long as they have."""
        quick = self.plan.delays[1] < 0.3 and not self.plan.slow
        for owner, rival, home, since in held:
            connection = owner.connection
            if connection is None or not connection.open:
                self.violation("an owner has lost its route id")
            elif isinstance(connection.broker, OwnedBroker) and (
                # Else the other zone may have ended it before it was asked.
                quick or connection.broker.zone == home.zone
            ):
                known = {each.claim[0] for each in self.places(owner.route_id)}
                if known != {since}:
                    self.violation(
                        f"{owner.route_id.hex()[-2:]} is owned since {sorted(known)}, not {since}"
                    )
            if rival.connection is not None:
                self.violation("another principal has the route id of an owner")
            if any(owner.route_id in (*each.suspended, *each.kept.ids()) for each in self.owned()):
                self.violation("a session is kept that was replaced")
            rival.wanted = False

    def places(self, route_id: bytes) -> list[RoutePlace]:
        """Return what the brokers know of the owner of a route id."""
        found = [broker._place_of(route_id) for broker in self.owned()]
        return [each for each in found if each is not None]

    def defend_anew(self) -> None:
        """Have each owner connect anew while its rival takes the route id in the other zone."""
        held = self.held()
        for owner, rival, home, _ in held:
            near, there = self.sides(home)
            if there:
                self.attempt(rival, there)
                self.clock.run(self.clock.now + 0.002)
                self.attempt(owner, near)
        self.pause()
        self.verify(held)

    def defend_sessions(self) -> None:
        """Have each owner lose its connection, and its rival try everywhere meanwhile."""
        held = self.held()
        for owner, *_ in held:
            owner.suspend()
        # Filters are made anew meanwhile.
        self.advance(FILTER_EVERY + 5.0)
        for _, rival, home, _ in held:
            near, there = self.sides(home)
            if self.attempt(rival, near):
                self.violation("the route id of a suspended session was registered")
            self.attempt(rival, there)
        self.pause()
        for owner, rival, home, _ in held:
            rival.wanted = False
            near, there = self.sides(home)
            if self.draw.random() < 0.3:
                owner.resume()
            else:
                self.come_back(owner, near if self.draw.random() < 0.5 or not there else there)
        self.pause()
        self.verify(held)

    def defend_apart(self) -> None:
        """Have each rival register at a broker of the zone that knows nothing of the owner."""
        held = self.held()
        pairs = [(each[2], near) for each in held for near in self.sides(each[2])[0]]
        cut = [(one, other) for one, other in pairs if one is not other]
        if not cut:
            return
        home, other = self.draw.choice(cut)
        for way in ((home.number, other.number), (other.number, home.number)):
            self.network.cut(*way)
        self.advance(LIFETIME + self.limits.peer_hold + 5.0)
        some = [each for each in held if each[2] is home]
        for owner, rival, *_ in some:
            self.attempt(rival, [other])
            rival.wanted = False
            if self.draw.random() < 0.5:
                owner.suspend()
        self.network.heal()
        self.advance(60.0)
        for owner, *_ in some:
            owner.resume()
        self.pause()
        self.verify(some)

    def defend_moves(self) -> None:
        """Have each owner connect to the broker of the other zone that its own one asks."""
        held = self.held()
        for owner, _, home, _ in held:
            asked = {gate.broker_id for gate in to_zones(home) if gate.wire is not None}
            there = [broker for broker in self.owned() if broker.id in asked]
            # Ids are gathered for a second: by then the other zone is told of this one at once.
            self.clock.run(self.clock.now + 1.5)
            # The connection that it has is for the brokers to find out.
            if there:
                self.come_back(owner, there)
        self.pause()
        self.verify(held)

    def sides(self, home: OwnedBroker) -> tuple[list[OwnedBroker], list[OwnedBroker]]:
        """Return the brokers of the zone of one, and those of the other zone."""
        brokers = self.owned()
        near = [broker for broker in brokers if broker.zone == home.zone]
        return near, [broker for broker in brokers if broker.zone != home.zone]


OUTCOMES: Final = ("resume", "anew", "expire")
"""What may come of a suspended session."""


class ForgetsTheFirst(OwnedBroker):
    """Counts each registration as the first one of its owner."""

    def inherited(self, places: list[RoutePlace], owner: str) -> int:
        return 0


class LetsTheNewestStay(OwnedBroker):
    """Keeps the newest registration in a zone, whatever owner has been first."""

    def standing(self, places: Sequence[RoutePlace]) -> RoutePlace:
        return max(places)


class ForgetsSessions(OwnedBroker):
    """Counts no suspended sessions for the owner of an id."""

    def places_of(self, route_id: bytes) -> list[RoutePlace]:
        return [*map(self.place_of, self.table.entries_of(route_id))]


class ForgetsWhatPeersHave(OwnedBroker):
    """Takes nothing over from what peer brokers have."""

    def inherited(self, places: list[RoutePlace], owner: str) -> int:
        return inherited([each for each in places if each.broker_id == self.id], owner)


class TellsNoFirst(OwnedBroker):
    """Tells peer brokers the owner of a route, and not since when it has had the id."""

    def tell(self, change: RouteAdd | RouteRemove) -> None:
        there = self.owners.get((self.id, change.route_id), (None, 0))
        self.owners[self.id, change.route_id] = there[0], 0
        super().tell(change)
        self.owners[self.id, change.route_id] = there


class ClosesTheFirst(OwnedBroker):
    """Tells other zones the newest registration in place of the first one."""

    def _place_of(self, route_id: bytes) -> RoutePlace | None:
        place = super()._place_of(route_id)
        return None if place is None else replace(place, since=0)


class TellsNoSessions(OwnedBroker):
    """Does not tell peer brokers of suspended sessions."""

    def tell_suspended(self, connection: Connection) -> None:
        pass


class KeepsSessions(OwnedBroker):
    """Does not tell peer brokers that a session has been given up."""

    def tell_expired(self, route_id: bytes) -> None:
        pass


class FiltersNoSessions(OwnedBroker):
    """Leaves suspended sessions out of the filter for other zones."""

    def filtered(self) -> list[bytes]:
        return ZoneBroker.filtered(self)


class EndsNoSessions(OwnedBroker):
    """Keeps a suspended session, whatever registration has taken its place elsewhere."""

    def ends_for(self, connection: Connection, place: RoutePlace) -> bool:
        suspended = connection in self.suspended.values()
        return False if suspended else super().ends_for(connection, place)


class AsksOnce(DuplicateSearch):
    """Has an own route closed at the first answer, whatever time of its owner the other one has."""

    def suspect(self, zone: str, ids: Iterable[bytes], times: int = 0, *, now: float = 0.0) -> None:
        super().suspect(zone, ids, 1000, now=now)


class LetsOwnersMoveWithoutTheirTime(OwnedBroker):
    """Ends an own connection before the zone that has a newer one has asked since when."""

    Search = AsksOnce


class SpreadsNothingOfOtherZones(OwnedBroker):
    """Takes nothing over from what another zone has."""

    def owned_before(self, earlier: Earlier) -> None:
        pass


class TakesNoTimeOfSessions(OwnedBroker):
    """Does not look at suspended sessions for the time of a registration. Few runs show it."""

    def next_timestamp(self, route_id: bytes) -> int:
        return self.table.next_timestamp(route_id, self.clock())


class RefusesOwnersForOtherZones(OwnedBroker):
    """Refuses an owner in its own zone for what another zone has had. Few runs show it."""

    def register(self, client: Client) -> Connection:
        assert isinstance(client, Principal)
        route_id, now = client.route_id, self.network.clock.now
        if not self.search.is_taken(route_id, client.owner, now):
            return super().register(client)
        self.search.ask_again(route_id, now)
        self.poke()
        return Connection(client, self, open=False)


BROKEN: Final[tuple[type[Broker], ...]] = (
    ForgetsTheFirst,
    LetsTheNewestStay,
    ForgetsSessions,
    ForgetsWhatPeersHave,
    TellsNoFirst,
    ClosesTheFirst,
    TellsNoSessions,
    KeepsSessions,
    FiltersNoSessions,
    EndsNoSessions,
    LetsOwnersMoveWithoutTheirTime,
    SpreadsNothingOfOtherZones,
)
"""Each is one mistake in what a broker does with the owners of routes."""


def run_owned_zones(seed: int, kind: type[Broker] = OwnedBroker) -> Outcome:
    """Run two zones with rules from a seed."""
    plan = draw_zone_plan(seed)
    plan = replace(plan, zones=2, clients=min(plan.clients, CLIENTS))
    return drive(OwnedWorld(plan, seed, kind))


def checked_run(
    seed: int, kind: type[Broker] = OwnedBroker
) -> tuple[int, Outcome | None, list[str]]:
    """Run two zones with rules; return the seed, the outcome, and what was not as promised."""
    try:
        outcome = run_owned_zones(seed, kind)
    except Exception as error:
        return seed, None, [f"{type(error).__name__}: {error}"]
    return seed, outcome, outcome.violations


def caught(job: tuple[int, int]) -> tuple[int, bool]:
    """Return whether a run shows that a broker of `BROKEN` is broken, by its number and a seed."""
    kind, seed = job
    return kind, bool(checked_run(seed, BROKEN[kind])[2])
