"""The views of `onward top`: what each asks for, its columns, and a frame of lines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..protocol import counted
from ._columns import Column, columns_of, count, duration, number, share, span, text
from ._show import printable, table
from ._status import CommandError

__all__ = ["VIEWS", "Rates", "Sample", "TopState", "View", "frame"]

RESERVED: Final = 3
"""Lines of a frame besides problems and rows: the head, the headings, and the foot."""

MAX_PROBLEMS: Final = 5
"""The maximum number of problems that are shown."""

_BOLD, _RED, _YELLOW, _REVERSE, _PLAIN = (f"\x1b[{code}m" for code in (1, 31, 33, 7, 0))


class View(NamedTuple):
    """A view.

    Attributes:
        name: Its name.
        question: The question for its rows, up to the query.
        key: The field by which a row is known again.
        counters: The fields that are shown as rates.
        columns: The columns; of a counter, the field is its rate.
        sort: The columns by which rows can be sorted, by number: those that are fields.
    """

    name: str
    question: str
    key: str
    counters: tuple[str, ...]
    columns: Sequence[Column]
    sort: tuple[str, ...]


def _rate(heading: str, counter: str) -> Column:
    def cell(row: Any) -> str:
        rate = row.get(f"{counter}_rate")
        return "-" if rate is None else f"{rate:,.1f}"

    return Column(heading, counter, cell, falls=True)


def _size(heading: str, counter: str) -> Column:
    def cell(row: Any) -> str:
        rate = row.get(f"{counter}_rate")
        return "-" if rate is None else f"{rate / 1024:,.1f}"

    return Column(heading, counter, cell, falls=True)


def _state(row: Any) -> str:
    return "expected" if row.get("expected") else "busy" if row.get("busy") else "-"


VIEWS: Final = (
    View(
        "services",
        "/api/v1/services?",
        "service",
        ("requests",),
        (
            text("SERVICE", "service"),
            number("DESTINATIONS", "destinations"),
            number("BUSY", "busy"),
            number("IN PROGRESS", "in_progress"),
            _rate("REQUESTS/S", "requests"),
            share("SUCCESS", "success"),
            span("P50", "p50"),
            span("P99", "p99"),
            number("REJECTED", "rejected"),
            number("ERRORS", "error"),
        ),
        ("requests", "in_progress", "latency", "rejected", "error", "service"),
    ),
    View(
        "connections",
        "/api/v1/connections?",
        "id",
        ("requests", "received_bytes", "sent_bytes"),
        (
            number("ID", "id"),
            text("PEER", "peer"),
            text("PRINCIPAL", "principal"),
            text("SERVICE", "service"),
            number("STREAMS", "streams"),
            _rate("REQUESTS/S", "requests"),
            _size("IN KIB/S", "received_bytes"),
            _size("OUT KIB/S", "sent_bytes"),
            number("PENDING", "pending_bytes"),
            span("IDLE", "idle"),
        ),
        ("requests", "received_bytes", "sent_bytes", "pending_bytes", "streams", "idle", "id"),
    ),
    View(
        "routes",
        "/api/v1/routes?",
        "route",
        ("requests",),
        (
            text("ROUTE", "route"),
            text("SERVICE", "service"),
            text("PEER", "peer"),
            number("OUTSTANDING", "outstanding"),
            _rate("REQUESTS/S", "requests"),
            span("LATENCY", "latency"),
            Column("STATE", "busy", _state),
        ),
        ("requests", "outstanding", "latency", "service"),
    ),
    View(
        "workers",
        "/api/v1/workers?",
        "address",
        ("handled",),
        (
            text("ADDRESS", "address"),
            text("KIND", "kind"),
            text("STATE", "state"),
            number("WAITING", "waiting"),
            _rate("HANDLED/S", "handled"),
            number("FAILED", "failed"),
            count("REFUSED", "refused"),
            number("RESTARTS", "restarts"),
        ),
        ("waiting", "handled", "failed", "restarts", "address"),
    ),
)

_TEXTS: Final = frozenset({"service", "address", "id"})
"""The columns that rows are sorted by from A, or from 1."""


@dataclass(slots=True)
class TopState:
    """The choices of the user: the view, and its order.

    Attributes:
        view: The number of the view.
        sort: The number of the column that rows are sorted by.
        reverse: Whether they are in the reverse order.
        paused: Whether nothing new is asked for.
    """

    view: int = 0
    sort: int = 0
    reverse: bool = False
    paused: bool = False

    @property
    def shown(self) -> View:
        """The view."""
        return VIEWS[self.view]

    @property
    def column(self) -> str:
        """The column that rows are sorted by."""
        return self.shown.sort[self.sort]

    def query(self, rows: int) -> str:
        """Return the question for the first rows."""
        falls = (self.column not in _TEXTS) ^ self.reverse
        return f"{self.shown.question}sort={'-' if falls else ''}{self.column}&limit={rows}"

    def press(self, key: str) -> bool:
        """Change what a key changes, and return whether it does."""
        if key in "1234" and int(key) <= len(VIEWS):
            self.view, self.sort, self.reverse = int(key) - 1, 0, False
        elif key == "s":
            self.sort = (self.sort + 1) % len(self.shown.sort)
        elif key == "r":
            self.reverse = not self.reverse
        elif key in ("p", " "):
            self.paused = not self.paused
        else:
            return False
        return True


class Rates:
    """The rates of counters, from the last two looks at a view."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, Any], tuple[float, Mapping[str, Any]]] = {}

    def add(
        self, view: View, rows: Sequence[Mapping[str, Any]], now: float
    ) -> list[dict[str, Any]]:
        """Return rows with the rate of each counter; `None` for a row that was not there before.

        Args:
            view: The view that they are of.
            rows: The rows.
            now: The time, in seconds.
        """
        found: list[dict[str, Any]] = []
        seen: dict[tuple[str, Any], tuple[float, Mapping[str, Any]]] = {}
        for row in rows:
            key = view.name, row.get(view.key)
            before = self._before.get(key)
            seen[key] = now, row
            rates = {name: _per_second(name, row, before, now) for name in view.counters}
            found.append({**row, **{f"{name}_rate": rate for name, rate in rates.items()}})
        self._before = seen
        return found


