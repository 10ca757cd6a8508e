"""Multicasts of large requests: a few copies at a time, and all that is held is counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from onward.actors.broker import BrokerOptions, MulticastOptions
from onward.transports.rsocket import FlowOptions, GatheringOptions, LinkOptions
from tests.support.rsocket_answers import three
from tests.support.rsocket_peer import *

ASKED = asked_for("a", MULTICAST)
SIZE = 200_000
OPTIONS = BrokerOptions(
    multicast=MulticastOptions(
        max_held=2 * SIZE + 10_000, max_held_total=8 * SIZE + 40_000, patience=5
    )
)
LINKS = LinkOptions(flow=FlowOptions(high_water=20_000, stall_timeout=8))


def with_multicast(**changes: int) -> BrokerOptions:
    return replace(OPTIONS, multicast=replace(OPTIONS.multicast, **changes))  # type: ignore[arg-type]


def waiting(w: World) -> int:
    return sum(peer.link.waiting for peer in w.peers if not peer.closed)


def nothing_held(w: World, requester: Peer) -> bool:
    rules = w.broker.index.multicast_rules
    return rules.held == rules.set_aside == requester.link.multicast_held == len(rules.copies) == 0


@pytest.mark.parametrize("kind", [FNF, RR])
@in_world(OPTIONS, LINKS)
async def test_those_that_do_not_read_get_few_copies_at_a_time(w: World, kind: int) -> None:
    requester = await w.requester()
    destinations = [await w.destination() for _ in range(30)]
    for peer in destinations:
        peer.stop_reading()
    await requester.ask(request(kind, 1, ASKED, bytes(SIZE)))
    most = 0
    for _ in range(150):
        most = max(most, waiting(w))
        assert w.broker.index.multicast_rules.held <= OPTIONS.multicast.max_held_total
        assert requester.link.multicast_held <= OPTIONS.multicast.max_held
        await asyncio.sleep(1)
    # Two are set aside, two are under way, and two more that were given up wait until their
    # socket is closed.
    assert 4 * SIZE <= most <= 6 * (SIZE + 1000)
    assert nothing_held(w, requester)
    for peer in w.peers:
        peer.die()


@in_world(OPTIONS, LINKS)
async def test_those_that_read_all_get_it(w: World) -> None:
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
    assert w.broker.index.multicast_rules.held == 0


@in_world(OPTIONS, LINKS)
async def test_one_that_leaves_before_its_turn_is_passed_over(w: World) -> None:
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


@in_world(OPTIONS, LINKS)
async def test_one_that_is_cancelled_goes_to_no_more(w: World) -> None:
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
    assert w.broker.index.multicast_rules.held == 0


@in_world(OPTIONS, LINKS)
async def test_a_large_later_fragment_goes_to_a_few_at_a_time(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination() for _ in range(12)]
    first, middle = request(FNF, 1, ASKED, flags=F), payload(1, b"x", F | N)
    await requester.ask(first, middle)
    for peer in destinations:
        assert await peer.received() == [restamped(first, 2), restamped(middle, 2)]
    for peer in destinations[1:]:
        peer.stop_reading()
    large = payload(1, bytes(SIZE), N)
    await requester.ask(large)
    assert waiting(w) <= 2 * (SIZE + 1000)
    # One copy is kept for all that have not been sent it.
    held = w.broker.index.multicast_rules.held
    assert waiting(w) <= held <= 3 * (SIZE + 1000) + 12 * 256
    assert await destinations[0].received() == [restamped(large, 2)]
    for peer in destinations[1:]:
        peer.read_on()
    await asyncio.sleep(1)
    for peer in destinations[1:]:
        assert await peer.received() == [restamped(large, 2)]
    assert nothing_held(w, requester)


@in_world(OPTIONS, LINKS)
async def test_a_large_element_goes_to_a_few_at_a_time_and_in_order(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination() for _ in range(20)]
    await requester.ask(request(CHANNEL, 1, ASKED, n=1))
    for peer in destinations:
        (asked,) = await peer.received()
        await peer.ask(request_n(stream_of(asked), 100))
        peer.stop_reading()
    large, small = payload(1, bytes(SIZE), N), payload(1, b"after it", N)
    await requester.ask(large, small)
    assert waiting(w) <= 2 * (SIZE + 1000)
    held = w.broker.index.multicast_rules.held
    assert waiting(w) <= held <= 3 * (SIZE + 1000) + 2 * 20 * 300
    assert not any(peer.closed for peer in destinations)
    for peer in destinations:
        peer.read_on()
    await asyncio.sleep(1)
    for peer in destinations:
        assert await peer.received() == [restamped(large, 2), restamped(small, 2)]
    assert nothing_held(w, requester)
    await requester.ask(cancel(1))
    requester.die()


@in_world(
    with_multicast(max_held_total=20 * SIZE),
    replace(LINKS, gathering=GatheringOptions(max_multicast_held=3 * SIZE + 10_000)),
)
async def test_two_at_once_keep_to_the_limit_of_their_requester(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination() for _ in range(20)]
    for peer in destinations:
        peer.stop_reading()
    await requester.ask(*(request(FNF, k, ASKED, bytes(SIZE)) for k in (1, 3)))
    rules = w.broker.index.multicast_rules
    for _ in range(300):
        assert requester.link.multicast_held <= 3 * SIZE + 10_000
        assert rules.held <= 20 * SIZE
        assert rules.set_aside <= 5 * SIZE
        await asyncio.sleep(0.1)
    await asyncio.sleep(300)
    assert nothing_held(w, requester)
    assert not rules.overflowed
    for peer in w.peers:
        peer.die()


@in_world(with_multicast(max_held=50 * SIZE, max_held_total=40 * SIZE), LINKS)
async def test_copies_that_others_do_not_read_leave_room_for_an_honest_multicast(w: World) -> None:
    requesters = [await w.requester(f"10.0.1.{k}") for k in range(4)]
    for peer in [await w.destination("evil") for _ in range(30)]:
        peer.stop_reading()
    evil = asked_for("evil", MULTICAST)
    for peer in requesters:
        await peer.ask(*(request(FNF, k, evil, bytes(SIZE)) for k in (1, 3, 5)))
    rules = w.broker.index.multicast_rules
    honest = await w.requester("10.0.0.9")
    readers = [await w.destination("good") for _ in range(3)]
    asked = request(FNF, 1, asked_for("good", MULTICAST), bytes(SIZE))
    await honest.ask(asked)
    assert 30 * SIZE < rules.held <= 40 * SIZE
    assert [await peer.received() for peer in readers] == [[restamped(asked, 2)]] * 3
    for peer in w.peers:
        peer.die()


@in_world(OPTIONS, replace(LINKS, gathering=GatheringOptions(max_multicast_held=SIZE - 1)))
async def test_a_request_that_finds_no_room_is_refused_after_a_while(w: World) -> None:
    requester = await w.requester()
    for _ in range(3):
        await w.destination()
    await requester.ask(request(RR, 1, ASKED, bytes(SIZE)))
    await asyncio.sleep(OPTIONS.multicast.patience + 1)
    (refused,) = errors(await requester.received())
    assert refused[1:] == (0x203, "too many bytes are held for multicasts")
    assert w.broker.statistics().multicast_overflowed == 1


@in_world(
    OPTIONS, replace(LINKS, gathering=GatheringOptions(max_gathered=1024 * 1024, max_gather=1000))
)
async def test_what_waits_for_its_turn_counts_as_gathered(w: World) -> None:
    requester = await w.requester()
    for _ in range(20):
        (await w.destination()).stop_reading()
    for k in range(10):
        requester.send(request(RR, 2 * k + 1, ASKED, bytes(SIZE)))
    refused = errors(await requester.received())
    assert [code for _, code, _ in refused] == [0x202] * 5
    for peer in w.peers:
        peer.die()


@in_memory
async def test_those_that_do_not_read_do_not_delay_the_others() -> None:
    options = with_multicast(max_held_total=50 * SIZE)
    async with world(options, LINKS) as w:
        requester = await w.requester()
        for _ in range(12):
            (await w.destination()).stop_reading()
        readers = [await w.destination() for _ in range(3)]
        asked = request(RR, 1, ASKED, bytes(SIZE))
        await requester.ask(asked)
        await asyncio.sleep(options.multicast.patience / 2)
        assert [await peer.received() for peer in readers] == [[restamped(asked, 2)]] * 3
        assert w.broker.statistics().multicast_left == 0
        for peer in w.peers:
            peer.die()
        await w.loop.idle()


@in_world(OPTIONS, replace(LINKS, flow=replace(LINKS.flow, stall_timeout=30)))
async def test_one_that_reads_slowly_gets_all_of_it(w: World) -> None:
    requester = await w.requester()
    slow, _ = [await w.destination() for _ in range(2)]
    slow.stop_reading()
    asked = request(RR, 1, ASKED, bytes(SIZE))
    await requester.ask(asked)
    for _ in range(12):
        slow.transport.drain(SIZE // 12)
        await asyncio.sleep(OPTIONS.multicast.patience / 2)
    slow.read_on()
    assert await slow.received() == [restamped(asked, 2)]
    await asyncio.sleep(1)
    assert nothing_held(w, requester)
    assert w.broker.statistics().multicast_left == 0
    for peer in w.peers:
        peer.die()


@in_memory
async def test_copies_below_high_water_count_too_for_as_long_as_the_patience() -> None:
    options = with_multicast(max_held_total=100 * SIZE)
    async with world(options, replace(LINKS, flow=replace(LINKS.flow, high_water=2 * SIZE))) as w:
        requester = await w.requester()
        destinations = [await w.destination() for _ in range(8)]
        for peer in destinations:
            peer.stop_reading()
        asked = request(RR, 1, ASKED, bytes(SIZE))
        await requester.ask(asked)
        rules = w.broker.index.multicast_rules
        assert rules.held == waiting(w) - 3 * 2
        assert 2 * SIZE < rules.held < 3 * SIZE
        await asyncio.sleep(4)
        assert 8 * SIZE < rules.held < 9 * SIZE
        await asyncio.sleep(2 * options.multicast.patience)
        # None is given up or closed for it: it is not much.
        assert nothing_held(w, requester)
        for peer in destinations:
            peer.read_on()
            assert await peer.received() == [restamped(asked, 2)]
        for peer in w.peers:
            peer.die()
        await w.loop.idle()


@in_world(OPTIONS)
async def test_many_copies_of_a_middling_request_go_in_slices(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination() for _ in range(100)]
    asked = request(FNF, 1, ASKED, bytes(60_000))
    requester.send(asked)
    most = before = 0
    for _ in range(60):
        await asyncio.sleep(0)
        now = sum(len(peer.transport.delivered) for peer in destinations)
        most, before = max(most, now - before), now
    assert before == 100 * len(asked)
    assert most <= 6 * len(asked)
    await asyncio.sleep(1)
    assert nothing_held(w, requester)


async def send_fragments_that_exceed_a_limit(w: World) -> None:
    """Send a request in fragments to destinations that do not read until it is over."""
    requester, *destinations = await three(w)
    await requester.ask(request(FNF, 1, ASKED, flags=F))
    for peer in destinations:
        peer.stop_reading()
    for _ in range(6):
        await requester.ask(payload(1, bytes(1500), N | F))
    for peer in destinations:
        peer.read_on()
    await asyncio.sleep(2 * OPTIONS.multicast.patience)
    assert nothing_held(w, requester)


SMALL = FlowOptions(high_water=1000)


@in_world(OPTIONS, LinkOptions(flow=SMALL, gathering=GatheringOptions(max_multicast_held=3000)))
async def test_fragments_beyond_the_limit_of_a_requester_leave_nothing_held(w: World) -> None:
    await send_fragments_that_exceed_a_limit(w)
    rules = w.broker.index.multicast_rules
    assert (rules.overflowed, rules.left) == (1, 0)


@in_world(with_multicast(max_held=3000), LinkOptions(flow=SMALL))
async def test_fragments_beyond_the_limit_of_a_multicast_leave_nothing_held(w: World) -> None:
    await send_fragments_that_exceed_a_limit(w)
    rules = w.broker.index.multicast_rules
    # Each of the three is given up once.
    assert (rules.overflowed, rules.left) == (0, 3)
