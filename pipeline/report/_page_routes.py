"""The sections of the page on routes: shards, churn, paths, and the effect of a change."""

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
    """The shard requests of one tag set that one route received.

    Attributes:
        tagset: The tags.
        route: The route.
        frames: The number of requests.
        share: The route's share of the requests of the tag set, from 0 to 1.
        skew: The load of the busiest route divided by the mean of the tag set.
        even: The share of each route of the tag set if all loads were equal.
    """

    tagset: str
    route: str
    frames: int
    share: float
    skew: float
    even: float


@dataclass(frozen=True, slots=True)
class HotKey:
    """A shard key with more requests than others.

    Attributes:
        tagset: The tags.
        key: The hash of the key, in hexadecimal digits; keys themselves are never recorded.
        frames: The number of requests, estimated from the sample.
        share: The key's largest share of the tag set in an hour, from 0 to 1.
    """

    tagset: str
    key: str
    frames: int
    share: float


@dataclass(frozen=True, slots=True)
class Shards:
    """The balance of the shards.

    Attributes:
        shards: The shards of the tag sets with the most frames.
        keys: The hottest keys.
        more: The number of routes that are not shown.
    """

    shards: tuple[Shard, ...]
    keys: tuple[HotKey, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class ChurnRow:
    """A destination that came and went.

    Attributes:
        service: The service name.
        route: The route.
        ups: The number of times it came.
        downs: The number of times it went.
        flaps: The number of times it came back soon after.
        life: The median of its lifetimes, in seconds; `None` if it never went.
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
        hours: The hours with changes.
        ups: The number that came in each hour.
        downs: The number that went.
        flaps: The number that came back soon.
        rows: The destinations with the most flaps, then the most downs.
        more: The number of destinations that are not shown.
    """

    hours: tuple[datetime, ...]
    ups: tuple[int, ...]
    downs: tuple[int, ...]
    flaps: tuple[int, ...]
    rows: tuple[ChurnRow, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class PathRow:
    """A path of messages.

    Attributes:
        path: The names along the path, in order.
        traces: The number of sampled messages that took it.
        p95: The 95th percentile of the latency, in microseconds; `None` if not known.
    """

    path: tuple[str, ...]
    traces: int
    p95: float | None


@dataclass(frozen=True, slots=True)
class AnomalyRow:
    """An anomaly of a path.

    Attributes:
        kind: `loop`, `black_hole` or `return_asymmetry`.
        path: The names along the path, in order.
        traces: The number of sampled messages with the anomaly.
        example: The trace id of one, in hexadecimal digits.
    """

    kind: str
    path: tuple[str, ...]
    traces: int
    example: str


@dataclass(frozen=True, slots=True)
class Anomalies:
    """The paths of messages and their anomalies.

    Attributes:
        rows: The anomalies.
        paths: The most frequent paths.
        more: The number of anomalies that are not shown.
        more_paths: The number of paths that are not shown.
    """

    rows: tuple[AnomalyRow, ...]
    paths: tuple[PathRow, ...]
    more: int = 0
    more_paths: int = 0


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """The effect of a change on one tag set; the columns of the report `replay_summary`."""

    tagset: str
    frames: int
    moved: int
    lost: int
    gained: int
    skew_old: float
    skew_new: float


@dataclass(frozen=True, slots=True)
class ReplayRoute:
    """The effect of a change on one route."""

    route: str
    frames_old: int
    frames_new: int


@dataclass(frozen=True, slots=True)
class Replay:
    """A rehearsal of a change over the day's traffic.

    Attributes:
        rows: The tag sets with the most lost or moved frames.
        routes: The routes with the greatest change first.
        frames: Frames that were resolved, over all tag sets.
        moved: Frames that would go to another route.
        lost: Frames that would have no route any more.
        gained: Frames that have no route and would have one.
        about: The tables, methods and logs of the rehearsal; empty if not known.
        more: The number of tag sets that are not shown.
        more_routes: The number of routes that are not shown.
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
