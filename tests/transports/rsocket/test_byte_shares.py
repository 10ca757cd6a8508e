"""Bytes that peers hold together: answers they do not read, and requests they do not finish."""

from __future__ import annotations

import asyncio

import pytest

from onward.transports.rsocket import FlowOptions, GatheringOptions, LinkOptions
from onward.transports.rsocket._byte_shares import AGAIN, REST, Pace
from onward.transports.rsocket._gathered import LOOKS, Gathered
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
HOG, HONEST = "10.0.0.66", "10.0.0.7"
MIB = 1024 * 1024
REJECTED = 0x202


async def unread(w: World, destination: Peer, size: int, host: str = HOG) -> Peer:
    """Have a peer that does not read ask for an answer of so many bytes."""
    peer = await w.requester(host)
    peer.stop_reading()
    await answered(peer, destination, size)
    return peer


def reached(w: World, name: str) -> int:
    """Return how often a limit of the listener was reached."""
    (found,) = (use.reached for use in w.listener.limits() if use.name == name)
    return found


async def answered(peer: Peer, destination: Peer, size: int) -> None:
    await peer.ask(request(RR, 1, ASKED))
    (asked,) = await destination.received()
    assert kind_of(asked) == RR
    await destination.ask(payload(stream_of(asked), bytes(size), N | C))


@in_world(options=LinkOptions(flow=FlowOptions(max_pending_total=10 * MIB)))
async def test_peers_of_one_source_that_do_not_read_leave_half_of_the_bytes(w: World) -> None:
    destination = await w.destination()
    peers = [await unread(w, destination, 2 * MIB) for _ in range(2)]
    assert not any(peer.closed for peer in peers)
    largest = await unread(w, destination, 3 * MIB)
    assert [peer.closed for peer in (*peers, largest)] == [False, False, True]
    assert w.listener.statistics().closed == {"too slow": 1}
    others = [await unread(w, destination, 2 * MIB, HONEST)]
    assert not any(peer.closed for peer in (*peers, *others))
    # What they have in common is less the more of them there are.
    await unread(w, destination, MIB, "10.0.0.8")
    late = await unread(w, destination, MIB)
    assert [peer.closed for peer in (*peers, late)] == [True, False, False]
    assert reached(w, "flow.max_pending_total") == 2
    for peer in w.peers:
        peer.read_on()


@in_world(options=LinkOptions(flow=FlowOptions(max_pending_total=16 * MIB)))
async def test_one_that_finds_no_room_is_not_closed_for_what_others_hold(w: World) -> None:
    """Each hog has what was free when it came; the last one to come pays for none of them."""
    destination = await w.destination()
    hogs = [
        await unread(w, destination, size, f"10.9.0.{number}")
        for number, sizes in enumerate(((4, 3), (4,), (2,), (1,)))
        for size in (each * MIB for each in sizes)
    ]
    assert not any(hog.closed for hog in hogs)
    honest = await unread(w, destination, 2 * MIB, HONEST)
    assert not honest.closed
    # The largest of the source that holds the most, and that is enough.
    assert [hog.closed for hog in hogs] == [True, False, False, False, False]
    assert w.listener._shared.waiting.total <= 16 * MIB
    for peer in w.peers:
        peer.read_on()


@in_world(options=LinkOptions(flow=FlowOptions(max_pending_total=10 * MIB)))
async def test_where_none_holds_more_than_its_part_the_one_that_comes_is_refused(w: World) -> None:
    destination = await w.destination()
    held = [await unread(w, destination, 2 * MIB, f"10.9.0.{each}") for each in range(3)]
    late = await unread(w, destination, 5 * MIB, HONEST)
    assert [peer.closed for peer in (*held, late)] == [False, False, False, True]
    for peer in w.peers:
        peer.read_on()


@in_world(options=LinkOptions(flow=FlowOptions(max_pending_total=10 * MIB)))
async def test_what_has_been_read_does_not_count(w: World) -> None:
    destination = await w.destination()
    read = [await unread(w, destination, 2 * MIB, HONEST) for _ in range(2)]
    for peer in read:
        peer.transport.drain()  # nobody tells of it before the next answer
    for _ in range(2):
        await unread(w, destination, 2 * MIB, HONEST)
    assert not any(peer.closed for peer in w.peers)
    shares = w.listener._shared.waiting
    assert reached(w, "flow.max_pending_total") == 0
    assert shares.total == sum(len(peer.transport.waiting) for peer in w.peers)
    for peer in w.peers:
        peer.read_on()
        peer.die()
    await w.loop.idle()
    assert (shares.total, shares._noted, shares._by_source) == (0, {}, {})


@in_world(options=LinkOptions(flow=FlowOptions(max_pending_total=1000)))
async def test_little_for_each_of_many_does_not_count_before_it_is_much(w: World) -> None:
    destination = await w.destination()
    peer = await unread(w, destination, 60_000)
    assert not peer.closed
    await answered(peer, destination, 10_000)
    assert peer.closed


