"""What a cluster makes of suspended sessions, beside the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from onward.actors import Instrument
from onward.actors.broker._instrument import RequestInstrument
from onward.actors.broker.table._remote import AnyRoute
from onward.actors.cluster import ClusterOptions
from onward.actors.security import Authorization
from onward.protocol.broker import Entry
from onward.protocol.security import NotAllowed, read_rules
from tests.support.clusters import SOON, Clusters, Site, clusters
from tests.support.owners import ANN, BOB, RULES, take_rules


@pytest.fixture
async def cluster() -> AsyncIterator[Clusters]:
    async with clusters() as made:
        yield made


async def pair(cluster: Clusters) -> tuple[Site, Site]:
    """Start two brokers with rules."""
    one = await cluster.start("one")
    two = await cluster.start("two", ["one"])
    await asyncio.sleep(SOON)
    for site in (one, two):
        take_rules(site)
    return one, two


def kept(site: Site) -> int:
    """Return how many suspended sessions of peer brokers a broker knows of."""
    return len(site.broker.index.suspended_elsewhere)


class UpsAndDowns(RequestInstrument):
    """The ups and downs of destinations, as an event log has them."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def joined(self, entry: Entry[AnyRoute], *, replaced: bool) -> None:
        self.told.append("replaced" if replaced else "up")

    def left(self, entry: Entry[AnyRoute], reason: str = "") -> None:
        self.told.append("down")


class Records(Instrument):
    """An instrument with a part for brokers."""

    def __init__(self, part: UpsAndDowns) -> None:
        self.part = part

    def broker_part(self) -> object:
        return self.part


@pytest.mark.parametrize("how", ["owner", "other owner", "here", "resumes", "given up"])
async def test_each_up_has_one_down(cluster: Clusters, how: str) -> None:
    """A session that ends while it is suspended is down since then."""
    one, two = await pair(cluster)
    part = UpsAndDowns()
    one.node.add_instrument(Records(part))
    route_id = UUID(int=1)
    if how == "other owner":
        cluster.network.cut(one.uri, two.uri)
        await asyncio.sleep(60)
        await two.connect("orders", route_id, BOB)
    registered = await one.connect("orders", route_id, ANN)
    registered.suspend()
    await asyncio.sleep(SOON)
    assert part.told == ["up", "down"]
    if how == "owner":
        await two.connect("orders", route_id, ANN)
    elif how == "other owner":
        cluster.network.heal()
    elif how == "here":
        await one.connect("orders", route_id, ANN)
    elif how == "resumes":
        assert registered.resume()
    else:
        registered.withdraw()
    await asyncio.sleep(60)
    assert one.broker.index.suspended == {}
    assert part.told == ["up", "down", *(["up"] if how in {"here", "resumes"} else [])]


async def test_a_broker_that_stops_has_no_down_for_routes_of_others(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    part = UpsAndDowns()
    one.node.add_instrument(Records(part))
    await one.connect("orders", UUID(int=1), ANN)
    await two.connect("orders", UUID(int=2), ANN)
    await asyncio.sleep(SOON)
    assert one.found("orders") == sorted([one.id, two.id])
    await one.node.stop()
    assert part.told == ["up", "down"]


async def test_what_was_told_of_suspended_sessions_is_taken_back_with_the_rules(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    rules = one.broker.authorization
    registered = [await one.connect("orders", UUID(int=number), ANN) for number in (1, 2)]
    for each in registered:
        each.suspend()
    await asyncio.sleep(SOON)
    assert kept(two) == 2
    one.broker.authorization = None
    await asyncio.sleep(SOON)
    assert kept(two) == 0
    # What has been taken back is not told once more when it ends.
    sequence = one.cluster.log.statistics().sequence
    registered[1].withdraw()
    assert one.cluster.log.statistics().sequence == sequence
    # Without rules the newest registration has the id.
    await two.connect("orders", UUID(int=1), BOB)
    await asyncio.sleep(SOON)
    assert one.evicted == ["replaced by a newer connection"]
    late = await one.connect("orders", UUID(int=3), ANN)
    late.suspend()
    await asyncio.sleep(SOON)
    assert kept(two) == 0
    # With rules again it is told, and taken back when it ends.
    one.broker.authorization = rules
    await asyncio.sleep(SOON)
    assert kept(two) == 1
    with pytest.raises(NotAllowed, match="register"):
        await two.connect("orders", UUID(int=3), BOB)
    late.withdraw()
    await asyncio.sleep(SOON)
    assert kept(two) == 0


async def test_other_zones_are_told_of_suspended_sessions_while_there_are_rules() -> None:
    async with clusters() as c:
        near, home, far = [
            await c.start(
                name,
                seeds,
                options=ClusterOptions(zone=name[0], allowed_peers=("test://*",)),
            )
            for name, seeds in (("a1", []), ("a2", ["a1"]), ("b1", ["a1"]))
        ]
        await asyncio.sleep(10)
        rules = Authorization(read_rules(RULES))
        for site in (near, home, far):
            site.broker.authorization = rules
        # The one that the other zone has dialled tells it of the whole zone.
        broker_id = far.cluster.membership.gateway("a")
        assert broker_id is not None
        gateway = far.cluster.links.gateways[broker_id]
        asked, other = (near, home) if broker_id == near.id else (home, near)
        registered = await other.connect("orders", UUID(int=1), ANN)
        registered.suspend()
        await asyncio.sleep(5)
        assert gateway.filter.may_have(UUID(int=1).bytes)
        asked.broker.authorization = None
        await asyncio.sleep(130)  # the filter is made anew
        assert not gateway.filter.may_have(UUID(int=1).bytes)
        asked.broker.authorization = rules
        await asyncio.sleep(130)
        assert gateway.filter.may_have(UUID(int=1).bytes)
