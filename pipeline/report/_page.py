"""The content of the page: plain values, collected from the reports of a day.

A section that is `None` was not requested, and is left out; an empty section is shown as empty.
Each list is the top of a longer one; `more` counts the rest. Names come from the lake's dimensions
and are user data: `render` escapes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from ._page_audit import Audit
from ._page_names import NameOutcomes
from ._page_relays import RelayLoad
from ._page_requests import Burn, Demand, Latency, Matrix
from ._page_routes import Anomalies, Churn, Replay, Shards

__all__ = ["LogCompleteness", "Page", "Totals"]


@dataclass(frozen=True, slots=True)
class LogCompleteness:
    """The completeness of the log of one broker or node.

    Attributes:
        name: The log's name.
        sealed_through: The time up to which the lake has the whole log; `None` if not known.
        segments: The number of its segments in the lake.
        events: The number of hops, flows and route events in the segments.
        missing: The number of missing sequence numbers.
    """

    name: str
    sealed_through: datetime | None
    segments: int
    events: int
    missing: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a day's requests at brokers, without messages between workers.

    Attributes:
        requests: Requests of all kinds that brokers read.
        delivered: Requests that succeeded.
        unroutable: Requests without a destination.
        rejected: Requests that were not forwarded for another reason.
        failed: Requests that ended in an error, or were lost.
        canceled: Requests that were canceled.
        bytes: Bytes of the payloads.
        untagged: Requests that were read and have no tags in the log: too long, above the limit,
            or not readable. Figures by tag set do not include them.
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
    """The content of the page.

    Attributes:
        day: The day, UTC.
        brokers: The logs that the page is computed from.
        totals: The totals of the day.
        more_brokers: The number of logs that are not shown.
        closed: Whether the lake has the whole day of each log.
        late: The number of events that came after the day was closed; earlier pages lack them.
    """

    day: date
    brokers: tuple[LogCompleteness, ...] = ()
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
    names: NameOutcomes | None = None
    relays: RelayLoad | None = None
    replay: Replay | None = None
