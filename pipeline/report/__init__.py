"""Reports as one page to look at.

`Page` is what it shows, in plain values; `collect_page` fills it from the tables of a day, never
more than the top of each; `render` makes one HTML file of it.
"""

from __future__ import annotations

from ._page import (
    Anomalies,
    AnomalyRow,
    Audit,
    AuditRow,
    Broker,
    Burn,
    Churn,
    ChurnRow,
    Demand,
    DemandRow,
    HotKey,
    Latency,
    Line,
    Matrix,
    Page,
    PathRow,
    Replay,
    ReplayRoute,
    ReplayRow,
    Shard,
    Shards,
    Totals,
)
from ._render import render

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
    "render",
]
