"""The counts of requests by outcome, by raw frames: each request that is read ends once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from onward.protocol.eventlog import Outcome
from onward.protocol.rsocket import FrameType
from tests.support.rsocket_peer import *
from tests.support.workers import Echo

ASKED = asked_for("a")
KINDS = {
    RR: int(FrameType.REQUEST_RESPONSE),
    FNF: int(FrameType.REQUEST_FNF),
    STREAM: int(FrameType.REQUEST_STREAM),
    CHANNEL: int(FrameType.REQUEST_CHANNEL),
}


def of_service(w: World, name: str = "a") -> Mapping[Outcome, int]:
    index = w.broker.index
    services = (each for each in index.services.statistics(index.table) if each is not None)
    (found,) = (each.ended or {} for each in services if each.service == name)
    return {outcome: count for outcome, count in found.items() if count}


def ended(w: World, kind: int) -> Mapping[Outcome, int]:
    found = w.broker.tally.ended(KINDS[kind])
    return {outcome: count for outcome, count in found.items() if count}


@in_world()
async def test_an_answer_and_an_error_of_the_destination(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
    await destination.ask(payload(2, b"", C), error(4, 0x201, b"no"))
    assert ended(w, RR) == {Outcome.DELIVER: 1, Outcome.FAILED: 1}
    assert of_service(w) == ended(w, RR)


@in_world()
async def test_what_cannot_be_handed_over(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, None), request(RR, 3, asked_for("none")))
    await asyncio.sleep(10)
    assert ended(w, RR) == {Outcome.INVALID: 1, Outcome.UNROUTABLE: 1}


@in_world()
async def test_streams_that_are_completed_cancelled_and_lost(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(*(request(STREAM, stream, ASKED, n=5) for stream in (1, 3, 5)))
    await destination.ask(payload(2, b"x", N | C))
    await requester.ask(cancel(3))
    assert ended(w, STREAM) == {Outcome.DELIVER: 1, Outcome.CANCELED: 1}
    destination.die()
    await w.loop.idle()
    assert ended(w, STREAM) == {Outcome.DELIVER: 1, Outcome.CANCELED: 1, Outcome.DROP: 1}
    assert of_service(w) == ended(w, STREAM)


@in_world()
async def test_requests_without_an_answer_and_of_a_peer_that_has_gone(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(request(FNF, 1, ASKED), request(RR, 3, ASKED))
    assert ended(w, FNF) == {Outcome.DELIVER: 1}
    requester.die()
    await w.loop.idle()
    assert ended(w, RR) == {Outcome.CANCELED: 1}
    assert of_service(w) == {Outcome.DELIVER: 1, Outcome.CANCELED: 1}


@in_world()
async def test_one_duration_in_sixteen_is_taken(w: World) -> None:
    requester, destination = await w.pair()
    for number in range(32):
        await requester.ask(request(RR, 2 * number + 1, ASKED))
        await destination.ask(payload(2 * number + 2, b"", C))
    assert ended(w, RR) == {Outcome.DELIVER: 32}
    assert sum(w.broker.tally.durations(KINDS[RR]).counts) == 2


@in_world()
async def test_each_copy_of_a_multicast_counts_for_its_service(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination("a") for _ in range(4)]
    asked = asked_for("a", flags=MULTICAST)
    await requester.ask(request(RR, 1, asked))
    await destinations[0].ask(error(2, 0x202, b"not now"))  # REJECTED: it is skipped
    destinations[1].die()
    await w.loop.idle()
    await destinations[2].ask(payload(2, b"x", N | C))  # the first answer; the other is cancelled
    assert ended(w, RR) == {Outcome.DELIVER: 1}
    assert of_service(w) == {
        Outcome.DELIVER: 1,
        Outcome.REJECTED: 1,
        Outcome.DROP: 1,
        Outcome.CANCELED: 1,
    }
    await requester.ask(request(FNF, 3, asked), request(STREAM, 5, asked, n=9))
    await destinations[0].ask(error(6, 0x201, b"no"))
    await w.loop.idle()
    assert of_service(w)[Outcome.FAILED] == 1
    assert of_service(w)[Outcome.DELIVER] == 4  # a fire-and-forget to each of three
    assert of_service(w)[Outcome.CANCELED] == 3


@in_world()
async def test_what_a_destination_refuses_counts_for_its_service(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED))
    await destination.ask(error(2, 0x202, b"not now"))
    (found,) = await requester.received()
    assert errors([found]) == [(1, 0x202, "not now")]
    assert sum(of_service(w).values()) == 1


@in_world()
async def test_answers_of_the_node_itself_count_for_their_service(w: World) -> None:
    worker = await w.node.start(Echo, address="echo")
    w.broker.register(worker, service="echo")
    requester = await w.requester()
    await requester.ask(request(RR, 1, asked_for("echo")), request(FNF, 3, asked_for("echo")))
    await w.loop.idle()
    assert of_service(w, "echo") == {Outcome.DELIVER: 2}


@in_world(expose=("echo",))
async def test_requests_are_counted_by_their_routing(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(
        request(RR, 1, ASKED),
        request(STREAM, 3, asked_for("a", flags=MULTICAST), n=1),
        request(RR, 5, asked_for("none")),
        push(ASKED),
    )
    counts = {
        (routing.name, kind): count
        for routing, found in w.broker.index.asked_by_routing().items()
        for kind, count in enumerate(found)
        if count
    }
    assert counts == {
        ("UNICAST", KINDS[RR]): 2,
        ("UNICAST", int(FrameType.METADATA_PUSH)): 1,
        ("MULTICAST", KINDS[STREAM]): 1,
    }
    await w.node.start(Echo, address="echo")
    named = composite((b"message/x.onward.route.v0", b"echo"))
    await requester.ask(request(RR, 7, named, b"data"))
    assert w.broker.tally.named[KINDS[RR]] == sum(w.broker.tally.named) == 1
    requester.die()


@in_world()
async def test_open_requests_have_an_age(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED), request(STREAM, 3, ASKED, n=5))
    await asyncio.sleep(2)
    await requester.ask(request(CHANNEL, 5, asked_for("a", flags=MULTICAST), b"", n=1))
    found = sorted(w.listener.requests())
    assert [kind for kind, _ in found] == sorted((KINDS[RR], KINDS[STREAM], KINDS[CHANNEL]))
    ages = dict(found)
    assert ages[KINDS[RR]] >= 2 > ages[KINDS[CHANNEL]]
    requester.die()
    await w.loop.idle()
    assert list(w.listener.requests()) == []
    assert not destination.streams


@in_world()
async def test_a_wait_for_a_destination_is_measured(w: World) -> None:
    requester = await w.requester()
    waits = w.broker.index.waits
    await requester.ask(request(RR, 1, ASKED))
    await asyncio.sleep(1)
    destination = w.register()
    await destination.received()
    assert sum(waits.read().counts) == 1
    assert 1.0 <= waits.read().total < 1.2
    await requester.ask(request(RR, 3, asked_for("none")))
    await asyncio.sleep(10)
    assert sum(waits.read().counts) == 2
    await destination.ask(payload(2, b"", C))


@in_world()
async def test_frames_are_counted(w: World) -> None:
    requester, destination = await w.pair()
    before = w.listener.statistics()
    await requester.ask(request(RR, 1, ASKED), request(STREAM, 3, ASKED, n=2))
    await destination.ask(payload(2, b"", C), payload(4, b"x", N))
    await requester.ask(cancel(3))
    found = w.listener.statistics()
    assert found.received_frames - before.received_frames == 5
    assert found.sent_frames - before.sent_frames == 5
    requester.die()
    destination.die()
    await w.loop.idle()
    left = w.listener.statistics()
    assert (left.received_frames, left.sent_frames) == (found.received_frames, found.sent_frames)
