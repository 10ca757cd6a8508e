"""Peers that honour leases: what destinations lease, and what requesters are leased."""

from __future__ import annotations

import asyncio

import pytest

from onward.protocol import NotDelivered
from onward.transports.rsocket import LeaseOptions, LinkOptions
from tests.support.rsocket_peer import *

L = 0x040
ASKED = asked_for("a")
REJECTED = 0x202
UNSUPPORTED_SETUP = 0x002
OPTIONS = LinkOptions(lease=LeaseOptions(requests=3, interval=10.0))


def lease(ttl: int, requests: int) -> bytes:
    return frame(0, LEASE, 0, ttl.to_bytes(4) + requests.to_bytes(4))


async def leasing(w: World) -> Peer:
    """Connect a destination that honours leases."""
    peer = w.connect()
    wanted = composite((BROKER_FRAME, route_setup(w.new_id(), "a")))
    assert [kind_of(raw) for raw in await peer.ask(setup(wanted, flags=L))] == [LEASE]
    return peer


def codes(frames: list[bytes]) -> list[int]:
    return [code for _, code, _ in errors(frames)]


@in_world(options=OPTIONS)
async def test_a_destination_gets_what_it_leases(w: World) -> None:
    destination, requester = await leasing(w), await w.requester()
    ((_, code, text),) = errors(await requester.ask(request(RR, 1, ASKED)))
    assert code == REJECTED
    assert "has leased no more requests" in text
    await destination.ask(lease(1000, 1))
    both = request(RR, 3, ASKED), request(RR, 5, ASKED)
    assert codes(await requester.ask(*both)) == [REJECTED]
    assert [kind_of(raw) for raw in await destination.received()] == [RR]
    await destination.ask(payload(2, b"x", N | C))
    assert elements(await requester.received()) == [b"x"]
    await destination.ask(lease(1000, 5))
    await asyncio.sleep(2)
    assert codes(await requester.ask(request(RR, 7, ASKED))) == [REJECTED]
    with pytest.raises(NotDelivered):
        await w.node.request("32#service=a", b"")


@in_world(options=OPTIONS)
async def test_another_destination_is_chosen_meanwhile(w: World) -> None:
    destination, requester = await leasing(w), await w.requester()
    other = await w.destination()
    for number in range(4):
        await requester.ask(request(FNF, 2 * number + 1, ASKED))
    assert len(await other.received()) == 4
    assert await destination.received() == []


@in_world(options=OPTIONS)
async def test_a_requester_is_leased_requests_before_it_runs_out(w: World) -> None:
    requester, destination = w.connect(), await w.destination()
    assert await requester.ask(setup(flags=L)) == [lease(15_000, 3)]
    frames = [request(RR, 2 * number + 1, ASKED) for number in range(4)]
    assert codes(await requester.ask(*frames)) == [REJECTED]
    assert len(await destination.received()) == 3
    await asyncio.sleep(10.1)
    assert await requester.received() == [lease(15_000, 3)]
    await requester.ask(request(FNF, 9, ASKED))
    is_it_alive, sent = await destination.received()
    assert (is_it_alive, kind_of(sent)) == (IS_IT_ALIVE, FNF)
    requester.die()


@in_world(options=OPTIONS)
async def test_a_peer_without_leases_needs_none(w: World) -> None:
    requester, destination = await w.pair()
    assert await destination.ask(lease(1000, 0)) == []
    await requester.ask(request(FNF, 1, ASKED))
    assert len(await destination.received()) == 1


@in_world(options=LinkOptions(lease=None))
async def test_leases_can_be_refused(w: World) -> None:
    peer = w.connect()
    assert codes(await peer.ask(setup(flags=L))) == [UNSUPPORTED_SETUP]
    assert peer.closed


@pytest.mark.parametrize("code", [0x101, 0x102])
@in_world(options=OPTIONS)
async def test_no_lease_is_sent_on_a_connection_that_ends(w: World, code: int) -> None:
    requester, destination = w.connect(), await w.destination()
    await requester.ask(setup(flags=L))
    await requester.ask(request(RR, 1, ASKED))
    requester.send(frame(0, 0x0B, 0, code.to_bytes(4)))
    await asyncio.sleep(11)
    assert LEASE not in [kind_of(raw) for raw in await requester.received()]
    await destination.received()
    requester.die()


@in_world(options=OPTIONS)
async def test_a_lease_has_an_unused_bit(w: World) -> None:
    destination, requester = await leasing(w), await w.requester()
    await destination.ask(lease(0x80000000 | 1000, 0x80000001))
    assert codes(await requester.ask(request(FNF, 1, ASKED))) == []
    assert len(await destination.received()) == 1
    await destination.ask(payload(2, b"", C))
