"""What the page is made of: small plain values, collected from the reports of a day.

A section that is `None` was not asked for, and is left out; one that is empty says so. Each list
is the top of a longer one: `more` says how many are not in it. Names are those of the lake's
dimensions, and are user data: the page escapes them, not who fills this in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

__all__ = [
    "Anomalies",
    "AnomalyRow",
    "Audit",
    "AuditRow",
    "Broker",
    "Burn",
    "Churn",
    "ChurnRow",
    "Demand",
    "DemandRow",
    "Hole",
    "HotKey",
    "Latency",
    "Line",
    "Matrix",
    "Page",
    "PathRow",
    "Replay",
    "ReplayRoute",
    "ReplayRow",
    "Shard",
    "Shards",
    "Totals",
]


@dataclass(frozen=True, slots=True)
class Broker:
    """How complete the log of one broker or node is.

    Attributes:
        name: The log's name.
        sealed_through: Until when everything of it is in the lake; `None` if not known.
        segments: How many segments of it.
        events: How many hops, flows and route events in them.
        missing: How many numbers are missing between them.
    """

    name: str
    sealed_through: datetime | None
    segments: int
    events: int
    missing: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The day in a few figures. What brokers were asked; messages between workers not included.

    Attributes:
        requests: How many were read, of all kinds.
        delivered: How many ended well.
        unroutable: How many nobody could take.
        rejected: How many were not handed over for another reason.
        failed: How many ended in an error, or were lost.
        canceled: How many were withdrawn.
        bytes: Their payloads.
        hops: How many hops were recorded.
    """

    requests: int = 0
    delivered: int = 0
    unroutable: int = 0
    rejected: int = 0
    failed: int = 0
    canceled: int = 0
    bytes: int = 0
    hops: int = 0


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One broker, or one link, over the day; the columns of the report `audit`.

    Attributes:
        src: The broker, or the sending node.
        dst: The link; empty for a broker.
        sent: What was read from requesters, or put on the link; `None` if that end keeps no log.
        received: What was handed on, or came over the link; `None` if that end keeps no log.
    """

    src: str
    dst: str
    sent: int | None
    received: int | None
    delivered: int
    dropped: int
    unroutable: int
    missing: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class Hole:
    """What one log lacks.

    Attributes:
        log: The log's name.
        absent: How many of its numbers are not in the lake.
        unrecorded: How many events it says it could not take.
        reasons: Why, some of them.
    """

    log: str
    absent: int
    unrecorded: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether all that came has gone somewhere.

    Attributes:
        rows: The brokers and links, those out of balance first.
        more: How many rows are not shown; they are in balance, unless `missing` says otherwise.
        missing: What is unaccounted for, over all rows.
        duplicated: What ended more than once, over all rows.
        open: How much of `missing` is of runs that go on, so that it may be in hand.
        holes: The logs that lack something, those that lack most first.
        more_holes: How many of them are not shown.
        absent: Numbers that are not in the lake, over all logs.
        unrecorded: Events that could not be recorded, over all logs.
    """

    rows: tuple[AuditRow, ...]
    more: int
    missing: int
    duplicated: int
    open: int = 0
    holes: tuple[Hole, ...] = ()
    more_holes: int = 0
    absent: int = 0
    unrecorded: int = 0

    @property
    def balanced(self) -> bool:
        """Whether nothing is missing and nothing ended twice."""
        return not (self.missing or self.duplicated)

    @property
    def whole(self) -> bool:
        """Whether no log lacks anything; if one does, a balance says nothing."""
        return not (self.absent or self.unrecorded)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to audit."""
        return not self.rows and self.whole


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
class Shard:
    """What one route has taken of what was asked by shard.

    Attributes:
        tagset: What was asked for.
        route: The route.
        frames: How many.
        share: Its part of all that the tag set had, from 0 to 1.
        skew: The busiest route's load over the mean of the tag set.
    """

    tagset: str
    route: str
    frames: int
    share: float
    skew: float


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that is asked for more than others.

    Attributes:
        tagset: What was asked for.
        key: The hash of the key, in hexadecimal digits; keys themselves are never recorded.
        frames: How many, estimated from the sample.
        share: Its part of the tag set, from 0 to 1.
    """

    tagset: str
    key: str
    frames: int
    share: float


