"""What the page is made of: small plain values, collected from the reports of a day.

A section that is `None` was not asked for, and is left out; one that is empty says so. Each list
is the top of a longer one: `more` says how many are not in it. Names are those of the lake's
dimensions, and are user data: the page escapes them, not who fills this in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from ._page_audit import Audit
from ._page_requests import Burn, Demand, Latency, Matrix
from ._page_routes import Anomalies, Churn, Replay, Shards

__all__ = ["Broker", "Page", "Totals"]


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
        untagged: How many of those that were read have no tags in the log: too long, one too many,
            or not readable. They are in no figure that is by what was asked for.
    """

    requests: int = 0
    delivered: int = 0
    unroutable: int = 0
    rejected: int = 0
    failed: int = 0
    canceled: int = 0
    bytes: int = 0
    untagged: int = 0


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
