"""What the event log says of requests: each comes once and ends once, whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast
from uuid import UUID

import pytest

from onward.actors.eventlog.recording._flow_sampler import FlowSampler
from onward.actors.eventlog.recording._requests import UNREGISTERED
from onward.protocol.eventlog import PEER_BROKER, Kind, Outcome
from onward.transports.rsocket._peer_session import PeerSession
from tests.actors.eventlog.recorded import NEVER, recorded_world, served
from tests.support.counts import times
from tests.support.peer_brokers import CLUSTER, HandMade, join
from tests.support.rsocket_peer import *
from tests.support.workers import Echo, Failing, Gate

ASKED: Final = asked_for("a")
MANY: Final = asked_for("a", MULTICAST)
REJECTED, APPLICATION_ERROR = 0x202, 0x201

Scenario = Callable[[World], Awaitable[Any]]


async def answered(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED, b"ping"))
    await destination.ask(payload(2, b"pong", N | C))


async def told(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(request(FNF, 1, ASKED, b"x"))


async def streamed(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, b"", n=5))
    await destination.ask(payload(2, b"1", N), payload(2, b"2", N | C))


async def talked(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(CHANNEL, 1, ASKED, b"", n=5))
    await destination.ask(payload(2, b"1", N | C), request_n(2, 1))
    await requester.ask(payload(1, b"2", N | C))


async def pushed(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(push(ASKED))


async def failed(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED))
    await destination.ask(error(2, APPLICATION_ERROR, b"no"))


async def cancelled(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, b"", n=5))
    await requester.ask(cancel(1))


async def requester_gone(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(request(RR, 1, ASKED))
    requester.die()
    await w.settled()


async def destination_gone(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED))
    destination.die()
    await requester.received()


async def nobody_there(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED))
    await asyncio.sleep(6)


async def gave_up_waiting(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED))
    await requester.ask(cancel(1))


async def gone_while_waiting(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(FNF, 1, ASKED), push(ASKED))
    requester.die()
    await w.settled()


async def without_metadata(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, None))


async def unreadable(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, composite((BROKER_FRAME, b"\1\2\3"))), push(b"\xff"))


async def in_fragments(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED, b"pi", flags=F), payload(1, b"ng", N))
    await destination.ask(payload(2, b"pong", N | C))


async def broken_off_in_the_metadata(w: World) -> None:
    requester = await w.requester()
    await requester.ask(frame(1, RR, 0x180, (20).to_bytes(3) + b"x" * 20))
    await requester.ask(cancel(1))


async def worker_answers(w: World) -> None:
    await w.node.start(Echo, address="echo")
    w.broker.register("echo", service="a")
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"x"))
    await requester.ask(request(FNF, 3, ASKED, b"x"))


async def worker_fails(w: World) -> None:
    await w.node.start(Failing, address="bad")
    w.broker.register("bad", service="a")
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"!"))


async def worker_is_stopped(w: World) -> None:
    await w.node.start(Gate, address="gate")
    w.broker.register("gate", service="a")
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"x"))


async def no_worker_for_streams(w: World) -> None:
    await w.node.start(Echo, address="echo")
    w.broker.register("echo", service="a")
    requester = await w.requester()
    await requester.ask(request(STREAM, 1, ASKED, b"x", n=1))


async def handlers_answer(w: World) -> None:
    served(w)
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"x"))
    await requester.ask(request(FNF, 3, ASKED, b"x"))


async def handlers_fail(w: World) -> None:
    served(w)
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"bad"))
    await requester.ask(request(FNF, 3, ASKED, b"bad"))


async def handlers_are_busy(w: World) -> None:
    served(w)
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"wait"))
    await requester.ask(request(RR, 3, ASKED, b"x"), request(FNF, 5, ASKED, b"x"))
    await requester.ask(cancel(1))


async def no_handler(w: World) -> None:
    served(w)
    requester = await w.requester()
    await requester.ask(request(STREAM, 1, ASKED, b"x", n=1))


async def by_a_route(w: World) -> None:
    await w.node.start(Echo, address="echo")
    w.node.expose(w.listener.address, "echo")
    requester = await w.requester()
    named = composite((b"message/x.onward.route.v0", b"echo"))
    await requester.ask(request(RR, 1, named, b"x"), request(FNF, 3, named, b"x"))
    hidden = composite((b"message/x.onward.route.v0", b"hidden"))
    await requester.ask(request(RR, 5, hidden, b"x"))


async def the_broker_stops(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(request(RR, 1, ASKED))


OK, NONE, NOT, BAD = Outcome.DELIVER, Outcome.UNROUTABLE, Outcome.REJECTED, Outcome.INVALID
LOST, OFF, FAIL = Outcome.DROP, Outcome.CANCELED, Outcome.FAILED
RESPONSE, FORGET = Kind.RESPONSE, Kind.FIRE_AND_FORGET

ENDINGS: Final[list[tuple[Scenario, dict[tuple[Kind, Outcome], int], int]]] = [
    (answered, {(RESPONSE, OK): 1}, 1),
    (told, {(FORGET, OK): 1}, 1),
    (streamed, {(Kind.STREAM, OK): 1}, 1),
    (talked, {(Kind.CHANNEL, OK): 1}, 1),
    (pushed, {(Kind.PUSH, OK): 1}, 1),
    (failed, {(RESPONSE, FAIL): 1}, 1),
    (cancelled, {(Kind.STREAM, OFF): 1}, 1),
    (requester_gone, {(RESPONSE, OFF): 1}, 1),
    (destination_gone, {(RESPONSE, LOST): 1}, 1),
    (nobody_there, {(RESPONSE, NONE): 1}, 0),
    (gave_up_waiting, {(RESPONSE, OFF): 1}, 0),
    (gone_while_waiting, {(FORGET, OFF): 1, (Kind.PUSH, OFF): 1}, 0),
    (without_metadata, {(RESPONSE, BAD): 1}, 0),
    (unreadable, {(RESPONSE, BAD): 1, (Kind.PUSH, BAD): 1}, 0),
    (in_fragments, {(RESPONSE, OK): 1}, 1),
    (broken_off_in_the_metadata, {(RESPONSE, OFF): 1}, 0),
    (worker_answers, {(RESPONSE, OK): 1, (FORGET, OK): 1}, 2),
    (worker_fails, {(RESPONSE, FAIL): 1}, 1),
    (worker_is_stopped, {(RESPONSE, FAIL): 1}, 1),
    (no_worker_for_streams, {(Kind.STREAM, NOT): 1}, 0),
    (handlers_answer, {(RESPONSE, OK): 1, (FORGET, OK): 1}, 2),
    (handlers_fail, {(RESPONSE, FAIL): 1, (FORGET, FAIL): 1}, 2),
    (handlers_are_busy, {(RESPONSE, OFF): 1, (RESPONSE, NOT): 1, (FORGET, NOT): 1}, 1),
    (no_handler, {(Kind.STREAM, BAD): 1}, 0),
    (by_a_route, {(RESPONSE, OK): 1, (FORGET, OK): 1, (RESPONSE, NOT): 1}, 0),
    (the_broker_stops, {(RESPONSE, LOST): 1}, 1),
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("scenario", "ends", "forwarded"), ENDINGS, ids=[each[0].__name__ for each in ENDINGS]
)
@in_memory
async def test_each_request_comes_once_and_ends_once(
    scenario: Scenario, ends: dict[tuple[Kind, Outcome], int], forwarded: int
) -> None:
    async with recorded_world() as (w, log):
        await scenario(w)
        await asyncio.sleep(0.1)
    found = log.totals()
    came: Counter[Kind] = Counter()
    for (kind, _), count in ends.items():
        came[kind] += count
    assert {kind: found.pop((kind, Outcome.RECEIVED)) for kind in came} == came
    assert sum(found.pop((kind, Outcome.FORWARD), 0) for kind in came) == forwarded
    assert found == ends
    # Each request was sampled: one hop when it ended, and as many for copies as there were.
    hops = Counter((hop.kind, hop.outcome) for hop in log.hops() if hop.kind != Kind.MESSAGE)
    without_tags = {without_metadata, unreadable, broken_off_in_the_metadata, by_a_route}
    assert hops == (ends if scenario not in without_tags else {})


@pytest.mark.parametrize("kind", [RR, FNF, STREAM, CHANNEL])
@in_memory
async def test_a_request_that_is_cancelled_at_once_has_come_and_was_cancelled(kind: int) -> None:
    async with recorded_world() as (w, log):
        requester, _ = await w.pair()
        credit = None if kind in {RR, FNF} else 5
        await requester.ask(request(kind, 1, ASKED, b"x", n=credit) + cancel(1))
        await w.settled()
    totals = log.totals()
    (made,) = {each for each, _ in totals}
    ends = {outcome: count for (_, outcome), count in totals.items()}
    assert ends[Outcome.RECEIVED] == 1
    # What is only told has been passed on before.
    assert ends.get(Outcome.CANCELED) == (None if made == FORGET else 1)


@pytest.mark.parametrize("asked", [ASKED, MANY], ids=["one", "several"])
@in_memory
async def test_the_hops_of_a_worker_are_of_the_trace_of_the_request(asked: bytes) -> None:
    async with recorded_world() as (w, log):
        for address in ("one", "two") if asked is MANY else ("one",):
            await w.node.start(Echo, address=address)
            w.broker.register(address, service="a")
        requester = await w.requester()
        await requester.ask(request(RR, 1, asked, b"x"))
        await w.settled()
    hops = log.hops()
    assert len({hop.raw.trace_id for hop in hops}) == 1
    handled = sorted(hop.dest for hop in hops if hop.kind == Kind.MESSAGE)
    assert handled == [f"edge/0#{name}" for name in ("one", "two")[: 2 if asked is MANY else 1]]
    assert {hop.hop for hop in hops if hop.kind == Kind.MESSAGE} == {1}


@in_memory
async def test_what_is_not_sampled_is_handed_to_a_worker_without_a_mark() -> None:
    async with recorded_world(NEVER) as (w, log):
        await worker_answers(w)
    assert log.hops() == []
    assert log.totals()[Kind.RESPONSE, Outcome.DELIVER] == 1


@in_memory
async def test_counters_are_bounded_whatever_strangers_ask_for() -> None:
    each = times(30, 300)
    large: dict[str | int, str] = {f"k{at}": "\U0001f600" * 31 for at in range(60)}
    many: dict[str | int, str] = {SERVICE_NAME: "a", **{f"k{at}": "v" * 120 for at in range(20)}}
    async with recorded_world(NEVER) as (w, log):
        requester = await w.requester()
        kept = log.recorder.requests
        for number in range(each):
            asked = asked_for({**large, "u": str(number)})
            await requester.ask(request(FNF, 2 * number + 1, asked))
        assert len(kept._asked) == 0
        for number in range(each, 2 * each):
            asked = asked_for({**many, "u": str(number)})
            await requester.ask(request(FNF, 2 * number + 1, asked))
        assert kept._asked_bytes < each * 4096
        await asyncio.sleep(10)
    assert log.totals()[FORGET, Outcome.RECEIVED] == 2 * each
    assert log.recorder.statistics().left_out["names"] >= each


@in_memory
async def test_ways_of_asking_that_are_too_many_are_looked_up_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onward.actors.eventlog.recording._requests.MAX_KEPT", 10)
    async with recorded_world(NEVER) as (w, log):
        for service in range(30):
            await w.node.start(Echo, address=f"w{service}")
            w.broker.register(f"w{service}", service=f"s{service}")
        requester = await w.requester()
        for number in range(90):
            await requester.ask(request(RR, 2 * number + 1, asked_for(f"s{number % 30}")))
            assert log.recorder.requests.kept <= 10
    assert log.totals()[RESPONSE, Outcome.DELIVER] == 90


@in_memory
async def test_a_forwarded_request_is_told_apart_at_the_other_broker() -> None:
    async with recorded_world(NEVER) as (w, log), recorded_world(NEVER) as (other, other_log):
        j = await join(w, other)
        destination, requester = await j.destination(), await w.requester()
        await requester.ask(request(RR, 1, ASKED), request(FNF, 3, ASKED))
        await requester.ask(request(STREAM, 5, ASKED, n=1))
        for arrived in await destination.received():
            if kind_of(arrived) != FNF:
                await destination.ask(payload(stream_of(arrived), b"", C))
        await requester.received()
        j.tell("a", UUID(int=0xDEAD))
        await requester.ask(request(RR, 7, asked_for({SERVICE_NAME: "a", "k": "none"})))
        requester.die()
        j.link.abort()
        await w.settled()
        await other.settled()
    here, there = log.flows(), other_log.flows()
    # Each request has one origin at one broker, and is "(peer broker)" at the other.
    links = {each for each in (*here, *there) if each.kind == Kind.LINK}
    assert {each.origin for each in {*here} - links} == {UNREGISTERED}
    assert {each.origin for each in {*there} - links} == {PEER_BROKER}
    assert {each.asked for each in there} == {None}
    came = {
        (each.kind, each.outcome): count
        for each, count in there.items()
        if not each.dest and each not in links
    }
    assert came == {(kind, Outcome.RECEIVED): 1 for kind in (RESPONSE, FORGET, Kind.STREAM)}
    ended = {each.kind for each in there if each.outcome == OK and each.dest == "a"}
    assert ended == {RESPONSE, FORGET, Kind.STREAM}


async def ended_by(destination: Peer) -> None:
    """Answer all requests that a destination has got."""
    for arrived in await destination.received():
        if kind_of(arrived) not in {FNF, PUSH}:
            await destination.ask(payload(stream_of(arrived), b"", C))


@pytest.mark.parametrize("kind", [RR, STREAM, CHANNEL])
@pytest.mark.parametrize("ends", ["answered", "failed", "cancelled", "gone"])
@in_memory
async def test_a_request_that_goes_elsewhere_is_forwarded_once(kind: int, ends: str) -> None:
    async with recorded_world(NEVER) as (w, log), recorded_world(NEVER) as (other, other_log):
        j = await join(w, other)
        destination, requester = await j.destination(), await w.requester()
        j.tell("a", UUID(int=0xDEAD))
        n = None if kind == RR else 1
        for stream in (1, 3, 5, 7):  # every second one is rejected first, by the route of no client
            flags = C if kind == CHANNEL else 0
            await requester.ask(request(kind, stream, ASKED, b"", n=n, flags=flags))
            (arrived,) = [each for each in await destination.received() if kind_of(each) == kind]
            if ends == "answered":
                await destination.ask(payload(stream_of(arrived), b"", N | C))
            elif ends == "failed":
                await destination.ask(error(stream_of(arrived), APPLICATION_ERROR, b"no"))
            elif ends == "cancelled":
                await requester.ask(cancel(stream))
        if ends == "gone":
            destination.die()
            await requester.received()
        await w.settled()
        tried = j.link.legs.taken
        assert tried > 4
        requester.die()
        j.link.abort()
        await w.settled()
        await other.settled()
    kind_logged = {RR: RESPONSE, STREAM: Kind.STREAM, CHANNEL: Kind.CHANNEL}[kind]
    here, there = log.totals(), other_log.totals()
    assert here[kind_logged, Outcome.RECEIVED] == here[kind_logged, Outcome.FORWARD] == 4
    # What the first broker sends, and nothing else, is received at the other.
    assert there[kind_logged, Outcome.RECEIVED] == tried
    assert there[kind_logged, Outcome.FORWARD] == 4
    refused = there[kind_logged, Outcome.UNROUTABLE] + there[kind_logged, Outcome.REJECTED]
    assert refused == tried - 4


@in_memory
async def test_both_ends_of_a_peer_link_count_the_legs_of_requests() -> None:
    async with recorded_world(NEVER) as (w, log), recorded_world(NEVER) as (other, other_log):
        log.recorder.links = FlowSampler(log.recorder, w.node)
        other_log.recorder.links = FlowSampler(other_log.recorder, other.node)
        j = await join(w, other)
        first, second = await j.destination(), await j.destination()
        requester = await w.requester()
        for number, kind in enumerate((RR, FNF, STREAM, CHANNEL)):
            n = 1 if kind in {STREAM, CHANNEL} else None
            await requester.ask(
                request(kind, 4 * number + 1, ASKED, n=n), request(kind, 4 * number + 3, MANY, n=n)
            )
            await requester.ask(cancel(4 * number + 1), cancel(4 * number + 3))
        await requester.ask(push(ASKED), push(MANY))
        # In fragments, and refused there: both count, and cancelled in the same read as well.
        await requester.ask(request(RR, 31, ASKED, b"pi", flags=F), payload(31, b"ng", N))
        await ended_by(first)
        await ended_by(second)
        j.tell("b", UUID(int=0xDEAD))
        await requester.ask(request(RR, 33, asked_for("b")))
        await requester.ask(cancel(33))  # it waits for another destination
        await requester.ask(request(RR, 35, ASKED), cancel(35))
        # A message of a worker is one as well.
        before = j.link.legs.taken
        w.node.send("32#service=a", b"told")
        await w.settled()
        assert j.link.legs.taken == before + 1
        # What the cluster itself asks is none.
        (connection,) = cast(HandMade, cast(PeerSession, j.link.session)._peers).links
        assert await connection.request(CLUSTER, b"")
        await w.settled()
        sent = j.link.legs.taken
        requester.die()
        j.link.abort()
        await w.settled()
        await other.settled()
    here, there = log.flows(), other_log.flows()
    way = f"broker {w.broker.broker_id}>{other.broker.broker_id}"
    (out,) = [each for each in here if (each.kind, each.outcome) == (Kind.LINK, Outcome.FORWARD)]
    (came,) = [each for each in there if each.kind == Kind.LINK and there[each]]
    assert (out.dest, came.dest, came.outcome) == (way, way, Outcome.RECEIVED)
    assert here[out] == there[came] == sent >= 12
    received = other_log.totals()
    kinds = {RESPONSE, FORGET, Kind.STREAM, Kind.CHANNEL, Kind.PUSH}
    assert sent == sum(received[kind, Outcome.RECEIVED] for kind in kinds)


@in_memory
async def test_what_the_cluster_asks_is_no_leg_also_if_it_is_refused() -> None:
    async with recorded_world(NEVER) as (w, _), recorded_world(NEVER) as (other, other_log):
        j = await join(w, other)
        (connection,) = cast(HandMade, cast(PeerSession, j.link.session)._peers).links
        asked = asyncio.ensure_future(connection.request(CLUSTER, b""))
        # Cancelled within the same read.
        await asyncio.sleep(0)
        asked.cancel()
        await w.settled()
        await other.settled()
        # The link ends at the other broker, which is asked once more before that arrives.
        session = j.accepted.session
        session.leave("test")
        requester = await w.requester()
        j.tell("a", UUID(int=0xDEAD))
        lost = asyncio.ensure_future(connection.request(CLUSTER, b""))
        requester.send(request(RR, 1, ASKED))
        await w.settled()
        await other.settled()
        assert j.accepted.legs.arrived == 1
        requester.die()
        j.link.abort()
        await asyncio.gather(lost, return_exceptions=True)
        await w.settled()
        await other.settled()
    there = other_log.totals()
    assert {key: count for key, count in there.items() if count} == {
        (RESPONSE, Outcome.RECEIVED): 1,
        (RESPONSE, Outcome.REJECTED): 1,
    }
