from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from onward.actors import Node, Worker
from onward.actors.access import Access, deny_all
from onward.actors.routing._given import as_route
from onward.actors.tracing import HopTracer, HopTracerOptions, HopTracerStatistics
from onward.actors.workers import Tap, TwoSidedWorker
from onward.protocol import (
    MAX_TRACING,
    Address,
    Context,
    HopOutcome,
    HopReport,
    Message,
    TraceMark,
    decode_hop_report,
    encode_hop_report,
    format_route,
    read_tracing,
    reported_trace,
    trace_mark_of,
    tracing_of_report,
    with_trace_mark,
)
from tests.support.workers import Echo, Failing, Forwarder, Gate, Recorder, spawn_worker

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


def is_report(message: Message) -> bool:
    text = message.context.trace if message.context is not None else None
    return reported_trace(read_tracing(text or "") or {}) is not None


def reports_among(messages: list[Message]) -> list[HopReport]:
    return [decode_hop_report(each.payload) for each in messages if is_report(each)]


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
        node.add_instrument(self.tracer)
        self.recorder = Recorder()
        node.spawn(lambda: self.recorder, address=TRACER)

    @property
    def reports(self) -> list[HopReport]:
        return reports_among(self.recorder.messages)

    @property
    def answers(self) -> list[Message]:
        return [message for message in self.recorder.messages if not is_report(message)]

    async def send(self, route: str, payload: bytes = b"hi", **context: str) -> None:
        self.node.send(route, payload, return_route=TRACER, context=marked(**context))
        await asyncio.sleep(1)


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
        assert traced.tracer.statistics() == HopTracerStatistics(3, 0, 0, 0, 1)


async def test_a_handler_that_awaits_is_reported_twice(node: Node) -> None:
    traced = Traced(node)
    gate = spawn_worker(node, Gate(), "gate")
    await traced.send("gate")
    gate.opened.set()
    await asyncio.sleep(1)
    begun, ended = traced.reports
    assert (begun.outcome, begun.handled) == (HopOutcome.AWAITS, None)
    assert (ended.outcome, ended.handled) == (HopOutcome.HANDLED, 1000)
    assert (begun.hop, begun.taken) == (ended.hop, ended.taken)


