"""Zones of brokers in memory: what they know of each other, and what becomes of it in trouble."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from onward.actors import Worker
from onward.actors.broker._tally import RequestTally
from onward.actors.cluster import ClusterOptions
from onward.actors.monitoring._cluster_metrics import cluster_metrics
from onward.protocol import TAGS, Address, OnwardError
from onward.protocol.cluster import (
    ClusterLimits,
    DuplicateSearch,
    RouteGroupsStatistics,
)
from onward.protocol.security import NotAllowed
from tests.support.clusters import Clusters, Site, clusters
from tests.support.owners import ANN, BOB, REFUSED, REPLACED, asks_only, duplicates, take_rules
from tests.support.peer_links import MemoryLink

LIMITS = ClusterLimits(peer_hold=5.0, compare=3.0)


def zone(name: str) -> ClusterOptions:
    return ClusterOptions(zone=name, allowed_peers=("test://*",), limits=LIMITS)


async def joined(c: Clusters, names: str = "a1 a2 b1 b2 c1 c2") -> dict[str, Site]:
    """Start the brokers of some zones; each has the first of its own and of zone a as seeds."""
    made: dict[str, Site] = {}
    for name in names.split():
        seeds = [each for each in (f"{name[0]}1", "a1") if each != name]
        made[name] = await c.start(name, seeds, options=zone(name[0]))
    await asyncio.sleep(10)
    return made


def groups(site: Site, service: str) -> dict[str, int]:
    """Return the routes of a service in other zones, by zone, as a broker knows them."""
    ask = site.broker.index.asked(Address(TAGS, f"service={service}".encode()))
    return {peer.zone: count for peer, count in site.broker.index.zones.divide(ask)}


def metric(site: Site, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric of a cluster, by their labels."""
    for each in cluster_metrics(site.cluster, RequestTally()):
        if each is not None and each.family.name == f"onward_{name}":
            return {labels: float(str(value)) for labels, value in each.series}
    raise KeyError(name)


def links(site: Site) -> dict[str, list[str]]:
    """Return the names of the brokers at the other ends of the links of one, by role."""
    found: dict[str, list[str]] = {}
    for row in site.cluster.peers():
        if row.role:
            found.setdefault(row.role, []).append(row.name)
    return found


async def test_each_broker_has_one_link_to_each_other_zone() -> None:
    async with clusters() as c:
        made = await joined(c)
        for name, site in made.items():
            found = links(site)
            assert found["mesh"] == [each for each in made if each[0] == name[0] and each != name]
            dialled = [*found.get("to zone", ()), *found.get("both ways", ())]
            assert sorted(each[0] for each in dialled) == sorted({"a", "b", "c"} - {name[0]})
            rows = {row.name: row.zone for row in site.cluster.peers()}
            assert all(rows[each] == each[0] for each in dialled)
            states = {row.name: row.state for row in site.cluster.peers() if not row.role}
            assert set(states.values()) <= {"known"}
            zones = {row.zone: row.broker for row in site.cluster.zones()}
            assert sorted(zones.values()) == sorted(dialled)
            limits = {each.name: each.used for each in site.cluster.limits()}
            assert limits["cluster.max_peers"] == 1
            assert limits["cluster.max_gateways"] >= 2
            assert limits["cluster.duplicate_ids"] == 0


async def test_groups_count_the_destinations_of_a_whole_zone() -> None:
    async with clusters() as c:
        made = await joined(c)
        first = [await made["b1"].serve("orders") for _ in range(3)]
        await made["b2"].serve("orders")
        await made["c1"].serve("mail")
        await asyncio.sleep(3)
        for name in ("a1", "a2", "c1", "c2"):
            assert groups(made[name], "orders") == {"b": 4}
        assert groups(made["b1"], "orders") == {}  # those of its own zone are routes
        assert made["b1"].found("orders") == sorted([made["b1"].id] * 3 + [made["b2"].id])
        for each in first:
            each.withdraw()
        await asyncio.sleep(3)
        assert groups(made["a1"], "orders") == {"b": 1}
        row = next(row for row in made["a1"].cluster.peers() if row.zone == "b" and row.groups)
        assert (row.groups, row.routes) == (1, 1)


