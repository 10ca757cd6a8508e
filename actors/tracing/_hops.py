"""Hops of marked messages, told to whoever marked them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...protocol import (
    MAX_MARK_DEPTH,
    HopOutcome,
    HopReport,
    Message,
    Route,
    TraceMark,
    encode_hop_report,
    read_tracing,
    trace_mark_of,
    with_trace_mark,
)
from .._observer import Tracer
from .._thread import is_coroutine
from ._watched import Watch, Watched

if TYPE_CHECKING:
    from .._node import Node
    from .._worker import Worker

__all__ = ["HopTracer", "HopTracerOptions", "HopTracerStatistics"]

_SECOND: Final = 1.0
_NO_STEP: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class HopTracerOptions:
    """How much a node tells those who mark messages.

    Attributes:
        per_second: Hops reported in one second, for all messages together, each by one
            report, or two if its handler awaits. Those beyond are not reported, and counted.
        per_message: Hops of one message that are reported, by all nodes together; later ones
            are not, and counted.

    Raises:
        ValueError: One of them is less than 1, or `per_message` over `MAX_MARK_DEPTH`.
    """

    per_second: int = 200
    per_message: int = 64

    def __post_init__(self) -> None:
        if self.per_second < 1 or not 1 <= self.per_message <= MAX_MARK_DEPTH:
            raise ValueError(f"{self} allows no hop, or more than a mark counts")


@dataclass(frozen=True, slots=True)
class HopTracerStatistics:
    """What a hop tracer has counted."""

    reported: int
    """Reports sent."""

    ignored: int
    """Messages with a tracing text or a mark that cannot be read, or is too long."""

    suppressed: int
    """Hops that were not reported because a limit was reached."""

    unreachable: int
    """Hops of messages of which neither way ends at the tracer they name."""


class HopTracer(Tracer):
    """Reports each hop of a marked message to the tracer that the mark names.

    A report goes along the message's own ways only: along its return route when that ends at
    the tracer, else along the rest of its onward route when that does, as that of an answer. So
    nobody can have reports sent to where the message could not go. It carries the
    names of this node and of the worker, both routes, and times: who may send marked
    messages to the node learns those. A node has no tracer unless it is given one:

    ```python
    node.tracer = HopTracer(node)
    ```

    Args:
        node: The node.
        options: The limits.
        wall_clock: Nanoseconds since the Unix epoch.
        clock: Nanoseconds, for durations.

    Attributes:
        node_id: What tells this node from others of its name: 16 hexadecimal digits.
        options: As given.
    """

    __slots__ = (
        "_clock",
        "_ignored",
        "_left",
        "_node",
        "_reported",
        "_suppressed",
        "_unreachable",
        "_until",
        "_wall_clock",
        "node_id",
        "options",
    )

    def __init__(
        self,
        node: Node,
        options: HopTracerOptions | None = None,
        *,
        wall_clock: Callable[[], int] = time.time_ns,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.options: Final = options or HopTracerOptions()
        self._node = node
        self._wall_clock = wall_clock
        self._clock = clock
        self.node_id: Final = self._new_id()
        self._until = float("-inf")  # when the second ends that `_left` counts for
        self._left = 0
        self._reported = 0
        self._ignored = 0
        self._suppressed = 0
        self._unreachable = 0

    def statistics(self) -> HopTracerStatistics:
        """Return what has been counted so far."""
        return HopTracerStatistics(
            self._reported, self._ignored, self._suppressed, self._unreachable
        )

    def follow(
        self, worker: Worker, message: Message, handle: Callable[[Message], object]
    ) -> object:
        """Have a message handled, and report the hop if the message is marked."""
        begun = self._begin(worker, message)
        if begun is None:
            return handle(message)
        hop, marked = begun
        try:
            result = handle(marked)
        except BaseException:
            hop.report(HopOutcome.FAILED)
            raise
        if is_coroutine(result):
            hop.report(HopOutcome.AWAITS)
            return Watched(result, hop)
        hop.report(HopOutcome.HANDLED)
        return result

    def _begin(self, worker: Worker, message: Message) -> tuple[_Hop, Message] | None:
        context = message.context
        fields = read_tracing(context.trace) if context is not None and context.trace else None
        if context is None or fields is None:
            self._ignored += 1
            return None
        mark = trace_mark_of(fields)
        if mark is None:
            self._ignored += "onward" in fields
            return None
        if message.onward_route == (mark.tracer,):
            return None  # it is at the tracer
        way = way_to_tracer(worker, message, mark)
        if not way:
            self._unreachable += 1
            return None
        if mark.depth >= self.options.per_message or not self._may_report():
            self._suppressed += 1
            return None
        here = mark.next(self._new_id())
        text = with_trace_mark(fields, here)
        if text is None:
            self._ignored += 1
            return None
        report = self._report_of(worker, message, mark, here)
        hop = _Hop(self, way, report, self._clock())
        return hop, message._replace(context=context._replace(trace=text))

    def _report_of(
        self, worker: Worker, message: Message, mark: TraceMark, here: TraceMark
    ) -> HopReport:
        return HopReport(
            trace=here.trace,
            hop=here.hop,
            before=mark.hop,
            depth=here.depth,
            node_id=self.node_id,
            node=self._node.name,
            worker=message.to,
            kind=type(worker).__name__,
            taken=max(0, self._wall_clock()),
            handled=None,
            outcome=HopOutcome.AWAITS,
            onward_route=message.onward_route,
            return_route=message.return_route,
            size=len(message.payload),
        )

    def _may_report(self) -> bool:
        now = self._node.loop.time()
        if now >= self._until:
            self._until = now + _SECOND
            self._left = self.options.per_second
        self._left -= 1
        return self._left >= 0

    def _new_id(self) -> str:
        # The node's own source, so that a simulated run is the same each time.
        return self._node.random_address().value[:16].decode("ascii")

    def elapsed(self, since: int) -> int:
        """Return the nanoseconds since a time of the clock."""
        return max(0, self._clock() - since)

    def send(self, report: HopReport, way: Route) -> None:
        """Send a report; if it cannot be delivered it is a dead letter."""
        self._reported += 1
        # As if the worker had sent it on: a guard treats it no better than the message.
        self._node.carry_or_bury(Message(way, (), encode_hop_report(report), report.worker))


class _Hop(Watch):
    """A hop that is under way."""

    __slots__ = ("_began", "_report", "_tracer", "_way")

    def __init__(self, tracer: HopTracer, way: Route, report: HopReport, began: int) -> None:
        self._tracer = tracer
        self._way = way
        self._report = report
        self._began = began

    def report(self, outcome: HopOutcome) -> None:
        """Send what is known of it."""
        handled = None if outcome is HopOutcome.AWAITS else self._tracer.elapsed(self._began)
        self._tracer.send(replace(self._report, handled=handled, outcome=outcome), self._way)

    def step(self) -> AbstractContextManager[object]:
        return _NO_STEP

    def ended(self, error: BaseException | None) -> None:
        self.report(HopOutcome.HANDLED if error is None else HopOutcome.FAILED)


def way_to_tracer(worker: Worker, message: Message, mark: TraceMark) -> Route:
    """Return the route of a report: one that the message itself has; empty if it has none."""
    onward, back = message.onward_route, message.return_route
    if back and back[-1] == mark.tracer:
        return back
    if onward[-1] == mark.tracer:
        # What is behind a link is an address of another node: a report goes through it.
        return onward if worker.leaves_node else onward[1:]
    return ()
