"""Requesters that read slowly but steadily: what counts is that they read, not what waits."""

from __future__ import annotations

import asyncio

import pytest

from onward.transports.rsocket import FlowOptions, LinkOptions
from onward.transports.rsocket._byte_shares import AGAIN
from onward.transports.rsocket._exchange import StreamExchange
from onward.transports.rsocket._link import Link
from tests.support.compiled import interpreted
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
TIGHT = LinkOptions(flow=FlowOptions(high_water=1000, max_pending=50_000, stall_timeout=10))
ROOMY = LinkOptions(flow=FlowOptions(high_water=20_000, max_pending=200_000, stall_timeout=10))
CANCELED = 0x203


def taken(peer: Peer) -> list[bytes]:
    """Return the whole frames that a peer has read so far."""
    frames, rest = split(peer.transport.delivered)
    peer.transport.delivered = bytearray(rest)
    return frames


async def reads(peer: Peer, size: int, *, every: float, times: int) -> list[bytes]:
    """Have a peer read a few bytes now and then; return the frames it has got."""
    got: list[bytes] = []
    for _ in range(times):
        await asyncio.sleep(every)
        peer.transport.drain(size)
        got += taken(peer)
    return got


@pytest.mark.parametrize(("size", "stays"), [(100, True), (30, True), (24, False), (1, False)])
@in_world(options=TIGHT)
async def test_who_reads_steadily_has_time_and_who_hardly_reads_has_not(
    w: World, size: int, stays: bool
) -> None:
    """More than a quarter of `high_water` within `stall_timeout` is reading, however much waits."""
    slow, destination = await w.pair()
    await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(4)))
    slow.stop_reading()
    for number in range(4):
        await destination.ask(payload(2 + 2 * number, bytes(3000), N | C))
    await reads(slow, size, every=1, times=60)
    assert slow.closed is not stays
    if stays:
        slow.read_on()
        slow.die()
    else:
        assert w.listener.statistics().closed == {"too slow": 1}


@in_world(options=ROOMY)
async def test_large_elements_to_a_slow_reader(w: World) -> None:
    slow, destination = await w.pair()
    await slow.ask(request(STREAM, 1, ASKED, n=200))
    (asked,) = await destination.received()
    credit = int.from_bytes(asked[9:13])
    slow.stop_reading()
    sent, got = 0, 0
    while got < 200:
        while credit and sent < 200:
            credit -= 1
            sent += 1
            destination.send(payload(2, bytes(1400), N | C if sent == 200 else N))
        got += len(elements(await reads(slow, 7000, every=0.5, times=1)))
        frames = await destination.received()
        credit += sum(int.from_bytes(raw[9:13]) for raw in frames if kind_of(raw) == REQUEST_N)
        assert not slow.closed


@in_memory
async def test_many_large_answers_at_once() -> None:
    """Five times what may wait arrives whole, as their destination has nobody else to answer."""
    options = LinkOptions(flow=FlowOptions(high_water=100_000, max_pending=1_000_000))
    async with world(options=options) as w:
        slow, destination = await w.pair()
        count = 50
        await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(count)))
        assert len(await destination.received()) == count
        slow.stop_reading()
        for number in range(count):
            assert await destination.ask(payload(2 + 2 * number, bytes(100_000), N | C)) == []
        assert not destination.transport.reading
        most, got = 0, list[bytes]()
        while len(got) < count:
            got += await reads(slow, 20_000, every=0.05, times=1)
            most = max(most, slow.link.waiting)
            assert not slow.closed
        assert not errors(got)
        assert {stream_of(raw) for raw in got} == {1 + 2 * number for number in range(count)}
        assert most <= options.flow.max_pending
        await asyncio.sleep(1)
        await w.settled()


