"""Credit end to end, and peers that do not read."""

from __future__ import annotations

import asyncio

import pytest

from onward.protocol.rsocket import ConnectionLimits
from onward.transports.rsocket import FlowOptions, LinkOptions
from onward.transports.rsocket._link import FIRST_WINDOW
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
CANCELED = 0x203
MOST = 2**31 - 1
SMALL = LinkOptions(flow=FlowOptions(credit_window=8))
TIGHT = LinkOptions(flow=FlowOptions(credit_window=8, high_water=1000, stall_timeout=10))


def credit(frames: list[bytes]) -> int:
    """Return what REQUEST_N frames grant together."""
    assert all(kind_of(raw) == REQUEST_N for raw in frames)
    return sum(int.from_bytes(raw[9:13]) for raw in frames)


async def opened(w: World, n: int, kind: int = STREAM) -> tuple[Peer, Peer]:
    """Open a stream with credit `n`; check what of it is passed on."""
    requester, destination = await w.pair()
    requester.send(request(kind, 1, ASKED, n=n))
    (got,) = await destination.received()
    window = min(requester.link.flow.credit_window, FIRST_WINDOW)
    assert got == request(kind, 2, ASKED, n=min(n, window))
    return requester, destination


async def held_up(requester: Peer, slow: Peer, stream: int = 1, service: str = "a") -> None:
    """Open a channel to a destination, which reads no more, and send so much that it matters."""
    asked = request(CHANNEL, stream, asked_for(service), n=5)
    await requester.ask(asked)
    (got,) = await slow.received()
    await slow.ask(request_n(stream_of(got), 1000))
    await requester.received()
    slow.stop_reading()
    await requester.ask(payload(stream, bytes(2000)))
    assert slow.link.write_paused
    assert requester.transport.reading  # it has not sent more
    await requester.ask(payload(stream, b"x"))
    assert not requester.transport.reading


# --- credit ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 1000, MOST])
@in_world(options=SMALL)
async def test_a_destination_is_given_a_window_at_first(w: World, kind: int, n: int) -> None:
    requester, _ = await opened(w, n, kind)
    requester.die()


@in_world(options=SMALL)
async def test_the_window_is_refilled_when_half_of_it_is_used(w: World) -> None:
    requester, destination = await opened(w, 100)
    for _ in range(3):
        assert await destination.ask(payload(2, b"x")) == []
    assert await destination.ask(payload(2, b"x")) == [request_n(2, 4)]
    # Several in one piece: the window is never exceeded, and nothing is left behind.
    got = await destination.ask(*[payload(2, b"x")] * 8)
    assert credit(got) == 8
    assert len(elements(await requester.received())) == 12
    assert await requester.ask(cancel(1)) == []
    assert await destination.received() == [cancel(2)]


@in_world(options=SMALL)
async def test_all_the_credit_is_passed_on_and_no_more(w: World) -> None:
    requester, destination = await opened(w, 30)
    had = sent = 0
    granted = 8
    while sent < granted:
        sent += 1
        granted += credit(await destination.ask(payload(2, b"%d" % sent)))
        had += len(elements(await requester.received()))
        assert granted - sent <= 8
        assert had == sent
    assert granted == 30
    assert await requester.ask(request_n(1, 3)) == []
    assert await destination.received() == [request_n(2, 3)]
    assert await requester.ask(request_n(1, 1), request_n(1, 50)) == []
    assert credit(await destination.received()) <= 8
    requester.die()


@in_world(options=SMALL)
async def test_credit_given_while_the_window_is_open_waits(w: World) -> None:
    requester, destination = await opened(w, 6)
    assert await requester.ask(request_n(1, 10)) == []
    assert await destination.received() == []  # 6 of 8 are still unused
    got: list[bytes] = []
    for _ in range(16):
        got += await destination.ask(payload(2, b"x"))
    assert credit(got) == 10
    destination.send(payload(2, b"one too many"))
    assert errors(await requester.received())[0][1] == CANCELED


