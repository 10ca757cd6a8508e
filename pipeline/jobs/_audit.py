"""The job `audit`: whether all that was taken between two times has been accounted for."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from ..report import Audit, collect_audit
from ..transforms import audit, audit_totals

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["run_audit"]


def run_audit(
    spark: SparkSession, lake: Lake, since: datetime | None = None, until: datetime | None = None
) -> Audit:
    """Audit the flows of a lake, and return the rows out of balance, and some of the others.

    Args:
        spark: The session.
        lake: The lake.
        since: From when on flows count; from the first by default. What was in hand then shows as
            duplicated.
        until: Up to when; to the last by default. What was in hand then shows as missing.
    """
    flows = lake.table(spark, "flows", since=since, until=until)
    nodes = lake.table(spark, "dim_node")
    return collect_audit(audit_totals(audit(flows, nodes)))
