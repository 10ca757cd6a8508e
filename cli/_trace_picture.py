"""The layout of a trace: a column for each node, and a row for each step from top to bottom.

The text and the SVG picture are both drawn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..actors.tracing import Trace, TraceGap, TraceHop
from ..actors.tracing._trace import another_name
from ..protocol import (
    DELIVERY,
    IDENTITY,
    NAME,
    Address,
    HopOutcome,
    HopReport,
    OnwardError,
    Route,
    counted,
)
from ._show import printable

__all__ = [
    "SILENT",
    "Step",
    "TracePicture",
    "brief",
    "brief_route",
    "picture_of",
    "text_of",
    "worker_of",
]

SILENT: Final = "(no report)"
"""The column of hops without a report."""

_RANDOM: Final = 32
"""Characters of a random address; the first few identify it."""
_SHOWN: Final = 6
_LONGEST: Final = 24
"""Most characters of an address that are shown."""


@dataclass(frozen=True, slots=True)
class Step:
    """A row of the drawing.

    Attributes:
        column: Its column.
        source: The column that the message came from; `None` for the same.
        label: Its text.
        time: Its time, in seconds from the start; `None` if it is not known.
        note: A remark.
    """

    column: int
    source: int | None
    label: str
    time: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TracePicture:
    """The columns and rows of a drawing.

    Attributes:
        title: The title.
        columns: The nodes, the tracing one first, and `SILENT` last if there are gaps.
        steps: The rows.
        silent: The column of `SILENT`, if there is one.
    """

    title: str
    columns: tuple[str, ...]
    steps: tuple[Step, ...]
    silent: int | None = None


def brief(address: Address) -> str:
    """Return an address in few characters; what a router of identities has written, as text."""
    if address.type == IDENTITY:
        written = _written(address)
        if written is not None:
            return written
    text = str(address)
    if len(address.value) == _RANDOM and address.type == 0:
        return f"{text[: 2 + _SHOWN]}…"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _written(address: Address) -> str | None:
    try:
        from ..actors.identity._carriage import shown_address
    except OnwardError:
        return None  # the extra for identities is not installed
    return shown_address(address)


def brief_route(route: Route) -> str:
    """Return a route in few characters."""
    return " => ".join(map(brief, route))


def worker_of(report: HopReport) -> str:
    """Return the worker of a hop in few characters: that of a dispatcher with the name."""
    name = _name_of(report)
    return brief(report.worker) if name is None else f"{brief(report.worker)} {brief(name)}"


def _name_of(report: HopReport) -> Address | None:
    """Return the name of a message that one dispatcher has sent to another one."""
    if len(report.onward_route) < 2 or report.onward_route[1].type != DELIVERY:
        return None
    # The library of dispatchers is a slow import; most traces go without.
    from ..protocol.dispatch import decode_transit

    try:
        return Address(NAME, decode_transit(report.onward_route[1].value).name.encode())
    except OnwardError:
        return None  # of a later version


def picture_of(trace: Trace, own: str, known: Sequence[str] = ()) -> TracePicture:
    """Return the layout of a trace.

    Args:
        trace: The trace.
        own: Name of the node that traced.
        known: What that node knew of the way, or has asked others, each as a row of its own.
    """
    # By their ids: names of nodes need not be unique.
    columns = {trace.own_node: own}
    taken = {own, SILENT}
    for clock in trace.clocks:
        if clock.node_id not in columns:
            columns[clock.node_id] = another_name(printable(clock.name), taken)
            taken.add(columns[clock.node_id])
    silent = len(columns) if trace.gaps else None
    return TracePicture(
        title=f"onward trace {brief_route(trace.route)}",
        columns=(*columns.values(), *(() if silent is None else (SILENT,))),
        steps=tuple(_Rows(trace, list(columns)).rows(known)),
        silent=silent,
    )


class _Rows:
    def __init__(self, trace: Trace, nodes: list[str]) -> None:
        self._trace = trace
        self._silent = len(nodes)
        self._place = {hop.report.hop: nodes.index(hop.report.node_id) for hop in trace.hops}
        self._of_hop = {hop.report.hop: hop.report for hop in trace.hops}
        self._gaps: dict[str | None, list[TraceGap]] = {}
        for gap in trace.gaps:
            self._gaps.setdefault(gap.before, []).append(gap)

    def rows(self, known: Sequence[str]) -> list[Step]:
        """Return the rows, from the start to the answer."""
        trace = self._trace
        rows = [Step(0, None, "sent", 0.0), *(Step(0, None, each) for each in known)]
        ends = {gap.after: gap for gap in self._gaps.get(None, ()) if gap.due}
        if not trace.hops:
            rows += [self._end(0, gap) for gap in ends.values()]
        for number, hop in enumerate(trace.hops, 1):
            column = self._place[hop.report.hop]
            source = self._place.get(hop.report.before, 0)
            rows += self._passed(hop.report.hop, source)
            if rows[-1].column == self._silent and hop.report.hop in self._gaps:
                source = self._silent
            entered = self._entered(hop.report)
            if entered is not None:
                label = f"{brief(entered)}, dispatched"
                rows.append(Step(column, source if source != column else None, label))
                source = column
            rows.append(_hop_row(number, hop, column, source))
            if hop.report.hop in ends:
                rows.append(self._end(column, ends[hop.report.hop]))
        rows += self._answer_rows()
        return rows

    def _entered(self, report: HopReport) -> Address | None:
        """Return the name by which a message got to the dispatcher that sent it to a hop.

        Names are looked up where a route leads to them: a dispatcher has no hop there.
        """
        before = self._of_hop.get(report.before)
        due = self._trace.route if before is None else before.onward_route[1:]
        copied = report.return_route[-1:] != () and report.return_route[-1].type == DELIVERY
        if not copied or not due or due[0].type != NAME or _name_of(report) is not None:
            return None
        return due[0]

    def _passed(self, before: str | None, source: int) -> list[Step]:
        return [
            Step(self._silent, source, brief_route(gap.passed) or "a report was lost")
            for gap in self._gaps.get(before, ())
            if not gap.due
        ]

    def _end(self, column: int, gap: TraceGap) -> Step:
        return Step(self._silent, column, f"to {brief_route(gap.due)}: nothing was heard")

    def _answer_rows(self) -> list[Step]:
        trace = self._trace
        if trace.answer is None:
            why = f": {trace.lost}" if trace.lost else ""
            return [Step(0, None, f"no answer{why}", trace.took)]
        source = self._place.get(trace.answered_after or "", 0)
        rows = self._passed(None, source)
        if rows:
            source = self._silent
        label = f"answer, {counted(len(trace.answer.payload), 'byte')}"
        return [*rows, Step(0, source or None, label, trace.took)]


def _hop_row(number: int, hop: TraceHop, column: int, source: int) -> Step:
    report = hop.report
    note = "" if report.outcome is HopOutcome.HANDLED else report.outcome.name.lower()
    label = f"{number} {worker_of(report)} {printable(report.kind)}"
    return Step(column, source if source != column else None, label, hop.at, note)


# --- as text --------------------------------------------------------------------------------


def text_of(picture: TracePicture) -> str:
    """Draw a picture with characters: a line down for each node, an arrow from node to node."""
    width = 2 + max(map(len, picture.columns))
    across = [4 + index * (width + 2) for index in range(len(picture.columns))]
    heads = _line([(x, name) for x, name in zip(across, picture.columns, strict=True)])
    lines = [heads]
    for step in picture.steps:
        if step.source is not None:
            lines.append(_arrow(across, step.source, step.column))
        label = " ".join(each for each in (step.label, step.note) if each)
        marks = [(x, "│") for x in across if x < across[step.column]]
        lines.append(_line([*marks, (across[step.column], f"● {label}")]))
    return "\n".join(lines)


def _arrow(across: list[int], source: int, column: int) -> str:
    start, end = across[source], across[column]
    left, right = min(start, end), max(start, end)
    marks = [(x, "│") for x in across if not left <= x <= right]
    shaft = "─" * (right - left - 1)
    if start < end:
        marks.append((left, f"├{shaft[:-1]}▶│"))
    else:
        marks.append((left, f"│◀{shaft[:-1]}┤"))
    return _line(sorted(marks))


def _line(pieces: list[tuple[int, str]]) -> str:
    line = ""
    for at, text in pieces:
        line = line.ljust(at) + text
    return line
