"""Requests from one zone to another, frame by frame: three brokers in memory, on both paths."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple
from uuid import UUID

import pytest

from onward.actors.broker import PeerRoutes
from onward.protocol.broker import RouteAdd, WellKnownKey
from onward.protocol.cluster import LinkRole
from tests.support.peer_brokers import Joint, join
from tests.support.rsocket_peer import *

REJECTED = 0x202
ROUTE_ID = int(WellKnownKey.ROUTE_ID)
SERVICE = int(WellKnownKey.SERVICE_NAME)
FIRST = UUID(int=0xFA00)


class Zoned(NamedTuple):
    """A broker of zone a that has dialled one of zone b, which has a mesh link to a third.

    Attributes:
        gateway: The link between the zones.
        mesh: The link within zone b.
        zone: Zone b, as the first broker knows it.
    """

    gateway: Joint
    mesh: Joint
    zone: PeerRoutes

    def tell(self, service: str, routes: int = 1, number: int = 1) -> None:
        """Tell the first broker of a group."""
        tags = ((SERVICE, service), ("onward.count", str(routes)))
        told = RouteAdd(
            self.zone.broker_id, bytes([number]) * 16, int(time.time() * 1000), service, tags
        )
        assert not self.gateway.near.broker.index.add_group(self.zone, told)


@asynccontextmanager
async def zoned(near: World) -> AsyncGenerator[Zoned]:
    async with world() as middle, world() as far:
        gateway, mesh = await join(near, middle), await join(middle, far)
        gateway.link.role, gateway.accepted.role = LinkRole.TO_ZONE, LinkRole.FROM_ZONE
        zone = PeerRoutes(middle.broker.broker_id.bytes, "middle")
        zone.zone, zone.without = "b", frozenset((ROUTE_ID,))
        near.broker.index.gateway_joined(zone)
        zone.connected(gateway.link.worker.address, "middle", lambda: gateway.link.busy)
        yield Zoned(gateway, mesh, zone)
        for each in (middle, far):
            await each.settled()
        for link in (gateway.link, gateway.accepted, mesh.link, mesh.accepted):
            assert not link.core.streams
            assert not link.core.counters["forwarded_again"]


async def rejected(requester: Peer) -> bool:
    """Return whether a request is refused once it has waited for a route."""
    await asyncio.sleep(6)
    return [code for _, code, _ in errors(await requester.received())] == [REJECTED]


@in_world()
async def test_a_request_goes_to_a_broker_of_the_zone(w: World) -> None:
    async with zoned(w) as z:
        destination = await z.gateway.far.destination("a")
        z.tell("a")
        requester = await w.requester()
        assert await requester.ask(request(RR, 1, asked_for("a"), b"data")) == []
        # It is not pinned: the other zone chooses.
        sent = z.gateway.there.taken()
        assert sent == [request(RR, 3, asked_for("a"), b"data")]
        assert await destination.received() == [request(RR, 2, asked_for("a"), b"data")]
        await destination.ask(payload(2, b"answer", N | C))
        assert await requester.received() == [payload(1, b"answer", N | C)]
        group = w.broker.index.zones.table.pick(frozenset({(SERVICE, "a")}), 0)
        assert group is not None
        assert (group.target.requests, group.target.outstanding) == (1, 0)


@in_world()
async def test_the_second_broker_forwards_once_more_within_its_zone(w: World) -> None:
    async with zoned(w) as z:
        destination = await z.mesh.destination("a")
        z.tell("a")
        requester = await w.requester()
        metadata = composite((FORWARDING, address("a", mime=FORWARDING)))
        assert await requester.ask(request(RR, 1, metadata, b"data")) == []
        assert len(await destination.received()) == 1
        [passed] = z.mesh.there.taken()
        for broker in (w.broker, z.gateway.far.broker):
            assert broker.broker_id.bytes in passed
        assert str(FIRST).encode() in passed  # the second broker has pinned it
        await destination.ask(payload(2, b"answer", N | C))
        assert await requester.received() == [payload(1, b"answer", N | C)]


@in_world()
async def test_the_own_zone_comes_first(w: World) -> None:
    async with zoned(w) as z:
        z.tell("a")
        own, requester = await w.destination("a"), await w.requester()
        await requester.ask(request(FNF, 1, asked_for("a"), b"data"))
        assert await own.received() == [request(FNF, 2, asked_for("a"), b"data")]
        assert z.gateway.there.taken() == []


@in_world()
async def test_a_request_of_another_zone_goes_to_no_third_one(w: World) -> None:
    async with zoned(w) as z:
        z.tell("a")
        # The second broker knows of a zone that has it, and must not use it.
        middle = z.gateway.far
        third = PeerRoutes(bytes(16), "third")
        third.zone = "c"
        middle.broker.index.gateway_joined(third)
        told = RouteAdd(bytes(16), bytes(16), 1, "a", ((SERVICE, "a"), ("onward.count", "5")))
        assert not middle.broker.index.add_group(third, told)
        requester = await w.requester()
        await requester.ask(request(RR, 1, asked_for("a"), b"data"))
        assert await rejected(requester)


@in_world()
async def test_nothing_is_asked_back_by_a_link_to_a_zone(w: World) -> None:
    async with zoned(w) as z:
        own = await w.destination("a")
        metadata = composite((FORWARDING, address("a", mime=FORWARDING)))
        core, link = z.gateway.accepted.core, z.gateway.accepted
        stream = core.open(RR)
        core.send_request(stream, b"data", metadata)
        stream.peer = None
        link.flush_soon()
        await w.settled()
        assert [code for _, code, _ in errors(z.gateway.there.taken())] == [REJECTED]
        assert await own.received() == []
        assert z.gateway.link.core.counters["passed_on"] == 1


@in_world()
async def test_a_zone_that_rejects_a_request_is_followed_by_the_next(w: World) -> None:
    async with zoned(w) as z, zoned(w) as y:
        z.tell("a", 1000)
        y.tell("a", 1)
        destination, requester = await y.gateway.far.destination("a"), await w.requester()
        w.broker.index.zones.random = lambda: 0.0
        await requester.ask(request(RR, 1, asked_for("a"), b"data"))
        assert len(z.gateway.there.taken()) == 1
        assert await destination.received() == [request(RR, 2, asked_for("a"), b"data")]
        await destination.ask(payload(2, b"answer", N | C))
        assert await requester.received() == [payload(1, b"answer", N | C)]


@in_world()
async def test_a_multicast_has_one_leg_for_each_zone(w: World) -> None:
    async with zoned(w) as z:
        own = await w.destination("a")
        first, second = await z.gateway.far.destination("a"), await z.mesh.destination("a")
        z.tell("a", 2)
        requester = await w.requester()
        multicast = asked_for("a", MULTICAST)
        assert await requester.ask(request(STREAM, 1, multicast, n=9)) == []
        assert len(z.gateway.there.taken()) == 1
        assert len(z.mesh.there.taken()) == 1
        for number, destination in enumerate((own, first, second)):
            [arrived] = await destination.received()
            assert kind_of(arrived) == STREAM
            await destination.ask(payload(2, b"%d" % number, N | C))
        found = [each for each in elements(await requester.received()) if each]
        assert sorted(found) == [b"0", b"1", b"2"]


@in_world()
async def test_a_multicast_for_one_zone_alone(w: World) -> None:
    async with zoned(w) as z:
        destination, requester = await z.mesh.destination("a"), await w.requester()
        z.tell("a")
        await requester.ask(request(FNF, 1, asked_for("a", MULTICAST), b"x"))
        assert len(await destination.received()) == 1


@pytest.mark.parametrize("hints", ["@shard=user", "@shard=user @method=modulo", "@sticky=user"])
@in_world()
async def test_a_named_route_has_its_hints_in_another_zone(w: World, hints: str) -> None:
    """The other zone chooses: by the same key it takes the same of its destinations."""
    async with zoned(w) as z:
        z.tell("a", 4)
        some = [await z.gateway.far.destination("a", route_id=UUID(int=n)) for n in range(1, 5)]
        requester = await w.requester()
        for number in range(12):
            for repeat in range(2):
                query = f"32#{hints} service=a user={number}".encode()
                metadata = composite((b"message/x.onward.route.v0", query))
                sent = request(FNF, 4 * number + 2 * repeat + 1, metadata, b"%03d" % number)
                assert await requester.ask(sent) == []
        chosen: dict[bytes, set[int]] = {}
        total = 0
        for at, destination in enumerate(some):
            for frame in await destination.received():
                total += 1
                chosen.setdefault(frame[-3:], set()).add(at)
        assert total == 24
        assert all(len(found) == 1 for found in chosen.values())
        assert len({at for found in chosen.values() for at in found}) > 1


@in_world()
async def test_a_request_by_route_id(w: World) -> None:
    async with zoned(w) as z:
        destination, requester = await z.mesh.destination("a"), await w.requester()
        asked = asked_for({SERVICE: "a", ROUTE_ID: str(FIRST)})
        await requester.ask(request(RR, 1, asked))
        assert await rejected(requester)
        z.zone.may_have = lambda route_id: route_id == FIRST.bytes
        await requester.ask(request(RR, 3, asked))
        assert kind_of((await destination.received())[-1]) == RR
        await destination.ask(payload(2, b"answer", N | C))
        assert await requester.received() == [payload(3, b"answer", N | C)]


@in_world()
async def test_a_remembered_route_id_is_not_used_while_its_broker_is_out_of_reach(w: World) -> None:
    async with zoned(w) as z:
        destination, requester = await z.mesh.destination("a"), await w.requester()
        asked = asked_for({SERVICE: "a", ROUTE_ID: str(FIRST)})
        z.zone.may_have = lambda route_id: route_id == FIRST.bytes
        await requester.ask(request(FNF, 1, asked))
        assert len(await destination.received()) == 1
        index = z.gateway.far.broker.index
        (third,) = index.peers.known.values()
        index.suspend_peer(third)
        await requester.ask(request(RR, 3, asked))
        assert await rejected(requester)
        assert RR not in map(kind_of, await destination.received())
        index.reveal_peer(third)
        await requester.ask(request(FNF, 5, asked))
        assert kind_of((await destination.received())[-1]) == FNF


@in_world()
async def test_a_request_waits_until_a_zone_has_a_destination(w: World) -> None:
    async with zoned(w) as z:
        destination, requester = await z.gateway.far.destination("a"), await w.requester()
        assert await requester.ask(request(RR, 1, asked_for("a"), b"data")) == []
        assert z.gateway.there.taken() == []
        z.tell("a")
        await asyncio.sleep(0.1)
        assert len(await destination.received()) == 1
        await destination.ask(payload(2, b"answer", N | C))
        assert await requester.received() == [payload(1, b"answer", N | C)]


@in_world()
async def test_a_zone_that_has_no_such_destination_any_more(w: World) -> None:
    async with zoned(w) as z:
        z.tell("a")
        assert w.broker.index.zones.drop(z.zone, 10) == 1
        requester = await w.requester()
        await requester.ask(request(RR, 1, asked_for("a")))
        assert await rejected(requester)


@in_world()
async def test_a_request_waits_for_a_zone_out_of_reach(w: World) -> None:
    async with zoned(w) as z:
        destination, requester = await z.gateway.far.destination("a"), await w.requester()
        z.tell("a")
        index = w.broker.index
        index.suspend_gateway(z.zone)
        assert await requester.ask(request(FNF, 1, asked_for("a"), b"x")) == []
        await asyncio.sleep(2)
        assert w.broker.statistics().waiting == 1
        index.reveal_gateway(z.zone)
        await asyncio.sleep(0.1)
        assert [kind_of(each) for each in await destination.received()] == [FNF]