@in_world(
    options=LinkOptions(
        gathering=GatheringOptions(
            max_gathered_total=100_000, max_gathered=60_000, max_gather=50_000
        )
    )
)
async def test_requests_in_fragments_of_one_source_leave_half_of_the_bytes(w: World) -> None:
    first, second = await w.requester(HOG), await w.requester(HOG)
    metadata = bytes(100)  # not whole: the request is kept until it is
    for stream in (1, 3):
        assert await first.ask(request(RR, stream, metadata, flags=F)) == []
        assert await first.ask(payload(stream, b"", F, metadata=bytes(15_000))) == []
    assert await second.ask(request(RR, 1, metadata, flags=F)) == []
    assert await second.ask(payload(1, b"", F, metadata=bytes(15_000))) == []
    got = errors(await second.ask(payload(1, b"", F, metadata=bytes(10_000))))
    assert [(stream, code) for stream, code, _ in got] == [(1, REJECTED)]
    assert reached(w, "gathering.max_gathered_total") == 1
    other = await w.requester(HONEST)
    assert await other.ask(request(RR, 1, metadata, flags=F)) == []
    assert await other.ask(payload(1, b"", F, metadata=bytes(15_000))) == []
    # What is over makes room again.
    first.die()
    await asyncio.sleep(1)
    assert await second.ask(request(RR, 3, metadata, flags=F)) == []
    assert await second.ask(payload(3, b"", F, metadata=bytes(20_000))) == []
    second.die()
    other.die()
    await w.settled()
    shares = w.listener._shared.gathered
    assert (shares.total, shares._noted, shares._by_source) == (0, {}, {})


@in_world(
    options=LinkOptions(
        gathering=GatheringOptions(
            max_gathered_total=160_000, max_gathered=100_000, max_gather=90_000
        )
    )
)
async def test_fragments_of_the_source_that_holds_the_most_make_room_for_another(w: World) -> None:
    hogs = [await w.requester(f"10.9.0.{number}") for number in range(4)]
    for hog, sizes in zip(hogs, ((10, 50), (40,), (25,), (12,)), strict=True):
        for stream, size in zip((1, 3), sizes, strict=False):
            await hog.ask(request(RR, stream, bytes(100), flags=F))
            got = await hog.ask(payload(stream, b"", F, metadata=bytes(1000 * size)))
            assert got == []
    # More than was measured just now is not known yet.
    await asyncio.sleep(AGAIN)
    honest = await w.requester(HONEST)
    assert await honest.ask(request(RR, 1, bytes(100), flags=F)) == []
    await asyncio.sleep(AGAIN)
    assert await honest.ask(payload(1, b"", F, metadata=bytes(25_000))) == []
    # The largest request of the one that holds the most.
    told = [errors(await hog.received()) for hog in hogs]
    assert [[(stream, code) for stream, code, _ in each] for each in told] == [
        [(3, REJECTED)],
        [],
        [],
        [],
    ]
    assert w.listener.statistics().refused == 1
    assert reached(w, "gathering.max_gathered_total") == 1
    for peer in w.peers:
        peer.die()
    await w.settled()
    shares = w.listener._shared.gathered
    assert (shares.total, shares._noted, shares._by_source) == (0, {}, {})


@in_world(options=LinkOptions(gathering=GatheringOptions(max_gathered=200_000, max_gather=50_000)))
async def test_what_is_kept_is_not_counted_again_for_each_frame_at_the_limit(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each count looks at all that is kept: refusals must not cost that much each."""
    counts = 0
    count = Gathered.count

    def counted(gathered: Gathered) -> int:
        nonlocal counts
        counts += 1
        return count(gathered)

    peer = await w.requester(HOG)
    streams = range(1, 1001, 2)
    await peer.ask(*(request(RR, stream, b"", flags=F) for stream in streams))
    monkeypatch.setattr(Gathered, "count", counted)
    # The frames before are known to be there still, and hundreds are refused at once.
    more = (payload(stream, b"", F, metadata=bytes(100)) for stream in streams)
    refused = len(errors(await peer.ask(*more)))
    assert refused > 100
    assert 0 < counts < refused // LOOKS
    # It takes as many bytes as have gone, once it has been looked again.
    await asyncio.sleep(AGAIN)
    assert await peer.ask(request(RR, 2001, b"", flags=F)) == []
    peer.die()


def test_what_takes_long_is_done_seldom() -> None:
    now = 10.0
    pace = Pace(lambda: now)
    assert pace.due()
    began, now = now, now + 2.0
    pace.done(began)
    now += 2.0 * REST - 0.1
    assert not pace.due()
    now += 0.2
    assert pace.due()
    pace.done(now)
    assert not pace.due()
    pace.hurry()
    assert pace.due()
    pace.done(now)
    now += AGAIN + 0.001
    assert pace.due()