async def test_groups_that_are_folded_or_not_told_are_counted() -> None:
    async with clusters() as c:
        small = replace(zone("b"), limits=replace(LIMITS, max_groups=1))
        near = await c.start("a1", options=zone("a"))
        far = await c.start("b1", ["a1"], options=small)
        await asyncio.sleep(10)
        worker = await far.node.start(Worker)
        for region in ("eu", "us", "as"):
            far.broker.register(worker, service="orders", tags={"region": region})
        for service in ("mail", "news"):
            await far.serve(service)
        await asyncio.sleep(5)
        assert near.cluster.zone_groups() == RouteGroupsStatistics(0, 0, 0, 0, 0)
        # Orders in one region are told, and those in the others as one; then there is no room.
        own = far.cluster.zone_groups()
        assert own is not None
        assert (own.groups, own.folded, own.untold) == (2, 2, 2)
        used = {each.name: each for each in far.cluster.limits()}["cluster.max_groups"]
        assert (used.used, used.limit) == (1, 1)
        assert used.reached == 4
        (known,) = near.cluster.zones()
        assert (known.groups, known.folded, near.peer(far).folded) == (2, 1, 1)
        assert metric(near, "zone_groups_folded") == {("b",): 1}
        assert metric(near, "own_zone_groups") == {("told",): 0, ("folded",): 0, ("untold",): 0}
        assert metric(far, "own_zone_groups")[("folded",)] == 2


async def test_a_request_goes_to_a_zone_and_waits_for_one() -> None:
    async with clusters() as c:
        made = await joined(c)
        index = made["a1"].broker.index
        ask = index.asked(Address(TAGS, b"service=orders instance=o1"))
        assert not index.zones.takes(ask)
        await made["c2"].serve("orders")
        await asyncio.sleep(3)
        chosen = index.zones.pick(ask)
        assert chosen is not None
        assert chosen.peer.zone == "c"
        assert index.choose(ask, None) == chosen.peer.to


async def test_a_gateway_that_is_killed_is_replaced() -> None:
    async with clusters() as c:
        made = await joined(c)
        for each in ("b1", "b2"):
            await made[each].serve("orders")
        await asyncio.sleep(3)
        dialled = next(
            row.name
            for row in made["a1"].cluster.peers()
            if row.zone == "b" and row.role in {"to zone", "both ways"}
        )
        await c.kill(made[dialled])
        await asyncio.sleep(6)
        other = {"b1": "b2", "b2": "b1"}[dialled]
        found = links(made["a1"])
        assert other in [*found.get("to zone", ()), *found.get("both ways", ())]
        await asyncio.sleep(6)  # the routes of the dead one are swept in its own zone
        assert groups(made["a1"], "orders") == {"b": 1}
        gateways = made["a1"].cluster.links.gateways
        assert sorted(each.info.name[0] for each in gateways.values()) == ["b", "c"]


async def test_what_a_zone_tells_comes_back_after_a_cut() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        await made["b1"].serve("orders")
        await asyncio.sleep(3)
        c.network.cut("test://a1", "test://b1")
        await asyncio.sleep(0.1)
        assert groups(made["a1"], "orders") == {}
        await made["b1"].serve("mail")
        c.network.heal()
        await asyncio.sleep(5)
        assert (groups(made["a1"], "orders"), groups(made["a1"], "mail")) == ({"b": 1}, {"b": 1})
        c.network.cut("test://a1", "test://b1")
        await asyncio.sleep(20)
        assert len(made["a1"].broker.index.zones) == 0
        assert not made["a1"].cluster.links.gateways


async def test_an_explanation_names_other_zones() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        for _ in range(2):
            await made["b1"].serve("orders")
        await asyncio.sleep(3)
        found = made["a1"].broker.resolve("service=orders")
        assert [(each.zone, each.broker, each.routes) for each in found.zones] == [("b", "b1", 2)]
        assert found.matches == 0
        assert made["a1"].broker.resolve("service=mail").zones == ()
        hidden = made["a1"].broker.index.zones.divide(
            made["a1"].broker.index.asked(Address(TAGS, b"service=orders")), lambda _: False
        )
        assert hidden == []


async def test_routes_of_another_zone_are_not_told() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        await made["b1"].serve("orders")
        await asyncio.sleep(3)
        assert made["a1"].found("orders") == []
        assert made["a1"].broker.index.peers.count == 0


