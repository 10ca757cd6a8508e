"""Channels with several destinations: who is waited for, and what is held meanwhile."""

from __future__ import annotations

import asyncio

from onward.actors.broker import BrokerOptions, MulticastOptions
from onward.transports.rsocket import FlowOptions, LinkOptions
from tests.support.rsocket_answers import got, three
from tests.support.rsocket_peer import *

ASKED = asked_for("a", MULTICAST)


@in_world()
async def test_a_channel_both_ways(w: World) -> None:
    requester, first, second, third = await three(w)
    asked = request(CHANNEL, 1, ASKED, b"0", n=5)
    requester.send(asked)
    for destination in (first, second, third):
        assert await got(destination) == restamped(with_n(asked, 1), 2)
    await first.ask(request_n(2, 2))
    await second.ask(request_n(2, 2))
    assert await requester.received() == [request_n(1, 2)]
    await third.ask(request_n(2, 2))
    await requester.ask(payload(1, b"1"), payload(1, b"2", N | C))
    for destination in (first, second, third):
        assert await destination.received() == [payload(2, b"1"), payload(2, b"2", N | C)]
        await destination.ask(payload(2, b"x", N | C))
    assert elements(await requester.received()) == [b"x", b"x", b"x", b""]


@in_world(BrokerOptions(multicast=MulticastOptions(window=2)))
async def test_the_slowest_holds_a_channel_up_for_a_while(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    await third.ask(request_n(2, 10))
    await second.ask(request_n(2, 10))
    assert await got(requester) == request_n(1, 2)
    await requester.ask(payload(1, b"1"), payload(1, b"2"))
    assert len(await third.received()) == 2
    await first.received()  # nothing but the request: it has not asked for any
    assert await first.ask(request_n(2, 1)) == [payload(2, b"1")]
    assert await got(requester) == request_n(1, 1)
    await requester.ask(payload(1, b"3", N))
    await asyncio.sleep(4.9)
    assert await requester.received() == []
    await asyncio.sleep(0.2)
    frames = await requester.received()
    assert await got(first) == cancel(2)
    assert frames == [request_n(1, 7)]
    assert w.broker.index.multicast_rules.left == 1
    await requester.ask(cancel(1))


@in_world()
async def test_elements_in_fragments_for_destinations_of_a_channel(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in (first, second):
        await destination.ask(request_n(2, 3))
    await third.received()
    parts = [payload(1, b"a", N | F), payload(1, b"b", N)]
    await requester.ask(*parts)
    assert await first.received() == [restamped(part, 2) for part in parts]
    assert await third.received() == []
    assert await third.ask(request_n(2, 1)) == [restamped(part, 2) for part in parts]
    await requester.ask(payload(1, b"", C))
    assert await third.received() == [payload(2, b"", C)]  # it is no element
    for destination in (first, second, third):
        await destination.ask(payload(2, b"", C))


@in_world()
async def test_destinations_that_want_no_more_elements(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in (first, second):
        await destination.ask(cancel(2))
    assert await requester.received() == []
    await third.ask(cancel(2))
    assert await requester.received() == [cancel(1)]
    await first.ask(payload(2, b"x", N | C))
    await second.ask(payload(2, b"", C))
    await third.ask(payload(2, b"", C))
    assert elements(await requester.received()) == [b"x", b""]


@in_world()
async def test_destinations_of_a_channel_that_have_answered_still_get_elements(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in destinations:
        await destination.ask(payload(2, b"", C), request_n(2, 5))
    assert payload(1, b"", C) in await requester.received()
    await requester.ask(payload(1, b"1"), payload(1, b"", C))
    for destination in destinations:
        assert await destination.received() == [payload(2, b"1"), payload(2, b"", C)]


@in_world()
async def test_all_have_answered_and_leave_before_the_requester_is_done(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in destinations:
        await destination.ask(payload(2, b"", C))
        destination.die()
    assert set(await requester.received()) == {payload(1, b"", C), cancel(1)}


@in_world()
async def test_an_error_of_the_requester_reaches_all(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    await requester.ask(error(1, 0x301, b"mine"))
    for destination in destinations:
        assert (await destination.received())[-1] == error(2, 0x301, b"mine")


@in_world(BrokerOptions(multicast=MulticastOptions(max_held=2000)))
async def test_too_much_is_held_for_a_slow_destination(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in (first, second):
        await destination.ask(request_n(2, 5))
    await third.received()
    await requester.ask(payload(1, bytes(2000)))
    assert await got(third) == cancel(2)
    assert len(await first.received()) == 1
    await requester.ask(cancel(1))


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000)))
async def test_a_destination_of_an_open_channel_that_does_not_read_stops_nobody(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in (first, second, third):
        await destination.ask(request_n(2, 100))
    first.stop_reading()
    await requester.ask(payload(1, bytes(2000)))
    for number in range(20):
        await requester.ask(payload(1, b"%d" % number))
        assert elements(await second.received())[-1] == b"%d" % number
        await asyncio.sleep(0.2)
    assert requester.transport.reading
    assert not requester.link.blocked
    assert len(first.transport.waiting) < 3000
    first.read_on()
    assert len(elements(await first.received())) == 21
    assert w.broker.index.multicast_rules.held == 0
    # It stops for good.
    first.stop_reading()
    await requester.ask(payload(1, bytes(2000)), payload(1, b"x"))
    await requester.ask(payload(1, b"y"))
    await asyncio.sleep(4.9)
    assert w.broker.index.multicast_rules.left == 0
    await asyncio.sleep(0.2)
    assert w.broker.index.multicast_rules.left == 1
    first.read_on()
    assert (await first.received())[-1] == cancel(2)
    await second.received()
    await requester.ask(cancel(1))


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000)))
async def test_a_request_in_fragments_waits_for_a_destination_that_does_not_read(w: World) -> None:
    requester, first, second, _ = await three(w)
    await requester.ask(request(FNF, 1, ASKED, flags=F))
    first.stop_reading()
    await requester.ask(payload(1, bytes(2000), N | F))
    await requester.ask(payload(1, b"a", N | F))
    await requester.ask(payload(1, b"b", N))
    assert len(await second.received()) == 4
    assert [row.outstanding for row in w.broker.routes()].count(1) == 1
    first.read_on()
    assert len(await first.received()) == 4


@in_world(options=LinkOptions(flow=FlowOptions(high_water=3000)))
async def test_what_is_kept_goes_out_no_faster_than_it_is_read(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in (second, third):
        await destination.ask(request_n(2, 4))
    await requester.ask(*(payload(1, bytes(2000)) for _ in range(4)))
    await first.received()
    first.stop_reading()
    await first.ask(request_n(2, 4))
    assert len(first.transport.waiting) < 6000
    first.read_on()
    assert len(await first.received()) == 4
    # Its socket takes them all.
    await requester.ask(*(payload(1, bytes(2000)) for _ in range(4)))
    for destination in (first, second, third):
        assert len(elements(await destination.ask(request_n(2, 8)))) in {0, 4}
    await requester.ask(payload(1, b"", C))
    for destination in (first, second, third):
        await destination.ask(payload(2, b"", C))


@in_world(BrokerOptions(multicast=MulticastOptions(max_held=20_000)))
async def test_answers_that_are_held_are_no_fault_of_who_waits_for_elements(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, n=1))
    for destination in (first, second, third):
        await destination.received()
    await first.ask(payload(2, b"x"))
    await second.ask(payload(2, bytes(19_000)))
    for destination in (second, third):
        await destination.ask(request_n(2, 10))
    await requester.ask(payload(1, bytes(2000)))
    assert w.broker.index.multicast_rules.left == 0
    assert elements(await first.ask(request_n(2, 1))) == [bytes(2000)]
    await requester.ask(cancel(1))


@in_world()
async def test_nobody_is_waited_for_once_the_requester_is_done(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for destination in (first, second):
        await destination.ask(request_n(2, 5))
    await third.received()
    await requester.ask(payload(1, b"1", N | C))
    for destination in (first, second, third):
        await destination.ask(payload(2, b"", C))
    assert requester.streams == first.streams == 0
    assert third.streams == 1
    await asyncio.sleep(5.1)
    assert await got(third) == cancel(2)


@in_world()
async def test_asking_costs_the_same_however_many_there_are(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination() for _ in range(40)]
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
    for _ in range(50):
        for destination in destinations:
            destination.send(request_n(2, 1))
    frames = await requester.received()
    assert sum(int.from_bytes(raw[9:13]) for raw in frames) == 50
    await requester.ask(cancel(1))
