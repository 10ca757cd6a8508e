"""The sections of the page on requests: traffic, latency, unroutable requests and objectives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = ["Burn", "Demand", "DemandRow", "Latency", "LatencyLine", "Matrix"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The traffic between senders and destinations.

    Attributes:
        origins: The senders: the rows.
        dests: The destinations: the columns.
        frames: The frames of each pair; `None` if there are none.
        failed: The failed frames of each pair.
        bytes: The bytes of the payloads of each pair.
        more: The number of pairs that are not shown.
        more_frames: The frames of those pairs.
    """

    origins: tuple[str, ...]
    dests: tuple[str, ...]
    frames: tuple[tuple[int | None, ...], ...]
    failed: tuple[tuple[int, ...], ...]
    bytes: tuple[tuple[int, ...], ...]
    more: int = 0
    more_frames: int = 0


@dataclass(frozen=True, slots=True)
class LatencyLine:
    """The latency of one destination over the day, in microseconds.

    Attributes:
        dest: The destination.
        times: The starts of the intervals.
        n: The requests in each interval, estimated from the sample.
        p50: The median of each interval.
        p95: The 95th percentile.
        p99: The 99th percentile.
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
    """The latency of requests by destination.

    Attributes:
        lines: The destinations with the most requests first.
        minutes: The length of an interval.
        more: The number of destinations that are not shown.
    """

    lines: tuple[LatencyLine, ...]
    minutes: int
    more: int = 0


@dataclass(frozen=True, slots=True)
class DemandRow:
    """A tag set without a destination.

    Attributes:
        tagset: The tags.
        frames: The number of requests.
        first: The time of the first request.
        last: The time of the last request.
        nearest: The tags of the set that some route did carry; empty if none.
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
        objective: The name of the objective.
        good: The requests that met it.
        total: All its requests.
        times: The starts of the windows.
        burn_5m: The burn rate of the error budget within 5 minutes; at 1 the budget lasts exactly.
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
