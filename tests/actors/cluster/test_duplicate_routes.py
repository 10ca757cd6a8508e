"""Own routes in another zone that there are two links to, as the broker of the first one drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from onward.actors.cluster import ClusterOptions
from onward.actors.cluster._gateways import GatewayWorker
from onward.protocol import LinkLost
from onward.protocol.cluster import (
    OWNERS_ROUTE,
    DuplicateSearch,
    Element,
    ElementKind,
    RouteFilter,
)
from tests.support.clusters import Clusters, Site, clusters
from tests.support.owners import ANN, BOB, REFUSED, REPLACED, asks_only, duplicates, take_rules
from tests.support.peer_links import MemoryLink


class TwoZones:
    """Two brokers of zone a, and one of zone b.

    Attributes:
        made: The brokers by name.
        site: The one of zone b.
        first: The gateway that it has a link with from the start.
    """

    def __init__(self, made: dict[str, Site]) -> None:
        self.made = made
        self.site = made["b1"]
        (self.first,) = self.site.cluster.links.gateways.values()

    @property
    def linked(self) -> list[GatewayWorker]:
        """The brokers of zone a that it has links with."""
        workers = self.site.cluster.links.gateways.values()
        return [each for each in workers if each.connection is not None]

    def at(self, gateway: GatewayWorker) -> Site:
        """Return the broker of a gateway."""
        return next(each for each in self.made.values() if each.id == gateway.info.broker_id)

    async def drain(self) -> GatewayWorker:
        """Have the first gateway drain; return the second one."""
        self.at(self.first).cluster.drain(draining=True)
        await asyncio.sleep(10)
        first, second = self.linked
        assert first is self.first
        return second

    @property
    def search(self) -> DuplicateSearch:
        """The search of the broker of zone b."""
        return duplicates(self.site).search


async def two_zones(c: Clusters, connect_timeout: float = 5.0) -> TwoZones:
    """Start the brokers."""
    made: dict[str, Site] = {}
    for name, seeds in (("a1", ()), ("a2", ("a1",)), ("b1", ("a1",))):
        options = ClusterOptions(zone=name[0], allowed_peers=("test://*",))
        options = replace(options, connect_timeout=connect_timeout)
        made[name] = await c.start(name, seeds, options=options)
        take_rules(made[name])
    await asyncio.sleep(120)  # what was replaced by a nearer gateway is forgotten
    return TwoZones(made)


def held(patch: pytest.MonkeyPatch, gateway: GatewayWorker) -> list[asyncio.Future[bytes | None]]:
    """Hold what a gateway is asked for own routes; return what lets each go, or is its answer."""
    link, waiting = gateway.connection, list[asyncio.Future[bytes | None]]()
    assert isinstance(link, MemoryLink)
    request = link.request

    async def hold(route: str, data: bytes) -> bytes:
        if route != OWNERS_ROUTE:
            return await request(route, data)
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1] or await request(route, data)

    patch.setattr(link, "request", hold)
    return waiting


def lose(gateway: GatewayWorker) -> None:
    """End the link to a gateway."""
    assert gateway.connection is not None
    gateway.connection.close("stopped", "the broker stops")


async def contested(
    zones: TwoZones, patch: pytest.MonkeyPatch
) -> tuple[GatewayWorker, list[asyncio.Future[bytes | None]]]:
    """Connect one owner at the second gateway, and another one of its id in the other zone.

    Returns:
        The second gateway, and what the first one, which drains, has been asked: see `held`.
    """
    second = await zones.drain()
    await zones.at(second).connect("orders", UUID(int=1), ANN)
    await asyncio.sleep(5)
    waiting = held(patch, zones.first)
    await zones.site.connect("orders", UUID(int=1), BOB)
    return second, waiting


async def test_what_a_draining_gateway_leaves_unanswered_is_asked_of_the_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clusters() as c:
        zones = await two_zones(c)
        second, waiting = await contested(zones, monkeypatch)
        await asyncio.sleep(1)
        (request,) = waiting
        lose(zones.first)
        await asyncio.sleep(1)
        request.set_exception(LinkLost("the link is lost"))
        await asyncio.sleep(1)
        assert zones.linked == [second]
        assert zones.site.evicted == [REFUSED]
        assert zones.search.statistics().waiting == 0


async def test_a_zone_is_asked_by_the_other_gateway_after_one_has_not_answered_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clusters() as c:
        zones = await two_zones(c)
        second, waiting = await contested(zones, monkeypatch)
        await asyncio.sleep(30)
        assert (len(waiting), zones.site.evicted) == (1, [REFUSED])
        assert zones.linked == [zones.first, second]


async def test_a_zone_is_asked_by_the_other_gateway_after_a_bad_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clusters() as c:
        zones = await two_zones(c)
        second, waiting = await contested(zones, monkeypatch)
        await asyncio.sleep(1)
        waiting[0].set_result(b"no answer")
        await asyncio.sleep(1)
        assert zones.linked == [second]
        assert zones.site.evicted == [REFUSED]


async def test_an_answer_is_that_to_its_own_request_though_there_is_a_second_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with clusters() as c:
        zones = await two_zones(c, connect_timeout=60.0)
        for number in (1, 2):
            await zones.at(zones.first).connect("orders", UUID(int=number), ANN)
        await asyncio.sleep(5)
        waiting = held(monkeypatch, zones.first)
        await zones.site.connect("orders", UUID(int=1), BOB)
        await asyncio.sleep(1)
        second = await zones.drain()
        await zones.site.connect("orders", UUID(int=2), BOB)
        await asyncio.sleep(1)
        assert (len(waiting), zones.site.evicted) == (1, [])
        waiting[0].set_result(None)
        await asyncio.sleep(1)
        for each in waiting[1:]:
            each.set_result(None)
        await asyncio.sleep(1)
        assert zones.site.evicted == [REFUSED, REFUSED]
        assert zones.linked == [zones.first, second]


async def test_a_zone_that_is_to_be_asked_again_is_asked_by_the_other_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An owner moves to a zone that does not ask since when it has its id."""
    async with clusters() as c:
        zones = await two_zones(c)
        second = await zones.drain()
        await zones.site.connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(60)
        monkeypatch.setattr(DuplicateSearch, "next", asks_only(zones.site))
        monkeypatch.setattr(second, "duplicates", None)  # it tells of no ids
        await zones.at(zones.first).connect("orders", UUID(int=1), ANN)
        await asyncio.sleep(2.5)
        asked = zones.search.statistics().asked
        assert 0 < asked < 4
        lose(zones.first)
        await asyncio.sleep(10)
        assert zones.linked == [second]
        assert zones.search.statistics().asked == 4
        assert zones.site.evicted == [REPLACED]


