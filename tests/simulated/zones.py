"""A cluster of several zones in virtual time, and what has to be true of it whatever the seed.

Two or three zones of two to four brokers each, with all the trouble of `clusters`, between zones
and within them. Destinations move between zones, also before the old one has noticed; requests name
a destination by its id, or all of them. When everything is healed, the promises have to hold for
both tiers:

1. The table of each broker is the union of what is connected in its zone. It has one link to each
   other zone, and knows of it the groups that a recount gives, with numbers that are off by less
   than half or twice, and the filter says yes to each route. Each destination has one connection in
   the whole cluster.
2. No group is used of a zone without a link.
3. Each request ends once. A request passes three brokers at most: from a client to another zone,
   and one link within that. No destination gets a multicast twice, and each gets it once when
   nothing changes any more; then each destination is also reached by its id from each broker.
4. At rest there are marks and comparisons alone.
5. On one stream each change is sent once.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from onward.protocol.broker import COUNT_KEY
from onward.protocol.cluster import LinkRole, PresenceState
from tests.simulated.cluster_broker import SERVICE, Broker
from tests.simulated.clusters import Outcome, Plan, World, draw_plan, drive
from tests.simulated.zone_broker import Gate, ZoneBroker

FILTER_EVERY: Final = 10.0
"""Time after which a filter is made anew, in seconds: shorter than is usual, as runs are short."""


@dataclass(frozen=True, slots=True)
class ZonePlan(Plan):
    """What a run of several zones is made of.

    Attributes:
        zones: Number of zones.
    """

    zones: int = 2


def draw_zone_plan(seed: int) -> ZonePlan:
    """Draw what a run is made of."""
    plan = draw_plan(seed)
    draw = random.Random(f"{seed}/zones")
    zones = draw.choice((2, 2, 3))
    fields = {name: getattr(plan, name) for name in Plan.__dataclass_fields__}
    fields["brokers"] = zones * draw.randint(2, 4 if zones == 2 else 3)
    fields["seeds"] = min(plan.seeds, fields["brokers"])
    return ZonePlan(**fields, zones=zones)


class ZoneWorld(World):
    """A world in which the brokers are of several zones."""

    HONEST: ClassVar[type[Broker]] = ZoneBroker
    HOPS: ClassVar = 2

    def __init__(self, plan: ZonePlan, seed: int, kind: type[Broker] = ZoneBroker) -> None:
        super().__init__(plan, seed, kind)
        self.limits = replace(self.limits, filter_every=FILTER_EVERY)

    def zone_of(self, number: int) -> str:
        assert isinstance(self.plan, ZonePlan)
        return "abc"[number % self.plan.zones]

    def meeting_points(self, number: int) -> tuple[int, ...]:
        assert isinstance(self.plan, ZonePlan)
        return (number % self.plan.zones, 0)

    def of_zones(self) -> list[ZoneBroker]:
        return [broker for broker in self.living() if isinstance(broker, ZoneBroker)]

    # --- what has to be true ------------------------------------------------------------------

    def look(self) -> None:
        super().look()
        for broker in self.of_zones():
            if self.network.is_stalled(broker):
                continue
            shown = broker.shown_gates
            homes = {entry.broker_id for entry in broker.zone_table.candidates(GROUPS)}
            if homes - shown:
                self.violation("a group of a zone without a link is used")
            for gate in broker.gates.values():
                if gate.broker_id in shown and gate.role is LinkRole.TO_ZONE and gate.wire is None:
                    self.violation("a gateway without a link is shown")

    def check(self) -> None:
        brokers = self.of_zones()
        connected = [
            (connection.client.route_id, broker)
            for broker in brokers
            for connection in broker.own.values()
        ]
        for client in self.clients:
            places = [broker for route_id, broker in connected if route_id == client.route_id]
            if len(places) != (1 if client.wanted else 0):
                self.violation(f"a destination has {len(places)} connections")
        for broker in brokers:
            mates = [each for each in brokers if each.zone == broker.zone and each is not broker]
            here = {(route, home.id) for route, home in connected if home.zone == broker.zone}
            self._check_table(broker, here)
            self._check_links(broker, len(mates), len(brokers) - 1)
            for zone in {each.zone for each in brokers} - {broker.zone}:
                there = [route_id for route_id, home in connected if home.zone == zone]
                self._check_zone(broker, zone, there)
        for request in self._requests:
            if len(request.ends) != 1:
                self.violation(f"a request has ended {len(request.ends)} times")

    def _check_links(self, broker: ZoneBroker, mates: int, others: int) -> None:
        figures = broker.membership.statistics()
        zones = {each.zone for each in self.of_zones()} - {broker.zone}
        if figures.links != mates:
            self.violation(f"{figures.links} links to {mates} other brokers of the zone")
        if figures.to_zones != len(zones):
            self.violation(f"{figures.to_zones} links to {len(zones)} other zones")
        if figures.known != others:
            self.violation("a broker that is gone is remembered, or one is not known")
        linked = [peer for peer in (*broker.peers.values(), *to_zones(broker)) if peer.wire]
        if any(peer.presence.state is not PresenceState.UP for peer in linked):
            self.violation("a peer broker is not up")

    def _check_zone(self, broker: ZoneBroker, zone: str, there: list[bytes]) -> None:
        home = broker.membership.gateway(zone)
        gate = None if home is None else broker.gates.get((home, LinkRole.TO_ZONE))
        if gate is None or gate.filter is None:
            self.violation("a zone has no gateway")
            return
        found: dict[tuple[str, str], int] = {}
        for entry in broker.zone_table.candidates(GROUPS):
            if entry.broker_id == gate.broker_id:
                tags = dict(entry.tags)
                found[entry.service_name, tags[6] or ""] = int(tags[COUNT_KEY] or 0)
        recount = Counter((SERVICE, region_of(route_id)) for route_id in there)
        if found.keys() != recount.keys():
            self.violation(f"{len(found)} groups are known of {len(recount)}")
        elif any(not told / 2 < recount[group] < 2 * told for group, told in found.items()):
            self.violation("the number of a group is wrong")
        if broker.zone_table.statistics().hidden:
            self.violation("a group is hidden")
        if not all(map(gate.filter.may_have, there)):
            self.violation("a filter says no to a route that there is")

    def rest(self) -> None:
        super().rest()
        for broker in self.of_zones():
            asked = [
                (self.request(broker, multicast=False, route_id=client.route_id), client)
                for client in self.clients
            ]
            any_of_them = self.request(broker, multicast=False)
            self.advance(1.0 + 8 * self.plan.delays[1])
            for request, client in asked:
                connection = client.connection
                reached = connection is not None and self._delivered[request.number, connection]
                if request.ends != ["done" if client.wanted else "rejected"]:
                    self.violation(f"a request by an id has ended {request.ends}")
                elif bool(reached) != client.wanted:
                    self.violation("a request by an id did not reach its destination")
            if any_of_them.ends != ["done" if any(c.wanted for c in self.clients) else "rejected"]:
                self.violation(f"a request has ended {any_of_them.ends}")


SENT: Final = (
    *("groups: snapshot", "groups: changes", "filter", "bytes of filter"),
    *("places", "replaced in another zone"),
)
"""What is counted of what brokers have sent and done for other zones."""

GROUPS: Final = frozenset({(1, SERVICE)})


def region_of(route_id: bytes) -> str:
    """Return the region of a destination."""
    return ("eu", "us", "as")[int.from_bytes(route_id) % 3]


def to_zones(broker: ZoneBroker) -> list[Gate]:
    """Return the gateways that a broker has dialled."""
    return [gate for gate in broker.gates.values() if gate.role is LinkRole.TO_ZONE]


def run_zones(seed: int, kind: type[Broker] = ZoneBroker) -> Outcome:
    """Run a cluster of several zones from a seed."""
    return drive(ZoneWorld(draw_zone_plan(seed), seed, kind))


def checked_run(
    seed: int, kind: type[Broker] = ZoneBroker
) -> tuple[int, Outcome | None, list[str]]:
    """Run a cluster of zones; return the seed, the outcome, and what was not as promised."""
    try:
        outcome = run_zones(seed, kind)
    except Exception as error:
        return seed, None, [f"{type(error).__name__}: {error}"]
    return seed, outcome, outcome.violations
