"""Zones that there are two gateways to: which of them takes requests, and what becomes of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from uuid import UUID

import pytest

from onward.actors.cluster import ClusterOptions
from onward.actors.cluster._gateways import GatewayWorker
from onward.protocol import TAGS, Address
from onward.protocol.cluster import ClusterFrameError, ClusterLimits
from tests.support.clusters import Clusters, Site, clusters

LIMITS = ClusterLimits(peer_hold=5.0, compare=3.0)


def zone(name: str) -> ClusterOptions:
    return ClusterOptions(zone=name, allowed_peers=("test://*",), limits=LIMITS)


@dataclass
class Two:
    """A broker of zone a, and two of zone b.

    Attributes:
        clusters: All brokers.
        site: The one of zone a.
    """

    clusters: Clusters
    site: Site

    @property
    def gateways(self) -> list[GatewayWorker]:
        """The brokers of zone b as gateways, those with a link."""
        workers = self.site.cluster.links.gateways.values()
        return [each for each in workers if each.connection is not None]

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
        yield Two(c, await c.start("a1", ["b1"], options=zone("a")))


@pytest.mark.parametrize("query", [f"route={UUID(int=7).hex}", "instance=o7", "service=orders"])
async def test_requests_go_to_the_other_gateway_after_a_bad_frame_of_one(
    two: Two, query: str
) -> None:
    await two.clusters.sites["b1"].serve("orders", UUID(int=7))
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
