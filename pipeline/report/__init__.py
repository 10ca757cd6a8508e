"""The page of a day's reports.

`Page` holds the content as plain values; `collect_page` fills it from the top rows of the tables of
a day; `render` turns it into one HTML file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._page import LogCompleteness, Page, Totals
from ._page_audit import Audit, AuditRow, Hole
from ._page_names import NameOutcomes, NameRow
from ._page_relays import RelayLoad, RelayRow, RelayTotal
from ._page_requests import Burn, Demand, DemandRow, Latency, LatencyLine, Matrix
from ._page_routes import (
    Anomalies,
    AnomalyRow,
    Churn,
    ChurnRow,
    HotKey,
    PathRow,
    Replay,
    ReplayRoute,
    ReplayRow,
    Shard,
    Shards,
)
from ._render import render
from ._text import utc

if TYPE_CHECKING:
    from ._collect import Sources, collect_audit, collect_page
    from ._names import Names

__all__ = [
    "Anomalies",
    "AnomalyRow",
    "Audit",
    "AuditRow",
    "Burn",
    "Churn",
    "ChurnRow",
    "Demand",
    "DemandRow",
    "Hole",
    "HotKey",
    "Latency",
    "LatencyLine",
    "LogCompleteness",
    "Matrix",
    "NameOutcomes",
    "NameRow",
    "Names",
    "Page",
    "PathRow",
    "RelayLoad",
    "RelayRow",
    "RelayTotal",
    "Replay",
    "ReplayRoute",
    "ReplayRow",
    "Shard",
    "Shards",
    "Sources",
    "Totals",
    "collect_audit",
    "collect_page",
    "render",
    "utc",
]


def __getattr__(name: str) -> Any:
    # A page can be made and rendered without Spark; only its collection needs Spark.
    if name in {"Sources", "collect_audit", "collect_page"}:
        from . import _collect

        return getattr(_collect, name)
    if name == "Names":
        from ._names import Names

        return Names
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
