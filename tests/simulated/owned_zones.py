"""Two zones with rules in virtual time: a route id stays with the principal that has had it first.

Each destination of `zones` is a principal of its own here, and for each there is another principal
that tries to get its route id, at any broker and at any time, with all the trouble of `clusters`.
A principal that is refused tries again; one that loses its connection to an earlier one gives up,
but for a last attempt. When everything is healed,

1. one of both has a connection, and one only, if any of them wants it;
2. the owner has it once the other has left, and all that is promised of `zones` holds;
3. then an owner that connects anew, at its broker or at another one of its zone, keeps its route id
   while the other principal takes it in the other zone.

There are two zones: an owner that moves to another zone begins anew there, so that three could beat
each other in a circle, until one of them connects again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final

from onward.protocol.broker import (
    Entry,
    RouteAdd,
    RouteRemove,
    bounded_since,
    split_owner,
    with_owner,
)
from onward.protocol.cluster import Beaten, RoutePlace, answer_owned_places
from tests.simulated.cluster_broker import Broker, Client, Connection, Peer
from tests.simulated.clusters import Destination, Outcome, drive
from tests.simulated.zone_broker import Gate, ZoneBroker
from tests.simulated.zones import ZonePlan, ZoneWorld, draw_zone_plan

CLIENTS: Final = 12
AGAIN: Final = 40.0
"""Time after which a principal gets an id that is free, in seconds: longer than a route is held, or
an id is remembered as taken."""


class Principal(Destination):
    """A destination with a principal of its own.

    Attributes:
        owner: Its principal.
        interested: Whether it is to have a connection, be it that it has given up.
    """

    def __init__(self, world: OwnedWorld, number: int, owner: str) -> None:
        super().__init__(world, number)
        self.owner = owner
        self.interested = False

    def connect(self) -> None:
        super().connect()
        if self.connection is not None and not self.connection.open:
            self.connection = None
            self.later()

    def come(self) -> None:
        self.wanted = True
        self.connect()

    def give_up(self) -> None:
        """See that another principal has had the route id first."""
        self.interested, self.wanted = True, False


class OwnedBroker(ZoneBroker):
    """One process of a broker that has a zone, and rules."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        # By home broker and route id: the owner, and since when it has had the id.
        self.owners: dict[tuple[bytes, bytes], tuple[str | None, int]] = {}
        super().__init__(*arguments, **more)

    def owner_of(self, entry: Entry[Connection | None]) -> tuple[str | None, int]:
        owner, since = self.owners[entry.broker_id, entry.route_id]
        return owner, bounded_since(since, entry.timestamp)

    def register(self, client: Client) -> Connection:
        """Register a destination; the connection is closed if its principal is refused."""
        assert isinstance(client, Principal)
        route_id, owner, now = client.route_id, client.owner, self.network.clock.now
        before = self.table.get(route_id)
        known, since = (owner, 0) if before is None else self.owner_of(before)
        if known != owner or self.search.is_taken(route_id, owner, now):
            self.network.counts["principals refused"] += 1
            return Connection(client, self, open=False)
        self.owners[self.id, route_id] = owner, self.inherited(before, since)
        return super().register(client)

    def inherited(self, before: Entry[Connection | None] | None, since: int) -> int:
        """Return since when the owner of a registration that follows another has had the id."""
        del before
        return since

    def tell(self, change: RouteAdd | RouteRemove) -> None:
        if isinstance(change, RouteAdd):
            owner, since = self.owners[self.id, change.route_id]
            change = with_owner(change, owner or "", since)
        super().tell(change)

    def add_remote(self, peer: Peer, route: RouteAdd) -> None:
        if not isinstance(peer, Gate):
            owner, since, tags = split_owner(route.tags)
            self.owners[peer.broker_id, route.route_id] = owner, since
            route = replace(route, tags=tags)
        super().add_remote(peer, route)

    def salt(self) -> bytes:
        return self.network.draw.randbytes(16)

    def on_places(self, peer: Peer, data: bytes) -> None:
        self._send(peer, "placed", answer_owned_places(data, self._place_of, self.salt()))

    def _place_of(self, route_id: bytes) -> RoutePlace | None:
        entry = self.table.get(route_id)
        if entry is None:
            return None
        return RoutePlace(entry.timestamp, entry.broker_id, *self.owner_of(entry))

    def _own_place(self, route_id: bytes) -> RoutePlace | None:
        place = super()._own_place(route_id)
        if place is None:
            return None
        owner, since = self.owners[self.id, route_id]
        return replace(place, owner=owner, since=since)

    def end_beaten(self, beaten: Beaten) -> None:
        client = self.own[beaten.route_id].client
        if not beaten.foreign:
            super().end_beaten(beaten)
            return
        self.network.counts["closed for the first owner"] += 1
        if isinstance(client, Principal):
            client.give_up()
        self.close(self.own[beaten.route_id])


