"""What the event log says of a node's messages, workers and links."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.eventlog import LogOptions
from onward.actors.eventlog.recording._flow_sampler import FlowSampler
from onward.actors.eventlog.recording._messages import outcome_of_reason
from onward.actors.eventlog.recording._rate_limit import RateLimit
from onward.actors.routing._given import as_route
from onward.actors.tracing import HopTracer
from onward.protocol import Context, MailboxFull, Message, UnknownAddress, WorkerFailed
from onward.protocol.eventlog import Kind, LogMark, Outcome, with_log_mark
from tests.actors.eventlog.recorded import Flowed, Recording
from tests.support.workers import Echo, Failing, Forwarder, Gate, Recorder

RATE_1 = LogOptions(Path("nowhere"), "test", sample_rate=1.0)
RARELY = LogOptions(Path("nowhere"), "test", sample_rate=1e-9)
RATE_0 = LogOptions(Path("nowhere"), "test", sample_rate=0.0)
MARK = with_log_mark({}, LogMark(7, 3))


@asynccontextmanager
async def recorded(
    name: str = "n", options: LogOptions = RATE_1
) -> AsyncGenerator[tuple[Node, Recording]]:
    """Run a node with a recorder that has no disk."""
    made = Recording(options, name)
    async with Node(name) as node:
        made.recorder.links = FlowSampler(made.recorder, node)
        end = node.dead_letters.subscribe(made.recorder.messages.lost)
        node.add_instrument(made.recorder)
        yield node, made
    end()
    node.remove_instrument(made.recorder)


def told(made: Recording) -> list[tuple[int, Outcome, str, str]]:
    return [(hop.hop, hop.outcome, hop.origin, hop.dest) for hop in made.hops()]


# --- hops -------------------------------------------------------------------------------------


async def test_a_message_leaves_a_hop_at_each_worker_and_at_its_end() -> None:
    async with recorded() as (node, made):
        await node.start(Forwarder, address="one")
        await node.start(Forwarder, address="two")
        await node.start(Echo, address="echo")
        await node.request("one => two => echo", b"hi")
    hops = sorted(told(made))  # an answer may be there before the turn that gave it is over
    assert hops[:3] == [
        (0, Outcome.FORWARD, "n", "n/0#one"),
        (1, Outcome.FORWARD, "n/0#one", "n/0#two"),
        (2, Outcome.DELIVER, "n/0#two", "n/0#echo"),
    ]
    # The answer goes back the same way, and ends where it was asked.
    assert hops[3:] == [
        (3, Outcome.FORWARD, "n/0#echo", "n/0#two"),
        (4, Outcome.FORWARD, "n/0#two", "n/0#one"),
        (5, Outcome.RETURN, "n/0#one", "n"),
    ]
    assert len({hop.raw.trace_id for hop in made.hops()}) == 1


async def test_what_is_not_sampled_carries_nothing() -> None:
    async with recorded(options=RATE_0) as (node, made):
        seen = Recorder()
        await node.start(lambda: seen, address="seen")
        node.send("seen", b"x")
        await node.send_wait("seen", b"x")
        await node.stop_worker("seen")
    assert [message.context for message in seen.messages] == [None, None]
    assert made.hops() == []


@pytest.mark.parametrize("way", ["send", "send_wait", "request"])
async def test_a_message_from_outside_is_marked_unless_it_has_a_tracing_text(way: str) -> None:
    async with recorded() as (node, made):
        await node.start(Echo, address="echo")
        for context in (None, Context(hops=1), Context(trace='{"traceparent":"x"}')):
            if way == "send":
                node.send("echo", b"x", return_route="echo", context=context)
            elif way == "send_wait":
                await node.send_wait("echo", b"x", return_route="echo", context=context)
            else:
                await node.request("echo", b"x", context=context)
        await node.stop_worker("echo")
    assert len({hop.raw.trace_id for hop in made.hops()}) == 2


async def test_a_message_sent_on_another_thread_is_not_sampled() -> None:
    async with recorded() as (node, made):
        await node.start(Recorder, address="seen")
        await asyncio.to_thread(node.send, "seen", b"x")
        await node.stop_worker("seen")
    assert made.hops() == []


async def test_what_may_not_be_sampled_makes_nothing_else_be_sampled_less_or_more() -> None:
    async with recorded(options=replace(RATE_1, sample_rate=0.25)) as (node, made):
        seen = Recorder()
        await node.start(lambda: seen, address="seen", mailbox=MailboxOptions(10_000))

        def send() -> None:
            for _ in range(2000):
                node.send("seen", b"theirs")

        await asyncio.to_thread(send)
        for _ in range(2000):
            node.send("seen", b"traced", context=Context(trace="{}"))
            node.send("seen", b"ours")
        await node.stop_worker("seen")
    assert len(seen.messages) == 6000
    marked = Counter(
        message.payload
        for message in seen.messages
        if message.context is not None and message.context.trace not in {None, "{}"}
    )
    # The recorder draws by a fixed seed.
    assert list(marked) == [b"ours"]
    assert 440 < marked[b"ours"] < 560
    assert len(made.hops()) == marked[b"ours"]


async def test_a_mark_from_elsewhere_is_followed_and_counted_on() -> None:
    async with recorded(options=RATE_0) as (node, made):
        seen = Recorder()
        await node.start(lambda: seen, address="seen")
        node.send("seen", b"four", context=Context(trace=MARK))
        await node.stop_worker("seen")
    (hop,) = made.hops()
    assert (hop.raw.trace_id, hop.hop, hop.raw.bytes) == (7, 3, 4)
    (message,) = seen.messages
    assert message.context is not None
    assert message.context.trace == with_log_mark({}, LogMark(7, 4))


class Entered(Gate):
    """Says when it has a message in hand."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()

    async def handle_message(self, message: Message) -> None:
        self.entered.set()
        await super().handle_message(message)


