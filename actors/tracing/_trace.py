"""The analysis of a trace's reports: hops in order, times and gaps.

Each report names the hop before, so the order is known without comparing clocks. Times of two nodes
are compared only by cause and effect: a hop is later than the sending of the message and, if it led
to the reply, earlier than its arrival.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...protocol import DELIVERY, Address, HopOutcome, HopReport, Message, Route

__all__ = ["Trace", "TraceClock", "TraceGap", "TraceHop"]

ROOT = "0" * 16
"""The id that stands for the start, before the first hop."""

_SECOND = 1e9  # in nanoseconds


@dataclass(frozen=True, slots=True)
class TraceClock:
    """The clock of a node, relative to that of the tracing node."""

    node_id: str
    """The node's id."""

    name: str
    """Its name, followed by a number if several nodes have that name."""

    offset: float
    """The estimated lead of its clock, in seconds."""

    error: float | None
    """The maximum error of the estimate, in seconds; `None` if it is unknown, as no hop of the
    node led to a reply."""


@dataclass(frozen=True, slots=True)
class TraceHop:
    """One hop of a trace."""

    report: HopReport
    """The report of its node."""

    node: str
    """The name of its node; see `TraceClock`."""

    at: float
    """The time at which the worker began, in seconds from the start, by the clock of its node less
    the offset."""

    waited: float | None
    """The message's time in the mailbox, in seconds, from the end of the hop before; `None` unless
    that hop was directly before it and on the same node."""

    @property
    def handled(self) -> float | None:
        """The duration of the handling, in seconds; `None` if its end was not reported."""
        took = self.report.handled
        return None if took is None else took / _SECOND


@dataclass(frozen=True, slots=True)
class TraceGap:
    """A part of the route without reports."""

    after: str
    """The hop before it, as in `HopReport.hop`; `ROOT` for the start."""

    before: str | None
    """The hop after it; `None` if it is the reply or there is none."""

    passed: Route
    """The workers in the gap, in order, by the return route of the hop after it."""

    due: Route
    """The rest of the onward route, if no hop follows."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The result of tracing one message."""

    trace: str
    """Its id: 32 hexadecimal digits."""

    route: Route
    """The route of the message."""

    hops: tuple[TraceHop, ...]
    """The reported hops, each after the one that led to it."""

    gaps: tuple[TraceGap, ...]
    """The parts without reports."""

    clocks: tuple[TraceClock, ...]
    """The clocks of the nodes that reported, in the order the message reached them."""

    answer: Message | None
    """The first reply, if one arrived in time."""

    answered_after: str | None
    """The last hop before that reply; `None` without a reply."""

    took: float
    """Seconds until the reply, or until the end of the wait."""

    lost: str | None
    """The reason for which the tracing node dropped the message, if it did."""

    own_node: str = ""
    """The id of the tracing node, if it has a tracer."""


def analyse(
    trace: str,
    tracer: Address,
    route: Route,
    reports: Iterable[HopReport],
    started: int,
    ended: int,
    *,
    answer: Message | None = None,
    answered_after: str | None = None,
    own_node: str = "",
    lost: str | None = None,
) -> Trace:
    """Make a trace from reports.

    Args:
        trace: Its id.
        tracer: The address that receives the reports and the reply.
        route: The route of the message.
        reports: The reports, in order of arrival.
        started: When the message was sent, in nanoseconds of this node's clock.
        ended: When the reply arrived, or the wait was over.
        answer: The reply, if there is one.
        answered_after: The hop before the reply, by its mark. By default, for a reply without
            its mark, the only hop that no other follows.
        own_node: The id of this node, if it has a tracer; the times here are of its clock.
        lost: The reason for which this node dropped the message, if it did.
    """
    known = _latest(reports)
    ordered = _in_order(known)
    if answer is not None and answered_after is None:
        answered_after = _only_end(ordered)
    led = _led_to(answered_after, known)
    clocks = _clocks(known, ordered, led, started, ended, own_node)
    by_node = {clock.node_id: clock for clock in clocks}
    hops = tuple(
        TraceHop(
            report=report,
            node=by_node[report.node_id].name,
            at=(report.taken - started) / _SECOND - by_node[report.node_id].offset,
            waited=_waited(report, known.get(report.before)),
        )
        for report in ordered
    )
    gaps = _gaps(route, ordered, known, answer, answered_after, own_node, tracer)
    took = (ended - started) / _SECOND
    return Trace(trace, route, hops, gaps, clocks, answer, answered_after, took, lost, own_node)