def filter_of(gateway: GatewayWorker, number: int) -> bytes:
    """Return a whole filter of no route ids, up to a number."""
    data = RouteFilter.for_ids(0, bytes(16), 1024).serialize()
    info = gateway.info
    position = info.instance, number
    return Element(ElementKind.FILTER, info.broker_id, *position, (data,), last=True).serialize()


async def test_own_routes_are_looked_up_in_the_last_filter_of_a_zone_that_sends_many() -> None:
    async with clusters() as c:
        zones = await two_zones(c)
        for number in range(1100):
            await zones.site.serve("orders", UUID(int=number + 1))
        duplicates, receiver = zones.first.duplicates, zones.first._filters
        assert duplicates is not None
        assert receiver is not None
        looked_up = Counter[bytes]()

        def may_have(route_id: bytes) -> bool:
            looked_up[route_id] += 1
            return False

        for number in range(1000, 2000):
            zones.first.on_filter(receiver, filter_of(zones.first, number))
            zones.first.filter.may_have = may_have  # type: ignore[method-assign]
            assert len(duplicates._unnamed) == 1
        await asyncio.sleep(1)
        assert len(looked_up) == 1100
        assert max(looked_up.values()) == 2  # what has come meanwhile is one more look-up
        assert not duplicates._unnamed
        assert zones.linked == [zones.first]