async def test_a_handler_that_fails_and_one_that_awaits() -> None:
    async with recorded() as (node, made):
        gate = Entered()
        await node.start(lambda: gate, address="gate")
        await node.start(Failing, address="bad")
        node.send("bad", b"!")
        node.send("gate", b"x")
        await gate.entered.wait()
        assert made.recorder.statistics().hops == 1
        gate.opened.set()
        await node.stop_worker("gate")
    assert told(made) == [
        (0, Outcome.FAILED, "n", "n/0#bad"),
        (0, Outcome.DELIVER, "n", "n/0#gate"),
    ]


async def test_a_dead_letter_is_the_end_of_a_message() -> None:
    async with recorded() as (node, made):
        await node.start(Forwarder, address="one")
        node.send("one => nobody", b"x")
        await node.stop_worker("one")
    assert [hop[1] for hop in told(made)] == [Outcome.FORWARD, Outcome.UNROUTABLE]


async def test_a_full_mailbox_is_named() -> None:
    async with recorded() as (node, made):
        await node.start(Gate, address="full", mailbox=MailboxOptions(limit=1))
        message = Message(as_route("full"), (), b"", None, Context(trace=MARK))
        for _ in range(4):
            node.parts.router.dispatch_or_lose(message)
    ends = Counter(hop[1:] for hop in told(made))
    assert ends[Outcome.REJECTED, "n", "n/0#full"] >= 2


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (UnknownAddress.reason, Outcome.UNROUTABLE),
        (MailboxFull.reason, Outcome.REJECTED),
        ("expired", Outcome.REJECTED),
        ("late answer", Outcome.DROP),
        (WorkerFailed.reason, Outcome.DROP),
    ],
)
def test_a_reason_is_an_outcome(reason: str, outcome: Outcome) -> None:
    assert outcome_of_reason(reason) == outcome


