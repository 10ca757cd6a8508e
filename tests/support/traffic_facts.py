"""What is known of random traffic: facts, from which a test works out what a report has to say.

Times are microseconds since 1970, UTC. Names of nodes are those of the lake; their ids, and those
of tag sets, come from `name_id`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from onward.protocol.eventlog import Kind, Outcome, name_id

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
WINDOW = 10 * SECOND
START = 1_795_212_000 * SECOND
"""2026-11-20 22:00 UTC, so that midnight is among the hours."""

Row = tuple[object, ...]


def time_of(micros: int) -> datetime:
    """Return a time as Spark takes it and gives it back: UTC, without saying so."""
    return datetime(1970, 1, 1) + timedelta(microseconds=micros)


@dataclass(frozen=True, slots=True)
class Sought:
    """A tag set that is asked for."""

    name: str
    tags: tuple[tuple[str, str], ...]
    routing: str = "unicast"

    @property
    def id(self) -> int:
        return name_id(f"tag set {self.name}")


@dataclass(frozen=True, slots=True)
class Life:
    """From when until when a destination carried its tags; `until` is `None` if it still does."""

    broker: str
    epoch: int
    route: int
    service: str
    tags: tuple[tuple[str, str], ...]
    since: int
    until: int | None


@dataclass(frozen=True, slots=True)
class Sent:
    """A request. It was handed to `takers`; `ends` is how often it was said to have ended."""

    broker: str
    epoch: int
    origin: str
    sought: Sought
    kind: Kind
    received: int
    size: int
    takers: tuple[Life, ...]
    outcome: Outcome
    ended: int
    ends: int
    shard_hash: int
    weight: int

    @property
    def chosen(self) -> Life | None:
        """The one destination, unless it has none or several."""
        return self.takers[0] if len(self.takers) == 1 else None


@dataclass(frozen=True, slots=True)
class Trip:
    """A message: each hop is (depth, node, worker, outcome, time handled)."""

    trace: int
    hops: tuple[tuple[int, str, str, Outcome, int], ...]
    began: int
    weight: int
    wrong: frozenset[str]


@dataclass(frozen=True, slots=True)
class Link:
    """What both ends of a link counted; `None` where an end keeps no log."""

    sender: str
    receiver: str
    name: str
    sent: int | None
    received: int | None
    dropped: int


@dataclass(slots=True)
class Traffic:
    """Facts, and rows in the order of the columns of `LAKE_TABLES`."""

    lives: list[Life] = field(default_factory=list[Life])
    requests: list[Sent] = field(default_factory=list[Sent])
    trips: list[Trip] = field(default_factory=list[Trip])
    links: list[Link] = field(default_factory=list[Link])
    handled: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    sought: list[Sought] = field(default_factory=list[Sought])
    names: set[str] = field(default_factory=set[str])
    hops: list[Row] = field(default_factory=list[Row])
    flows: list[Row] = field(default_factory=list[Row])
    events: list[Row] = field(default_factory=list[Row])

    @property
    def tagsets(self) -> list[Row]:
        """The rows of `dim_tagset`."""
        first = time_of(START)
        return [
            (each.id, dict(each.tags), each.name, each.routing, "", first) for each in self.sought
        ]

    @property
    def nodes(self) -> list[Row]:
        """The rows of `dim_node`."""
        return [(name_id(name), name, time_of(START)) for name in sorted(self.names)]