@dataclass(frozen=True, slots=True)
class Shards:
    """How even the shards are.

    Attributes:
        shards: Those of the tag sets with the most frames.
        keys: The hottest keys.
        more: How many tag sets are not shown.
    """

    shards: tuple[Shard, ...]
    keys: tuple[HotKey, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class ChurnRow:
    """A destination that came and went.

    Attributes:
        service: Its service name.
        route: Its route.
        ups: How often it came.
        downs: How often it went.
        flaps: How often it came back soon after.
        life: The median of how long it stayed, in seconds; `None` if it never went.
    """

    service: str
    route: str
    ups: int
    downs: int
    flaps: int
    life: float | None


@dataclass(frozen=True, slots=True)
class Churn:
    """Destinations that came and went.

    Attributes:
        hours: The hours in which there was something.
        ups: How many came in each.
        downs: How many went.
        flaps: How many were soon back.
        rows: The destinations with the most flaps, then the most downs.
        more: How many destinations are not shown.
    """

    hours: tuple[datetime, ...]
    ups: tuple[int, ...]
    downs: tuple[int, ...]
    flaps: tuple[int, ...]
    rows: tuple[ChurnRow, ...]
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


@dataclass(frozen=True, slots=True)
class PathRow:
    """A way that messages went.

    Attributes:
        path: The names on it, in order.
        traces: How many took it, of those that were sampled.
        p95: 95 in 100 were faster, in microseconds; `None` if not known.
    """

    path: tuple[str, ...]
    traces: int
    p95: float | None


@dataclass(frozen=True, slots=True)
class AnomalyRow:
    """Something wrong with a way.

    Attributes:
        kind: `loop`, `black_hole` or `return_asymmetry`.
        path: The names on it, in order.
        traces: How many messages it befell, of those that were sampled.
        example: The trace id of one, in hexadecimal digits.
    """

    kind: str
    path: tuple[str, ...]
    traces: int
    example: str


@dataclass(frozen=True, slots=True)
class Anomalies:
    """The ways of messages, and what is wrong with some.

    Attributes:
        rows: What is wrong.
        paths: The ways most taken.
        more: How many anomalies are not shown.
        more_paths: How many ways are not shown.
    """

    rows: tuple[AnomalyRow, ...]
    paths: tuple[PathRow, ...]
    more: int = 0
    more_paths: int = 0


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """What a change would do to one tag set; the columns of the report `replay_summary`."""

    tagset: str
    frames: int
    moved: int
    lost: int
    gained: int
    skew_old: float
    skew_new: float


@dataclass(frozen=True, slots=True)
class ReplayRoute:
    """What a change would do to one route."""

    route: str
    frames_old: int
    frames_new: int


@dataclass(frozen=True, slots=True)
class Replay:
    """A rehearsal of a change over the day's traffic.

    Attributes:
        rows: The tag sets that lose or move most.
        routes: The routes, those that change most first.
        frames: How many frames were resolved, over all tag sets.
        moved: How many of them go elsewhere.
        lost: How many have no route any more.
        gained: How many had none, and have one now.
        about: What was rehearsed: tables, methods, logs. Empty if it is not known.
        more: How many tag sets are not shown.
        more_routes: How many routes are not shown.
    """

    rows: tuple[ReplayRow, ...]
    routes: tuple[ReplayRoute, ...]
    frames: int
    moved: int
    lost: int
    gained: int
    more: int = 0
    more_routes: int = 0
    about: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page shows.

    Attributes:
        day: The day, UTC.
        brokers: The logs it is made of.
        totals: The day in a few figures.
        more_brokers: How many logs are not shown.
        closed: Whether all of the day is in the lake, for each log.
        late: How many events came after the day had been closed; earlier pages lack them.
    """

    day: date
    brokers: tuple[Broker, ...] = ()
    totals: Totals = Totals()
    more_brokers: int = 0
    closed: bool = False
    late: int = 0
    audit: Audit | None = None
    matrix: Matrix | None = None
    latency: Latency | None = None
    shards: Shards | None = None
    churn: Churn | None = None
    demand: Demand | None = None
    burns: tuple[Burn, ...] | None = None
    paths: Anomalies | None = None
    replay: Replay | None = None