async def test_a_handler_that_fails_is_reported_as_failed(node: Node) -> None:
    class FailsLater(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(0.1)
            raise ValueError("on purpose")

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


async def test_the_report_of_an_answer_follows_it_over_a_link(node: Node) -> None:
    traced = Traced(node)
    link = spawn_worker(node, Leaves(), "link")
    node.spawn(Forwarder, address="relay")
    node.spawn(Echo, address="echo")
    node.send("relay => echo", b"", return_route="link => far => tracer", context=marked())
    await asyncio.sleep(1)
    # The reports go where the answer goes, and no other way.
    routes = [format_route(message.onward_route) for message in link.messages]
    assert routes == ["0#link => 0#far => 0#tracer"] * 5
    assert traced.recorder.messages == []
    kinds = sorted(report.kind for report in reports_among(link.messages))
    assert kinds == ["Echo", "Forwarder", "Forwarder", "Leaves"]
    assert {str(message.source) for message in link.messages} == {"0#relay", "0#link"}


async def test_a_message_that_never_leads_to_its_tracer_is_not_reported(node: Node) -> None:
    traced = Traced(node)
    node.spawn(Recorder, address="worker")
    node.send("worker", b"", context=marked())
    node.send("worker", b"", return_route="tracer => other", context=marked())
    await asyncio.sleep(1)
    assert traced.recorder.messages == []
    assert traced.tracer.statistics() == HopTracerStatistics(0, 0, 0, 2, 0)


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
async def test_what_cannot_be_read_is_handled_all_the_same(
    text: str, ignored: int, node: Node
) -> None:

    traced = Traced(node)
    recorder = spawn_worker(node, Recorder(), "worker")
    node.send("worker", b"", return_route=TRACER, context=Context(trace=text))
    await asyncio.sleep(1)
    assert recorder.messages[0].context == Context(trace=text)
    assert traced.recorder.messages == []
    assert traced.tracer.statistics().ignored == ignored


async def test_no_more_than_so_many_hops_a_second(node: Node) -> None:
    traced = Traced(node, HopTracerOptions(per_second=3))
    node.spawn(Recorder, address="worker")
    for _ in range(2):
        for _ in range(5):
            node.send("worker", b"", return_route=TRACER, context=marked())
        await asyncio.sleep(1)
    assert len(traced.reports) == 6
    assert traced.tracer.statistics() == HopTracerStatistics(6, 0, 4, 0, 0)


async def test_no_more_than_so_many_hops_of_a_message(node: Node) -> None:
    traced = Traced(node, HopTracerOptions(per_message=2))
    for name in "abcd":
        node.spawn(Forwarder, address=name)
    node.spawn(Recorder, address="end")
    await traced.send("a => b => c => d => end")
    assert [str(report.worker) for report in traced.reports] == ["0#a", "0#b"]
    assert traced.tracer.statistics().suppressed == 3


async def test_a_report_goes_nowhere_on_the_word_of_who_sent_the_message() -> None:
    """One that may send to `echo` alone names a way from there on that `echo` never goes."""
    async with Node("here") as here, Node("there") as there:
        traced = Traced(here)
        here.spawn(Echo, address="echo")
        secret = spawn_worker(here, Recorder(), "secret")
        listener = await here.listen("memory://here", expose=["echo"])
        link = await there.connect(listener.uri)
        route = (link, *as_route("echo => secret => tracer"))
        there.send(route, b"", return_route="nobody", context=marked())
        # Nor when it says that a message is a report.
        said = Context(trace=tracing_of_report(MARK.trace))
        there.send(route, encode_hop_report(REPORT), return_route="nobody", context=said)
        await asyncio.sleep(1)
        assert secret.messages == []
        assert traced.recorder.messages == []
        assert traced.tracer.statistics() == HopTracerStatistics(0, 0, 0, 2, 0)


async def test_a_report_is_sent_as_by_the_worker_s_primary_address(node: Node) -> None:
    traced = Traced(node)
    node.spawn(Echo, address=("echo", "alias"))
    await traced.send("alias")
    assert [str(each.source) for each in traced.recorder.messages] == ["0#echo"] * 2


async def test_a_worker_that_may_not_send_to_the_tracer_does_not_report_to_it(node: Node) -> None:
    traced = Traced(node)
    access = {"alias": Access(outgoing=deny_all)}
    node.spawn(Recorder, address=("worker", "alias"), access=access)
    await traced.send("alias")
    assert traced.recorder.messages == []
    assert node.dead_letters.by_reason == {"denied": 1}
    assert node.statistics().failed == 0
    await traced.send("worker")
    assert len(traced.reports) == 1


class Counting(TwoSidedWorker):
    """Counts what comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.back: list[Message] = []

    def handle_outer(self, message: Message) -> None:
        self.redirect(message, "echo", self.inner)

    def handle_inner(self, message: Message) -> None:
        self.back.append(message)
        self.forward(message, self.outer)


async def test_handlers_on_the_way_back_see_no_reports(node: Node) -> None:
    traced = Traced(node)
    worker = spawn_worker(node, Counting(), "counting")
    node.spawn(Echo, address="echo")
    await traced.send("counting", b"hi")
    assert [message.payload for message in worker.back] == [b"hi"]
    assert len(traced.reports) == 3
    assert traced.tracer.statistics().passed == 1


async def test_reports_from_another_node_pass_handlers_by_too() -> None:
    async with Node("near") as near, Node("far") as far:
        traced = Traced(near)
        far.add_instrument(HopTracer(far))
        far.spawn(Echo, address="echo")
        listener = await far.listen("memory://far", expose=["echo"])
        link = await near.connect(listener.uri)
        tap = spawn_worker(near, Tap("observer"), "tap")
        near.spawn(Recorder, address="observer")
        near.send(
            (*as_route("tap"), link, *as_route("echo")),
            b"hi",
            return_route=TRACER,
            context=marked(),
        )
        await asyncio.sleep(1)
        assert tap.statistics().copied == 2  # the message and its answer
        kinds = sorted(report.kind for report in traced.reports)
        assert kinds == ["Echo", "MemoryLink", "MemoryLink", "Tap", "Tap"]


REPORT = HopReport(
    trace=MARK.trace,
    hop="1" * 16,
    before="2" * 16,
    depth=1,
    node_id="3" * 16,
    node="elsewhere",
    worker=Address(0, b"w"),
    kind="W",
    taken=0,
    handled=0,
    outcome=HopOutcome.HANDLED,
    onward_route=(Address(0, b"w"),),
    return_route=(),
    size=0,
)


@pytest.mark.parametrize(
    ("route", "payload", "said"),
    [
        ("worker => tracer", b"no report", MARK.trace),
        ("worker => tracer", encode_hop_report(replace(REPORT, trace="cd" * 16)), MARK.trace),
        ("worker => tracer", encode_hop_report(REPORT), "cd" * 16),
        ("worker => other => tracer", encode_hop_report(REPORT), MARK.trace),
        ("worker", encode_hop_report(REPORT), MARK.trace),
    ],
)
async def test_only_returning_trace_reports_bypass_a_handler(
    route: str, payload: bytes, said: str, node: Node
) -> None:

    def of(trace: str) -> Context:
        return Context(trace=tracing_of_report(trace))

    traced = Traced(node)
    recorder = spawn_worker(node, Recorder(), "worker")
    await traced.send("worker")
    node.send("worker => tracer", encode_hop_report(REPORT), context=of(MARK.trace))
    await asyncio.sleep(1)
    assert REPORT in traced.reports
    assert len(recorder.messages) == 1
    node.send(route, payload, context=of(said))
    await asyncio.sleep(1)
    assert len(recorder.messages) == 2
    assert traced.tracer.statistics().passed == 1


class Asks(Worker):
    async def handle_message(self, message: Message) -> None:
        answer = await self.request("relay => echo", b"?", context=message.context)
        self.reply(message, answer.payload)


async def test_what_a_worker_asks_on_behalf_of_a_message_is_reported_too(node: Node) -> None:
    traced = Traced(node)
    node.spawn(Asks, address="asks")
    node.spawn(Forwarder, address="relay")
    node.spawn(Echo, address="echo")
    await traced.send("asks")
    reports = sorted(traced.reports, key=lambda report: (report.depth, report.outcome))
    assert [report.kind for report in reports] == [
        *("Asks", "Asks", "Forwarder", "Echo", "Forwarder")
    ]
    assert reports[2].before == reports[0].hop
    assert {str(each.source) for each in traced.recorder.messages} == {"0#asks"}
    assert traced.tracer.statistics().unreachable == 0


async def test_what_is_asked_on_behalf_of_nobody_any_more_is_not_reported(node: Node) -> None:
    traced = Traced(node)
    passed = spawn_worker(node, Recorder(), "worker")
    await traced.send("worker")
    (context,) = (message.context for message in passed.messages)
    node.spawn(Recorder, address="other")
    node.send("other", b"", return_route="nobody", context=context)
    await asyncio.sleep(1)
    assert len(traced.reports) == 2
    await node.stop_worker("worker")
    node.send("other", b"", return_route="nobody", context=context)
    await asyncio.sleep(1)
    assert len(traced.reports) == 2
    assert traced.tracer.statistics().unreachable == 1


async def test_a_rule_that_breaks_a_report_is_no_failure_of_the_worker(node: Node) -> None:
    def broken(message: Message) -> Message:
        raise ZeroDivisionError

    node.add_instrument(HopTracer(node))
    node.add_rule(200, broken)
    node.spawn(Recorder, address="worker")
    node.send("worker", b"", return_route="200#x => tracer", context=marked())
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"report failed": 1}
    assert node.statistics().failed == 0


async def test_a_report_that_cannot_be_delivered_is_a_dead_letter(node: Node) -> None:
    node.add_instrument(HopTracer(node))
    node.spawn(Recorder, address="worker")
    node.send("worker", b"", return_route="gone => tracer", context=marked())
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"no such worker": 1}


async def test_nothing_is_said_without_a_tracer(node: Node) -> None:
    traced = Traced(node)
    node.remove_instrument(traced.tracer)
    node.spawn(Echo, address="echo")
    await traced.send("echo")
    assert [message.payload for message in traced.recorder.messages] == [b"hi"]


@pytest.mark.parametrize("options", [(0, 1, 1), (1, 0, 1), (1, 257, 1), (1, 1, 0)])
def test_options_that_report_nothing(options: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"HopTracerOptions\.\w+ must be a whole number"):
        HopTracerOptions(*options)