@in_world(options=LinkOptions(flow=FlowOptions(credit_window=1)))
async def test_a_window_of_one(w: World) -> None:
    requester, destination = await opened(w, 5)
    for _ in range(4):
        assert await destination.ask(payload(2, b"x")) == [request_n(2, 1)]
    assert await destination.ask(payload(2, b"x")) == []
    assert await destination.ask(payload(2, b"", C)) == []
    assert len(await requester.received()) == 6


@in_world()
async def test_credit_without_end(w: World) -> None:
    requester, destination = await opened(w, MOST)
    assert await requester.ask(request_n(1, MOST), request_n(1, MOST)) == []
    for _ in range(1000):
        destination.send(payload(2, b"x"))
        assert credit(await destination.received()) in {0, 112, 64}
    assert len(elements(await requester.received())) == 1000
    assert await destination.ask(payload(2, b"", C)) == []


@in_world(options=SMALL)
async def test_credit_given_before_a_destination_is_found(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(STREAM, 1, ASKED, n=2), request_n(1, 3))
    await requester.ask(request_n(1, 20))
    destination = w.register()
    assert await destination.received() == [request(STREAM, 2, ASKED, n=8)]
    got: list[bytes] = []
    for _ in range(25):
        got += await destination.ask(payload(2, b"x"))
    assert 8 + credit(got) == 25
    assert len(elements(await requester.received())) == 25
    assert await destination.ask(payload(2, b"", C)) == []


@in_world(options=SMALL)
async def test_credit_of_a_channel_towards_the_requester_is_relayed_at_once(w: World) -> None:
    requester, destination = await opened(w, 5, CHANNEL)
    assert await destination.ask(request_n(2, 1000), request_n(2, 1)) == []
    assert await requester.received() == [request_n(1, 1000), request_n(1, 1)]
    requester.die()


@in_world(options=SMALL)
async def test_one_stream_out_of_credit_does_not_hold_up_another(w: World) -> None:
    requester, destination = await opened(w, 1)
    await requester.ask(request(STREAM, 3, ASKED, n=100))
    assert await destination.received() == [request(STREAM, 4, ASKED, n=8)]
    assert await destination.ask(payload(2, b"all")) == []
    assert credit(await destination.ask(*[payload(4, b"x")] * 8)) == 8
    assert len(await requester.received()) == 9
    requester.die()


# --- a requester that does not read ---------------------------------------------------------


@in_world(options=TIGHT)
async def test_a_requester_that_does_not_read_starves_its_own_streams_only(w: World) -> None:
    slow, destination = await w.pair()
    fast = await w.requester()
    slow.send(request(STREAM, 1, ASKED, n=100))
    fast.send(request(STREAM, 1, ASKED, n=100))
    assert [stream_of(raw) for raw in await destination.received()] == [2, 4]
    slow.stop_reading()
    for _ in range(4):
        await destination.ask(payload(2, bytes(400)))
    assert slow.link.write_paused
    assert await destination.ask(*[payload(2, b"x")] * 4) == []  # no credit any more
    for _ in range(3):
        assert credit(await destination.ask(*[payload(4, b"x")] * 8)) == 8
    assert len(elements(await fast.received())) == 24
    slow.read_on()
    assert await destination.received() == [request_n(2, 4 + 4)]
    assert len(elements(await slow.received())) == 8
    assert not slow.link.write_paused
    destination.die()


@in_world(options=TIGHT)
async def test_a_starved_stream_that_is_cancelled_or_answered(w: World) -> None:
    slow, destination = await w.pair()
    slow.send(request(STREAM, 1, ASKED, n=100), request(STREAM, 3, ASKED, n=100))
    await destination.received()
    slow.stop_reading()
    for stream in (2, 4):
        await destination.ask(*[payload(stream, bytes(200))] * 8)
    assert slow.link.write_paused
    # The first has credit that was passed on before.
    assert await destination.ask(*[payload(2, bytes(200))] * 4) == []
    assert await destination.ask(payload(4, b"", C)) == []
    slow.read_on()
    assert await destination.received() == [request_n(2, 4)]
    await slow.ask(cancel(1))
    assert await destination.received() == [cancel(2)]