async def answers_of(size: int, count: int, options: LinkOptions) -> tuple[list[bytes], int]:
    """Have a destination answer a slow reader as fast as it can, and another one meanwhile.

    Returns:
        What the slow one got, with errors, and the most bytes that waited for it.
    """
    async with world(options=options) as w:
        slow, destination = await w.pair()
        other = await w.requester("10.0.0.9")
        await other.ask(request(CHANNEL, 1, ASKED, n=1000))
        await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(count)))
        await destination.received()
        slow.stop_reading()
        most = 0
        for number in range(count):
            destination.send(payload(4 + 2 * number, bytes(size), N | C))
            slow.transport.drain(size // 100)
            await destination.ask(payload(2, b"x"))
            assert elements(await other.received()) == [b"x"]
            assert destination.transport.reading
            most = max(most, slow.link.waiting)
        got = list[bytes]()
        while len(got) < count:
            got += await reads(slow, size // 2, every=1, times=1)
            assert not slow.closed
        await other.ask(payload(1, b"", C))
        await destination.ask(payload(2, b"", C))
        assert w.listener.statistics().dropped.get("given_up", 0) == len(errors(got))
        await w.settled_after(other)
    return got, most


@in_memory
async def test_answers_of_a_destination_that_answers_others_too() -> None:
    """Three times `max_pending` arrives whole, and the other one has not waited for it."""
    got, most = await answers_of(10_000_000, 20, LinkOptions())
    assert not errors(got)
    assert {stream_of(raw) for raw in got} == set(range(1, 41, 2))
    assert most > 3 * 50 * 1024 * 1024


@in_memory
async def test_above_the_share_of_its_source_a_slow_reader_loses_its_newest_requests() -> None:
    options = LinkOptions(
        flow=FlowOptions(high_water=20_000, max_pending=200_000, max_pending_total=600_000)
    )
    got, most = await answers_of(10_000, 40, options)
    # One, then two, then the rest of those that are not answered yet.
    lost = {stream for stream, code, _ in errors(got) if code == CANCELED}
    assert lost == set(range(1 + 2 * 34, 80, 2))
    assert {stream_of(raw) for raw in got} == set(range(1, 80, 2))
    assert 300_000 < most < 600_000


@in_world(
    options=LinkOptions(
        flow=FlowOptions(high_water=20_000, max_pending=200_000, max_pending_total=600_000)
    )
)
async def test_a_slow_reader_is_closed_where_there_is_no_room_at_all(w: World) -> None:
    slow, destination = await w.pair()
    await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(9)))
    await destination.received()
    slow.stop_reading()
    for number, closed in enumerate((False, False, False, True)):
        await asyncio.sleep(AGAIN)
        destination.link.read_again()
        await destination.ask(payload(2 + 2 * number, bytes(190_000), N | C))
        slow.transport.drain(100)
        assert slow.closed is closed


@in_world(options=ROOMY)
async def test_one_that_reads_nothing_is_closed_above_what_may_wait(w: World) -> None:
    dead, destination = await w.pair()
    await dead.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(9)))
    await destination.received()
    dead.stop_reading()
    await destination.ask(payload(2, bytes(150_000), N | C))
    destination.link.read_again()
    await destination.ask(payload(4, bytes(60_000), N | C))
    assert dead.closed


@in_world(options=TIGHT)
async def test_one_that_is_held_back_is_read_when_another_asks_it(w: World) -> None:
    slow, destination = await w.pair()
    other = await w.requester()
    await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(5)))
    await destination.received()
    slow.stop_reading()
    for number in range(3):
        await destination.ask(payload(2 + 2 * number, bytes(10_000), N | C))
    assert not destination.transport.reading
    await other.ask(request(RR, 1, ASKED))
    assert destination.transport.reading
    await destination.ask(payload(12, b"x", N | C))
    assert elements(await other.received()) == [b"x"]
    slow.die()


@in_world(options=TIGHT)
async def test_one_that_does_not_read_holds_nobody_back_for_long(w: World) -> None:
    slow, destination = await w.pair()
    await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(5)))
    await destination.received()
    slow.stop_reading()
    for number in range(3):
        await destination.ask(payload(2 + 2 * number, bytes(10_000), N | C))
    assert not destination.transport.reading
    await asyncio.sleep(2.5)
    assert destination.transport.reading
    await destination.ask(payload(8, bytes(10_000), N | C))
    assert destination.transport.reading
    await asyncio.sleep(10)
    assert slow.closed


