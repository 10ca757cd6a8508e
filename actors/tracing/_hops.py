"""Reports of the hops of marked messages, for the tracer that marked them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

from ...protocol import (
    DELIVERY,
    IDENTITY,
    MAX_MARK_DEPTH,
    Address,
    Context,
    HopOutcome,
    HopReport,
    MalformedMessage,
    Message,
    OnwardError,
    Route,
    TraceMark,
    UnknownAddress,
    decode_hop_report,
    encode_hop_report,
    reported_trace,
    trace_mark_of,
    tracing_of_report,
)
from ...protocol._tracing import KEY
from ...protocol.options import Count, Range, check_options, check_value
from ..instruments._instrument import Instrument, TracedMessage, Watch
from ._marked_routes import MarkedRoutes, ReportOrigin

if TYPE_CHECKING:
    from .._node import Node
    from .._worker import Worker

__all__ = ["HopTracer", "HopTracerOptions", "HopTracerStatistics"]

_SECOND: Final = 1.0

REPORT_FAILED: Final = "report failed"
"""The dead-letter reason of a report when foreign code, such as an application's rule, raises."""


@dataclass(frozen=True, slots=True)
class HopTracerOptions:
    """Limits for the reports that a node sends.

    Attributes:
        per_second: Most hops reported in one second, for all messages together; each has one
            report, or two if its handler awaits. Further hops are counted and not reported.
        per_message: Most hops of one message that are reported, by all nodes together; further
            ones are counted and not reported.
        remembered: Most addresses in the stored return routes of marked messages, and in the
            routes of reports as many again. The oldest routes are removed: then reports of replies
            along them are not sent, and reports that pass go through handlers. With the longest
            addresses that is 8 MB.

    Raises:
        ValueError: One of them is less than 1, or `per_message` over `MAX_MARK_DEPTH`.
    """

    per_second: Count = 200
    per_message: Annotated[int, Range(least=1, most=MAX_MARK_DEPTH)] = 64
    remembered: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class HopTracerStatistics:
    """The counters of a hop tracer."""

    reported: int
    """Reports sent."""

    ignored: int
    """Messages with an invalid or too long tracing text or mark."""

    suppressed: int
    """Hops that were not reported because a limit was reached."""

    unreachable: int
    """Hops of messages without a known route to the tracer in their mark, or with one that can be
    used once, by the answer: behind relays of identities."""

    passed: int
    """Reports of other hops, forwarded in place of a worker."""


