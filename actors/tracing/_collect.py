"""The tracing of one message: sending it marked, and collecting reports and the reply."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...protocol import (
    Context,
    HopReport,
    MalformedMessage,
    Message,
    RouteLike,
    TraceMark,
    decode_hop_report,
    read_tracing,
    trace_mark_of,
    with_trace_mark,
)
from ...protocol.options import Count, SecondsOrZero, check_options, check_value
from .._worker import Worker
from ..routing._given import as_route
from ._hops import HopTracer
from ._trace import ROOT, Trace, analyse

if TYPE_CHECKING:
    from .._node import Node
    from ..routing._dead_letters import DeadLetter

__all__ = ["TraceOptions", "trace"]


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Time limits and the number of reports of a trace.

    Attributes:
        timeout: How long to wait for the reply, in seconds.
        settle: How long to wait for outstanding reports, in seconds, after the reply and after
            each report.
        reports: Most reports that are kept. Later ones are dropped, as dead letters.

    Raises:
        ValueError: A time is negative, or `reports` less than 1.
    """

    timeout: SecondsOrZero = 5.0
    settle: SecondsOrZero = 0.25
    reports: Count = 1000

    def __post_init__(self) -> None:
        check_options(self)


_OPTIONS: Final = TraceOptions()


async def trace(
    node: Node,
    route: RouteLike,
    payload: bytes,
    *,
    options: TraceOptions = _OPTIONS,
    clock: Callable[[], int] = time.time_ns,
) -> Trace:
    """Send a marked message and collect the reports of its hops, until the reply arrives.

    The message is sent by a worker and not as a request, as the return route of a request accepts
    one message only. All nodes with a `HopTracer` report, this one included.

    Args:
        node: The sending node. Call it on its loop.
        route: The route.
        payload: The payload.
        options: The time limits.
        clock: Returns nanoseconds since the Unix epoch, as the clock of the node's tracer does.

    Returns:
        The trace. A missing reply is no error: not every message has one.

    Raises:
        PayloadTooBig: The payload is over the limit.
        DeliveryError: It could not be sent.
    """
    steps = as_route(route)
    made = node.random_address().value.decode("ascii")
    collector = _Collector(made, options, clock)
    address = await node.start(lambda: collector)
    unsubscribe = node.dead_letters.subscribe(collector.dead)
    text = with_trace_mark({}, TraceMark(made, ROOT, 0, address))
    own = node.find_instrument(HopTracer)
    started = clock()
    try:
        collector.send(steps, payload, context=Context(trace=text))
        await collector.finished()
        ended = collector.ended or clock()
    finally:
        unsubscribe()
        await node.stop_worker(address)
    return analyse(
        made,
        address,
        steps,
        collector.reports,
        started,
        ended,
        answer=collector.answer,
        answered_after=collector.answered_after,
        own_node="" if own is None else own.node_id,
        lost=collector.lost,
    )


class _Collector(Worker):
    """The worker at the mark's tracer address, which receives reports and the reply."""

    def __init__(self, made: str, options: TraceOptions, clock: Callable[[], int]) -> None:
        super().__init__()
        self.reports: list[HopReport] = []
        self.answer: Message | None = None
        self.answered_after: str | None = None
        self.ended: int | None = None
        self.lost: str | None = None
        self._trace = made
        check_value("options", options, TraceOptions)
        self._options = options
        self._clock = clock
        self._news = asyncio.Event()

    def handle_message(self, message: Message) -> None:
        """Store a report of this trace; the first other message is the reply."""
        report = self._report_in(message)
        if report is None:
            if self.answer is None:
                self.ended = self._clock()
                self.answer = message
                mark = _mark(message)
                if mark is not None and mark.trace == self._trace:
                    self.answered_after = mark.hop
        elif len(self.reports) >= self._options.reports:
            self.node.dead_letter(message, "too many reports")
        else:
            self.reports.append(report)
        self._news.set()

    def dead(self, letter: DeadLetter) -> None:
        """Store the reason for which this node dropped the message. On any thread."""
        mark = _mark(letter.message)
        if mark is not None and mark.trace == self._trace:
            self.lost = letter.reason

    async def finished(self) -> None:
        """Wait for the reply, and then for outstanding reports."""
        loop = self.node.loop
        until = loop.time() + self._options.timeout
        while self.answer is None:
            if not await self._news_by(until):
                return
        until = loop.time() + self._options.settle
        while not self._complete() and await self._news_by(until):
            until = loop.time() + self._options.settle

    async def _news_by(self, until: float) -> bool:
        self._news.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _complete(self) -> bool:
        """Whether all hops between the start and the reply are reported to their end."""
        done = {report.hop: report.before for report in self.reports if report.handled is not None}
        last = self.answered_after
        while last is not None and last != ROOT:
            last = done.pop(last, None)
        return last == ROOT

    def _report_in(self, message: Message) -> HopReport | None:
        if _mark(message) is not None:
            return None
        try:
            report = decode_hop_report(message.payload)
        except MalformedMessage:
            return None
        return report if report.trace == self._trace else None


def _mark(message: Message) -> TraceMark | None:
    context = message.context
    fields = read_tracing(context.trace) if context is not None and context.trace else None
    return None if fields is None else trace_mark_of(fields)
