"""The jobs `index build` and `index verify`: a table in bulk, and one held against a log."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession, functions as sf

from ..tagindex import (
    SNAPSHOT,
    Drift,
    Manifest,
    prepare,
    routes_of_events,
    routes_of_lines,
    verify,
    write_snapshot_from,
)
from ._progress import Progress, Silent, stage
from ._utc import in_utc

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["LogsOf", "run_index", "run_index_of_log", "run_verify"]

_LINES: Final = (".jsonl", ".json", ".txt")
_NEEDED: Final = ("route", "service", "tags")


class LogsOf:
    """A lake as if it had the logs of some brokers only.

    Args:
        lake: The lake.
        brokers: Their names; all of them if there is none.
    """

    def __init__(self, lake: Lake, brokers: Collection[str] = ()) -> None:
        self._lake = lake
        self._brokers = sorted(brokers)

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a table."""
        frame = self._lake.table(spark, name)
        if not self._brokers or "broker" not in frame.columns:
            return frame
        return frame.filter(sf.col("broker").isin(self._brokers))


def run_index(
    spark: SparkSession, routes: str | Path, out: str | Path, progress: Progress | None = None
) -> Manifest:
    """Build a snapshot of routes in files.

    Args:
        spark: The session.
        routes: Lines of JSON, if the name ends with `.jsonl`, `.json` or `.txt`; else Parquet with
            the columns of `ROUTE_ROWS`.
        out: The folder for the snapshot and its manifest.
        progress: Who is told.

    Raises:
        ValueError: A column is missing.
        RouteUnreadable: (In Spark's job.) A route is none.
        SnapshotError: One is there twice.
    """
    if str(routes).endswith(_LINES):
        prepared = routes_of_lines(spark, routes)
    else:
        rows = spark.read.parquet(str(routes))
        missing = [name for name in _NEEDED if name not in rows.columns]
        if missing:
            raise ValueError(f"{routes} has no column {', '.join(missing)}")
        prepared = prepare(rows, routes)
    with in_utc(spark):
        return _built(prepared, out, progress)


def run_index_of_log(
    spark: SparkSession,
    lake: Lake,
    out: str | Path,
    *,
    at: datetime | None = None,
    brokers: Collection[str] = (),
    progress: Progress | None = None,
) -> Manifest:
    """Build a snapshot of the routes that a log says there were.

    Args:
        spark: The session.
        lake: The lake.
        out: The folder for the snapshot and its manifest.
        at: When; at the end of the log by default.
        brokers: The logs of these only.
        progress: Who is told.
    """
    logs = LogsOf(lake, brokers)
    rows = routes_of_events(
        logs.table(spark, "route_events"),
        logs.table(spark, "dim_node"),
        logs.table(spark, "dim_route"),
        at,
        segments=logs.table(spark, "segments"),
    )
    # A broker's own services make themselves anew.
    theirs = rows.where("service is not null and not startswith(service, 'onward.')")
    with in_utc(spark):
        return _built(prepare(theirs), out, progress)


def _built(prepared: DataFrame, out: str | Path, progress: Progress | None) -> Manifest:
    with stage(progress or Silent(), "index") as current:
        manifest = write_snapshot_from(prepared, out)
        current.says(f"{manifest.routes:,} routes, {manifest.bitmaps:,} tags in {SNAPSHOT}")
    return manifest


def run_verify(
    spark: SparkSession,
    snapshot: str | Path,
    lake: Lake,
    *,
    at: datetime | None = None,
    brokers: Collection[str] = (),
    progress: Progress | None = None,
) -> Drift:
    """Hold a snapshot against what a log says there was.

    Args:
        spark: The session.
        snapshot: The snapshot.
        lake: The lake.
        at: When it was made; at the end of the log by default.
        brokers: The logs of these only: a snapshot is of one broker.
        progress: Who is told.
    """
    with in_utc(spark), stage(progress or Silent(), "verify") as current:
        drift = verify(spark, snapshot, LogsOf(lake, brokers), at)
        current.says(f"{drift.routes:,} routes")
    return drift