class HopTracer(Instrument):
    """An instrument that reports each hop of a marked message to the tracer in its mark.

    A report uses only routes of the message, and is sent as by the worker, through its access
    control. Its route is

    - the return route, if that ends at the tracer;
    - for a reply, the rest of the onward route, if it is the return route that the worker's
      message had, or if the worker is a link;
    - the route of the report before, if that hop was on this node. This covers requests that a
      worker makes on behalf of a message, with `context=message.context`.

    So no report reaches an address that the message could not reach. On its route a report is
    forwarded in place of the workers that had the message: their handlers do not see it, and it is
    not counted as a reply. On a node without a tracer it is a plain message.

    A report contains the names of this node and of the worker, both routes, and times. Every peer
    that can send marked messages to the node learns these. A node has no tracer by default:

    ```python
    node.add_instrument(HopTracer(node))
    ```

    Args:
        node: The node.
        options: The limits.
        wall_clock: Returns nanoseconds since the Unix epoch.
        clock: Returns nanoseconds, for durations.

    Attributes:
        node_id: An id that distinguishes nodes of the same name: 16 hexadecimal digits.
        options: As given.
    """

    __slots__ = (
        "_clock",
        "_ignored",
        "_left",
        "_marked",
        "_node",
        "_passed",
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
        check_value("options", options, HopTracerOptions | None)
        self.options: Final = options or HopTracerOptions()
        self._node = node
        self._wall_clock = wall_clock
        self._clock = clock
        self.node_id: Final = self._new_id()
        self._until = float("-inf")  # the end of the second of `_left`
        self._left = 0
        self._reported = 0
        self._ignored = 0
        self._suppressed = 0
        self._unreachable = 0
        self._passed = 0
        self._marked = MarkedRoutes(self.options.remembered)

    def statistics(self) -> HopTracerStatistics:
        """Return the current figures."""
        return HopTracerStatistics(
            self._reported, self._ignored, self._suppressed, self._unreachable, self._passed
        )

    def message_traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        """Report the hop if the message is marked; forward the message if it is a report."""
        fields = traced.fields
        if fields is None:
            self._ignored += 1
            return None
        trace = reported_trace(fields)
        if trace is not None and self._pass_on(worker, traced.message, trace):
            traced.taken = True
            return None
        return self._begin(worker, traced, fields)

    def _pass_on(self, worker: Worker, message: Message, trace: str) -> bool:
        """Forward a report along the return route that the marked message had at a worker.

        Every peer can mark a message as a report, so its payload must be a valid report.
        """
        route = message.onward_route[1:]
        if not route or not self._marked.is_return(trace, worker.address, route):
            return False
        try:
            if decode_hop_report(message.payload).trace != trace:
                return False
        except MalformedMessage:
            return False
        self._passed += 1
        self._send(worker, message.to, route, message.payload, message.context)
        return True

    def _begin(
        self, worker: Worker, traced: TracedMessage, fields: Mapping[str, str]
    ) -> _ReportedHop | None:
        message = traced.message
        mark = trace_mark_of(fields)
        if mark is None:
            self._ignored += KEY in fields
            return None
        if message.onward_route == (mark.tracer,):
            return None  # it is at the tracer
        origin = self._origin_of(worker, message, mark)
        sender = None if origin is None else self._sender(worker, origin)
        if origin is None or sender is None:
            self._unreachable += 1
            return None
        if any(each.type == IDENTITY and each.value.startswith(_ONCE) for each in origin.route):
            self._unreachable += 1
            return None
        if mark.depth >= self.options.per_message or not self._may_report():
            self._suppressed += 1
            return None
        here = mark.next(self._new_id())
        if not traced.replace({**fields, KEY: str(here)}):
            self._ignored += 1
            return None
        self._marked.note_origin(here.hop, origin)
        report = self._report_of(worker, message, mark, here)
        return _ReportedHop(self, origin, sender, report, self._clock())

    def _origin_of(self, worker: Worker, message: Message, mark: TraceMark) -> ReportOrigin | None:
        """Return the origin for a hop's report, from the message's known routes."""
        onward, back = message.onward_route, message.return_route
        if back and back[-1] == mark.tracer:
            self._marked.note(mark.trace, worker.address, back)
            route = back
        elif onward[-1] == mark.tracer and worker.leaves_node:
            # The address after a link is on another node: a report goes through the link.
            route = onward
        elif onward[-1] == mark.tracer and self._marked.is_return(
            mark.trace, worker.address, onward[1:]
        ):
            route = onward[1:]
        elif back and back[-1].type == DELIVERY:
            # The dispatcher that has sent the copy passes reports on, as it does outcomes.
            route = back
        else:
            return self._marked.origin(mark)
        return ReportOrigin(mark.trace, mark.tracer, worker.address, message.to, route)

    def _sender(self, worker: Worker, origin: ReportOrigin) -> Worker | None:
        """Return the worker that sends a report; `None` if it has stopped."""
        if origin.worker == worker.address:
            return worker
        try:
            found: Worker = self._node.parts.table.cell(origin.worker).worker
        except UnknownAddress:
            return None
        return found

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

    def send(self, report: HopReport, origin: ReportOrigin, worker: Worker) -> None:
        """Send a report; if it cannot be delivered, it becomes a dead letter."""
        self._reported += 1
        context = Context(trace=tracing_of_report(report.trace))
        self._send(worker, origin.own, origin.route, encode_hop_report(report), context)

    def _send(
        self, worker: Worker, own: Address, route: Route, payload: bytes, context: Context | None
    ) -> None:
        """Send a report as by a worker, subject to the same access control."""
        message = Message(route, (), payload, worker.address, context)
        try:
            worker._out.dispatch_from(own, message)
        except OnwardError as error:
            self._node.dead_letter(message, error)
        except Exception:  # noqa: BLE001 - an error of a rule is no failure of the worker
            self._node.dead_letter(message, REPORT_FAILED)


class _ReportedHop(Watch):
    """A hop in progress."""

    __slots__ = ("_began", "_origin", "_report", "_sender", "_tracer")

    def __init__(
        self, tracer: HopTracer, origin: ReportOrigin, sender: Worker, report: HopReport, began: int
    ) -> None:
        self._tracer = tracer
        self._origin = origin
        self._sender = sender
        self._report = report
        self._began = began

    def report(self, outcome: HopOutcome) -> None:
        """Send a report with an outcome."""
        handled = None if outcome is HopOutcome.AWAITS else self._tracer.elapsed(self._began)
        report = replace(self._report, handled=handled, outcome=outcome)
        self._tracer.send(report, self._origin, self._sender)

    def suspended(self) -> None:
        self.report(HopOutcome.AWAITS)

    def ended(self, error: BaseException | None) -> None:
        self.report(HopOutcome.HANDLED if error is None else HopOutcome.FAILED)


_ONCE: Final = b"reply:"
"""What the address of a way begins with that an answer can use once; the router of identities
writes it in a return route."""
