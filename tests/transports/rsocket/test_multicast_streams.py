"""Streams of several destinations: how their elements become one stream, within its credit."""

from __future__ import annotations

from onward.actors.broker import BrokerOptions, MulticastOptions
from onward.transports.rsocket import FlowOptions, GatheringOptions, LinkOptions
from tests.support.rsocket_answers import got, three
from tests.support.rsocket_peer import *

ASKED = asked_for("a", MULTICAST)
REJECTED, CANCELED = 0x202, 0x203


@in_world()
async def test_a_stream_of_all_elements_in_the_order_they_come(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=10))
    for destination in (first, second, third):
        assert await got(destination) == request(STREAM, 2, ASKED, n=1)
    assert await first.ask(payload(2, b"1")) == [request_n(2, 2)]
    await second.ask(payload(2, b"", N, b"m"))
    await second.ask(payload(2, b"3", N | C))
    await first.ask(payload(2, b"", C))
    assert await requester.received() == [
        payload(1, b"1"),
        payload(1, b"", N, b"m"),
        payload(1, b"3"),
    ]
    await third.ask(payload(2, b"4"))
    await third.ask(payload(2, b"5", C | N | F))
    assert await requester.received() == [payload(1, b"4"), payload(1, b"5"), payload(1, b"", C)]


@in_world()
async def test_credit_is_never_exceeded_and_the_excess_is_held(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=2))
    for name, destination in zip(b"abc", (first, second, third), strict=True):
        assert await got(destination) == request(STREAM, 2, ASKED, n=1)
        frames = await destination.ask(payload(2, bytes((name, 49))))
        assert frames == ([request_n(2, 1)] if destination is first else [])
    await first.ask(payload(2, b"a2"))
    assert elements(await requester.received()) == [b"a1", b"b1"]
    assert elements(await requester.ask(request_n(1, 1))) == [b"c1"]
    assert await first.received() == []  # one is still held
    assert elements(await requester.ask(request_n(1, 4))) == [b"a2"]
    for destination, most in ((first, 3), (second, 2), (third, 2)):
        assert await got(destination) == request_n(2, most)
        await destination.ask(payload(2, b"", C))
    assert await got(requester) == payload(1, b"", C)


@in_world()
async def test_a_silent_destination_does_not_keep_credit_from_the_others(w: World) -> None:
    requester, first, *_ = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1))
    await first.received()
    for number in range(100):
        await first.ask(payload(2, b"%d" % number))
        assert elements(await requester.received()) == [b"%d" % number]
        await requester.ask(request_n(1, 1))
        assert await got(first) == request_n(2, 1)
    await requester.ask(cancel(1))


@in_world(BrokerOptions(multicast=MulticastOptions(window=4)))
async def test_a_destination_is_no_more_than_a_window_ahead(w: World) -> None:
    requester, first, *_ = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1000))
    assert await got(first) == request(STREAM, 2, ASKED, n=1)
    assert await first.ask(payload(2)) == [request_n(2, 2)]
    assert await first.ask(payload(2)) == [request_n(2, 3)]
    assert await first.ask(payload(2)) == []
    assert await first.ask(payload(2)) == [request_n(2, 2)]
    await requester.ask(cancel(1))


@in_world()
async def test_fragments_of_two_elements_are_not_mixed(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=10))
    await first.ask(payload(2, b"a1", N | F))
    await second.ask(payload(2, b"b1", N | F))
    await third.ask(payload(2, b"c"))
    assert await requester.received() == [payload(1, b"c")]
    await second.ask(payload(2, b"b2", 0))
    await second.ask(payload(2, b"B", N | C))
    assert await requester.received() == [
        payload(1, b"b1", N | F),
        payload(1, b"b2"),
        payload(1, b"B"),
    ]
    await first.ask(payload(2, b"a2", N | F), payload(2, b"a3", C))
    assert await requester.received() == [
        payload(1, b"a1", N | F),
        payload(1, b"a2", N | F),
        payload(1, b"a3", N),
    ]
    await third.ask(payload(2, b"d1", N | F))  # nobody else has anything to say
    assert await got(requester) == payload(1, b"d1", N | F)
    await third.ask(payload(2, b"d2", C))
    assert await requester.received() == [payload(1, b"d2", N), payload(1, b"", C)]


@in_world()
async def test_one_leaves_in_the_middle_of_an_element(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=10))
    await first.ask(payload(2, b"a1", N | F))
    await second.ask(payload(2, b"whole"))
    await second.ask(payload(2, b"b1", N | F), payload(2, b"b2", N | F))
    second.die()  # nobody has seen the half of its element
    await w.loop.idle()
    await first.ask(payload(2, b"a2", N | C))
    assert elements(await requester.received()) == [b"whole", b"a1", b"a2"]
    assert w.broker.index.multicast_rules.held == 0
    await third.ask(payload(2, b"c1", N | F))
    await requester.received()
    third.die()
    ((_, code, _),) = errors(await requester.received())
    assert code == CANCELED


@in_world()
async def test_a_destination_that_is_silent_in_the_middle_of_an_element_stops_nobody(
    w: World,
) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1000))
    await first.ask(payload(2, b"half", N | F))
    await third.ask(payload(2, b"", C))
    for number in range(100):
        await second.ask(payload(2, b"%d" % number))
        assert elements(await requester.received()) == [b"%d" % number]
    await second.ask(payload(2, b"", C))
    first.die()
    assert await requester.received() == [payload(1, b"", C)]


