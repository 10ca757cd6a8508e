"""Limits to the byte: what is exactly at one is allowed, and one byte more is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onward.actors.broker import BrokerOptions, MulticastOptions
from onward.transports.rsocket import FlowOptions, GatheringOptions, LinkOptions
from onward.transports.rsocket._gathered import Gathered
from onward.transports.rsocket._request import FRAME_COST
from tests.support.rsocket_peer import *
from tests.support.workers import Recorder

ASKED = asked_for("a")
REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204
LENGTH = 3
"""Bytes before a frame that say how long it is; no limit counts them."""

BEYOND = pytest.mark.parametrize("beyond", [0, 1])
"""How many bytes more than the limit there are."""


def size_of(*frames: bytes) -> int:
    return sum(len(each) - LENGTH for each in frames)


def codes(frames: list[bytes]) -> list[int]:
    return [code for _, code, _ in errors(frames)]


async def left(w: World, peer: Peer) -> None:
    peer.die()
    await w.settled()


@BEYOND
@in_memory
async def test_a_request_whose_metadata_are_not_whole(beyond: int) -> None:
    first = request(RR, 1, bytes(50), flags=F)
    more = payload(1, b"", F, metadata=bytes(100))
    options = LinkOptions(gathering=GatheringOptions(max_gather=size_of(first, more) - beyond))
    async with world(options=options) as w:
        requester = await w.requester()
        got = await requester.ask(first, more)
        assert codes(got) == ([INVALID] if beyond else [])
        await left(w, requester)


@BEYOND
@in_memory
async def test_a_request_on_its_way_to_a_destination(beyond: int) -> None:
    first, more = request(RR, 1, ASKED, b"x", flags=F), payload(1, bytes(100), F)
    options = LinkOptions(gathering=GatheringOptions(max_gather=size_of(first, more) - beyond))
    async with world(options=options) as w:
        requester = await w.requester()
        assert await requester.ask(first) == []
        got = await requester.ask(more)
        assert codes(got) == ([REJECTED] if beyond else [])
        await left(w, requester)


@BEYOND
@in_memory
async def test_a_request_that_is_gathered_for_a_worker(beyond: int) -> None:
    frames = [request(RR, 1, ASKED, b"x", flags=F), payload(1, bytes(100), F), payload(1, b"y")]
    options = LinkOptions(gathering=GatheringOptions(max_request=size_of(*frames) - beyond))
    async with world(options=options) as w:
        recorder = Recorder()
        await w.node.start(lambda: recorder, address="worker")
        w.broker.register("worker", service="a")
        requester = await w.requester()
        for each in frames[:-1]:
            assert await requester.ask(each) == []
        got = await requester.ask(frames[-1])
        assert codes(got) == ([INVALID] if beyond else [])
        assert len(recorder.payloads) == 1 - beyond
        recorder.messages.clear()
        await left(w, requester)


@dataclass(eq=False)
class Kept:
    """Something that keeps so many bytes."""

    kept: int


@BEYOND
@in_world(options=LinkOptions(gathering=GatheringOptions(max_gathered=2_000_000)))
async def test_all_that_one_peer_has_gathered(w: World, beyond: int) -> None:
    requester = await w.requester()
    gathered: Gathered = requester.link.session.gathered
    kept = Kept(1_000_000)
    assert gathered.keep(kept, kept.kept - FRAME_COST)
    more = Kept(1_000_000 + beyond)
    assert gathered.keep(more, more.kept - FRAME_COST) == (not beyond)
    # What is let go of makes room.
    gathered.let_go(more)
    assert gathered.keep(Kept(1_000_000), 1_000_000 - FRAME_COST)


@BEYOND
@in_memory
async def test_what_waits_for_a_peer_that_does_not_read(beyond: int) -> None:
    answer = payload(1, bytes(5000), N | C)
    options = LinkOptions(flow=FlowOptions(high_water=1000, max_pending=len(answer) - beyond))
    async with world(options=options) as w:
        requester, destination = await w.pair()
        requester.stop_reading()
        await requester.ask(request(RR, 1, ASKED))
        (asked,) = await destination.received()
        await destination.ask(payload(stream_of(asked), bytes(5000), N | C))
        assert requester.closed == bool(beyond)
        requester.read_on()
        await left(w, requester)


@BEYOND
@in_memory
async def test_frames_that_are_not_whole(beyond: int) -> None:
    part = frame(1, RR, 0, bytes(1000))[:-1]
    options = LinkOptions(max_unfinished=2 * len(part) - beyond)
    async with world(options=options) as w:
        peers = [await w.requester() for _ in range(2)]
        for peer in peers:
            await peer.ask(part)
        assert [peer.closed for peer in peers] == [False, bool(beyond)]


@pytest.mark.parametrize("limit", ["max_held", "max_held_total", "max_multicast_held"])
@BEYOND
@in_memory
async def test_answers_to_a_multicast_that_wait_for_the_requester(limit: str, beyond: int) -> None:
    held = 6 + 500 + FRAME_COST - beyond
    broker, options = BrokerOptions(), LinkOptions()
    if limit == "max_multicast_held":
        options = LinkOptions(gathering=GatheringOptions(max_multicast_held=held))
    elif limit == "max_held":
        broker = BrokerOptions(multicast=MulticastOptions(max_held=held))
    else:
        broker = BrokerOptions(multicast=MulticastOptions(max_held_total=held))
    async with world(broker, options) as w:
        requester, *destinations = [await w.requester(), *[await w.destination() for _ in range(2)]]
        await requester.ask(request(STREAM, 1, asked_for("a", MULTICAST), n=1))
        for peer, size in zip(destinations, (1, 500), strict=True):
            (asked,) = await peer.received()
            peer.send(payload(stream_of(asked), bytes(size)))
        got = await requester.received()
        assert [len(each) for each in elements(got)] == [1]
        assert codes(got) == ([CANCELED] if beyond else [])
        if not beyond:
            assert [len(each) for each in elements(await requester.ask(request_n(1, 1)))] == [500]
        await left(w, requester)
