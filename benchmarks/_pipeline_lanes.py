"""The lanes of the pipeline's benchmark: each query on Spark and on another engine.

The answers of both engines must be equal. The comparison covers all columns of whole numbers and
texts, in any order of rows. Columns of fractions are left out, as they are computed from the
others.
"""

# PySpark, pyarrow and DuckDB are annotated in part, as in the pipeline itself: see pyproject.toml.
# pyright: reportUnknownMemberType=none, reportUnknownVariableType=none
# pyright: reportUnknownArgumentType=none, reportUnknownLambdaType=none

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import duckdb
import psutil
import pyarrow as pa
from pyroaring import BitMap
from pyspark.sql import DataFrame, SparkSession, functions as sf

from onward.pipeline.ingest import Lake, ingest
from onward.pipeline.source import decode
from onward.pipeline.transforms import (
    bucket_column,
    hot_keys,
    latency_histogram,
    paths,
    traffic_matrix,
)
from onward.protocol.broker import portable_bitmap
from onward.protocol.eventlog import read_segment

__all__ = ["Compared", "Lane", "Timed", "Took", "compared", "lanes_of", "noop", "timed"]

FAILED: Final = "(5, 6, 7, 8, 10)"

MATRIX: Final = f"""
select date_trunc('minute', window_start) as minute, origin_node, dest_node, tagset_id,
  sum(if(outcome = 2, frames, 0))::bigint as frames,
  sum(if(outcome = 2, bytes, 0))::bigint as bytes,
  sum(if(outcome in {FAILED}, frames, 0))::bigint as failed
from flows where kind <> 7 and (outcome = 2 or outcome in {FAILED})
group by all having frames > 0 or failed > 0
"""

HISTOGRAM: Final = """
with shifted as (
  select date_trunc('minute', ts) as minute, dest_node, tagset_id, latency_us, weight,
    greatest(0, floor(log2(latency_us + 0.5))::int - 4) as shift
  from hops where outcome = 3 or (kind = 1 and outcome in (2, 4)))
select minute, dest_node, tagset_id, (shift * 16 + (latency_us >> shift))::int as bucket,
  sum(weight)::bigint as n
from shifted group by all
"""

MATRIX_WHOLE: Final = """
select origin_node, dest_node, sum(frames)::bigint as frames, sum(bytes)::bigint as bytes
from flows group by all
"""

HISTOGRAM_WHOLE: Final = """
with shifted as (
  select dest_node, latency_us, weight,
    greatest(0, floor(log2(latency_us + 0.5))::int - 4) as shift
  from hops)
select dest_node, (shift * 16 + (latency_us >> shift))::bigint as bucket, sum(weight)::bigint as n
from shifted group by all
"""

HOT_KEYS: Final = """
with counted as (
  select date_trunc('hour', ts) as hour, tagset_id, shard_hash, sum(weight)::bigint as frames
  from hops where shard_hash <> 0 group by all)
select * from counted
qualify row_number() over (
  partition by hour, tagset_id order by frames desc, shard_hash) <= 20
"""

PATHS: Final = """
with stitched as (
  select trace_id, list(dest_node order by hop, dest_node) as path, max(weight) as weight
  from hops where kind = 1 and tagset_id = 0 group by trace_id)
select path, sum(weight)::bigint as traces from stitched
group by path order by traces desc, path limit 1000
"""


@dataclass
class Lane:
    """A query that is measured and compared.

    Attributes:
        name: The name in tables.
        rows: The number of rows it reads.
        spark: Runs it on Spark.
        other: Runs it on the other engine; `None` if none can.
        beside: The name of the other engine.
        answer: Returns the answer of Spark; `None` if there is nothing to compare.
        other_answer: Returns the answer of the other engine.
        target: Million rows a second on Spark when warm; `None`: no target.
    """

    name: str
    rows: int
    spark: Callable[[], object]
    other: Callable[[], object] | None = None
    beside: str = "DuckDB"
    answer: Callable[[], Any] | None = None
    other_answer: Callable[[], Any] | None = None
    target: float | None = None


@dataclass(frozen=True)
class Took:
    """The time of one run, in seconds.

    Attributes:
        wall: Wall time.
        cores: CPU time of all processes: this one, the JVM and its Python.
    """

    wall: float
    cores: float


