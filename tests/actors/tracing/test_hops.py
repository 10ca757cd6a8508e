from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from onward.actors import Node, Worker
from onward.actors.tracing import HopTracer, HopTracerOptions, HopTracerStatistics
from onward.protocol import (
    MAX_TRACING,
    Address,
    Context,
    HopOutcome,
    HopReport,
    Message,
    TraceMark,
    decode_hop_report,
    format_route,
    read_tracing,
    trace_mark_of,
    with_trace_mark,
)
from tests.support.virtual import virtual_time
from tests.support.workers import Echo, Failing, Forwarder, Gate, Recorder

TRACER = Address(0, b"tracer")
MARK = TraceMark("ab" * 16, "0" * 16, 0, TRACER)


def marked(**fields: str) -> Context:
    """Return the context of a marked message."""
    return Context(trace=with_trace_mark(fields, MARK))


def longest() -> str:
    """Return a tracing text that has no room for one more digit of the depth."""
    mark = replace(MARK, depth=9)
    room = MAX_TRACING - len(with_trace_mark({"x": ""}, mark) or "")
    text = with_trace_mark({"x": "y" * room}, mark)
    assert text is not None
    return text


class Clock:
    """Nanoseconds, one thousand more at each look."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1000
        return self.now


class Traced:
    """A node with a tracer, and a worker that the reports go to."""

    def __init__(self, node: Node, options: HopTracerOptions | None = None) -> None:
        self.node = node
        self.tracer = HopTracer(node, options, wall_clock=Clock(10**18), clock=Clock(0))
        node.tracer = self.tracer
        self.recorder = Recorder()
        node.spawn(lambda: self.recorder, address=TRACER)

    @property
    def reports(self) -> list[HopReport]:
        return [
            decode_hop_report(message.payload)
            for message in self.recorder.messages
            if message.context is None
        ]

    @property
    def answers(self) -> list[Message]:
        return [message for message in self.recorder.messages if message.context is not None]

    async def send(self, route: str, payload: bytes = b"hi", **context: str) -> None:
        self.node.send(route, payload, return_route=TRACER, context=marked(**context))
        await asyncio.sleep(1)


@virtual_time
async def test_each_hop_there_and_back_is_reported() -> None:
    async with Node("here") as node:
        traced = Traced(node)
        node.spawn(Forwarder, address="relay")
        node.spawn(Echo, address="echo")
        await traced.send("relay => echo", other="x")
        # Reports take the way of the message, so one may come before that of an earlier hop.
        first, second, third = sorted(traced.reports, key=lambda report: report.depth)
        assert first == HopReport(
            trace="ab" * 16,
            hop=first.hop,
            before="0" * 16,
            depth=1,
            node_id=traced.tracer.node_id,
            node="here",
            worker=Address(0, b"relay"),
            kind="Forwarder",
            taken=10**18 + 1000,
            handled=1000,
            outcome=HopOutcome.HANDLED,
            onward_route=(Address(0, b"relay"), Address(0, b"echo")),
            return_route=(TRACER,),
            size=2,
        )
        assert (second.before, second.kind, second.depth) == (first.hop, "Echo", 2)
        # The answer's hop: it goes on to the tracer, which is no hop.
        assert (third.before, third.depth) == (second.hop, 3)
        assert format_route(third.onward_route) == "0#relay => 0#tracer"
        (answer,) = traced.answers
        assert answer.context is not None
        fields = read_tracing(answer.context.trace or "")
        assert fields is not None
        assert fields.pop("other") == "x"
        assert trace_mark_of(fields) == TraceMark(MARK.trace, third.hop, 3, TRACER)
        assert traced.tracer.statistics() == HopTracerStatistics(3, 0, 0, 0)


@virtual_time
async def test_a_handler_that_awaits_is_reported_twice() -> None:
    async with Node() as node:
        traced = Traced(node)
        gate = Gate()
        node.spawn(lambda: gate, address="gate")
        await traced.send("gate")
        gate.opened.set()
        await asyncio.sleep(1)
        begun, ended = traced.reports
        assert (begun.outcome, begun.handled) == (HopOutcome.AWAITS, None)
        assert (ended.outcome, ended.handled) == (HopOutcome.HANDLED, 1000)
        assert (begun.hop, begun.taken) == (ended.hop, ended.taken)


@virtual_time
async def test_a_handler_that_fails_is_reported_as_failed() -> None:
    class FailsLater(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(0.1)
            raise ValueError("on purpose")

    async with Node() as node:
        traced = Traced(node)
        node.spawn(Failing, address="failing")
        node.spawn(FailsLater, address="later")
        await traced.send("failing", b"!")
        await traced.send("later")
        outcomes = [report.outcome for report in traced.reports]
        assert outcomes == [HopOutcome.FAILED, HopOutcome.AWAITS, HopOutcome.FAILED]
        assert node.statistics().failed == 2


class Leaves(Recorder):
    """Stands for a link: what it is sent leaves the node."""

    leaves_node = True


@virtual_time
async def test_the_report_of_an_answer_follows_it_over_a_link() -> None:
    async with Node() as node:
        traced = Traced(node)
        link = Leaves()
        node.spawn(lambda: link, address="link")
        node.spawn(Forwarder, address="relay")
        node.send("relay => link => far => tracer", b"answer", context=marked())
        await asyncio.sleep(1)
        # Both reports go where the answer goes, and no other way.
        routes = [format_route(message.onward_route) for message in link.messages]
        assert routes == ["0#link => 0#far => 0#tracer"] * 3
        assert traced.recorder.messages == []
        hops = [
            decode_hop_report(message.payload).kind
            for message in link.messages
            if message.context is None
        ]
        assert hops == ["Forwarder", "Leaves"]
        assert link.messages[0].source == Address(0, b"relay")


@virtual_time
async def test_a_message_that_never_leads_to_its_tracer_is_not_reported() -> None:
    async with Node() as node:
        traced = Traced(node)
        node.spawn(Recorder, address="worker")
        node.send("worker", b"", context=marked())
        node.send("worker", b"", return_route="tracer => other", context=marked())
        await asyncio.sleep(1)
        assert traced.recorder.messages == []
        assert traced.tracer.statistics() == HopTracerStatistics(0, 0, 0, 2)


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("{}", 0),
        ('{"traceparent":"x"}', 0),
        ("no json", 1),
        ('{"onward":"no mark"}', 1),
        (longest(), 1),
    ],
)
def test_what_cannot_be_read_is_handled_all_the_same(text: str, ignored: int) -> None:
    @virtual_time
    async def send() -> None:
        async with Node() as node:
            traced = Traced(node)
            recorder = Recorder()
            node.spawn(lambda: recorder, address="worker")
            node.send("worker", b"", return_route=TRACER, context=Context(trace=text))
            await asyncio.sleep(1)
            assert recorder.messages[0].context == Context(trace=text)
            assert traced.recorder.messages == []
            assert traced.tracer.statistics().ignored == ignored

    send()


@virtual_time
async def test_no_more_than_so_many_hops_a_second() -> None:
    async with Node() as node:
        traced = Traced(node, HopTracerOptions(per_second=3))
        node.spawn(Recorder, address="worker")
        for _ in range(2):
            for _ in range(5):
                node.send("worker", b"", return_route=TRACER, context=marked())
            await asyncio.sleep(1)
        assert len(traced.reports) == 6
        assert traced.tracer.statistics() == HopTracerStatistics(6, 0, 4, 0)


@virtual_time
async def test_no_more_than_so_many_hops_of_a_message() -> None:
    async with Node() as node:
        traced = Traced(node, HopTracerOptions(per_message=2))
        for name in "abcd":
            node.spawn(Forwarder, address=name)
        node.spawn(Recorder, address="end")
        await traced.send("a => b => c => d => end")
        assert [str(report.worker) for report in traced.reports] == ["0#a", "0#b"]
        assert traced.tracer.statistics().suppressed == 3


@virtual_time
async def test_a_report_that_cannot_be_delivered_is_a_dead_letter() -> None:
    async with Node() as node:
        node.tracer = HopTracer(node)
        node.spawn(Recorder, address="worker")
        node.send("worker", b"", return_route="gone => tracer", context=marked())
        await asyncio.sleep(1)
        assert node.dead_letters.by_reason == {"no such worker": 1}


@virtual_time
async def test_nothing_is_said_without_a_tracer() -> None:
    async with Node() as node:
        traced = Traced(node)
        node.tracer = None
        node.spawn(Echo, address="echo")
        await traced.send("echo")
        assert [message.payload for message in traced.recorder.messages] == [b"hi"]


@pytest.mark.parametrize(("per_second", "per_message"), [(0, 1), (1, 0), (1, 257)])
def test_options_that_report_nothing(per_second: int, per_message: int) -> None:
    with pytest.raises(ValueError, match="no hop"):
        HopTracerOptions(per_second, per_message)
