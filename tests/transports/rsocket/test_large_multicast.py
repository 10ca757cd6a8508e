"""Multicasts of large requests: a few copies at a time, and all that is held is counted."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.broker import BrokerOptions
from onward.transports.rsocket import LinkOptions
from tests.support.rsocket_peer import (
    FNF,
    MULTICAST,
    RR,
    C,
    N,
    World,
    asked_for,
    cancel,
    elements,
    errors,
    in_memory,
    payload,
    request,
    restamped,
    world,
)

ASKED = asked_for("a", MULTICAST)
SIZE = 200_000
OPTIONS = BrokerOptions(max_held=2 * SIZE + 10_000, multicast_patience=5)
LINKS = LinkOptions(high_water=20_000, low_water=5_000, stall_timeout=8)


def waiting(w: World) -> int:
    return sum(peer.link.waiting for peer in w.peers if not peer.closed)


@pytest.mark.parametrize("kind", [FNF, RR])
@in_memory
async def test_those_that_do_not_read_get_few_copies_at_a_time(kind: int) -> None:
    async with world(OPTIONS, LINKS) as w:
        requester = await w.requester()
        destinations = [await w.destination() for _ in range(30)]
        for peer in destinations:
            peer.stop_reading()
        await requester.ask(request(kind, 1, ASKED, bytes(SIZE)))
        most = 0
        for _ in range(150):
            most = max(most, waiting(w))
            assert w.broker.index.merging.held <= OPTIONS.max_held
            await asyncio.sleep(1)
        # Two are under way, and two more that were given up wait until their socket is closed.
        assert 2 * SIZE <= most <= 4 * (SIZE + 1000)
        assert w.broker.index.merging.held == requester.link.multicast_held == 0
        for peer in w.peers:
            peer.die()
        await w.loop.idle()


@in_memory
async def test_those_that_read_all_get_it() -> None:
    async with world(OPTIONS, LINKS) as w:
        requester = await w.requester()
        destinations = [await w.destination() for _ in range(30)]
        asked = request(RR, 1, ASKED, bytes(SIZE))
        destinations[3].stop_reading()
        await requester.ask(asked)
        await asyncio.sleep(1)
        for number, peer in enumerate(destinations):
            if number != 3:
                assert await peer.received() == [restamped(asked, 2)]
        await destinations[7].ask(payload(2, b"x", N | C))
        assert elements(await requester.received()) == [b"x"]
        for number, peer in enumerate(destinations):
            if number not in {3, 7}:
                assert await peer.received() == [cancel(2)]
        destinations[3].read_on()
        await asyncio.sleep(1)
        await w.settled_after(destinations[3])
        assert w.broker.index.merging.held == 0


@in_memory
async def test_one_that_leaves_before_its_turn_is_passed_over() -> None:
    async with world(OPTIONS, LINKS) as w:
        requester = await w.requester()
        destinations = [await w.destination() for _ in range(5)]
        for peer in destinations:
            peer.stop_reading()
        await requester.ask(request(RR, 1, ASKED, bytes(SIZE)))
        destinations[4].die()
        await w.loop.idle()
        for peer in destinations[:4]:
            peer.read_on()
        await asyncio.sleep(1)
        assert [len(await peer.received()) for peer in destinations[:4]] == [1] * 4
        for peer in destinations[:4]:
            await peer.ask(payload(2, b"", C))
        assert not errors(await requester.received())
        await w.settled()


@in_memory
async def test_one_that_is_cancelled_goes_to_no_more() -> None:
    async with world(OPTIONS, LINKS) as w:
        requester = await w.requester()
        destinations = [await w.destination() for _ in range(5)]
        for peer in destinations:
            peer.stop_reading()
        await requester.ask(request(RR, 1, ASKED, bytes(SIZE)))
        await requester.ask(cancel(1))
        for peer in destinations:
            peer.read_on()
        await asyncio.sleep(1)
        assert [len(await peer.received()) for peer in destinations] == [2, 2, 0, 0, 0]
        assert w.broker.index.merging.held == 0
        await w.settled()