async def test_another_tracer_goes_on_whoever_came_first() -> None:
    async with recorded() as (node, made):
        tracer = HopTracer(node)
        node.add_instrument(tracer)
        await node.start(Echo, address="echo")
        await node.request("echo", b"x")
        assert node.find_instrument(HopTracer) is tracer
    # A message that only we have marked has nothing to say to the other.
    assert tracer.statistics().reported == 0
    assert len(made.hops()) == 2


# --- workers ----------------------------------------------------------------------------------


class Short(Worker):
    """Stops after its first message."""

    def handle_message(self, message: Message) -> None:
        self.stop()


async def test_workers_are_counted_by_what_they_count_and_the_log_balances() -> None:
    async with recorded(options=RATE_0) as (node, made):
        await node.start(Echo, address="echo")
        await node.start(Failing, address="bad")
        await node.request("echo", b"x")
        made.recorder.flows.end_window(0, 10_000)
        await node.request("echo", b"x")
        node.send("bad", b"!")
        await node.start(Short, address="short")
        over = asyncio.Event()
        node.watch("short", over.set)
        node.send("short", b"x")
        await node.stop_worker("bad")
        node.parts.router.dispatch_or_lose(Message(as_route("nobody"), (), b""))
        await over.wait()
        made.recorder.flows.end_window(0, 10_000)
    flows = made.flows()
    ends = {key: count for key, count in flows.items() if key.outcome != Outcome.RECEIVED}
    assert ends == {
        Flowed(Kind.MESSAGE, Outcome.DELIVER, "", "n/0#echo"): 2,
        Flowed(Kind.MESSAGE, Outcome.DELIVER, "", "n/0#short"): 1,
        Flowed(Kind.MESSAGE, Outcome.FAILED, "", "n/0#bad"): 1,
        Flowed(Kind.MESSAGE, Outcome.UNROUTABLE, "", ""): 1,
    }
    assert made.in_hand() == {}


class Uncounted(Short):
    """Is counted elsewhere."""

    has_flows = False


async def stopped_by_itself(node: Node, address: str, worker: Callable[[], Worker]) -> None:
    """Start a worker that stops after its first message, and have it do so."""
    await node.start(worker, address=address)
    over = asyncio.Event()
    node.watch(address, over.set)
    node.send(address, b"x")
    await over.wait()


async def test_a_worker_that_comes_and_goes_between_two_looks_has_its_name() -> None:
    async with recorded(options=RATE_0) as (node, made):
        made.recorder.flows.end_window(0, 10_000)
        await stopped_by_itself(node, "gone", Short)
        made.recorder.flows.end_window(0, 10_000)
        made.recorder.flows.end_window(0, 10_000)
    assert set(made.flows().items()) == {
        (Flowed(Kind.MESSAGE, Outcome.RECEIVED, "", "n/0#gone"), 1),
        (Flowed(Kind.MESSAGE, Outcome.DELIVER, "", "n/0#gone"), 1),
    }


@pytest.mark.parametrize("looked_at", [False, True])
async def test_what_is_counted_elsewhere_is_not_counted_twice_however_short_it_lives(
    looked_at: bool,
) -> None:
    async with recorded(options=RATE_0) as (node, made):
        if looked_at:
            await node.start(Uncounted, address="w")
            made.recorder.flows.end_window(0, 10_000)
            over = asyncio.Event()
            node.watch("w", over.set)
            node.send("w", b"x")
            await over.wait()
        else:
            await stopped_by_itself(node, "w", Uncounted)
        made.recorder.flows.end_window(0, 10_000)
    assert made.flows() == {}


async def test_of_workers_that_come_and_go_only_so_many_are_named_between_two_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onward.actors.eventlog.recording._flow_sampler.MAX_PASSING", 2)
    async with recorded(options=RATE_0) as (node, made):
        for number in range(5):
            await stopped_by_itself(node, str(number), Short)
        made.recorder.flows.end_window(0, 10_000)
        await stopped_by_itself(node, "next", Short)
    ends = {key.dest: n for key, n in made.flows().items() if key.outcome == Outcome.DELIVER}
    assert ends == {"n/0#0": 1, "n/0#1": 1, "n": 3, "n/0#next": 1}