async def test_a_broker_without_a_zone_is_refused_by_one_with() -> None:
    async with clusters() as c:
        one = await c.start("a1", options=zone("a"))
        other = await c.start("x1", ["a1"])
        await asyncio.sleep(3)
        assert not one.cluster.links.connections()
        assert not other.cluster.links.connections()
        assert one.cluster.statistics().refused.get("zone")


def by_id(site: Site, route_id: UUID) -> list[str]:
    """Return the zones that a request for a route id may go to."""
    ask = site.broker.index.asked(Address(TAGS, f"route={route_id}".encode()))
    return sorted(each.peer.zone for each in site.broker.index.zones.find(ask))


async def test_a_route_id_is_known_in_other_zones() -> None:
    async with clusters() as c:
        made = await joined(c)
        first, late = UUID(int=1), UUID(int=2)
        await made["b1"].connect("orders", first)
        await asyncio.sleep(8)
        await made["b2"].connect("orders", late)
        await asyncio.sleep(3)
        for name in ("a1", "a2", "c1", "c2"):
            assert by_id(made[name], first) == by_id(made[name], late) == ["b"]
            assert by_id(made[name], UUID(int=3)) == []


async def test_a_route_that_moves_to_another_zone_leaves_one_connection() -> None:
    async with clusters() as c:
        made = await joined(c)
        moving = UUID(int=1)
        await made["a2"].connect("orders", moving)
        await asyncio.sleep(5)
        await made["c1"].connect("orders", moving)
        await asyncio.sleep(5)
        assert made["a2"].evicted == [REPLACED]
        assert made["c1"].evicted == []
        assert made["a1"].found("orders") == []
        # Back again, though the clock of the first zone may be behind.
        await made["a1"].connect("orders", moving)
        await asyncio.sleep(5)
        assert (made["a1"].evicted, made["c1"].evicted) == ([], [REPLACED])


async def test_a_route_that_is_in_two_zones_when_they_meet() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        c.network.cut("test://a1", "test://b1")
        twice = UUID(int=1)
        await made["b1"].connect("orders", twice)
        await asyncio.sleep(1)
        await made["a1"].connect("orders", twice)
        await asyncio.sleep(70)
        assert made["a1"].evicted == made["b1"].evicted == []
        c.network.heal()
        await asyncio.sleep(60)  # the longest wait before a dial, with its jitter, is 46 s
        assert (made["a1"].evicted, made["b1"].evicted) == ([], [REPLACED])


async def test_a_route_id_of_another_principal_in_another_zone_is_not_taken_over() -> None:
    async with clusters() as c:
        made = await joined(c)
        take_rules(made["a1"], made["a2"], made["b1"], made["b2"], made["c1"], made["c2"])
        first, late = made["a2"], made["b1"]
        owned = UUID(int=1)
        registered = await first.connect("orders", owned, ANN)
        await asyncio.sleep(5)
        events = late.broker.events.subscribe()
        await late.connect("orders", owned, BOB)
        await asyncio.sleep(5)
        assert (first.evicted, late.evicted) == ([], [REFUSED])
        assert made["a1"].found("orders") == [first.id]
        assert made["b2"].found("orders") == []
        reasons = [(await anext(events)).reason for _ in range(2)]
        assert reasons == ["", OTHER_OWNER]
        # It is known now, and refused at once; other ids and the owner are not.
        with pytest.raises(NotAllowed, match="register"):
            await late.connect("orders", owned, BOB)
        limits = {each.name: each.used for each in late.cluster.limits()}
        assert limits["cluster.taken_ids"] == 1
        await late.connect("mail", UUID(int=2), BOB)
        await late.connect("orders", owned, ANN)
        await asyncio.sleep(5)
        assert (first.evicted, len(late.evicted)) == ([REPLACED], 1)
        assert registered.current is False


async def test_a_route_id_is_free_once_its_owner_has_gone() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        take_rules(made["a1"], made["b1"])
        registered = await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(5)
        assert len(made["b1"].evicted) == 1
        registered.withdraw()
        await asyncio.sleep(5)
        # The other zone is asked whether the id is taken still.
        with pytest.raises(NotAllowed, match="register"):
            await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(1)
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(100)
        assert len(made["b1"].evicted) == 1
        assert made["b1"].found("orders") == [made["b1"].id]