@in_world(options=TIGHT)
async def test_a_destination_that_reads_little_does_not_stop_those_that_send_to_it(
    w: World,
) -> None:
    """It reads a quarter of `high_water` in each `stall_timeout`, and yet others wait for it."""
    evil, good = await w.destination("evil"), await w.destination("good")
    accomplice, honest = await w.requester(), await w.requester()
    for requester in (accomplice, honest):
        await requester.ask(request(CHANNEL, 1, asked_for("evil"), n=1))
    for raw in await evil.received():
        await evil.ask(request_n(stream_of(raw), 100))
    evil.stop_reading()
    await accomplice.ask(payload(1, bytes(45_000)))
    await honest.ask(payload(1, b"x"))
    assert not honest.transport.reading
    await honest.ask(request(RR, 3, asked_for("good")))
    await reads(evil, 50, every=1, times=11)
    assert evil.closed
    assert w.listener.statistics().closed == {"too slow": 1}
    assert honest.transport.reading
    alive, asked = await good.received()  # it has said nothing for long
    assert (kind_of(alive), kind_of(asked)) == (KEEPALIVE, RR)
    await good.ask(payload(stream_of(asked), b"y", N | C))
    assert b"y" in elements(await honest.received())


@in_world(options=TIGHT)
async def test_one_held_back_does_not_count_as_stopped_by_its_requester(w: World) -> None:
    slow, destination = await w.pair()
    await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(5)))
    await destination.received()
    slow.stop_reading()
    for number in range(3):
        await destination.ask(payload(2 + 2 * number, bytes(10_000), N | C))
    assert not destination.transport.reading
    await reads(slow, 50, every=1, times=25)
    assert not slow.closed
    assert not destination.transport.reading
    slow.die()


@in_world(options=ROOMY)
async def test_destinations_are_not_looked_through_at_each_flush(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    answers_only = Link.answers_only

    def counted(link: Link, requester: Link) -> bool:
        nonlocal looks
        looks += 1
        return answers_only(link, requester)

    monkeypatch.setattr(Link, "answers_only", counted)
    slow, destination = await w.pair()
    other = await w.requester()
    await other.ask(request(CHANNEL, 1, ASKED, n=1000))
    await slow.ask(*(request(RR, 1 + 2 * number, ASKED) for number in range(40)))
    await destination.received()
    slow.stop_reading()
    # One look goes through 40 requests; each answer is flushed by itself.
    for number in range(15):
        await destination.ask(payload(4 + 2 * number, bytes(10_000), N | C))
    assert 0 < looks <= 40
    await asyncio.sleep(AGAIN)
    before = looks
    await destination.ask(payload(4 + 2 * 15, bytes(100), N | C))
    assert looks > before
    slow.die()
    other.die()


@in_world(options=TIGHT)
async def test_request_n_of_a_slow_reader_is_not_lost(w: World) -> None:
    slow, destination = await w.pair()
    await slow.ask(request(STREAM, 1, ASKED, n=2))
    await destination.received()
    slow.stop_reading()
    await destination.ask(payload(2, bytes(3000)), payload(2, bytes(3000)))
    slow.send(request_n(1, 5))
    slow.read_on()
    await slow.received()
    assert [int.from_bytes(raw[9:13]) for raw in await destination.received()] == [5]
    slow.die()


@interpreted
@in_world()
async def test_requests_that_end_with_another_one_are_not_counted_as_given_up(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, destination = await w.pair()
    await slow.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
    await destination.received()
    link = slow.link
    first = link.core.streams[1]
    give_up = StreamExchange.give_up

    def both(exchange: StreamExchange, text: str) -> None:
        give_up(exchange, text)
        if first.peer is not None:
            give_up(first.peer, text)

    monkeypatch.setattr(StreamExchange, "give_up", both)
    link._gave_up_at, link._gives_up = -link._much, 2
    link._give_up_requests()
    assert len(errors(await slow.received())) == 2
    assert link.core.counters["given_up"] == 1