class OwnedWorld(ZoneWorld):
    """A world of two zones in which each destination has a rival for its route id."""

    HONEST: ClassVar[type[Broker]] = OwnedBroker

    def __init__(self, plan: ZonePlan, seed: int, kind: type[Broker] = OwnedBroker) -> None:
        super().__init__(plan, seed, kind)
        self.owners = [Principal(self, number, "owner") for number in range(plan.clients)]
        self.rivals = [Principal(self, number, "rival") for number in range(plan.clients)]
        self.clients = [*self.owners]

    def happen(self) -> None:
        if self.draw.random() < 0.7:
            super().happen()
            return
        rival = self.draw.choice(self.rivals)
        rival.come()
        if self.draw.random() < 0.3:
            rival.wanted = False
            rival.leave()

    def heal(self) -> None:
        super().heal()
        for each in (*self.owners, *self.rivals):
            each.interested |= each.wanted
            each.wanted = each.interested
            if each.wanted and each.connection is None:
                each.later()

    def connections(self, each: Principal) -> int:
        """Return how many connections have the route id of a principal."""
        return sum(each.route_id in broker.own for broker in self.of_zones())

    def check(self) -> None:
        for each in (*self.owners, *self.rivals):
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

    def rest(self) -> None:
        super().rest()
        self.defend()

    def defend(self) -> None:
        """Have each owner connect anew while its rival takes the route id in the other zone."""
        brokers, held = self.of_zones(), list[tuple[Principal, Principal, Connection]]()
        for broker in brokers:
            broker.clock_skew = 0
        for owner, rival in zip(self.owners, self.rivals, strict=True):
            before = owner.connection
            # The clock of its broker may have been ahead.
            if before is None or before.timestamp >= before.broker.clock():
                continue
            zone = self.zone_of(before.broker.number)
            there = [broker for broker in brokers if broker.zone != zone]
            if there:
                rival.wanted = True
                rival.connection = self.draw.choice(there).register(rival)
                self.clock.run(self.clock.now + 0.002)
                near = [broker for broker in brokers if broker.zone == zone]
                owner.connection = self.draw.choice(near).register(owner)
                held.append((owner, rival, owner.connection))
        self.advance(10.0 + 10 * self.plan.delays[1] + 6 * self.plan.slow)
        for owner, rival, connection in held:
            if owner.connection is not connection or not connection.open:
                self.violation("an owner that has connected anew has lost its route id")
            if rival.connection is not None:
                self.violation("another principal has the route id of an owner")


class ForgetsTheFirst(OwnedBroker):
    """Counts each registration as the first one of its owner."""

    def inherited(self, before: Entry[Connection | None] | None, since: int) -> int:
        return 0


class ForgetsWhatPeersHave(OwnedBroker):
    """Takes nothing over from a registration at a peer broker."""

    def inherited(self, before: Entry[Connection | None] | None, since: int) -> int:
        return since if before is not None and before.broker_id == self.id else 0


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


BROKEN: Final[tuple[type[Broker], ...]] = (
    ForgetsTheFirst,
    ForgetsWhatPeersHave,
    TellsNoFirst,
    ClosesTheFirst,
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
