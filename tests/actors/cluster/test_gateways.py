"""Zones that there are two gateways to: which of them takes requests, and what becomes of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from onward.actors.cluster import ClusterOptions
from onward.actors.cluster._gateways import GatewayWorker
from onward.protocol import TAGS, Address
from onward.protocol.cluster import ClusterFrameError, ClusterLimits, DuplicateSearch
from onward.protocol.cluster._zones import Zones
from tests.support.clusters import Clusters, FakePeer, Site, clusters
from tests.support.peer_links import MemoryLink

LIMITS = ClusterLimits(peer_hold=5.0, compare=3.0)


def zone(name: str) -> ClusterOptions:
    return ClusterOptions(zone=name, allowed_peers=("test://*",), limits=LIMITS)


@dataclass
class Two:
    """A broker of zone a, and two of zone b.

    Attributes:
        clusters: All brokers.
    """

    clusters: Clusters

    async def join(self, broker_id: UUID | None = None) -> None:
        """Start the one of zone a."""
        await self.clusters.start("a1", ["b1"], options=zone("a"), broker_id=broker_id)

    @property
    def site(self) -> Site:
        """The one of zone a."""
        return self.clusters.sites["a1"]

    @property
    def gateways(self) -> list[GatewayWorker]:
        """The brokers of zone b as gateways, those with a link."""
        workers = self.site.cluster.links.gateways.values()
        return [each for each in workers if each.connection is not None]

    @property
    def search(self) -> DuplicateSearch:
        """The search of the broker of zone a for its routes in zone b."""
        assert self.site.cluster._duplicates is not None
        return self.site.cluster._duplicates.search

    def used(self, query: str) -> str:
        """Return the name of the gateway that a request goes to; empty if there is none."""
        index = self.site.broker.index
        chosen = index.zones.pick(index.asked(Address(TAGS, query.encode())))
        return "" if chosen is None else chosen.peer.name


@pytest.fixture
async def two() -> AsyncGenerator[Two]:
    async with clusters() as c:
        for name in ("b1", "b2"):
            await c.start(name, ["b1"][: name != "b1"], options=zone("b"))
        await asyncio.sleep(10)
        yield Two(c)


@pytest.mark.parametrize("query", [f"route={UUID(int=7).hex}", "instance=o7", "service=orders"])
async def test_requests_go_to_the_other_gateway_after_a_bad_frame_of_one(
    two: Two, query: str
) -> None:
    await two.clusters.sites["b1"].serve("orders", UUID(int=7))
    await two.join()
    await asyncio.sleep(60)
    (first,) = two.gateways
    assert two.used(query) == first.info.name
    first.fault(ClusterFrameError("a bad frame"))
    assert two.used(query) == ""
    await asyncio.sleep(20)
    (second,) = two.gateways
    assert second is not first
    assert two.used(query) == second.info.name
    assert [each.broker for each in two.site.cluster.zones()] == [second.info.name]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens within a second, in steps that are shorter than the way of a frame."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it has not happened")


def prefer(two: Two, name: str, patch: pytest.MonkeyPatch) -> None:
    """Have a broker of zone b come before the other one, whichever ids they have."""
    nearer = two.clusters.sites[name].id

    def rank(_: Zones, broker_id: bytes) -> bytes:
        return b"\0" if broker_id == nearer else b"\1"

    patch.setattr(Zones, "_rank", rank)


async def with_spare(two: Two, patch: pytest.MonkeyPatch) -> tuple[GatewayWorker, MemoryLink]:
    """Have a better gateway found while the first link carries a request; return both."""
    await two.clusters.sites["b1"].serve("orders")
    prefer(two, "b2", patch)
    await two.join()
    await until(lambda: len(two.gateways) > 0)
    (first,) = two.gateways
    assert first.info.name == "b1"
    link = first.connection
    assert isinstance(link, MemoryLink)
    link.in_flight = link.far.in_flight = 1
    await asyncio.sleep(10)
    assert two.used("service=orders") == "b2"
    assert (link.open, len(two.gateways)) == (True, 2)
    return first, link


async def test_a_link_that_a_better_gateway_has_replaced_is_used_again_if_that_is_lost(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, link = await with_spare(two, monkeypatch)
    two.clusters.network.withdraw("test://b2")
    for _ in range(20):
        await asyncio.sleep(0.1)
        assert (two.used("service=orders"), two.gateways) == ("b1", [first])
    assert link.open
    link.in_flight = link.far.in_flight = 0
    await asyncio.sleep(20)
    assert first.connection is link
    assert not first.routes.draining
    row = two.site.peer("test://b1")
    assert (row.state, row.losses) == ("up", 0)


async def test_a_link_that_a_better_gateway_has_replaced_is_closed_once_it_is_idle(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, link = await with_spare(two, monkeypatch)
    # What it says of itself meanwhile does not bring requests back.
    two.clusters.sites["b1"].cluster.drain(draining=True)
    two.clusters.sites["b1"].cluster.drain(draining=False)
    await asyncio.sleep(5)
    assert (two.used("service=orders"), first.routes.draining) == ("b2", True)
    link.in_flight = link.far.in_flight = 0
    await asyncio.sleep(2)
    assert link.closed == ("replaced", "another broker of the zone is nearer")


async def test_a_new_link_is_not_closed_for_one_that_was_replaced(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, link = await with_spare(two, monkeypatch)
    two.clusters.network.withdraw("test://b2")
    link.cut("the connection was reset")
    await until(lambda: first.connection is not None)
    new = first.connection
    await asyncio.sleep(5)
    assert first.connection is new
    assert two.used("service=orders") == "b1"


async def test_a_link_that_was_replaced_replaces_another_one_in_turn(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, link = await with_spare(two, monkeypatch)
    (second,) = (each for each in two.gateways if each is not first)

    def is_better(*_: object) -> bool:
        return True

    def listed(*_: object) -> None:
        """Have no other one tried."""

    monkeypatch.setattr(Zones, "is_better", is_better)
    monkeypatch.setattr(Zones, "listed", listed)
    membership = two.site.cluster.membership
    membership._zones._better["b"] = first.info.broker_id
    two.site.cluster._arm()
    await asyncio.sleep(5)
    assert two.gateways == [first]
    assert first.connection is link
    assert membership.gateway("b") == first.info.broker_id
    assert (first.spare, second.spare) == (False, True)


async def test_a_link_that_was_replaced_is_not_used_again_if_its_broker_is_refused(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, link = await with_spare(two, monkeypatch)
    two.site.cluster.membership._zones._better["b"] = first.info.broker_id
    two.site.cluster._arm()  # the other one is better still
    await asyncio.sleep(5)
    assert (first.connection, first.spare) == (link, True)
    assert len(two.gateways) == 2


async def test_a_gateway_is_of_one_zone_as_long_as_its_link_lasts(two: Two) -> None:
    await two.clusters.sites["b1"].serve("orders", UUID(int=7))
    await two.join()
    await asyncio.sleep(60)
    (first,) = two.gateways
    cluster, told = two.site.cluster, first.info
    for number in range(20):
        timestamp = told.timestamp + number + 1
        other = replace(told, zone=f"z{number}", name=f"n{number}", timestamp=timestamp)
        cluster.heard(other, first)
        await two.site.connect("orders", UUID(int=7))
    assert (first.info.zone, first.routes.zone, first.info.name) == ("b", "b", told.name)
    assert list(two.search._waiting) == ["b"]


@pytest.mark.parametrize("own_id", [UUID(int=0), UUID(int=2**128 - 1)])
@pytest.mark.parametrize("nearer", ["b1", "b2"])
async def test_a_gateway_of_another_zone_after_its_restart_is_asked_for_that_one(
    two: Two, nearer: str, own_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Which broker of zone b is the gateway depends on all ids, and which of two brokers dials the
    # other sooner on theirs.
    prefer(two, nearer, monkeypatch)
    await two.clusters.sites["b1"].serve("orders", UUID(int=7))
    await two.join(own_id)
    await asyncio.sleep(60)
    (first,) = two.gateways
    assert first.info.name == nearer
    for each in ("b1", "b2"):
        # A broker that ran still would dial this one under the id of the restarted one.
        await two.clusters.kill(two.clusters.sites[each])
    await two.site.connect("orders", UUID(int=7))  # is to be looked up when the zone is back
    assert list(two.search._waiting) == ["b"]
    info = replace(first.info, zone="c", instance=first.info.instance + 1)
    fake = FakePeer(**{field: getattr(info, field) for field in info.__dataclass_fields__})
    two.clusters.network.listen(info.cluster_uri, fake)
    await asyncio.sleep(10)
    assert two.gateways == [first]
    assert (first.info.zone, first.routes.zone) == ("c", "c")
    assert "b" not in two.search._waiting