def _latest(reports: Iterable[HopReport]) -> dict[str, HopReport]:
    """Return one report of each hop: that of its end, if it has arrived."""
    known: dict[str, HopReport] = {}
    for report in reports:
        before = known.get(report.hop)
        if before is None or before.outcome is HopOutcome.AWAITS:
            known[report.hop] = report
    return known


def _in_order(known: Mapping[str, HopReport]) -> list[HopReport]:
    """Return the hops so that each follows the one that led to it, branch by branch."""
    after: dict[str, list[HopReport]] = {}
    for report in known.values():
        # A hop without a reported predecessor counts as a first one.
        after.setdefault(report.before if report.before in known else ROOT, []).append(report)
    ordered: list[HopReport] = []
    waiting = sorted(after.pop(ROOT, ()), key=_depth, reverse=True)
    while waiting:
        report = waiting.pop()
        ordered.append(report)
        waiting.extend(sorted(after.pop(report.hop, ()), key=_depth, reverse=True))
    return ordered


def _depth(report: HopReport) -> tuple[int, int]:
    return report.depth, report.taken


def _led_to(last: str | None, known: Mapping[str, HopReport]) -> set[str]:
    """Return the hops that led to the reply."""
    led: set[str] = set()
    while last is not None and last in known and last not in led:
        led.add(last)
        last = known[last].before
    return led


def _clocks(
    known: Mapping[str, HopReport],
    ordered: Iterable[HopReport],
    led: set[str],
    started: int,
    ended: int,
    own_node: str,
) -> tuple[TraceClock, ...]:
    of_node: dict[str, list[HopReport]] = {}
    for report in ordered:
        of_node.setdefault(report.node_id, []).append(report)
    clocks: list[TraceClock] = []
    names = _names({node_id: of_node[node_id][0].node for node_id in of_node}, own_node)
    for node_id, reports in of_node.items():
        offset, error = 0.0, 0.0 if node_id == own_node else None
        if node_id != own_node:
            sent = min(r.taken - _last_on(own_node, r, known, started) for r in reports)
            offset, error = _offset(sent, reports, led, ended)
        clocks.append(TraceClock(node_id, names[node_id], offset, error))
    return tuple(clocks)


def _names(given: Mapping[str, str], own_node: str) -> dict[str, str]:
    """Return a unique name for each node; this node keeps its own."""
    names: dict[str, str] = {}
    for node_id in sorted(given, key=lambda each: each != own_node):
        names[node_id] = another_name(given[node_id], names.values())
    return names