@in_world(options=TIGHT)
async def test_a_requester_that_does_not_read_is_not_read(w: World) -> None:
    slow = await w.requester()
    slow.stop_reading()
    wrong = request(RR, 1, None)
    slow.send(*(restamped(wrong, 1 + 2 * number) for number in range(100)))
    await w.loop.idle()
    assert not slow.transport.reading
    slow.send(restamped(wrong, 201))
    await w.loop.idle()
    assert w.listener.statistics().refused == 100
    slow.read_on()
    assert len(errors(await slow.received())) == 101
    assert slow.transport.reading


@in_world(options=TIGHT)
async def test_a_requester_that_reads_nothing_is_closed_after_a_while(w: World) -> None:
    slow, destination = await w.pair()
    slow.send(request(STREAM, 1, ASKED, n=100))
    await destination.received()
    slow.stop_reading()
    await destination.ask(*[payload(2, bytes(200))] * 8)
    await asyncio.sleep(9.9)
    assert not slow.closed
    await asyncio.sleep(0.2)
    assert slow.closed
    assert await destination.received() == [cancel(2)]
    assert w.listener.statistics().closed == {"too slow": 1}


@in_world(options=TIGHT)
async def test_one_that_reads_again_in_time_is_not_closed(w: World) -> None:
    slow, destination = await w.pair()
    slow.send(request(STREAM, 1, ASKED, n=MOST))
    await destination.received()
    for _ in range(5):
        slow.stop_reading()
        await destination.ask(*[payload(2, bytes(200))] * 8)
        await asyncio.sleep(9)
        slow.read_on()
        assert len(elements(await slow.received())) == 8
        await destination.received()
    await asyncio.sleep(11)
    assert not slow.closed
    slow.die()


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000, max_pending=5000)))
async def test_what_waits_for_one_peer_has_a_limit(w: World) -> None:
    slow, destination = await w.pair()
    slow.send(request(RR, 1, ASKED), request(RR, 3, ASKED))
    await destination.received()
    slow.stop_reading()
    await destination.ask(payload(2, bytes(4900), N | C))
    assert not slow.closed
    await destination.ask(payload(4, bytes(200), N | C))
    assert not slow.closed  # the destination is held back, but not for long
    await asyncio.sleep(3)
    assert slow.closed
    assert w.listener.statistics().closed == {"too slow": 1}


@in_world(options=TIGHT)
async def test_a_peer_that_answers_is_read_though_it_does_not_read(w: World) -> None:
    both, other = await w.destination("a"), await w.requester()
    other.send(request(RR, 1, ASKED))
    assert len(await both.received()) == 1
    both.stop_reading()
    wrong = request(RR, 1, None)
    both.send(*(restamped(wrong, 1 + 2 * number) for number in range(50)))
    await w.loop.idle()
    assert both.link.write_paused
    both.send(payload(2, b"answer", N | C))
    assert elements(await other.received()) == [b"answer"]
    both.read_on()


@in_world(options=TIGHT)
async def test_a_requester_not_read_is_read_again_when_it_is_to_answer(w: World) -> None:
    both, slow, other = await w.destination("b"), await w.destination(), await w.requester()
    await held_up(both, slow)
    await other.ask(request(RR, 1, asked_for("b")))
    assert both.transport.reading
    both.send(payload(1, b"one more"))  # it goes on being read until it has answered
    assert both.transport.reading
    both.send(payload(2, b"answer", N | C))
    assert elements(await other.received()) == [b"answer"]
    both.send(payload(1, b"another"))
    assert not both.transport.reading
    slow.read_on()
    assert len(await slow.received()) == 4
    slow.die()


# --- a destination that does not read -------------------------------------------------------


@in_world(options=TIGHT)
async def test_who_goes_on_sending_to_a_destination_that_does_not_read_is_not_read(
    w: World,
) -> None:
    requester, slow = await w.pair()
    other, fast = await w.requester(), await w.destination("b")
    await held_up(requester, slow)
    await requester.ask(request(FNF, 5, asked_for("b")))
    assert await other.ask(request(RR, 1, asked_for("b"))) == []
    assert await fast.ask(payload(2, b"", C)) == [request(RR, 2, asked_for("b"))]
    assert len(await other.received()) == 1
    slow.read_on()
    assert len(await slow.received()) == 2
    assert requester.transport.reading
    assert await fast.received() == [request(FNF, 4, asked_for("b"))]
    slow.die()


