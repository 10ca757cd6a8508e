"""What a cluster makes of suspended sessions, beside the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from onward.actors import Instrument
from onward.actors.broker._instrument import RequestInstrument
from onward.actors.broker.table._remote import AnyRoute
from onward.actors.security import Authorization
from onward.protocol.broker import Entry
from onward.protocol.security import Principal, read_rules
from tests.support.clusters import SOON, Clusters, Site, clusters

ANN, BOB = Principal("ann", "token"), Principal("bob", "token")
RULES = """
[[rule]]
names = ["*"]
register = ["service=*"]
"""


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
        site.broker.authorization = Authorization(read_rules(RULES))
    return one, two


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
