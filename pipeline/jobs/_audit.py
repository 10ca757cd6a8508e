"""The job `audit`: whether all that was taken between two times has been accounted for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from ..report import Audit, collect_audit
from ..transforms import audit, audit_totals, log_holes
from ._reports import AUDIT_AHEAD
from ._utc import in_utc

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["run_audit"]


def run_audit(
    spark: SparkSession, lake: Lake, since: datetime | None = None, until: datetime | None = None
) -> Audit:
    """Audit a lake, and return the rows out of balance, some of the others, and what logs lack.

    Args:
        spark: The session; it counts in UTC meanwhile.
        lake: The lake.
        since: From when on flows count; from the first by default. What was in hand then shows as
            duplicated.
        until: Up to when; to the last by default. What was in hand then shows as missing, unless
            the lake knows of its end within `AUDIT_AHEAD`.

    Raises:
        PipelineError: The lake cannot be read.
        NotUtc: The session's time zone cannot be set.
    """
    with in_utc(spark):
        ahead = None if until is None else until + AUDIT_AHEAD
        flows = lake.table(spark, "flows", since=since, until=ahead)
        nodes = lake.table(spark, "dim_node")
        totals = audit_totals(audit(flows, nodes, until=until))
        holes = log_holes(
            lake.table(spark, "segments"),
            lake.table(spark, "route_events", since=since, until=until),
            lake.table(spark, "completeness"),
            since,
            until,
        )
        return collect_audit(totals, holes)