# --- links ------------------------------------------------------------------------------------


def crossed(made: Recording) -> Counter[tuple[Outcome, str]]:
    found: Counter[tuple[Outcome, str]] = Counter()
    for flow, count in made.flows().items():
        if flow.kind == Kind.LINK and count:
            found[flow.outcome, flow.dest] += count
    return found


@pytest.mark.parametrize("uri", ["tcp://127.0.0.1:0", "ws://127.0.0.1:0", "memory://b", "uds"])
async def test_both_ends_of_a_link_say_the_same_after_a_clean_stop(
    uri: str, tmp_path: Path
) -> None:
    if uri == "uds":
        uri = f"uds://{tmp_path}/socket"
    async with recorded("b") as (far, theirs):
        await far.start(Echo, address="echo")
        listener = await far.listen(uri, expose=["echo"])
        async with recorded("a") as (near, ours):
            link = await near.connect(listener.uri)
            for _ in range(20):
                await near.request((link, *as_route("echo")), b"x")
    here, there = crossed(ours), crossed(theirs)
    assert sorted(here.values()) == sorted(there.values()) == [20, 20]
    sent = {dest: count for (outcome, dest), count in here.items() if outcome == Outcome.FORWARD}
    got = {dest: count for (outcome, dest), count in there.items() if outcome == Outcome.RECEIVED}
    assert sent == got
    scheme = uri.partition(":")[0]
    assert all(name.startswith(f"{scheme} ") and ">" in name for name in sent)


async def test_an_end_that_got_nothing_says_so() -> None:
    async with recorded("b") as (far, theirs):
        listener = await far.listen("tcp://127.0.0.1:0")
        async with recorded("a") as (near, ours):
            await near.connect(listener.uri)
    ends = [
        {flow.dest: count for flow, count in made.flows().items() if flow.kind == Kind.LINK}
        for made in (ours, theirs)
    ]
    assert [list(each.values()) for each in ends] == [[0], [0]]
    # Each names the way to itself, which is the other's way out.
    assert all(name.startswith("tcp 127.0.0.1:") for each in ends for name in each)


async def test_a_trace_goes_on_at_the_other_node() -> None:
    async with recorded("b", RARELY) as (far, theirs):
        await far.start(Echo, address="echo")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        async with recorded("a") as (near, ours):
            link = await near.connect(listener.uri)
            await near.request((link, *as_route("echo")), b"x")
    (trace,) = {hop.raw.trace_id for hop in ours.hops()}
    assert {hop.raw.trace_id for hop in theirs.hops()} == {trace}
    assert [hop.hop for hop in theirs.hops()] == [1, 2]


async def test_of_a_message_all_hops_are_recorded_or_none() -> None:
    some = LogOptions(Path("nowhere"), "test", sample_rate=0.05)
    async with recorded("b", some) as (far, theirs):
        await far.start(Echo, address="echo")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        async with recorded("a", some) as (near, ours):
            link = await near.connect(listener.uri)
            for _ in range(2000):
                await near.request((link, *as_route("echo")), b"x")
    here, there = ours.hops(), theirs.hops()
    traces = {hop.raw.trace_id for hop in here}
    # The recorders draw by a fixed seed.
    assert 60 < len(traces) < 140
    assert {hop.raw.trace_id for hop in here if hop.outcome == Outcome.RETURN} == traces
    delivered = [hop for hop in there if hop.outcome == Outcome.DELIVER]
    assert [hop.dest for hop in delivered] == ["b/0#echo"] * len(traces)
    assert {hop.raw.trace_id for hop in there} == traces
    assert abs(sum(hop.raw.weight for hop in delivered) - 2000) < 4 * 20 * 10