async def test_two_owners_that_meet_keep_the_route_of_the_earlier_one() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        take_rules(made["a1"], made["b1"])
        c.network.cut("test://a1", "test://b1")
        await made["b1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(1)
        await made["a1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(70)
        c.network.heal()
        await asyncio.sleep(60)
        assert (made["a1"].evicted, made["b1"].evicted) == ([REFUSED], [])


OTHER_OWNER = "its route id belongs to another principal"
TAKEN_OVER = "another connection has taken over its route id"


def part(c: Clusters, made: dict[str, Site]) -> None:
    """Cut all links between the zones a and b."""
    for one in made:
        for other in made:
            if one[0] == "a" and other[0] == "b":
                c.network.cut(f"test://{one}", f"test://{other}")


@pytest.mark.parametrize(
    ("how", "told"), [("a1", [TAKEN_OVER]), ("a2", [REPLACED]), ("resumes", [])]
)
async def test_an_owner_that_connects_anew_is_the_earlier_one_still(
    how: str, told: list[str]
) -> None:
    async with clusters() as c:
        made = await joined(c, "a1 a2 b1 b2")
        take_rules(made["a1"], made["a2"], made["b1"], made["b2"])
        registered = await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(60)
        # Another principal has the id elsewhere before one of their brokers knows of the other.
        part(c, made)
        await made["b1"].connect("orders", UUID(int=1), BOB)
        if how == "resumes":
            registered.suspend()
            await asyncio.sleep(5)
            assert registered.resume()
        else:
            await made[how].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        c.network.heal()
        await asyncio.sleep(20)
        assert (made["a1"].evicted, made["b1"].evicted) == (told, [REFUSED])
        home = made["a1" if how == "resumes" else how]
        assert made["a1"].found("orders") == made["a2"].found("orders") == [home.id]
        with pytest.raises(NotAllowed, match="register"):
            await made["b1"].connect("orders", UUID(int=1), BOB)


async def test_an_owner_that_moves_on_and_on_is_the_earlier_one_still() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 a2 a3 b1")
        take_rules(made["a1"], made["a2"], made["a3"], made["b1"])
        await made["a1"].connect("orders", UUID(int=1), ANN)
        part(c, made)
        await asyncio.sleep(1)
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await made["a2"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(1)
        # The broker that it was connected to is gone, and its routes are still held.
        await c.kill(made["a2"])
        await asyncio.sleep(1)
        await made["a3"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(60)
        await made["a1"].connect("orders", UUID(int=1), ANN)
        c.network.heal()
        await asyncio.sleep(100)
        assert made["b1"].evicted == [REFUSED]
        assert made["a1"].evicted == made["a3"].evicted == [REPLACED]
        assert made["a3"].found("orders") == [made["a1"].id]
        # It is told to peer brokers, and to no client.
        assert all("onward" not in key for row in made["a3"].broker.routes() for key in row.tags)


async def test_an_owner_that_has_left_begins_anew() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 a2 b1")
        take_rules(made["a1"], made["a2"], made["b1"])
        registered = await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(60)
        registered.withdraw()
        await asyncio.sleep(5)  # all brokers know that
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(10)
        await made["a2"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(10)
        assert (made["a2"].evicted, made["b1"].evicted) == ([REFUSED], [])


async def test_an_id_that_is_taken_is_refused_for_as_long_as_it_is() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        take_rules(made["a1"], made["b1"])
        await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(5)
        for _ in range(10):
            with pytest.raises(NotAllowed, match="register"):
                await made["b1"].connect("orders", UUID(int=1), BOB)
            await asyncio.sleep(25)
        assert (made["a1"].evicted, made["b1"].evicted) == ([], [REFUSED])


async def test_an_id_that_is_taken_in_a_lost_zone_is_free_when_its_groups_are_removed() -> None:
    """As one of a lost broker of the own zone; its owner is the first one again when it is back."""
    async with clusters() as c:
        made = await joined(c, "a1 b1 b2")
        take_rules(made["a1"], made["b1"], made["b2"])
        rival = made["b1"]
        await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        await rival.connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(5)
        for _ in range(5):  # it is refused for 16 minutes in the end
            with pytest.raises(NotAllowed, match="register"):
                await rival.connect("orders", UUID(int=1), BOB)
            await asyncio.sleep(10)
        part(c, {"b1": rival, "b2": made["b2"], "a1": made["a1"]})
        await asyncio.sleep(2)
        with pytest.raises(NotAllowed, match="register"):
            await rival.connect("orders", UUID(int=1), BOB)
        limits = {each.name: each for each in rival.cluster.limits()}
        assert limits["cluster.duplicate_ids"].used == 1  # it cannot be asked now
        assert 0 <= limits["cluster.duplicate_hold"].used < 1
        await asyncio.sleep(20)
        limits = {each.name: each for each in rival.cluster.limits()}
        assert (limits["cluster.taken_ids"].used, limits["cluster.duplicate_ids"].used) == (1, 0)
        await rival.connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(60)
        assert rival.found("orders") == [rival.id]
        c.network.heal()
        await asyncio.sleep(100)
        assert (made["a1"].evicted, rival.evicted) == ([], [REFUSED, REFUSED])
        with pytest.raises(NotAllowed, match="register"):
            await rival.connect("orders", UUID(int=1), BOB)


def far_from(made: dict[str, Site], name: str) -> tuple[Site, Site]:
    """Return the brokers of zone a: one that a broker has no link with, and its gateway."""
    gateway = made[name].cluster.membership.gateway("a")
    one, two = made["a1"], made["a2"]
    return (two, one) if one.id == gateway else (one, two)


@pytest.mark.parametrize("at_gateway", [False, True])
@pytest.mark.parametrize("wait", [10, 150])
@pytest.mark.parametrize("how", ["resumes", "anew", "here", "there"])
async def test_the_id_of_a_suspended_session_belongs_to_its_owner(
    how: str, wait: float, *, at_gateway: bool
) -> None:
    """Also after filters were made anew, and at brokers that have no link with its own."""
    async with clusters() as c:
        made = await joined(c, "a1 a2 b1 b2")
        take_rules(made["a1"], made["a2"], made["b1"], made["b2"])
        home, other = far_from(made, "b1")
        if at_gateway:
            home, other = other, home
        registered = await home.connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(60)
        registered.suspend()
        await asyncio.sleep(wait)
        rival = made["b1"]
        await rival.connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(10)
        assert (home.evicted, rival.evicted) == ([], [REFUSED])
        for site in (rival, other, home):
            with pytest.raises(NotAllowed, match="register"):
                await site.connect("orders", UUID(int=1), BOB)
        stays = {"resumes": home, "anew": home, "here": other, "there": made["b2"]}[how]
        if how == "resumes":
            assert registered.resume()
        else:
            await stays.connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(10)
        told = [] if how == "resumes" else [TAKEN_OVER if how == "anew" else REPLACED]
        assert (home.evicted, len(rival.evicted)) == (told, 1)
        assert registered.resume() is False
        for site in made.values():
            assert (site.broker.index.suspended, len(site.broker.index.suspended_elsewhere)) == (
                {},
                0,
            )
        assert stays.found("orders") == [stays.id]
        # The owner has had it since the first of its registrations.
        (entry,) = stays.broker.index.own_entries()
        places = [each.cluster.place_of(entry.route_id) for each in made.values()]
        firsts = {each.claim[0] for each in places if each is not None}
        assert len(firsts) == 1
        assert firsts.pop() < entry.timestamp


async def test_a_suspended_session_outlasts_the_routes_of_a_lost_broker() -> None:
    """Its home broker, the gateway, has known another registration of its id meanwhile."""
    async with clusters() as c:
        made = await joined(c, "a1 a2 b1")
        take_rules(made["a1"], made["a2"], made["b1"])
        lost, home = far_from(made, "b1")
        await lost.connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        await c.kill(lost)
        await asyncio.sleep(1)
        registered = await home.connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(1)
        registered.suspend()
        await asyncio.sleep(120)  # the routes of the lost broker are removed, and filters made anew
        assert home.broker.index.table.expecting == 1
        assert home.cluster.every_route() == [UUID(int=1).bytes]
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(10)
        assert (home.evicted, made["b1"].evicted) == ([], [REFUSED])
        assert registered.resume()


async def test_an_owner_that_moves_to_another_zone_is_the_earlier_one_in_a_third() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 a2 b1 c1")
        take_rules(made["a1"], made["a2"], made["b1"], made["c1"])
        home, _ = far_from(made, "b1")
        registered = await home.connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(60)
        for name in ("a1", "a2", "b1"):
            c.network.cut(f"test://{name}", "test://c1")
        await made["c1"].connect("orders", UUID(int=1), BOB)
        registered.suspend()
        await asyncio.sleep(5)
        await made["b1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        c.network.heal()
        await asyncio.sleep(100)
        assert (home.evicted, made["b1"].evicted, made["c1"].evicted) == ([REPLACED], [], [REFUSED])


@pytest.mark.parametrize("asks", ["late", "never", "after a cut"])
async def test_an_owner_that_moves_is_waited_for_by_the_zone_that_it_leaves(
    monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    """Until the other zone has asked since when the owner has its id, and not for long."""
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        take_rules(made["a1"], made["b1"])
        (there,) = made["b1"].cluster.links.gateways.values()
        await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(60)
        (first,) = made["a1"].broker.index.own_entries()
        with monkeypatch.context() as patch:
            patch.setattr(DuplicateSearch, "next", asks_only(made["a1"]))
            await made["b1"].connect("orders", UUID(int=1), ANN)
            await asyncio.sleep(2.5)
            assert made["a1"].evicted == []
            if asks == "never":
                await asyncio.sleep(5)
            elif asks == "after a cut":
                part(c, made)
                await asyncio.sleep(10)
        c.network.heal()
        duplicates(made["b1"]).ask(there)
        await asyncio.sleep(2 if asks == "late" else 40)
        assert (made["a1"].evicted, made["b1"].evicted) == ([REPLACED], [])
        place = made["b1"].cluster.place_of(first.route_id)
        assert place is not None
        assert (place.claim[0] == first.timestamp) == (asks != "never")


async def test_a_suspended_session_ends_for_an_earlier_owner() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        take_rules(made["a1"], made["b1"])
        c.network.cut("test://a1", "test://b1")
        await made["b1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(1)
        registered = await made["a1"].connect("orders", UUID(int=1), BOB)
        registered.suspend()
        await asyncio.sleep(70)
        events = made["a1"].broker.events.subscribe()
        c.network.heal()
        await asyncio.sleep(60)
        assert (made["a1"].evicted, made["b1"].evicted) == ([REFUSED], [])
        assert not registered.resume()
        assert made["a1"].broker.index.table.expecting == 0
        told = [await anext(events) for _ in range(2)]
        assert [each.reason for each in told if each.kind == "left"] == [OTHER_OWNER]


async def test_without_rules_no_zone_is_asked_for_suspended_sessions() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        registered = await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        registered.suspend()
        await asyncio.sleep(5)
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(5)
        c.network.cut("test://a1", "test://b1")
        await asyncio.sleep(30)
        c.network.heal()
        await asyncio.sleep(60)
        link = made["a1"].cluster.links.gateways[made["b1"].id].connection
        assert isinstance(link, MemoryLink)
        assert not any(route.endswith("s-of") for route, _ in link.sent)
        assert list(made["a1"].broker.index.suspended) == [UUID(int=1).bytes]


async def test_a_broker_that_tells_no_owners_is_asked_for_places_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clusters() as c:
        first = await c.start("a1", options=zone("a"))
        take_rules(first)
        # One of an earlier version does not have it in its list.
        monkeypatch.setattr("onward.actors.cluster._cluster_inspection.OWNERS", "")
        late = await c.start("b1", ["a1"], options=zone("b"))
        await asyncio.sleep(10)
        await first.connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        await late.connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(5)
        assert first.evicted == [REPLACED]
        ends = [end for link in c.network.links for end in (link, link.far)]
        sent = {route for end in ends for route, _ in end.sent}
        assert "onward.cluster.routes-of" in sent
        assert "onward.cluster.owners-of" not in sent


async def test_without_rules_in_one_zone_the_newer_connection_stays() -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        take_rules(made["b1"])
        await made["a1"].connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(5)
        await made["b1"].connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(5)
        assert made["a1"].evicted == [REPLACED]
        assert made["b1"].evicted == []


@pytest.mark.parametrize("route", ["onward.cluster.routes-of", "onward.cluster.owners-of"])
async def test_what_another_zone_may_not_send(route: str) -> None:
    async with clusters() as c:
        made = await joined(c, "a1 b1")
        gateway = made["a1"].cluster.links.gateways[made["b1"].id]
        assert gateway.connection is not None
        with pytest.raises(OnwardError):
            await gateway.connection.request(route, b"x")
        await asyncio.sleep(1)
        assert made["b1"].cluster.links.callers == {}  # the link is closed, and there is a pause
