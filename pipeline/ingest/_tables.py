"""Writes what a batch adds to the tables of a lake, each into folders of the batch alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, functions as sf

from .._schema import LAKE_TABLES, PARTITIONS
from ..source import arrow_schema, columns_of
from ._lake import once
from ._parts import LakeFiles
from ._plan import Batch
from ._state import BrokerState

__all__ = ["TIMES", "TableWriter", "use_utc"]

TIMES: Final = {"hops": "ts", "flows": "window_start", "route_events": "ts"}
"""The tables of events, each with the column that says of which day and hour a row is."""

_COUNTS: Final = {"hops": "hops", "flows": "flows", "route_events": "events"}
_DIMENSIONS: Final = {
    "dim_tagset": ("tagsets", "tagset_id"),
    "dim_node": ("nodes", "node"),
    "dim_route": ("routes", "route_id"),
}

OPEN_WRITERS: Final = "16"
"""Files that a task has open at once: with more hours than that in a batch, rows are sorted."""

_PLAIN: Final = {
    f"parquet.enable.dictionary#{column}": "false"
    for column in ("seq", "ts", "trace_id", "shard_hash", "latency_us")
}
"""Columns whose values hardly ever come twice: a dictionary of them is made and thrown away."""


def use_utc(spark: SparkSession) -> None:
    """Have a session, the batch's own, write days and hours of UTC, and not sort for that."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", OPEN_WRITERS)


class TableWriter:
    """Writes one batch.

    Args:
        spark: The batch's session.
        files: The lake.
        log: The directory of logs.
        number: The batch's number.
        tell: Called with what is done next.
    """

    def __init__(
        self,
        spark: SparkSession,
        files: LakeFiles,
        log: Path,
        number: int,
        tell: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._files = files
        self._log = log
        self._number = number
        self._tell = tell
        self.dropped: Mapping[date, int] = {}
        """How many events were of days that had been dropped, and were left out; by day."""

    def write(self, batch: Batch, closed: date | None) -> Mapping[date, int]:
        """Write all tables but `completeness`; what an earlier try wrote is replaced.

        Returns:
            How many events came late, by day.
        """
        for table, when in TIMES.items():
            if rows := batch.total(_COUNTS[table]):
                self._tell(f"writing {table}: {rows} rows")
                self._write_events(table, when, batch.paths)
        for table, (source, key) in _DIMENSIONS.items():
            if batch.rows:
                self._tell(f"writing {table}")
                self._write_dimension(table, source, key, batch.paths)
        self.dropped = self._leave_out()
        segments = [*batch.rows, *batch.damaged]
        self._tell(f"writing segments: {len(segments)} rows")
        self.write_small("segments", segments)
        return self._write_late(closed)

    def write_completeness(self, brokers: Mapping[str, BrokerState]) -> None:
        """Write how far every broker's log is in the lake, as of this batch."""
        self._tell(f"writing completeness: {len(brokers)} rows")
        rows = [_completeness(name, broker) for name, broker in sorted(brokers.items())]
        self.write_small("completeness", rows)

    def write_small(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Write a table of few rows, without Spark."""
        folder = self._files.path / table / f"batch={self._number}"
        shutil.rmtree(folder, ignore_errors=True)
        if not rows:
            return
        folder.mkdir(parents=True)
        schema = arrow_schema(columns_of(LAKE_TABLES[table]))
        path = folder / "part-00000.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, compression="zstd")

    # --- events ---------------------------------------------------------------------------

    def _read(self, table: str, paths: Sequence[str]) -> DataFrame:
        reader = self._spark.read.format("onward").option("table", table)
        return reader.option("segments", "\n".join(paths)).load(str(self._log))

    def _write_events(self, table: str, when: str, paths: Sequence[str]) -> None:
        keys: dict[str, Column] = {
            "date": sf.to_date(when),
            "hour": sf.hour(when),
            "batch": sf.lit(self._number).cast("bigint"),
        }
        columns = PARTITIONS[table]
        frame = self._read(table, paths).withColumns({name: keys[name] for name in columns})
        self._save(frame, table)

    def _save(self, frame: DataFrame, table: str) -> None:
        (
            frame.write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("compression", "zstd")
            .options(**_PLAIN)
            .partitionBy(*PARTITIONS[table])
            .parquet(str(self._files.path / table))
        )

    def _write_dimension(self, table: str, source: str, key: str, paths: Sequence[str]) -> None:
        columns = list(columns_of(LAKE_TABLES[table]))
        path = self._files.path / table / f"batch={self._number}"
        frame = once(self._read(source, paths).select(*columns), key)
        frame.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(str(path))

    def _leave_out(self) -> Mapping[date, int]:
        """Remove what was written of days that had been dropped: half a day would be wrong."""
        counts: dict[date, int] = {}
        for day in sorted(self._files.dropped()):
            for table in TIMES:
                for part in self._files.all_parts(table, day, day):
                    if part.batch == self._number:
                        counts[day] = counts.get(day, 0) + _rows_in(part.path)
                        shutil.rmtree(part.path)
        return counts

    # --- what came late -------------------------------------------------------------------

    def _write_late(self, closed: date | None) -> Mapping[date, int]:
        """Write which events of this batch are of days that were closed."""
        frames = [] if closed is None else [*self._late(closed)]
        if not frames:
            return {}
        self._tell(f"writing late: events of {closed} and before")
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionAll(other)
        self._save(frame, "late")
        counts: dict[date, int] = {}
        for part in self._files.all_parts("late", None, closed):
            if part.batch == self._number and part.day is not None:
                counts[part.day] = _rows_in(part.path)
        return counts

    def _late(self, closed: date) -> Sequence[DataFrame]:
        found: list[DataFrame] = []
        for table, when in TIMES.items():
            parts = self._files.all_parts(table, None, closed)
            paths = [str(part.path) for part in parts if part.batch == self._number]
            if paths:
                frame = self._spark.read.schema(LAKE_TABLES[table]).parquet(*paths)
                found.append(
                    frame.select(
                        "broker",
                        "epoch",
                        "seq",
                        sf.col(when).alias("ts"),
                        sf.lit(table).alias("source"),
                        sf.to_date(when).alias("day"),
                        sf.to_date(when).alias("date"),
                        sf.lit(self._number).cast("bigint").alias("batch"),
                    )
                )
        return found


def _rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


def _completeness(name: str, broker: BrokerState) -> dict[str, Any]:
    epoch, last = broker.last
    return {
        "broker": name,
        "log_id": broker.log_id,
        "sealed_through": datetime(1970, 1, 1, tzinfo=UTC)
        + timedelta(microseconds=broker.sealed_through),
        "last_epoch": epoch,
        "last_seq": last,
        "segments": broker.segments,
        "events": broker.events,
        "missing": broker.missing,
    }