@dataclass
class Timed:
    """The times of a lane: of the first run, and of each later run.

    Attributes:
        cold: The first run on Spark.
        warm: The later runs on Spark.
        other: The later runs on the other engine.
    """

    cold: Took
    warm: list[Took] = field(default_factory=list[Took])
    other: list[Took] = field(default_factory=list[Took])


def timed(lane: Lane, runs: int) -> Timed:
    """Run a lane once, then `runs` times; the other engine takes turns with Spark.

    With `runs` 0 the first run also counts as a later run.
    """
    found = Timed(_took(lane.spark))
    first = None if lane.other is None else _took(lane.other)
    if not runs:
        return Timed(found.cold, [found.cold], [] if first is None else [first])
    for _ in range(runs):
        found.warm.append(_took(lane.spark))
        if lane.other is not None:
            found.other.append(_took(lane.other))
    return found


def _took(work: Callable[[], object]) -> Took:
    cores, began = _cores(), time.perf_counter()
    work()
    return Took(time.perf_counter() - began, _cores() - cores)


def _cores() -> float:
    """Return the CPU seconds of this process and its descendants.

    The CPU time of an ended process counts for the parent that waited for it. Spark's Python waits
    for its workers, which start and end within a lane. Orphans stay as ended children of this
    process.
    """
    _adopt()
    this, total = psutil.Process(), 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@functools.cache
