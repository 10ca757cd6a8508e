"""What the event log says of who asked whom for what, of destinations, and of random traffic."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import pytest
from hypothesis import seed
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from onward.actors.broker import BrokerOptions, WaitingOptions
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
from tests.actors.eventlog.recorded import Flowed, Recording, recorded_world, recording, served
from tests.support.counts import times
from tests.support.rsocket_peer import *
from tests.support.workers import Echo
from tests.transports.rsocket.test_model import WALK, Model

ASKED: Final = asked_for("a")
MANY: Final = asked_for("a", MULTICAST)
ZIPKIN: Final = b"message/x.rsocket.tracing-zipkin.v0"
RESPONSE, FORGET = Kind.RESPONSE, Kind.FIRE_AND_FORGET


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
async def test_trace_ids_that_are_made_up_to_be_sampled_are_so_up_to_a_limit_each_second() -> None:
    rate = 0.25
    chosen = [number for number in range(2000) if sampled(number, threshold_of(rate))][:200]
    log_options = recording(sample_rate=rate, max_foreign_per_second=5).recorder.options
    async with recorded_world(log_options) as (w, log):
        requester, _ = await w.pair()
        for turn, trace in enumerate(chosen):
            if turn == 100:
                await asyncio.sleep(1)
            entry = b"\x80" + trace.to_bytes(8) + bytes(8)
            metadata = composite((ZIPKIN, entry), (BROKER_FRAME, address("a")))
            await requester.ask(request(FNF, 2 * turn + 1, metadata))
        left_out = log.recorder.statistics().left_out["trace ids"]
    foreign = [hop.raw.trace_id for hop in log.hops() if hop.flags & Flag.FOREIGN]
    assert foreign[:5] + foreign[-5:] == chosen[:5] + chosen[100:105]
    assert 10 <= len(foreign) == 200 - left_out <= 12
    # Of the others samples are drawn, by a fixed seed, and under ids of ours.
    drawn = [hop for hop in log.hops() if not hop.flags & Flag.FOREIGN]
    assert 30 < len(drawn) < 65
    assert not {hop.raw.trace_id for hop in drawn} & set(chosen)
    totals = log.totals()
    assert totals[FORGET, Outcome.RECEIVED] == totals[FORGET, Outcome.DELIVER] == 200


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
            await destination.ask(payload(2 * number + 2, b"y", N | C))
    assert len(log.read()) > 2
    totals = log.totals()
    assert totals[RESPONSE, Outcome.RECEIVED] == totals[RESPONSE, Outcome.DELIVER] == 30
    assert {hop.dest for hop in log.hops()} == {"a"}


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
    options = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))
    async with recorded_world(broker_options=options) as (w, log):
        requester = await w.requester()
        await requester.ask(request(RR, 1, asked_for({SERVICE_NAME: "a", "colour": "b"})))
    rejected = [event for event in log.events() if event.name == EventName.REJECT]
    assert [sorted(map(str, dict(event.tags).values())) for event in rejected] == [["a", "b"]]
    assert rejected[0].reason == "no route"


@in_memory
async def test_messages_of_workers_by_tags_are_counted_too() -> None:
    options = BrokerOptions(waiting=WaitingOptions(no_route_timeout=1))
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
            self.world.node.add_instrument(self.log.recorder)
        await super().connect(*arguments, **options)

    @invariant()
    def what_is_in_hand_is_what_the_log_says(self) -> None:
        if self.log is not None:
            hand = sum(self.log.in_hand_now().values())
            assert hand == len(self.waiting) + len(self.live)

    def teardown(self) -> None:
        super().teardown()
        if self.log is not None:
            assert self.log.in_hand() == {}


@pytest.mark.parametrize("number", [1, 2])
def test_random_walks_balance(number: int) -> None:
    walk: type[Recorded] = seed(number)(type(f"Recorded{number}", (Recorded,), {}))
    run_state_machine_as_test(walk, settings=type(WALK)(WALK, max_examples=times(6, 20)))
