"""What the page says of requests: who asked whom, how long it took, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Burn", "Demand", "DemandRow", "Latency", "Line", "Matrix"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Who has sent how much to whom.

    Attributes:
        origins: Who sent: the rows.
        dests: Who got it: the columns.
        frames: How many; `None` where nothing flowed.
        failed: How many of them failed.
        bytes: Their payloads.
        more: How many pairs are not shown.
        more_frames: What flowed between those.
    """

    origins: tuple[str, ...]
    dests: tuple[str, ...]
    frames: tuple[tuple[int | None, ...], ...]
    failed: tuple[tuple[int, ...], ...]
    bytes: tuple[tuple[int, ...], ...]
    more: int = 0
    more_frames: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """The latency of one destination over the day, in microseconds.

    Attributes:
        dest: The destination.
        times: The starts of the intervals.
        n: How many requests each has, estimated from the sample.
        p50: Half were faster.
        p95: 95 in 100 were.
        p99: 99 in 100 were.
        day: n, p50, p95 and p99 of the whole day.
    """

    dest: str
    times: tuple[datetime, ...]
    n: tuple[int, ...]
    p50: tuple[float, ...]
    p95: tuple[float, ...]
    p99: tuple[float, ...]
    day: tuple[int, float, float, float]


@dataclass(frozen=True, slots=True)
class Latency:
    """How long requests took, by destination.

    Attributes:
        lines: The destinations with the most requests first.
        minutes: How long an interval is.
        more: How many destinations are not shown.
    """

    lines: tuple[Line, ...]
    minutes: int
    more: int = 0


@dataclass(frozen=True, slots=True)
class DemandRow:
    """What was asked for, and nobody had.

    Attributes:
        tagset: What was asked for.
        frames: How often.
        first: When for the first time.
        last: When for the last time.
        nearest: Which part of the tags some route did carry; empty if none.
    """

    tagset: str
    frames: int
    first: datetime | None
    last: datetime | None
    nearest: str


@dataclass(frozen=True, slots=True)
class Demand:
    """Unroutable demand: the tag sets with the most requests first."""

    rows: tuple[DemandRow, ...]
    more: int = 0
    more_frames: int = 0


@dataclass(frozen=True, slots=True)
class Burn:
    """One objective over the day.

    Attributes:
        objective: Its name.
        good: How many requests met it.
        total: How many there were.
        times: The windows.
        burn_5m: How fast the error budget burned within 5 minutes; at 1 it lasts exactly.
        burn_1h: The same within an hour.
        burn_6h: The same within six hours.
    """

    objective: str
    good: int
    total: int
    times: tuple[datetime, ...]
    burn_5m: tuple[float | None, ...]
    burn_1h: tuple[float | None, ...]
    burn_6h: tuple[float | None, ...]