def _adopt() -> None:
    """Make this process the parent of orphaned descendants, on Linux.

    Spark ends its Python after an idle minute. Without this the CPU time of its workers would be
    lost.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_SET_CHILD_SUBREAPER: Final = 36


def noop(frame: DataFrame) -> None:
    """Make Spark compute every row and keep none."""
    frame.write.format("noop").mode("overwrite").save()


@dataclass(frozen=True)
class Compared:
    """The result of comparing the answers of both engines.

    Attributes:
        rows: The number of rows.
        wrong: The difference; `None` if there is none.
    """

    rows: int
    wrong: str | None


def compared(lane: Lane) -> Compared | None:
    """Compare the answers of both engines, if there are two."""
    if lane.answer is None or lane.other_answer is None:
        return None
    answer = lane.answer()
    ours, theirs = _digest(answer), _digest(lane.other_answer())
    differ = f"{lane.name}: Spark {ours}, {lane.beside} {theirs}"
    return Compared(len(answer), None if ours == theirs else differ)


def _digest(table: Any) -> str:
    """Return the number of rows and a hash of them that does not depend on their order."""
    columns = [
        name
        for name in table.column_names
        if not pa.types.is_floating(table.schema.field(name).type)
    ]
    rows = [_plain(table.column(name)) for name in sorted(columns)]
    lines = sorted(zip(*rows, strict=True))
    return f"{len(lines)} rows {hashlib.sha256(repr(lines).encode()).hexdigest()[:12]}"


def _plain(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        # Both are in UTC, but only one has it in its type.
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    return cast("list[Any]", column.to_pylist())


class Duck:
    """DuckDB over the same files.

    Args:
        threads: The most threads it may use.
        tables: The files of each table.
    """

    def __init__(self, threads: int, tables: Mapping[str, Sequence[str]]) -> None:
        self.connection = duckdb.connect()
        self.connection.execute(f"set threads = {threads}; set timezone = 'UTC'")
        for name, files in tables.items():
            listed = ", ".join(f"'{file}'" for file in files)
            self.connection.execute(
                f"create view {name} as select * from read_parquet([{listed}], "
                "hive_partitioning = false)"
            )

    def run(self, query: str) -> None:
        """Run a query, and store the answer in a table."""
        self.connection.execute(f"create or replace temp table answer as {query}")

    def answer(self, query: str) -> Any:
        """Run a query, and return the answer."""
        return self.connection.sql(query).to_arrow_table()


def _parquet(folder: Path) -> list[str]:
    return sorted(map(str, folder.rglob("*.parquet")))


def lanes_of(spark: SparkSession, folder: Path, threads: int, hops: int, flows: int) -> list[Lane]:
    """Return the lanes that read the logs and the lake; `ingest` is the first.

    Args:
        spark: The session.
        folder: The folder of `log` and `flows`; lakes are made in it.
        threads: The most threads of the other engine.
        hops: The number of hops in the log.
        flows: The number of rows in the table of flows.
    """
    log = folder / "log"
    ducks: dict[str, Duck] = {}
    lakes = iter(folder / f"lake-{number}" for number in range(1000))

    def take_in() -> None:
        lake = next(lakes)
        ingest(spark, log, lake, lake.with_name(lake.name + "-checkpoint"))

    lake = Lake(folder / "lake-0")

    def duck() -> Duck:
        if "" not in ducks:
            ducks[""] = Duck(
                threads, {"hops": lake.files("hops"), "flows": _parquet(folder / "flows")}
            )
        return ducks[""]

    def hops_of() -> DataFrame:
        return lake.table(spark, "hops")

    def flows_of() -> DataFrame:
        from onward.pipeline import LAKE_TABLES

        return spark.read.schema(LAKE_TABLES["flows"]).parquet(str(folder / "flows"))

    def scan(columns: str) -> None:
        reader = spark.read.format("onward").option("table", "hops")
        noop((reader.option("columns", columns) if columns else reader).load(str(log)))

    def decode_all(columns: str) -> None:
        for path in sorted(log.rglob("*.seg")):
            segment = read_segment(path.read_bytes())
            decode("hops", columns.split(",") if columns else None, segment, str(path))

    def reported(
        name: str, rows: int, frame: Callable[[], DataFrame], query: str, target: float
    ) -> Lane:
        return Lane(
            name,
            rows,
            lambda: noop(frame()),
            lambda: duck().run(query),
            answer=lambda: frame().toArrow(),
            other_answer=lambda: duck().answer(query),
            target=target,
        )

    return [
        Lane("ingest", hops, take_in, lambda: _ingest_alone(log, folder / "alone"), target=1.0),
        Lane(
            "scan, 3 columns",
            hops,
            lambda: scan(THREE),
            lambda: decode_all(THREE),
            ALONE,
            target=3.5,
        ),
        Lane("scan, all columns", hops, lambda: scan(""), lambda: decode_all(""), ALONE),
        reported("matrix", flows, lambda: traffic_matrix(flows_of()), MATRIX, 5.0),
        reported("matrix, whole", flows, lambda: _matrix_whole(flows_of()), MATRIX_WHOLE, 5.0),
        reported("latency", hops, lambda: latency_histogram(hops_of()), HISTOGRAM, 8.0),
        reported("latency, whole", hops, lambda: _latency_whole(hops_of()), HISTOGRAM_WHOLE, 8.0),
        reported("hot keys", hops, lambda: hot_keys(hops_of()), HOT_KEYS, 2.5),
        reported(
            "paths",
            hops * 3 // 10,
            lambda: paths(hops_of()).select("path", "traces"),
            PATHS,
            0.7,
        ),
    ]


def _matrix_whole(flows: DataFrame) -> DataFrame:
    counted = flows.groupBy("origin_node", "dest_node")
    return counted.agg(sf.sum("frames").alias("frames"), sf.sum("bytes").alias("bytes"))


def _latency_whole(hops: DataFrame) -> DataFrame:
    bucket = bucket_column(sf.col("latency_us")).cast("bigint").alias("bucket")
    return hops.groupBy("dest_node", bucket).agg(sf.sum("weight").alias("n"))


THREE: Final = "broker,ts,latency_us"
ALONE: Final = "one process"


def _ingest_alone(log: Path, out: Path) -> None:
    """Ingest with DuckDB in one process, without the guarantees of `ingest`."""
    out.mkdir(exist_ok=True)
    connection = duckdb.connect()
    for number, path in enumerate(sorted(log.rglob("*.seg"))):
        segment = read_segment(path.read_bytes())
        for table in ("hops", "flows"):
            made = pa.table(decode(table, None, segment, str(path)))
            connection.register("made", made)
            connection.execute(
                f"copy made to '{out}/{table}-{number}.parquet' (codec zstd, format parquet)"
            )
            connection.unregister("made")


# --- the index --------------------------------------------------------------------------------


def bitmaps_alone(postings: Path) -> dict[tuple[str, str], bytes]:
    """Make the tag index in one process: lists with DuckDB, and bitmaps of them."""
    rows: Any = duckdb.connect().execute(
        "select key, value, list(number order by number) from (select unnest(keys) as key, "
        f"unnest(values) as value, number from '{postings}/*.parquet') group by all"
    )
    made: dict[tuple[str, str], bytes] = {}
    while batch := rows.fetchmany(10_000):
        for key, value, numbers in batch:
            made[key, value] = portable_bitmap(BitMap(numbers))
    return made