def _per_second(
    name: str, row: Mapping[str, Any], before: tuple[float, Mapping[str, Any]] | None, now: float
) -> float | None:
    if before is None or now <= before[0]:
        return None
    # A broker that was started anew begins from 0.
    return max(0.0, float(row[name] - before[1][name]) / (now - before[0]))


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a broker.

    Attributes:
        at: The time, in seconds since 1970.
        figures: The figures of the broker; those of `totals` with rates.
        problems: What is wrong, the worst first.
        total: The number of rows that there are.
        rows: The first rows of the view, with rates.
    """

    at: float
    figures: Mapping[str, Any]
    problems: Sequence[Mapping[str, Any]] = ()
    total: int = 0
    rows: Sequence[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])


def frame(
    state: TopState, sample: Sample, broker: str, size: tuple[int, int], *, color: bool
) -> list[str]:
    """Return the lines of a frame, which fit a screen.

    Args:
        state: What is shown, and how.
        sample: The look at the broker.
        broker: Its URI.
        size: The columns and lines of the screen.
        color: Whether colors are used.

    Raises:
        CommandError: The answers are not those of a broker.
    """
    width, height = size
    view = state.shown
    try:
        head = _head(sample, broker, state)
        problems = [_problem(each) for each in sample.problems[:MAX_PROBLEMS]]
        room = max(0, height - RESERVED - len(problems))
        columns = columns_of(view.columns, sample.rows)
        cells = [[column.cell(row) for column in columns] for row in sample.rows[:room]]
        lines = table([column.heading for column in columns], cells).split("\n")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CommandError(f"the broker's answer has no {view.name}") from error
    order = f"{state.column}{' reversed' if state.reverse else ''}"
    left = sample.total - len(cells)
    views = "  ".join(f"{at} {each.name}" for at, each in enumerate(VIEWS, 1))
    foot = (
        f" q quit  p {'go on' if state.paused else 'pause'}  s sort: {order}  r reverse   {views}"
    )
    if left > 0:
        foot = f" {left} more  {foot}"
    filled = [_clipped(head, width, _BOLD, color=color)]
    filled += [_clipped(line, width, tint, color=color) for tint, line in problems]
    filled.append(_clipped(lines[0].ljust(width), width, _REVERSE, color=color))
    filled += [line[:width] for line in lines[1:]]
    filled += [""] * (height - 1 - len(filled))
    return [*filled[: height - 1], _clipped(foot, width, _BOLD, color=color)]


def _head(sample: Sample, broker: str, state: TopState) -> str:
    figures = sample.figures
    listeners = figures["listeners"]
    at = time.strftime("%H:%M:%S", time.localtime(sample.at))
    rate = figures.get("requests_rate")
    parts = [
        at,
        "- requests/s" if rate is None else f"{rate:,.1f} requests/s",
        f"{int(figures['waiting'])} waiting"
        + (f" ({duration(float(figures['oldest_wait']))})" if figures["waiting"] else ""),
        f"{int(figures['rejected'])} rejected",
        f"{int(figures['lost'])} lost",
        counted(int(figures["streams"]), "stream"),
        counted(sum(int(each["connections"]) for each in listeners), "connection"),
        counted(int(figures["routes"]), "route"),
        printable(broker),
    ]
    marks = [
        word for word, on in (("DRAINING", figures["draining"]), ("PAUSED", state.paused)) if on
    ]
    return "  ".join([*marks, *parts])


def _problem(problem: Mapping[str, Any]) -> tuple[str, str]:
    severity = str(problem["severity"])
    subject = problem["subject"]
    if "process" in problem and problem["kind"] != "process":
        subject = f"process {int(problem['process'])}: {subject}"
    told = f"{severity}: {subject}: {problem['text']}"
    return (_RED if severity == "critical" else _YELLOW), printable(told)


def _clipped(line: str, width: int, tint: str, *, color: bool) -> str:
    return f"{tint}{line[:width]}{_PLAIN}" if color else line[:width]