@in_world(options=TIGHT)
async def test_two_that_send_to_each_other_and_do_not_read_are_both_read(w: World) -> None:
    first, second = await w.destination("a"), await w.destination("b")
    for one, other, service in ((first, second, "b"), (second, first, "a")):
        await one.ask(request(CHANNEL, 1, asked_for(service), n=5))
        await other.ask(request_n(2, 1000))
        await one.received()
    for one in (first, second):
        one.stop_reading()
    for _ in range(5):
        for one in (first, second):
            await one.ask(payload(1, bytes(1000)))
    for one in (first, second):
        assert one.link.write_paused
        assert one.transport.reading
        one.read_on()
        assert len(elements(await one.received())) == 5
    first.die()


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000, max_pending=10_000)))
async def test_one_that_answers_may_fill_a_destination_up_to_the_limit(w: World) -> None:
    both, slow, other = await w.destination("b"), await w.destination(), await w.requester()
    await other.ask(request(RR, 1, asked_for("b")))
    await both.ask(request(CHANNEL, 1, ASKED, n=5))
    await slow.ask(request_n(2, 1000))
    await both.received()
    slow.stop_reading()
    for _ in range(9):
        await both.ask(payload(1, bytes(1000)))
    assert not slow.closed
    got = await both.ask(payload(1, bytes(1000)))
    assert slow.closed
    assert [(stream, code) for stream, code, _ in errors(got)] == [(1, CANCELED)]
    assert w.listener.statistics().closed == {"too slow": 1}
    both.send(payload(2, b"answer", N | C))
    assert elements(await other.received()) == [b"answer"]


@in_world(options=TIGHT)
async def test_elements_of_a_channel_for_a_destination_that_does_not_read(w: World) -> None:
    requester, slow = await opened(w, 5, CHANNEL)
    await slow.ask(request_n(2, 1000))
    await requester.received()
    slow.stop_reading()
    await requester.ask(payload(1, bytes(2000)))
    await requester.ask(payload(1, b"x"))
    assert not requester.transport.reading
    for _ in range(20):
        requester.send(payload(1, bytes(2000)))
    await w.loop.idle()
    assert len(slow.transport.waiting) < 5000
    slow.read_on()
    assert len(await slow.received()) == 22
    requester.eof()


@in_world(options=TIGHT)
async def test_two_slow_destinations(w: World) -> None:
    requester, first = await w.pair()
    second = await w.destination("b")
    await requester.ask(request(CHANNEL, 1, ASKED, n=5), request(CHANNEL, 3, asked_for("b"), n=5))
    for slow in (first, second):
        await slow.ask(request_n(2, 1000))
        slow.stop_reading()
    await requester.ask(payload(1, bytes(2000)), payload(3, bytes(2000)))
    await requester.ask(payload(1, b"x"), payload(3, b"x"))
    assert not requester.transport.reading
    first.read_on()
    await first.received()
    assert not requester.transport.reading
    second.read_on()
    await second.received()
    assert requester.transport.reading
    requester.die()


@pytest.mark.parametrize("which", ["requester", "destination"])
@in_world(options=TIGHT)
async def test_one_end_goes_while_the_other_waits(w: World, which: str) -> None:
    requester, slow = await w.pair()
    await held_up(requester, slow)
    if which == "requester":
        requester.die()
        await w.loop.idle()
        slow.read_on()
        got = await slow.received()
        assert got[2:] == [cancel(2)]
    else:
        slow.die()
        got = await requester.received()
        assert [(stream, code) for stream, code, _ in errors(got)] == [(1, CANCELED)]
        assert requester.transport.reading


