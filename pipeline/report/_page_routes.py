"""What the page says of routes: how even, how lasting, which ways, and what a change would do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

__all__ = [
    "Anomalies",
    "AnomalyRow",
    "Churn",
    "ChurnRow",
    "HotKey",
    "PathRow",
    "Replay",
    "ReplayRoute",
    "ReplayRow",
    "Shard",
    "Shards",
]


@dataclass(frozen=True, slots=True)
class Shard:
    """What one route has taken of what was asked by shard.

    Attributes:
        tagset: What was asked for.
        route: The route.
        frames: How many.
        share: Its part of all that the tag set had, from 0 to 1.
        skew: The busiest route's load over the mean of the tag set.
        even: The part that each route of the tag set would have if all were even.
    """

    tagset: str
    route: str
    frames: int
    share: float
    skew: float
    even: float


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that is asked for more than others.

    Attributes:
        tagset: What was asked for.
        key: The hash of the key, in hexadecimal digits; keys themselves are never recorded.
        frames: How many, estimated from the sample.
        share: Its part of the tag set in the hour in which that was largest, from 0 to 1.
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
        more: How many routes are not shown.
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
