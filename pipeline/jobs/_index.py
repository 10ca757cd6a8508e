"""The jobs `index build` and `index verify`: build a snapshot, and compare one with a log."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession, functions as sf

from ...protocol import counted
from .._errors import LakeBehind, NoSuchLog
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
from ._reports import SILENT_AFTER
from ._utc import in_utc

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["LogsOf", "run_index", "run_index_of_log", "run_verify"]

_LINES: Final = (".jsonl", ".json", ".txt")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEEDED: Final = ("route", "service", "tags")


class LogsOf:
    """A view of a lake, limited to the logs of some brokers.

    Args:
        lake: The lake.
        brokers: The names of the brokers; empty for all.
    """

    def __init__(self, lake: Lake, brokers: Collection[str] = ()) -> None:
        self._lake = lake
        self._brokers = sorted(brokers)

    def check(self, spark: SparkSession, at: datetime | None = None) -> datetime | None:
        """Check that the logs exist and reach up to a time; return the time that all reach.

        A log that ends more than a day before the newest has ended, and is ignored.

        Args:
            spark: The session.
            at: The time; `None` for the end of the logs.

        Returns:
            The end of the log that is the furthest behind; `None` if there is no log.

        Raises:
            NoSuchLog: The lake has no log of a broker.
            LakeBehind: A log ends before the time.
        """
        # The table has one row for each log.
        sealed = sf.unix_micros("sealed_through").alias("micros")
        rows = self._lake.table(spark, "completeness").select("broker", sealed).collect()
        ends = {str(row.broker): _EPOCH + timedelta(microseconds=row.micros) for row in rows}
        unknown = set(self._brokers) - set(ends)
        if unknown:
            raise NoSuchLog(unknown, ends)
        chosen = [(end, name) for name, end in ends.items() if name in (self._brokers or ends)]
        if not chosen:
            return None
        newest = max(end for end, _ in chosen)
        through, behind = min(each for each in chosen if each[0] >= newest - SILENT_AFTER)
        if at is not None and at > through:
            raise LakeBehind(at, behind, through)
        return through

    def table(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a table of the lake, limited to the brokers."""
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
        progress: The receiver of the progress.

    Raises:
        ValueError: A column is missing.
        RouteUnreadable: (In Spark's job.) A line or a row is not a route.
        SnapshotError: A route occurs twice.
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
    """Build a snapshot of the routes that the logs of a lake have at a time.

    Args:
        spark: The session.
        lake: The lake.
        out: The folder for the snapshot and its manifest.
        at: The time; the end of the log by default.
        brokers: The brokers of the logs; all by default.
        progress: The receiver of the progress.

    Raises:
        NoSuchLog: The lake has no log of a broker.
        LakeBehind: A log ends before the time.
    """
    logs = LogsOf(lake, brokers)
    logs.check(spark, at)
    rows = routes_of_events(
        logs.table(spark, "route_events"),
        logs.table(spark, "dim_node"),
        logs.table(spark, "dim_route"),
        at,
        segments=logs.table(spark, "segments"),
    )
    # A broker registers its own services itself.
    theirs = rows.where("service is not null and not startswith(service, 'onward.')")
    with in_utc(spark):
        return _built(prepare(theirs), out, progress)


def _built(prepared: DataFrame, out: str | Path, progress: Progress | None) -> Manifest:
    with stage(progress or Silent(), "index") as current:
        manifest = write_snapshot_from(prepared, out)
        routes, tags = manifest.routes, manifest.bitmaps
        has = f"{counted(routes, 'route', ',')}, {counted(tags, 'tag', ',')}"
        current.says(f"{has} in {SNAPSHOT}")
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
    """Compare a snapshot with the routes that a log has at a time.

    Args:
        spark: The session.
        snapshot: The snapshot.
        lake: The lake.
        at: The time of the snapshot; the end of the log by default.
        brokers: The brokers of the logs; all by default. A snapshot is of one broker.
        progress: The receiver of the progress.

    Returns:
        The differences, and the time that all logs reach; later changes are not known.

    Raises:
        NoSuchLog: The lake has no log of a broker.
        LakeBehind: A log ends before the time.
    """
    logs = LogsOf(lake, brokers)
    with in_utc(spark), stage(progress or Silent(), "verify") as current:
        through = logs.check(spark, at)
        drift = replace(verify(spark, snapshot, logs, at), through=through)
        current.says(counted(drift.routes, "route", ","))
    return drift