@in_world(options=TIGHT)
async def test_a_destination_that_reads_nothing_is_closed_and_its_requesters_go_on(
    w: World,
) -> None:
    requester, slow = await w.pair()
    await held_up(requester, slow)
    await asyncio.sleep(10.1)
    assert slow.closed
    assert len(errors(await requester.received())) == 1
    assert requester.transport.reading
    assert w.services() == []


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000, stall_timeout=100)))
async def test_one_that_is_not_read_is_not_dropped_for_its_silence(w: World) -> None:
    requester, slow = w.connect(), await w.destination()
    requester.send(setup(keepalive=1000, lifetime=3000))
    await held_up(requester, slow)
    for _ in range(20):
        await asyncio.sleep(1)
        await requester.ask(frame(0, KEEPALIVE, 0x80, bytes(8)))
    assert not requester.closed
    slow.read_on()
    await slow.ask(cancel(2), payload(2, b"", C))
    assert not requester.closed
    await asyncio.sleep(2.5)
    assert not requester.closed
    await asyncio.sleep(2)
    assert requester.closed


@in_world(
    options=LinkOptions(flow=FlowOptions(high_water=100_000, max_pending=200_000, stall_timeout=9))
)
async def test_keepalives_of_one_that_does_not_read_have_a_limit(w: World) -> None:
    peer = await w.requester()
    peer.stop_reading()
    for _ in range(20):
        peer.send(frame(0, KEEPALIVE, 0x80, bytes(60_000)))
    await w.loop.idle()
    assert len(peer.transport.waiting) <= 200_000
    await asyncio.sleep(9.1)
    assert peer.closed


@in_world(options=TIGHT)
async def test_a_closing_connection_that_does_not_read_is_cut(w: World) -> None:
    requester, slow = await w.pair()
    slow.stop_reading()
    await requester.ask(request(RR, 1, ASKED, bytes(300)))
    slow.send(frame(0, 0x20))
    assert len(errors(await requester.received())) == 1
    assert w.services() == []
    assert not slow.closed
    await asyncio.sleep(2.1)
    assert slow.closed


@in_world(
    options=LinkOptions(
        connection=ConnectionLimits(max_streams=50), flow=FlowOptions(high_water=1000)
    )
)
async def test_a_peer_with_many_streams_is_slow_at_each_end(w: World) -> None:
    first, second = await w.destination("a"), await w.destination("b")
    for number in range(20):
        first.send(request(RR, 1 + 2 * number, asked_for("b"), bytes(100)))
        second.send(request(RR, 1 + 2 * number, ASKED, bytes(100)))
    await w.loop.idle()
    first.stop_reading()
    second.stop_reading()
    for number in range(20, 40):
        first.send(request(RR, 1 + 2 * number, asked_for("b"), bytes(100)))
        second.send(request(RR, 1 + 2 * number, ASKED, bytes(100)))
        await w.loop.idle()
    for peer in (first, second):
        peer.read_on()
    for _ in range(2):
        for peer in (first, second):
            for raw in await peer.received():
                if kind_of(raw) == RR:
                    peer.send(payload(stream_of(raw), b"", C))
    for peer in (first, second):
        got = await peer.received()
        assert not errors(got)


@in_world()
async def test_what_is_over_or_under_way_can_be_asked_for_again(w: World) -> None:
    requester, destination = await w.pair()
    link = requester.link
    link._rest()
    link._rest()
    link.resume_writing()
    await w.loop.idle()
    assert await destination.received() == []
    requester.die()
    await w.loop.idle()
    link._rest()
    link.abort()


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000)))
async def test_a_stream_that_is_over_waits_for_no_socket(w: World) -> None:
    requester, destination = await w.pair()
    for stream, last in ((1, payload(2, b"", C)), (3, error(4, 0x201, b"no"))):
        await requester.ask(request(STREAM, stream, asked_for("a"), n=1000))
        requester.stop_reading()
        frames = [payload(stream + 1, bytes(100)) for _ in range(50)]
        await destination.ask(*frames)
        await destination.ask(*frames)
        assert requester.link.blocked_on_write
        await destination.ask(last)
        assert not requester.link.blocked_on_write
        requester.read_on()


@in_world()
async def test_a_connection_that_is_over_neither_blocks_another_nor_is_blocked(w: World) -> None:
    living, over = await w.requester(), await w.requester()
    over.die()
    await w.loop.idle()
    over.link.block(living.link)
    living.link.block(over.link)
    for link in (living.link, over.link):
        assert not link.blocked
        assert not link._blocking
    assert living.transport.reading
    living.die()
