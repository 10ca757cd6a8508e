from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.actors import Node, Worker
from onward.actors.tracing import HopTracer, Trace, TraceOptions, trace
from onward.protocol import (
    Address,
    Context,
    HopOutcome,
    HopReport,
    Message,
    UnknownAddress,
    encode_hop_report,
    format_route,
)
from tests.support.workers import Echo, Forwarder, Gate, Recorder


def clock_of(node: Node) -> int:
    return int(node.loop.time() * 1e9)


def traces(node: Node) -> None:
    """Have a node report hops, by the clock of its loop."""

    def clock() -> int:
        return clock_of(node)

    node.add_instrument(HopTracer(node, wall_clock=clock, clock=clock))


async def traced(node: Node, route: str, **options: Any) -> Trace:
    made = TraceOptions(**options)
    return await trace(node, route, b"hi", options=made, clock=lambda: clock_of(node))


def kinds(given: Trace) -> list[str]:
    return [hop.report.kind for hop in given.hops]


async def test_a_message_and_its_answer_are_followed() -> None:
    async with Node("here") as node:
        traces(node)
        node.spawn(Forwarder, address="relay")
        node.spawn(Echo, address="echo")
        result = await traced(node, "relay => echo")
        assert kinds(result) == ["Forwarder", "Echo", "Forwarder"]
        assert result.answer is not None
        assert result.answer.payload == b"hi"
        assert result.answered_after == result.hops[-1].report.hop
        assert result.gaps == ()
        assert format_route(result.route) == "0#relay => 0#echo"
        assert (result.took, result.clocks[0].error) == (0.0, 0.0)
        # Nothing of it is left.
        assert node.statistics().worker_count == 2
        assert node.dead_letters.total == 0


async def test_a_handler_is_waited_for_to_its_end(node: Node) -> None:
    class AnswersFirst(Worker):
        async def handle_message(self, message: Message) -> None:
            self.reply(message, b"early")
            await asyncio.sleep(0.2)

    traces(node)
    node.spawn(AnswersFirst, address="early")
    result = await traced(node, "early")
    assert result.took == 0.0
    assert result.hops[0].handled == pytest.approx(0.2)
    # But no longer than reports take to settle.
    result = await traced(node, "early", settle=0.1)
    assert result.hops[0].handled is None


async def test_without_an_answer_it_ends_in_time(node: Node) -> None:
    traces(node)
    node.spawn(Forwarder, address="relay")
    node.spawn(Gate, address="gate")
    began = node.loop.time()
    result = await traced(node, "relay => gate", timeout=2.0)
    assert node.loop.time() - began == pytest.approx(2.0)
    assert result.answer is None
    assert result.took == pytest.approx(2.0)
    assert kinds(result) == ["Forwarder", "Gate"]


async def test_a_node_that_does_not_trace_reports_nothing(node: Node) -> None:
    node.spawn(Echo, address="echo")
    result = await traced(node, "echo")
    assert (result.hops, result.clocks) == ((), ())
    assert result.answer is not None


async def test_an_answer_may_have_lost_its_mark(node: Node) -> None:
    class Forgets(Worker):
        def handle_message(self, message: Message) -> None:
            self.send(message.return_route, b"answer")

    traces(node)
    node.spawn(Forgets, address="forgets")
    result = await traced(node, "forgets")
    assert result.answer is not None
    assert result.answer.payload == b"answer"
    assert result.answered_after == result.hops[0].report.hop


async def test_the_first_answer_counts(node: Node) -> None:
    class AnswersTwice(Worker):
        async def handle_message(self, message: Message) -> None:
            self.reply(message, b"first")
            self.reply(message, b"second")
            self.node.send(message.return_route, b"", context=Context(trace="no json"))
            await asyncio.sleep(0.1)

    traces(node)
    node.spawn(AnswersTwice, address="twice")
    result = await traced(node, "twice")
    assert result.answer is not None
    assert result.answer.payload == b"first"


async def test_what_cannot_be_sent_raises_and_leaves_nothing(node: Node) -> None:
    with pytest.raises(UnknownAddress):
        await traced(node, "nobody")
    assert node.statistics().worker_count == 0


async def test_what_this_node_drops_is_said(node: Node) -> None:
    class Drops(Worker):
        def handle_message(self, message: Message) -> None:
            self.node.dead_letter(message, "not wanted")
            self.node.dead_letter(Message(message.onward_route, (), b""), "another")
            broken = Context(trace="no json")
            self.node.dead_letter(Message(message.onward_route, (), b"", None, broken), "third")

    node.spawn(Drops, address="drops")
    assert (await traced(node, "drops", timeout=1.0)).lost == "not wanted"


async def test_ends_that_come_after_the_answer_are_waited_for(node: Node) -> None:
    class Lingers(Worker):
        async def handle_message(self, message: Message) -> None:
            if len(message.onward_route) > 1:
                self.step(message)
                await asyncio.sleep(0.1)
            else:
                self.reply(message, b"done")
                await asyncio.sleep(0.2)

    traces(node)
    node.spawn(Lingers, address="first")
    node.spawn(Lingers, address="last")
    began = node.loop.time()
    result = await traced(node, "first => last")
    assert [hop.handled for hop in result.hops] == pytest.approx([0.1, 0.2])
    assert node.loop.time() - began == pytest.approx(0.2)


async def test_only_reports_of_this_trace_are_reports(node: Node) -> None:
    class Pretends(Recorder):
        """Answers with reports: of other traces, and too many of this one."""

        def handle_message(self, message: Message) -> None:
            super().handle_message(message)
            context = message.context
            assert context is not None
            assert context.trace is not None
            mine = context.trace.split('"onward":"')[1][:32]
            for id_, number in (("ff" * 16, 1), (mine, 5)):
                report = HopReport(
                    trace=id_,
                    hop="0" * 15 + "1",
                    before="0" * 16,
                    depth=1,
                    node_id="0" * 16,
                    node="far",
                    worker=Address(0, b"worker"),
                    kind="Kind",
                    taken=0,
                    handled=0,
                    outcome=HopOutcome.HANDLED,
                    onward_route=(Address(0, b"worker"),),
                    return_route=(),
                    size=0,
                )
                for _ in range(number):
                    back = message.return_route
                    self.node.route(Message(back, (), encode_hop_report(report)))

    node.spawn(Pretends, address="pretends")
    result = await traced(node, "pretends", reports=3, timeout=1.0)
    assert result.answer is not None
    assert len(result.hops) == 1
    assert node.dead_letters.by_reason["too many reports"] == 2


@pytest.mark.parametrize("wrong", [{"timeout": -1}, {"settle": -1}, {"reports": 0}])
def test_options_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"TraceOptions.{next(iter(wrong))} must be"):
        TraceOptions(**wrong)