async def test_arrivals_are_sampled_where_peers_keep_no_log_and_only_those_that_end_here() -> None:
    half = LogOptions(Path("nowhere"), "test", sample_rate=0.5, sample_arrivals=True)
    async with recorded("b", half) as (far, theirs):
        await far.start(Echo, address="echo")
        await far.start(Forwarder, address="by")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo", "by"])
        async with Node("a") as near:
            link = await near.connect(listener.uri)
            for _ in range(400):
                await near.request((link, *as_route("echo")), b"x")
            for _ in range(40):
                await near.request((link, *as_route("by => echo")), b"x")
    ends = Counter(hop.dest for hop in theirs.hops() if hop.outcome == Outcome.DELIVER)
    assert list(ends) == ["b/0#echo"]
    assert 140 < ends["b/0#echo"] < 260
    assert 440 in crossed(theirs).values()


async def test_answers_that_were_not_marked_are_not_marked_on_their_way_back() -> None:
    async with (
        recorded("a", replace(RATE_1, sample_arrivals=True)) as (near, ours),
        Node("b") as far,
    ):
        await far.start(Echo, address="echo")
        listener = await far.listen("tcp://127.0.0.1:0", expose=["echo"])
        link = await near.connect(listener.uri)
        assert near.instruments is not None
        near.instruments.left = 1 << 60
        ours.recorder.messages._gap = 1 << 60
        for _ in range(20):
            await near.request((link, *as_route("echo")), b"x")
    assert ours.hops() == []


@pytest.mark.parametrize(("rate", "believed"), [(0.0, 0), (1e-9, 5)])
async def test_marks_of_strangers_are_believed_up_to_a_limit(rate: float, believed: int) -> None:
    options = LogOptions(Path("nowhere"), "test", sample_rate=rate, max_marked_per_second=5)
    seen = Recorder()
    other = '{"onward.log": "00000000000000ff-0-9", "traceparent": "x"}'
    hidden = '{"onward\\u002elog": "00000000000000ff-0-9"}'
    async with recorded("victim", options) as (victim, made):
        limit = RateLimit(5, 5, lambda: 1.0)
        made.recorder.messages._limit = limit  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        await victim.start(lambda: seen, address="seen")
        await victim.start(Echo, address="echo")
        listener = await victim.listen("tcp://127.0.0.1:0", expose=["seen", "echo"])
        async with Node("stranger") as stranger:
            link = await stranger.connect(listener.uri)
            for trace in [other] * 10 + [hidden]:
                near = Context(trace=trace)
                stranger.send((link, *as_route("seen")), b"x", context=near)
            # Messages on one link come in order.
            await stranger.request((link, *as_route("echo")), b"x")
            await victim.stop_worker("seen")
    assert len(made.hops()) == believed
    assert made.recorder.statistics().left_out["marks"] == 11 - believed
    left = [message.context.trace for message in seen.messages if message.context][believed:]
    assert left == [*(['{"traceparent":"x"}'] * (10 - believed)), None]


async def test_what_a_link_could_not_send_is_dropped() -> None:
    async with recorded("b") as (far, _):
        listener = await far.listen("tcp://127.0.0.1:0")
        uri = listener.uri
        async with recorded("a") as (near, ours):
            link = await near.connect(uri)
            over = asyncio.Event()
            near.watch(link, over.set)
            near.dead_letters.subscribe(lambda _: over.set())
            await far.stop()
            for _ in range(5):
                near.send((link, *as_route("echo")), b"x")
            async with asyncio.timeout(10):
                await over.wait()
    found = crossed(ours)
    sent = sum(count for (outcome, _), count in found.items() if outcome == Outcome.FORWARD)
    dropped = sum(count for (outcome, _), count in found.items() if outcome == Outcome.DROP)
    assert sent >= dropped
    assert dropped or not sent or sent == 5
