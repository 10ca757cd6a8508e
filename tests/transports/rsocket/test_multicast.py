"""Requests to several destinations: what each gets, and how their answers become one."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from onward.actors.broker import BrokerOptions
from onward.transports.rsocket import LinkOptions
from tests.support.rsocket_peer import (
    CHANNEL,
    ERROR,
    FNF,
    MULTICAST,
    PAYLOAD,
    RR,
    STREAM,
    C,
    F,
    N,
    Peer,
    World,
    asked_for,
    cancel,
    elements,
    error,
    errors,
    in_memory,
    kind_of,
    payload,
    push,
    request,
    request_n,
    restamped,
    with_n,
    world,
)
from tests.support.workers import Echo, Recorder

ASKED = asked_for("a", MULTICAST)
REJECTED, CANCELED, INVALID, APPLICATION_ERROR = 0x202, 0x203, 0x204, 0x201


async def three(w: World) -> tuple[Peer, Peer, Peer, Peer]:
    """Return a requester and three destinations of one service."""
    requester = await w.requester()
    return requester, await w.destination(), await w.destination(), await w.destination()


def _same(recorder: Recorder) -> Recorder:
    return recorder


async def got(peer: Peer) -> bytes:
    """Return the one frame that a peer has got."""
    (frame,) = await peer.received()
    return frame


# --- request/response -----------------------------------------------------------------------


@in_memory
async def test_each_destination_gets_the_request_and_the_first_answer_wins() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        asked = request(RR, 1, ASKED, b"ping")
        requester.send(asked)
        for destination in destinations:
            assert await got(destination) == restamped(asked, 2)
        assert sum(row.outstanding for row in w.broker.routes()) == 3
        answer = payload(2, b"", N | C, b"meta")
        assert await destinations[1].ask(answer) == []
        assert await got(requester) == restamped(answer, 1)
        assert await got(destinations[0]) == await got(destinations[2]) == cancel(2)
        # Whoever answers after that, or once more, is not heard.
        for destination in destinations:
            await destination.ask(payload(2, b"late", N | C), payload(2, b"late", N | C))
        assert await requester.received() == []
        await w.settled()


@pytest.mark.parametrize("answer", [payload(2, b"", C), payload(2, b"", N), payload(2, b"x", 0)])
@in_memory
async def test_an_empty_answer_is_an_answer(answer: bytes) -> None:
    async with world() as w:
        requester, first, second, _ = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        await first.ask(answer)
        assert await got(requester) == restamped(answer, 1)
        assert (await second.received())[-1] == cancel(2)
        await w.settled()


@in_memory
async def test_an_error_that_comes_first_wins_too_and_is_relayed_as_it_is() -> None:
    async with world() as w:
        requester, first, second, _ = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        await first.received()
        wrong = error(2, 0x301, b"mine \xff", 0x200)
        assert await first.ask(wrong) == []
        assert await got(requester) == restamped(wrong, 1)
        assert (await second.received())[-1] == cancel(2)
        await w.settled()


@in_memory
async def test_one_that_rejects_the_request_is_left_out() -> None:
    async with world() as w:
        requester, first, second, third = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        await first.ask(error(2, REJECTED, b"busy"))
        await second.ask(error(2, REJECTED, b"busy"))
        assert await requester.received() == []
        await third.ask(payload(2, b"x", N | C))
        assert elements(await requester.received()) == [b"x"]
        assert w.broker.index.merging.skipped == 2
        await w.settled()


@in_memory
async def test_all_reject_the_request() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        for destination in destinations:
            await destination.ask(error(2, REJECTED, b"busy"))
        ((stream, code, _),) = errors(await requester.received())
        assert (stream, code) == (1, REJECTED)
        await w.settled()


@in_memory
async def test_an_answer_in_fragments_once_begun_has_won() -> None:
    async with world() as w:
        requester, first, second, _ = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        await first.received()
        await second.received()
        parts = [payload(2, b"a", N | F), payload(2, b"b", N | F), payload(2, b"c", N | C)]
        await first.ask(parts[0])
        assert await got(second) == cancel(2)
        await first.ask(*parts[1:])
        assert await requester.received() == [restamped(part, 1) for part in parts]
        await w.settled()


@in_memory
async def test_the_winner_is_lost_in_the_middle_of_its_answer() -> None:
    async with world() as w:
        requester, first, *_ = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        await first.ask(payload(2, b"a", N | F))
        first.die()
        frames = await requester.received()
        assert errors(frames) == [(1, CANCELED, "the connection to the destination was lost")]
        await w.settled()


@in_memory
async def test_the_requester_cancels_or_goes_away() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
        for destination in destinations:
            assert len(await destination.received()) == 2
        assert await requester.ask(cancel(1)) == []
        for destination in destinations:
            assert await got(destination) == cancel(2)
            await destination.ask(payload(2, b"late", N | C))
        requester.die()
        for destination in destinations:
            assert await got(destination) == cancel(4)
        await w.settled()


@in_memory
async def test_the_requester_cancels_before_a_destination_is_there() -> None:
    async with world() as w:
        requester = await w.requester()
        await requester.ask(request(RR, 1, ASKED))
        assert w.broker.statistics().waiting == 1
        await requester.ask(cancel(1))
        await w.settled()
        for destination in (await w.destination(), await w.destination()):
            assert await destination.received() == []
        # In one chunk: it has gone before it is handed over.
        await requester.ask(request(RR, 3, ASKED), cancel(3))
        await w.settled()


@in_memory
async def test_one_destination_gets_it_as_unicast() -> None:
    async with world() as w:
        requester, destination = await w.pair()
        asked = request(STREAM, 1, ASKED, n=500)
        requester.send(asked)
        assert kind_of(await got(destination)) == STREAM
        await destination.ask(payload(2, b"x", N | C))
        assert await got(requester) == payload(1, b"x", N | C)
        await w.settled()


@pytest.mark.parametrize("fail", [False, True])
@in_memory
async def test_destinations_that_leave(fail: bool) -> None:
    options = BrokerOptions(multicast_on_leave="error" if fail else "quiet")
    async with world(options) as w:
        requester, first, second, third = await three(w)
        await requester.ask(request(RR, 1, ASKED))
        first.die()
        frames = await requester.received()
        assert len(errors(frames)) == fail
        if not fail:
            second.die()
            assert await requester.received() == []
            third.die()
            ((_, code, _),) = errors(await requester.received())
            assert code == CANCELED
            assert w.broker.index.merging.left == 3
        await w.settled()


@in_memory
async def test_slow_destinations_are_left_out() -> None:
    options = LinkOptions(high_water=1000, low_water=100)
    async with world(options=options) as w:
        requester, first, second, third = await three(w)
        first.stop_reading()
        second.stop_reading()
        await requester.ask(request(FNF, 1, ASKED, bytes(2000)))
        await third.received()
        requester.send(request(RR, 3, ASKED))
        assert kind_of(await got(third)) == RR
        assert w.broker.index.merging.skipped == 2
        await third.ask(payload(4, b"x", N | C))
        assert elements(await requester.received()) == [b"x"]
        third.stop_reading()
        await requester.ask(request(FNF, 5, ASKED, bytes(2000)))
        assert [code for _, code, _ in errors(await requester.ask(request(RR, 7, ASKED)))] == [
            REJECTED
        ]
        for peer in (first, second, third):
            peer.read_on()
        await w.settled()


# --- requests without an answer -------------------------------------------------------------


@in_memory
async def test_fire_and_forget_and_metadata_push() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        assert await requester.ask(request(FNF, 1, ASKED, b"x"), push(ASKED, 0x01F)) == []
        for destination in destinations:
            assert await destination.received() == [
                request(FNF, 2, ASKED, b"x"),
                push(ASKED, 0x01F),
            ]
        await w.settled()


@pytest.mark.parametrize("kind", [RR, FNF])
@in_memory
async def test_a_request_in_fragments_goes_to_all(kind: int) -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        parts = [
            request(kind, 1, ASKED[:9], flags=F),
            payload(1, b"he", N | F, ASKED[9:]),
            payload(1, b"ll", N | F),
            payload(1, b"o", N),
        ]
        await requester.ask(*parts[:3])
        await requester.ask(parts[3])
        for destination in destinations:
            assert await destination.received() == [restamped(part, 2) for part in parts]
        if kind == RR:
            await destinations[0].ask(payload(2, b"x", N | C))
            assert elements(await requester.received()) == [b"x"]
        await w.settled()


@in_memory
async def test_a_request_in_fragments_that_is_cancelled() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        requester.send(request(FNF, 1, ASKED, b"x", flags=F))
        await w.loop.idle()
        await requester.ask(cancel(1))
        for destination in destinations:
            assert (await destination.received())[-1] == cancel(2)
        await w.settled()


# --- streams --------------------------------------------------------------------------------


@in_memory
async def test_a_stream_of_all_elements_in_the_order_they_come() -> None:
    async with world() as w:
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
        assert await requester.received() == [
            payload(1, b"4"),
            payload(1, b"5"),
            payload(1, b"", C),
        ]
        await w.settled()


@in_memory
async def test_credit_is_never_exceeded_and_the_excess_is_held() -> None:
    async with world() as w:
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
        await w.settled()


@in_memory
async def test_a_silent_destination_does_not_keep_credit_from_the_others() -> None:
    async with world() as w:
        requester, first, *_ = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, n=1))
        await first.received()
        for number in range(100):
            await first.ask(payload(2, b"%d" % number))
            assert elements(await requester.received()) == [b"%d" % number]
            await requester.ask(request_n(1, 1))
            assert await got(first) == request_n(2, 1)
        await requester.ask(cancel(1))
        await w.settled()


@in_memory
async def test_a_destination_is_no_more_than_a_window_ahead() -> None:
    async with world(BrokerOptions(multicast_window=4)) as w:
        requester, first, *_ = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, n=1000))
        assert await got(first) == request(STREAM, 2, ASKED, n=1)
        assert await first.ask(payload(2)) == [request_n(2, 2)]
        assert await first.ask(payload(2)) == [request_n(2, 3)]
        assert await first.ask(payload(2)) == []
        assert await first.ask(payload(2)) == [request_n(2, 2)]
        await requester.ask(cancel(1))
        await w.settled()


@in_memory
async def test_fragments_of_two_elements_are_not_mixed() -> None:
    async with world() as w:
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
            payload(1, b"b2", 0),
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
        await w.settled()


@in_memory
async def test_one_leaves_in_the_middle_of_an_element() -> None:
    async with world() as w:
        requester, first, second, third = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, n=10))
        await first.ask(payload(2, b"a1", N | F))
        await second.ask(payload(2, b"whole"))
        await second.ask(payload(2, b"b1", N | F), payload(2, b"b2", N | F))
        second.die()  # nobody has seen the half of its element
        await w.loop.idle()
        await first.ask(payload(2, b"a2", N | C))
        assert elements(await requester.received()) == [b"whole", b"a1", b"a2"]
        assert w.broker.index.merging.held == 0
        await third.ask(payload(2, b"c1", N | F))
        await requester.received()
        third.die()
        ((_, code, _),) = errors(await requester.received())
        assert code == CANCELED
        await w.settled()


@in_memory
async def test_a_destination_that_is_silent_in_the_middle_of_an_element_stops_nobody() -> None:
    async with world() as w:
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
        await w.settled()


@in_memory
async def test_a_stream_whose_destinations_leave_is_complete_with_what_was_said() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, n=1))
        await destinations[0].ask(payload(2, b"x"), payload(2, b"y")[:0])
        for destination in destinations:
            destination.die()
        assert await requester.received() == [payload(1, b"x"), payload(1, b"", C)]
        await w.settled()


@in_memory
async def test_an_error_of_one_ends_a_stream() -> None:
    async with world() as w:
        requester, first, second, third = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, n=1))
        await second.ask(payload(2, b"x"))
        await third.received()
        await second.ask(error(2, REJECTED, b"no"))  # not at the beginning: an error like any
        assert [kind_of(raw) for raw in await requester.received()] == [PAYLOAD, ERROR]
        assert (await first.received())[-1] == await got(third) == cancel(2)
        await w.settled()


@in_memory
async def test_too_much_is_held() -> None:
    async with world(BrokerOptions(max_held=2000)) as w:
        requester, first, second, _ = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, n=1))
        await first.ask(payload(2, b"x"))
        await second.ask(payload(2, bytes(2000)))
        frames = await requester.received()
        assert errors(frames) == [
            (1, CANCELED, "over 2000 bytes of answers wait for the requester")
        ]
        await w.settled()


@in_memory
async def test_a_requester_that_does_not_read_is_not_sent_more() -> None:
    async with world(options=LinkOptions(high_water=1000, low_water=100)) as w:
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
        await w.settled()


@in_memory
async def test_large_elements_are_asked_for_one_by_one() -> None:
    async with world(
        BrokerOptions(max_held=30_000), LinkOptions(high_water=9000, low_water=100)
    ) as w:
        requester, *destinations = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, n=1000))
        requester.stop_reading()
        for destination in destinations:
            await got(destination)
            await destination.ask(payload(2, bytes(9000)))
        assert w.broker.index.merging.held > 18_000
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
        await w.settled()


@in_memory
async def test_what_is_held_goes_out_no_faster_than_it_is_read() -> None:
    async with world(options=LinkOptions(high_water=5000, low_water=100)) as w:
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
        await w.settled()


@in_memory
async def test_one_requester_cannot_have_more_held_by_more_multicasts() -> None:
    async with world(options=LinkOptions(max_multicast_held=100_000)) as w:
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
        assert requester.link.multicast_held == w.broker.index.merging.held == 0
        for destination in w.peers:
            await destination.received()
        await w.settled()


@in_memory
async def test_all_multicasts_together_cannot_have_more_held() -> None:
    async with world(BrokerOptions(max_held_total=20_000)) as w:
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
        assert w.broker.index.merging.held == 0
        await w.settled()


# --- channels -------------------------------------------------------------------------------


@in_memory
async def test_a_channel_both_ways() -> None:
    async with world() as w:
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
        await w.settled()


@in_memory
async def test_the_slowest_holds_a_channel_up_for_a_while() -> None:
    async with world(BrokerOptions(multicast_window=2)) as w:
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
        assert w.broker.index.merging.left == 1
        await requester.ask(cancel(1))
        await w.settled()


@in_memory
async def test_elements_in_fragments_for_destinations_of_a_channel() -> None:
    async with world() as w:
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
        await w.settled()


@in_memory
async def test_destinations_that_want_no_more_elements() -> None:
    async with world() as w:
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
        await w.settled()


@in_memory
async def test_destinations_of_a_channel_that_have_answered_still_get_elements() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
        for destination in destinations:
            await destination.ask(payload(2, b"", C), request_n(2, 5))
        assert payload(1, b"", C) in await requester.received()
        await requester.ask(payload(1, b"1"), payload(1, b"", C))
        for destination in destinations:
            assert await destination.received() == [payload(2, b"1"), payload(2, b"", C)]
        await w.settled()


@in_memory
async def test_all_have_answered_and_leave_before_the_requester_is_done() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
        for destination in destinations:
            await destination.ask(payload(2, b"", C))
            destination.die()
        assert set(await requester.received()) == {payload(1, b"", C), cancel(1)}
        await w.settled()


@in_memory
async def test_an_error_of_the_requester_reaches_all() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
        await requester.ask(error(1, 0x301, b"mine"))
        for destination in destinations:
            assert (await destination.received())[-1] == error(2, 0x301, b"mine")
        await w.settled()


@in_memory
async def test_too_much_is_held_for_a_slow_destination() -> None:
    async with world(BrokerOptions(max_held=2000)) as w:
        requester, first, second, third = await three(w)
        await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
        for destination in (first, second):
            await destination.ask(request_n(2, 5))
        await third.received()
        await requester.ask(payload(1, bytes(2000)))
        assert await got(third) == cancel(2)
        assert len(await first.received()) == 1
        await requester.ask(cancel(1))
        await w.settled()


@in_memory
async def test_a_destination_of_an_open_channel_that_does_not_read_stops_nobody() -> None:
    options = LinkOptions(high_water=1000, low_water=100)
    async with world(options=options) as w:
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
        assert w.broker.index.merging.held == 0
        # It stops for good.
        first.stop_reading()
        await requester.ask(payload(1, bytes(2000)), payload(1, b"x"))
        await requester.ask(payload(1, b"y"))
        await asyncio.sleep(4.9)
        assert w.broker.index.merging.left == 0
        await asyncio.sleep(0.2)
        assert w.broker.index.merging.left == 1
        first.read_on()
        assert (await first.received())[-1] == cancel(2)
        await second.received()
        await requester.ask(cancel(1))
        await w.settled()


@in_memory
async def test_a_request_in_fragments_waits_for_a_destination_that_does_not_read() -> None:
    async with world(options=LinkOptions(high_water=1000, low_water=100)) as w:
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
        await w.settled()


@in_memory
async def test_what_is_kept_goes_out_no_faster_than_it_is_read() -> None:
    async with world(options=LinkOptions(high_water=3000, low_water=100)) as w:
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
        await w.settled()


@in_memory
async def test_answers_that_are_held_are_no_fault_of_who_waits_for_elements() -> None:
    async with world(BrokerOptions(max_held=20_000)) as w:
        requester, first, second, third = await three(w)
        await requester.ask(request(CHANNEL, 1, ASKED, n=1))
        for destination in (first, second, third):
            await destination.received()
        await first.ask(payload(2, b"x"))
        await second.ask(payload(2, bytes(19_000)))
        for destination in (second, third):
            await destination.ask(request_n(2, 10))
        await requester.ask(payload(1, bytes(2000)))
        assert w.broker.index.merging.left == 0
        assert elements(await first.ask(request_n(2, 1))) == [bytes(2000)]
        await requester.ask(cancel(1))
        await w.settled()


@in_memory
async def test_nobody_is_waited_for_once_the_requester_is_done() -> None:
    async with world() as w:
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
        await w.settled()


@in_memory
async def test_asking_costs_the_same_however_many_there_are() -> None:
    async with world() as w:
        requester = await w.requester()
        destinations = [await w.destination() for _ in range(40)]
        await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=5))
        for _ in range(50):
            for destination in destinations:
                destination.send(request_n(2, 1))
        frames = await requester.received()
        assert sum(int.from_bytes(raw[9:13]) for raw in frames) == 50
        await requester.ask(cancel(1))
        for destination in destinations:
            await destination.received()
        await w.settled()


# --- workers --------------------------------------------------------------------------------


@in_memory
async def test_a_plain_message_is_copied_to_each() -> None:
    async with world() as w:
        recorders = [Recorder(), Recorder()]
        for number, recorder in enumerate(recorders):
            await w.node.start(partial(_same, recorder), address=f"r{number}")
            w.broker.register(f"r{number}", service="a")
        destination = await w.destination()
        w.node.send("32#@multicast service=a", b"x", return_route="back")
        await w.loop.idle()
        assert [recorder.payloads for recorder in recorders] == [[b"x"], [b"x"]]
        for recorder in recorders:
            assert str(recorder.messages[0].return_route[0]).endswith("back")
        assert await got(destination) == request(RR, 2, w.asks("a"), b"x")
        destination.die()
        await w.settled()


@in_memory
async def test_workers_and_peers_answer_one_request() -> None:
    async with world() as w:
        requester, destination = await w.pair()
        await w.node.start(Echo, address="echo")
        w.broker.register("echo", service="a")
        recorder = Recorder()
        await w.node.start(lambda: recorder, address="recorder")
        w.broker.register("recorder", service="a")
        frames = await requester.ask(request(RR, 1, ASKED, b"hello"))
        assert elements(frames) == [b"hello"]
        assert await destination.received() == [request(RR, 2, ASKED, b"hello"), cancel(2)]
        recorder.reply(recorder.messages[0], b"late")
        assert await requester.received() == []
        # In fragments, and without an answer.
        parts = (request(RR, 3, ASKED, b"x", flags=F), payload(3, b"y", N))
        await requester.ask(parts[0])
        assert elements(await requester.ask(parts[1])) == [b"xy"]
        await requester.ask(request(FNF, 5, ASKED, b"z"))
        assert recorder.payloads == [b"hello", b"xy", b"z"]
        # Workers take no streams.
        await requester.ask(request(STREAM, 7, ASKED, n=1))
        await destination.ask(payload(8, b"s", N | C))
        assert elements(await requester.received()) == [b"s", b""]
        await w.settled()


@in_memory
async def test_a_worker_that_stops_with_a_branch_in_hand() -> None:
    async with world() as w:
        requester, destination = await w.pair()
        recorder = Recorder()
        await w.node.start(lambda: recorder, address="recorder")
        w.broker.register("recorder", service="a")
        await requester.ask(request(RR, 1, ASKED, b"x"))
        await w.node.stop_worker("recorder")
        assert await requester.received() == []
        await destination.ask(payload(2, b"y", N | C))
        assert elements(await requester.received()) == [b"y"]
        await w.settled()


@in_memory
async def test_the_answer_of_a_worker_that_is_too_big_or_fails() -> None:
    async with world() as w:
        requester, destination = await w.pair()
        recorder = Recorder()
        await w.node.start(lambda: recorder, address="recorder")
        w.broker.register("recorder", service="a")
        await requester.ask(request(RR, 1, ASKED, b"x"))
        recorder.reply(recorder.messages[0], bytes(2**24 - 1))
        frames = await requester.received()
        assert [code for _, code, _ in errors(frames)] == [APPLICATION_ERROR]
        assert (await destination.received())[-1] == cancel(2)
        await w.settled()


# --- limits of the request itself -----------------------------------------------------------


@in_memory
async def test_the_frames_of_a_request_are_let_go_of_once_all_have_them() -> None:
    async with world() as w:
        requester, *destinations = await three(w)
        await requester.ask(request(STREAM, 1, ASKED, bytes(1000), n=1))
        (stream,) = requester.link.core.streams.values()
        assert stream.peer.exchange.frames == []
        await requester.ask(cancel(1))
        await requester.ask(request(RR, 3, ASKED, b"x", flags=F))
        (stream,) = requester.link.core.streams.values()
        assert len(stream.peer.exchange.frames) == 1
        await requester.ask(payload(3, b"y", N))
        assert stream.peer.exchange.frames == []
        for destination in destinations:
            await destination.received()
            destination.die()
        await requester.received()
        await w.settled()


@in_memory
async def test_a_peer_that_is_one_of_those_it_asks() -> None:
    async with world() as w:
        peer, other = await w.destination(), await w.destination()
        await peer.ask(request(RR, 1, ASKED, b"x"))
        # Its own answer and its cancellation come in one chunk, and the answer is seen first.
        assert await peer.ask(payload(2, b"y", N | C), cancel(1)) == []
        assert (await other.received())[-1] == cancel(2)
        await w.settled()