def another_name(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number appended if it is taken."""
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name} ({number})"
    return made


def _last_on(
    own_node: str, report: HopReport | None, known: Mapping[str, HopReport], started: int
) -> int:
    """Return the time of the message's last hop on this node before a hop."""
    seen: set[str] = set()
    while report is not None and report.node_id != own_node and report.hop not in seen:
        seen.add(report.hop)
        report = known.get(report.before)
    return started if report is None or report.node_id != own_node else report.taken


def _offset(
    most: int, reports: Iterable[HopReport], led: set[str], ended: int
) -> tuple[float, float | None]:
    """Estimate the lead of a clock, and the maximum error, in seconds.

    Args:
        most: The largest possible lead, in nanoseconds: the least difference between the
            time of a hop and the time on this node's clock before the message was sent there.
        reports: The reports of its node.
        led: The hops that led to the reply.
        ended: The arrival of the reply.
    """
    latest = [report.taken for report in reports if report.hop in led]
    if not latest:
        return min(0, most) / _SECOND, None
    least = max(latest) - ended
    if least <= 0 <= most:
        # The clocks may be the same, as on one machine.
        return 0.0, max(-least, most) / _SECOND
    return (least + most) / 2 / _SECOND, abs(most - least) / 2 / _SECOND


def _waited(report: HopReport, before: HopReport | None) -> float | None:
    if before is None or before.node_id != report.node_id or before.handled is None:
        return None
    own, *rest = report.return_route or (None,)
    added = own == before.worker and (not rest or tuple(rest) == before.return_route)
    # The broker's forwarders leave the return route as it is.
    if not added and report.return_route != before.return_route:
        return None  # neither forward nor reply of that hop: it has been elsewhere in between
    waited = report.taken - before.taken - before.handled
    return waited / _SECOND if waited >= 0 else None


# --- gaps -----------------------------------------------------------------------------------


def _gaps(
    route: Route,
    ordered: Iterable[HopReport],
    known: Mapping[str, HopReport],
    answer: Message | None,
    answered_after: str | None,
    own_node: str,
    tracer: Address,
) -> tuple[TraceGap, ...]:
    gaps: list[TraceGap] = []
    went_on = {report.before for report in ordered}
    # The return routes of requests that workers made: their replies end there.
    asked = {report.return_route for report in ordered if _is_asked(known, report)}
    for report in ordered:
        before = known.get(report.before)
        lost = before is None and report.before != ROOT
        passed = () if lost else _passed(before, report.return_route, report.node_id, tracer)
        if passed or lost:
            gaps.append(TraceGap(report.before, report.hop, passed, ()))
        due = report.onward_route[1:]
        ends = report.hop == answered_after or due in asked
        if due and report.hop not in went_on and not ends:
            gaps.append(TraceGap(report.hop, None, (), due))
    if answer is not None and answered_after is not None:
        last = known.get(answered_after)
        lost = last is None and answered_after != ROOT
        passed = () if lost else _passed(last, answer.return_route, own_node, tracer)
        if last is not None and _is_copy(last):
            # Dispatchers take an answer back over the links of its message, which report none.
            reported = {report.worker for report in known.values()}
            passed = tuple(each for each in passed if each not in reported)
        if passed or lost:
            gaps.append(TraceGap(answered_after, None, passed, ()))
    elif not known:
        gaps.append(TraceGap(ROOT, None, (), route))
    return tuple(gaps)


def _is_asked(known: Mapping[str, HopReport], report: HopReport) -> bool:
    """Whether a hop is the first of a request that a worker made on behalf of the message.

    It has a return route of one address, which is not the worker's: so it is no reply.
    """
    before, back = known.get(report.before), report.return_route
    return before is not None and len(back) == 1 and back[0] != before.worker


def _is_copy(report: HopReport) -> bool:
    """Whether a hop is of a copy that a dispatcher has sent."""
    return report.return_route[-1:] != () and report.return_route[-1].type == DELIVERY


def _passed(before: HopReport | None, back: Route, node_id: str, tracer: Address) -> Route:
    """Return the workers without reports between two hops, in order.

    Args:
        before: The first hop; `None` for the start.
        back: The return route at the second.
        node_id: The node of the second.
        tracer: The sender of the message.
    """
    # A forward adds one address to the return route: that of the worker itself or, across a
    # link, of the link at the other end, which is no hop. A reply has a new return route.
    known = (tracer,) if before is None else before.return_route
    if back[max(0, len(back) - len(known)) :] == known:
        back = back[: len(back) - len(known)]
    crossed = True
    if before is not None and back and back[-1] == before.worker:
        back = back[:-1]
        crossed = before.node_id != node_id
    passed = reversed(back[1:] if crossed else back)
    # The token of a copy is no worker: its dispatcher takes what comes there.
    return tuple(each for each in passed if each.type != DELIVERY)


def _only_end(ordered: Iterable[HopReport]) -> str | None:
    """Return the only hop that no other follows, if there is one; `ROOT` without hops."""
    reports = list(ordered)
    went_on = {report.before for report in reports}
    ends = [report.hop for report in reports if report.hop not in went_on]
    if not reports:
        return ROOT
    return ends[0] if len(ends) == 1 else None
