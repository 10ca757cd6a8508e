"""What the event log says of requests: each comes once and ends once, whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import pytest
from hypothesis import seed
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from onward.actors.broker import BrokerOptions, Handlers, Request
from onward.protocol.broker import (
    AddressFrame,
    Dialect,
    RoutingType,
    parse_key,
    shard,
    shard_hash,
    unicast,
)
from onward.protocol.eventlog import (
    Asked,
    EventName,
    Flag,
    Kind,
    Outcome,
    asked_text,
    sampled,
    threshold_of,
)
from tests.actors.eventlog.recording import NEVER, Flowed, Recording, recorded_world, recording
from tests.support.rsocket_peer import (
    BROKER_FRAME,
    CHANNEL,
    FNF,
    FORWARDING,
    MULTICAST,
    RR,
    SERVICE_NAME,
    STREAM,
    C,
    F,
    N,
    World,
    address,
    asked_for,
    cancel,
    composite,
    error,
    frame,
    in_memory,
    payload,
    push,
    request,
    request_n,
    route_setup,
)
from tests.support.workers import Echo, Failing, Gate
from tests.transports.rsocket.test_model import WALK, Model

ASKED: Final = asked_for("a")
MANY: Final = asked_for("a", MULTICAST)
ZIPKIN: Final = b"message/x.rsocket.tracing-zipkin.v0"
UNREGISTERED: Final = "(unregistered)"
REJECTED, APPLICATION_ERROR = 0x202, 0x201

Scenario = Callable[[World], Awaitable[Any]]


# --- how requests end -------------------------------------------------------------------------


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


def served(w: World) -> Handlers:
    handlers = Handlers(max_handling=1)

    @handlers.response
    async def response(asked: Request) -> bytes:
        if asked.data == b"wait":
            await asyncio.Event().wait()
        if asked.data == b"bad":
            raise RuntimeError
        return asked.data

    @handlers.fire_and_forget
    async def fire(asked: Request) -> None:
        if asked.data == b"bad":
            raise RuntimeError

    w.broker.serve(handlers, service="a")
    return handlers


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
    is_read = scenario not in {without_metadata, unreadable, broken_off_in_the_metadata}
    assert hops == (ends if is_read else {})


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
    def tags(number: int) -> dict[str | int, str]:
        many: dict[str | int, str] = {f"k{each}": "v" * 120 for each in range(20)}
        return {SERVICE_NAME: "a", **many, "u": str(number)}

    async with recorded_world(NEVER) as (w, log):
        requester = await w.requester()
        kept = log.recorder.requests
        for number in range(300):
            large: dict[str | int, str] = {f"k{each}": "\U0001f600" * 31 for each in range(60)}
            await requester.ask(
                request(FNF, 2 * number + 1, asked_for({**large, "u": str(number)}))
            )
        assert (len(kept._asked), kept.kept) == (0, 0)
        for number in range(300, 600):
            await requester.ask(request(FNF, 2 * number + 1, asked_for(tags(number))))
        assert kept._asked_bytes < 300 * 4096
        await asyncio.sleep(10)
    assert log.totals()[FORGET, Outcome.RECEIVED] == 600
    assert log.recorder.statistics().without_number >= 300


@in_memory
async def test_ways_of_asking_that_are_too_many_are_looked_up_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onward.actors.eventlog._requests.MAX_KEPT", 10)
    async with recorded_world(NEVER) as (w, log):
        for service in range(30):
            await w.node.start(Echo, address=f"w{service}")
            w.broker.register(f"w{service}", service=f"s{service}")
        requester = await w.requester()
        for number in range(90):
            await requester.ask(request(RR, 2 * number + 1, asked_for(f"s{number % 30}")))
            assert log.recorder.requests.kept <= 10
    assert log.totals()[RESPONSE, Outcome.DELIVER] == 90


# --- who, where to, what for ------------------------------------------------------------------


@in_memory
async def test_a_flow_says_who_asked_whom_for_what() -> None:
    async with recorded_world() as (w, log):
        asking = await w.destination("front")
        destination = await w.destination("a", {"colour": "b"})
        await asking.ask(request(RR, 1, asked_for({SERVICE_NAME: "a", "colour": "b"}), b"x"))
        await destination.ask(payload(2, b"y", N | C))
    (hop,) = log.hops()
    assert (hop.origin, hop.dest) == ("front", "a")
    assert hop.asked is not None
    assert asked_text(hop.asked) == "service=a colour=b"
    # The second route of the segment: who asked had come first, and is one too.
    assert hop.raw.route == 2
    assert log.flows() == {
        Flowed(RESPONSE, Outcome.RECEIVED, "front", "", hop.asked): 1,
        Flowed(RESPONSE, Outcome.FORWARD, "front", "a", hop.asked, routed=True): 1,
        Flowed(RESPONSE, Outcome.DELIVER, "front", "a", hop.asked, routed=True): 1,
    }


@in_memory
async def test_each_copy_of_a_multicast_is_a_hop_and_the_whole_is_one() -> None:
    async with recorded_world() as (w, log):
        requester = await w.requester()
        first, second = await w.destination(), await w.destination()
        await requester.ask(request(STREAM, 1, MANY, b"", n=5))
        await first.ask(payload(2, b"1", N | C))
        await second.ask(payload(2, b"2", N | C))
    hops = [(hop.outcome, hop.hop, hop.flags, hop.dest) for hop in log.hops()]
    copy = (Outcome.FORWARD, 1, Flag.MULTICAST, "a")
    assert hops == [copy, copy, (Outcome.DELIVER, 0, 0, "")]
    assert len({hop.raw.trace_id for hop in log.hops()}) == 1
    assert {hop.asked and hop.asked.routing for hop in log.hops()} == {RoutingType.MULTICAST}
    assert log.totals() == {
        (Kind.STREAM, Outcome.RECEIVED): 1,
        (Kind.STREAM, Outcome.FORWARD): 2,
        (Kind.STREAM, Outcome.DELIVER): 1,
    }


@pytest.mark.parametrize("kind", [FNF, RR])
@in_memory
async def test_a_multicast_ends_once_whoever_takes_it(kind: int) -> None:
    async with recorded_world() as (w, log):
        served(w)
        await w.node.start(Echo, address="echo")
        w.broker.register("echo", service="a")
        requester, destination = await w.pair()
        await requester.ask(request(kind, 1, MANY, b"x"))
        await destination.ask(payload(2, b"late", N | C))
    found = Counter({outcome: count for (_, outcome), count in log.totals().items()})
    assert (found[Outcome.RECEIVED], found[Outcome.DELIVER]) == (1, 1)
    assert found[Outcome.FORWARD] >= 2
    assert not log.in_hand()


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        (shard("a", tags={"user": "42"}, by=["user"]), Flag.SHARD),
        (unicast("a", tags={"user": "42"}, sticky=["user"]), Flag.STICKY),
    ],
)
@in_memory
async def test_keys_that_choose_are_known_by_their_hash_and_never_themselves(
    asked: AddressFrame, flag: Flag
) -> None:
    async with recorded_world() as (w, log):
        requester, _ = await w.pair()
        metadata = composite((FORWARDING, asked.serialize(Dialect.SPECIFICATION)))
        await requester.ask(request(FNF, 1, metadata))
    (hop,) = log.hops()
    assert hop.flags == flag
    assert hop.raw.shard_hash == shard_hash(((parse_key("user"), "42"),))
    assert hop.asked is not None
    assert hop.asked.tags == ((SERVICE_NAME, "a"),)
    assert b"user" not in b"".join(log.sink.sealed)


@pytest.mark.parametrize(
    ("entry", "trace"),
    [
        (b"\x80" + (77).to_bytes(8) + bytes(8), 77),
        (b"\x88" + bytes(8) + (78).to_bytes(8) + bytes(8), 78),
        (b"\x00", None),
        (b"", None),
        (b"\x80\1\2", None),
    ],
)
@in_memory
async def test_a_trace_id_that_comes_with_a_request_is_kept(
    entry: bytes, trace: int | None
) -> None:
    async with recorded_world() as (w, log):
        requester, _ = await w.pair()
        metadata = composite((ZIPKIN, entry), (BROKER_FRAME, address("a")))
        await requester.ask(request(FNF, 1, metadata))
    (hop,) = log.hops()
    assert bool(hop.flags & Flag.FOREIGN) == (trace is not None)
    if trace is not None:
        assert hop.raw.trace_id == trace


@in_memory
async def test_a_foreign_trace_is_sampled_by_its_hash_and_not_by_turns() -> None:
    rate = 0.5
    log_options = recording(sample_rate=rate).recorder.options
    async with recorded_world(log_options) as (w, log):
        requester, _ = await w.pair()
        for number in range(40):
            entry = b"\x80" + number.to_bytes(8) + bytes(8)
            metadata = composite((ZIPKIN, entry), (BROKER_FRAME, address("a")))
            await requester.ask(request(FNF, 2 * number + 1, metadata))
    wanted = [each for each in range(40) if sampled(each, threshold_of(rate))]
    assert [hop.raw.trace_id for hop in log.hops()] == wanted
    assert log.totals()[FORGET, Outcome.RECEIVED] == 40


@in_memory
async def test_what_is_not_sampled_is_counted_all_the_same() -> None:
    async with recorded_world(recording(sample_rate=0.0).recorder.options) as (w, log):
        requester, _ = await w.pair()
        for number in range(10):
            await requester.ask(request(FNF, 2 * number + 1, ASKED))
    assert log.hops() == []
    assert log.totals()[FORGET, Outcome.DELIVER] == 10


@in_memory
async def test_counters_go_on_over_the_ends_of_windows_and_segments() -> None:
    async with recorded_world() as (w, log):
        requester, destination = await w.pair()
        for number in range(30):
            await requester.ask(request(RR, 2 * number + 1, ASKED, b"x"))
            await asyncio.sleep(7)
            log.seconds += 7
            log.recorder.tick()
            log.recorder.write_flows()
            assert log.in_hand() == {RESPONSE: 1}
            await destination.ask(payload(2 * number + 2, b"y", N | C))
            assert log.in_hand() == {}
    assert len(log.read()) > 2
    assert log.totals()[RESPONSE, Outcome.DELIVER] == 30
    assert {hop.dest for hop in log.hops()} == {"a"}


# --- destinations -----------------------------------------------------------------------------


@in_memory
async def test_destinations_that_come_change_and_go_are_events() -> None:
    async with recorded_world() as (w, log):
        route_id = w.new_id()
        first = await w.destination("a", {"colour": "b"}, route_id=route_id)
        raw = route_setup(route_id, "a", {"colour": "c"})
        await first.ask(push(composite((BROKER_FRAME, raw))))
        await w.destination("a", {"colour": "d"}, route_id=route_id)
        local = w.broker.register("broker", service="b")
        local.withdraw()
        w.broker.register("broker", service="c")
    events = [(event.name, event.node, dict(event.tags).get("colour")) for event in log.events()]
    assert events == [
        (EventName.UP, "a", "b"),
        (EventName.RETAG, "a", "c"),
        (EventName.RETAG, "a", "d"),
        (EventName.UP, "b", None),
        (EventName.DOWN, "b", None),
        (EventName.UP, "c", None),
        (EventName.DOWN, "a", "d"),
        (EventName.DOWN, "onward.management", None),
        (EventName.DOWN, "c", None),
    ]
    assert log.events()[0].route_id == route_id.bytes


@in_memory
async def test_who_asks_in_vain_is_an_event_with_what_was_asked_for() -> None:
    options = BrokerOptions(no_route_timeout=0)
    async with recorded_world(broker_options=options) as (w, log):
        requester = await w.requester()
        await requester.ask(request(RR, 1, asked_for({SERVICE_NAME: "a", "colour": "b"})))
    rejected = [event for event in log.events() if event.name == EventName.REJECT]
    assert [sorted(map(str, dict(event.tags).values())) for event in rejected] == [["a", "b"]]
    assert rejected[0].reason == "no route"


# --- messages of workers ----------------------------------------------------------------------


@in_memory
async def test_messages_of_workers_by_tags_are_counted_too() -> None:
    options = BrokerOptions(no_route_timeout=1)
    async with recorded_world(broker_options=options) as (w, log):
        for name in ("one", "two"):
            await w.node.start(Echo, address=name)
        w.broker.register("one", service="a")
        await w.node.request("32#service=a", b"x")
        w.broker.register("two", service="a")
        await w.node.request("32#service=a", b"x")
        w.node.send("32#@multicast service=a", b"x")
        with pytest.raises(Exception, match="no route"):
            await w.node.request("32#service=nobody", b"x", timeout=10)
        waits = asyncio.ensure_future(w.node.request("32#service=later", b"x"))
        await asyncio.sleep(0.5)
        w.broker.register("one", service="later")
        await waits
    assert log.totals() == {
        (Kind.MESSAGE, Outcome.RECEIVED): 5,
        (Kind.MESSAGE, Outcome.FORWARD): 5,
        (Kind.MESSAGE, Outcome.DELIVER): 4,
        (Kind.MESSAGE, Outcome.UNROUTABLE): 1,
    }
    assert {flow.origin for flow in log.flows()} == {"edge"}
    assert (
        Flowed(Kind.MESSAGE, Outcome.UNROUTABLE, "edge", "", Asked(((1, "nobody"),))) in log.flows()
    )


# --- random walks -----------------------------------------------------------------------------


class Recorded(Model):
    """The model of the broker, with an event log that has to say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Recording | None = None
        self.outer: AbstractAsyncContextManager[Any] | None = None

    @precondition(lambda self: self.log is None and hasattr(self, "world"))
    @rule()
    def nothing(self) -> None:
        """Do nothing; there has to be a rule of our own."""

    async def connect(self, *arguments: Any, **options: Any) -> None:
        if self.log is None:
            self.log = Recording(now=self.world.node.loop.time)
            self.world.node.recorder = self.log.recorder
        await super().connect(*arguments, **options)

    @invariant()
    def what_is_in_hand_is_what_the_log_says(self) -> None:
        if self.log is not None:
            hand = sum(self.log.in_hand().values())
            assert hand == len(self.waiting) + len(self.live)

    def teardown(self) -> None:
        super().teardown()
        if self.log is not None:
            assert self.log.in_hand() == {}
            self.log.read()


@pytest.mark.parametrize("number", [1, 2])
def test_random_walks_balance(number: int) -> None:
    walk: type[Recorded] = seed(number)(type(f"Recorded{number}", (Recorded,), {}))
    run_state_machine_as_test(walk, settings=type(WALK)(WALK, max_examples=20))
