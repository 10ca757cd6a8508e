"""The job `audit`: accounts for the requests that were read between two times."""

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
    """Audit a lake, and return its rows, those out of balance first, and the holes of its logs.

    Args:
        spark: The session; its time zone is UTC during the job.
        lake: The lake.
        since: The start of the flows that count; the first by default. Requests in progress at
            that time count as duplicated.
        until: The end of the flows that count; the last by default. Requests in progress at that
            time count as missing, unless the lake has their end within `AUDIT_AHEAD`.

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
