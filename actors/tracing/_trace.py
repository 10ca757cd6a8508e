"""What the reports of a trace come to: hops in order, times, and what is missing.

Reports say which hop came before which, so the order is known without comparing clocks. Times
of two nodes are compared only as far as cause and effect allow: nothing can have happened on a
node before the message was sent, nor, if it led to the answer, after that came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...protocol import Address, HopOutcome, HopReport, Message, Route

__all__ = ["Trace", "TraceClock", "TraceGap", "TraceHop"]

ROOT = "0" * 16
"""The hop before the first."""

_SECOND = 1e9  # in nanoseconds


@dataclass(frozen=True, slots=True)
class TraceClock:
    """The clock of a node, as compared with that of the node that traced."""

    node_id: str
    """Which node."""

    name: str
    """Its name; nodes of one name are told apart by a number behind it."""

    offset: float
    """By how much its clock was taken to be ahead, in seconds."""

    error: float | None
    """By how much that may be wrong, in seconds; `None`: it cannot be told, as nothing that
    the node did led to an answer."""


@dataclass(frozen=True, slots=True)
class TraceHop:
    """One hop of a trace."""

    report: HopReport
    """What its node said."""

    node: str
    """The name of its node; see `TraceClock`."""

    at: float
    """When the worker took the message up, in seconds from the start, by the clock of its node
    less the offset."""

    waited: float | None
    """How long the message waited in the mailbox, in seconds: from the end of the hop before,
    where that was on the same node and one after the other; else `None`."""

    @property
    def handled(self) -> float | None:
        """How long handling took, in seconds; `None`: it has not ended, or nobody said so."""
        took = self.report.handled
        return None if took is None else took / _SECOND


@dataclass(frozen=True, slots=True)
class TraceGap:
    """A part of the way of which no node told anything."""

    after: str
    """The hop before it, as in `HopReport.hop`; `ROOT`: the start."""

    before: str | None
    """The hop after it; `None`: nothing more was heard, or the answer."""

    passed: Route
    """Workers that the message passed, in order, by the return route of the hop after it."""

    due: Route
    """Where it was to go next, if nothing more was heard of it."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What became of one message."""

    trace: str
    """Its id: 32 hexadecimal digits."""

    route: Route
    """Where it was sent."""

    hops: tuple[TraceHop, ...]
    """What was reported, each hop after the one that led to it."""

    gaps: tuple[TraceGap, ...]
    """What was not."""

    clocks: tuple[TraceClock, ...]
    """The nodes that reported, in the order the message came to them."""

    answer: Message | None
    """The first answer, if one came in time."""

    answered_after: str | None
    """The last hop that was reported on the way to that answer; `None` without an answer."""

    took: float
    """Seconds until the answer, or until the end of the wait."""

    lost: str | None
    """Why the node that traced dropped the message, if it did."""

    own_node: str = ""
    """The id of the node that traced, if it has a tracer."""


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
    """Make a trace of reports.

    Args:
        trace: Its id.
        tracer: Where the reports and the answer came to.
        route: Where the message was sent.
        reports: What came, in the order it came.
        started: When the message was sent, in nanoseconds of our clock.
        ended: When the answer came, or the wait was over.
        answer: The answer, if there is one.
        answered_after: The hop that the answer names as the one before. By default, as of an
            answer that came without its mark, the only one after which nothing was heard.
        own_node: The id of the node that traced, if it has a tracer; its clock is ours.
        lost: Why the message was dropped here, if it was.
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
    """Keep one report of each hop: that of its end, if it has come."""
    known: dict[str, HopReport] = {}
    for report in reports:
        before = known.get(report.hop)
        if before is None or before.outcome is HopOutcome.AWAITS:
            known[report.hop] = report
    return known


def _in_order(known: Mapping[str, HopReport]) -> list[HopReport]:
    """Order hops so that each comes after what led to it, and branches stay together."""
    after: dict[str, list[HopReport]] = {}
    for report in known.values():
        # One whose cause was not reported is as if it came first.
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
    """Return the hops that led to the answer."""
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
    """Return a name of its own for each node; ours keeps the one it has."""
    names: dict[str, str] = {}
    for node_id in sorted(given, key=lambda each: each != own_node):
        names[node_id] = another_name(given[node_id], names.values())
    return names


def another_name(name: str, taken: Collection[str]) -> str:
    """Return a name, or the name with a number behind it if it is taken."""
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name} ({number})"
    return made


def _last_on(
    own_node: str, report: HopReport | None, known: Mapping[str, HopReport], started: int
) -> int:
    """Return when the message was last seen on our own node before a hop."""
    seen: set[str] = set()
    while report is not None and report.node_id != own_node and report.hop not in seen:
        seen.add(report.hop)
        report = known.get(report.before)
    return started if report is None or report.node_id != own_node else report.taken


def _offset(
    most: int, reports: Iterable[HopReport], led: set[str], ended: int
) -> tuple[float, float | None]:
    """Estimate how far a clock is ahead, and how wrong that may be, in seconds.

    Args:
        most: How far it is at most, in nanoseconds: what it showed when the message had come,
            less what ours showed before that was sent.
        reports: What its node reported.
        led: The hops that led to the answer.
        ended: When that came.
    """
    latest = [report.taken for report in reports if report.hop in led]
    if not latest:
        return min(0, most) / _SECOND, None
    least = max(latest) - ended
    if least <= 0 <= most:
        # Nothing speaks against the clocks being one, as they are on one machine.
        return 0.0, max(-least, most) / _SECOND
    return (least + most) / 2 / _SECOND, abs(most - least) / 2 / _SECOND


def _waited(report: HopReport, before: HopReport | None) -> float | None:
    if before is None or before.node_id != report.node_id or before.handled is None:
        return None
    own, *rest = report.return_route or (None,)
    if own != before.worker or (rest and tuple(rest) != before.return_route):
        return None  # neither its forward nor its answer: it has been elsewhere in between
    waited = report.taken - before.taken - before.handled
    return waited / _SECOND if waited >= 0 else None


# --- what is missing ------------------------------------------------------------------------


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
    # Where answers come to requests that were made on the way: there is their end.
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
        if passed or lost:
            gaps.append(TraceGap(answered_after, None, passed, ()))
    elif not known:
        gaps.append(TraceGap(ROOT, None, (), route))
    return tuple(gaps)


def _is_asked(known: Mapping[str, HopReport], report: HopReport) -> bool:
    """Tell whether a hop is the first of a request that a worker made on behalf of the message.

    It has a return route of one address, and that is not the worker's: so it is no answer.
    """
    before, back = known.get(report.before), report.return_route
    return before is not None and len(back) == 1 and back[0] != before.worker


def _passed(before: HopReport | None, back: Route, node_id: str, tracer: Address) -> Route:
    """Return the workers between two hops that told nothing, in the order they were passed.

    Args:
        before: The first of them; `None`: the start.
        back: The return route at the second.
        node_id: The node of the second.
        tracer: Where the message came from.
    """
    # A forward leaves one address on the return route: that of the worker itself or, across a
    # link, of the link at the other end, which is no hop. An answer has a new return route.
    known = (tracer,) if before is None else before.return_route
    if back[max(0, len(back) - len(known)) :] == known:
        back = back[: len(back) - len(known)]
    crossed = True
    if before is not None and back and back[-1] == before.worker:
        back = back[:-1]
        crossed = before.node_id != node_id
    return tuple(reversed(back[1:] if crossed else back))


def _only_end(ordered: Iterable[HopReport]) -> str | None:
    """Return the one hop after which nothing was heard, if there is one; `ROOT` without hops."""
    reports = list(ordered)
    went_on = {report.before for report in reports}
    ends = [report.hop for report in reports if report.hop not in went_on]
    if not reports:
        return ROOT
    return ends[0] if len(ends) == 1 else None