@in_world()
async def test_a_stream_whose_destinations_leave_is_complete_with_what_was_said(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1))
    await destinations[0].ask(payload(2, b"x"), payload(2, b"y")[:0])
    for destination in destinations:
        destination.die()
    assert await requester.received() == [payload(1, b"x"), payload(1, b"", C)]


@in_world()
async def test_an_error_of_one_ends_a_stream(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1))
    await second.ask(payload(2, b"x"))
    await third.received()
    await second.ask(error(2, REJECTED, b"no"))  # not at the beginning: an error like any
    assert [kind_of(raw) for raw in await requester.received()] == [PAYLOAD, ERROR]
    assert (await first.received())[-1] == await got(third) == cancel(2)


@in_world(BrokerOptions(multicast=MulticastOptions(max_held=2000)))
async def test_too_much_is_held(w: World) -> None:
    requester, first, second, _ = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1))
    await first.ask(payload(2, b"x"))
    await second.ask(payload(2, bytes(2000)))
    frames = await requester.received()
    assert errors(frames) == [(1, CANCELED, "over 2000 bytes of answers wait for the requester")]


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000)))
async def test_a_requester_that_does_not_read_is_not_sent_more(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=100))
    for destination in (first, second, third):
        await destination.received()
    requester.stop_reading()
    assert await first.ask(payload(2, bytes(2000))) == []
    waiting = len(requester.transport.waiting)
    assert await second.ask(payload(2, b"1")) == []
    assert await third.ask(payload(2, b"2")) == []
    assert len(requester.transport.waiting) == waiting
    requester.read_on()
    assert elements(await requester.received())[1:] == [b"1", b"2"]
    for destination in (first, second, third):
        assert await got(destination) == request_n(2, 2)
    await requester.ask(cancel(1))


@in_world(
    BrokerOptions(multicast=MulticastOptions(max_held=30_000)),
    LinkOptions(flow=FlowOptions(high_water=9000)),
)
async def test_large_elements_are_asked_for_one_by_one(w: World) -> None:
    requester, *destinations = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1000))
    requester.stop_reading()
    for destination in destinations:
        await got(destination)
        await destination.ask(payload(2, bytes(9000)))
    assert w.broker.index.multicast_rules.held > 18_000
    for _ in range(5):
        requester.read_on()
        requester.stop_reading()
        for destination in destinations:
            asked = await destination.received()
            if asked:
                assert asked == [request_n(2, 1)]
                await destination.ask(payload(2, bytes(9000)))
    requester.read_on()
    await w.loop.idle()
    frames = await requester.received()
    assert len(elements(frames)) >= 6
    assert errors(frames) == []
    await requester.ask(cancel(1))


@in_world(options=LinkOptions(flow=FlowOptions(high_water=5000)))
async def test_what_is_held_goes_out_no_faster_than_it_is_read(w: World) -> None:
    requester, first, second, third = await three(w)
    await requester.ask(request(STREAM, 1, ASKED, n=1))
    for peer in (first, second, third):
        await peer.ask(payload(2, bytes(4000)))
    assert len(elements(await requester.received())) == 1
    requester.stop_reading()
    await requester.ask(request_n(1, 2))
    assert len(requester.transport.waiting) < 9000
    requester.read_on()
    assert len(elements(await requester.received())) == 2
    # All that its socket takes at once goes out turn by turn.
    assert await requester.ask(request_n(1, 1)) == []
    for peer in (first, second, third):
        await peer.ask(payload(2, bytes(5000)))
    assert len(elements(await requester.ask(request_n(1, 2)))) == 3
    await requester.ask(cancel(1))


@in_world(options=LinkOptions(gathering=GatheringOptions(max_multicast_held=100_000)))
async def test_one_requester_cannot_have_more_held_by_more_multicasts(w: World) -> None:
    requester, first, second, _ = await three(w)
    frames: list[bytes] = []
    for number in range(20):
        frames += await requester.ask(request(STREAM, 1 + 2 * number, ASKED, n=1))
        await first.ask(payload(2 + 2 * number, b"x"))
        await second.ask(payload(2 + 2 * number, bytes(9000)))
    assert 90_000 < requester.link.multicast_held <= 100_000
    refused = errors(frames + await requester.received())
    assert {code for _, code, _ in refused} == {CANCELED}
    assert "multicasts of this connection" in refused[0][2]
    assert len(refused) == w.broker.statistics().multicast_overflowed == 10
    # Others are not concerned.
    other = await w.requester()
    await other.ask(request(STREAM, 1, ASKED, n=1))
    await first.ask(payload(42, b"x"))
    await second.ask(payload(42, bytes(9000)))
    assert errors(await other.received()) == []
    requester.die()
    other.die()
    await w.loop.idle()
    assert requester.link.multicast_held == w.broker.index.multicast_rules.held == 0


@in_world(BrokerOptions(multicast=MulticastOptions(max_held_total=20_000)))
async def test_all_multicasts_together_cannot_have_more_held(w: World) -> None:
    requester, first, second, _ = await three(w)
    other = await w.requester()
    for peer, stream in ((requester, 2), (other, 4), (requester, 6)):
        await peer.ask(request(STREAM, 3 if stream == 6 else 1, ASKED, n=1))
        await first.ask(payload(stream, b"x"))
        await second.ask(payload(stream, bytes(9000)))
    assert errors(await other.received()) == []
    assert errors(await requester.received()) == [
        (3, CANCELED, "too many bytes are held for multicasts")
    ]
    for peer in (requester, other):
        await peer.ask(cancel(1))
    assert w.broker.index.multicast_rules.held == 0
