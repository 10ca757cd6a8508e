"""The rehearsal on Spark: from hops and their tag sets to the sums of both sides."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as sf

from ...protocol.eventlog import Kind, Outcome
from .._schema import REPORT_TABLES
from ._gates import MIN_SAMPLES_EACH, ReplayTotals
from ._memo import Said
from ._questions import ASKED, MethodSet
from ._rehearsal import Rehearsal, RehearsalPlan
from ._sums import SUMS, FrameBatch
from ._tables import open_table, shown_path

__all__ = ["MAX_SENT_BYTES", "MAX_SENT_SETS", "ReplayResult", "frames_of", "replay"]

MAX_SENT_SETS: Final = 65_536
"""Tag sets up to which their tags are sent to the executors once. Above it they are joined to each
frame, which takes half as much core time again."""

MAX_SENT_BYTES: Final = 16 * 1024 * 1024
"""The same limit for the bytes of the tags."""

_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_MOST_ROWS: Final = 1_000_000
_NO_LIMIT: Final = str(2**31 - 1)

_COUNTED: Final = (
    "frames",
    "moved",
    "lost",
    "gained",
    "nowhere",
    "unknown",
    "own",
    "stale",
    "failed",
)
_SUMMED: Final = (*_COUNTED, "samples", "frames_old", "frames_new")


class ReplayResult:
    """The result of a rehearsal. Close it, or use it in a `with`: Spark keeps its sums.

    Attributes:
        summary: The report `replay_summary`: the frames of each tag set that move.
        routes: The report `replay_routes`: the frames that each route gets.
        totals: The totals of all tag sets.
    """

    def __init__(self, sums: DataFrame) -> None:
        self._sums = sums
        by_tagset = _by_tagset(sums)
        self.totals: Final = _totals(by_tagset)
        self.summary: Final = by_tagset.where("frames > 0").select(*_columns("replay_summary"))
        self.routes: Final = (
            sums.where("route_id is not null")
            .groupBy("route_id")
            .agg(sf.sum("frames_old").alias("frames_old"), sf.sum("frames_new").alias("frames_new"))
            .select(*_columns("replay_routes"))
        )

    def close(self) -> None:
        """Release the sums that Spark keeps; a later use of the tables computes them again."""
        self._sums.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def replay(
    spark: SparkSession,
    hops: DataFrame,
    tagsets: DataFrame,
    table: str | Path,
    candidate: str | Path,
    *,
    shard_old: str | None = None,
    shard_new: str | None = None,
    method_old: str | None = None,
    method_new: str | None = None,
) -> ReplayResult:
    """Resolve logged requests twice: with the current and with the candidate table and methods.

    Only requests at brokers count, each of them once, times its weight. The driver and the
    executors must see the files of the tables: at these paths, or by their names if Spark was
    given them (`--files`). See `Resolver` for methods that depend on load, latency or state.

    Args:
        spark: The session.
        hops: The table `hops`, of any time.
        tagsets: The table `dim_tagset`.
        table: The current table: a snapshot, or lines of JSON.
        candidate: The candidate table.
        shard_old: The current `ChoiceOptions.shard_method`, for requests that name no method.
        shard_new: The candidate; `None` for no change.
        method_old: The current `ChoiceOptions.method`, for requests that name no method.
        method_new: The candidate; `None` for no change.

    Raises:
        TableUnreadable: A table is damaged. The error for a table that only the executors see is
            that of Spark's job; see `known_error`.
        BadMethod: A method is not installed.
    """
    plan = RehearsalPlan(
        shown_path(table),
        shown_path(candidate),
        shard_old,
        shard_new or shard_old,
        method_old,
        method_new or method_old,
    )
    for path in (plan.table, plan.candidate):
        if Path(path).exists():
            open_table(path)
    MethodSet(plan.method_old, plan.shard_old)
    MethodSet(plan.method_new, plan.shard_new)
    said = _said(tagsets)
    frames = frames_of(hops, tagsets if said is None else None)
    sums = (
        frames.mapInArrow(partial(_rehearse, plan, said), SUMS)
        .groupBy("tagset_id", "route_id")
        .agg(
            *(sf.sum(name).alias(name) for name in _SUMMED),
            # The counts of candidates are the same in all batches.
            sf.max("routes_old").alias("routes_old"),
            sf.max("routes_new").alias("routes_new"),
        )
    )
    with _unmeasured(spark, said):
        sums = sums.persist()
        try:
            return ReplayResult(sums)
        except BaseException:
            sums.unpersist()
            raise


def _said(tagsets: DataFrame) -> Said | None:
    """Return the columns `ASKED` of all tag sets; `None` above the limits for the executors."""
    asked = tagsets.select("tagset_id", *ASKED)
    size = asked.agg(sf.count("*"), sf.sum(sf.octet_length("text"))).first()
    if size is None or size[0] > MAX_SENT_SETS or (size[1] or 0) > MAX_SENT_BYTES:
        return None
    return {tagset: tuple(words) for tagset, *words in asked.collect()}


@contextmanager
def _unmeasured(spark: SparkSession, said: Said | None) -> Generator[None]:
    """Limit batches of numbers by their rows alone.

    Spark adds up the bytes of a batch for each row, which takes longer than to write the row.
    """
    rows, size = (spark.conf.get(name, None) for name in (_BATCH_ROWS, _BATCH_BYTES))
    if said is None or rows is None or not 0 < int(rows) <= _MOST_ROWS:
        yield
        return
    try:
        spark.conf.set(_BATCH_BYTES, _NO_LIMIT)
    except PySparkException:
        # The session does not permit the change.
        yield
        return
    try:
        yield
    finally:
        if size is None:
            spark.conf.unset(_BATCH_BYTES)
        else:
            spark.conf.set(_BATCH_BYTES, size)


def frames_of(hops: DataFrame, tagsets: DataFrame | None = None) -> DataFrame:
    """Return the requests among hops: the columns `FRAMES`.

    The legs of a multicast are left out, as the request itself is included. Invalid requests are
    left out too. Requests without tags in the log are included, with tag set 0.

    Args:
        hops: The table `hops`.
        tagsets: The table `dim_tagset`; without it the columns `ASKED` are left out.
    """
    frames = (
        hops.where(sf.col("kind").between(int(Kind.RESPONSE), int(Kind.PUSH)))
        .where(~sf.col("outcome").isin(int(Outcome.FORWARD), int(Outcome.INVALID)))
        .select(
            # 0 stands for tags that the log had no room for.
            sf.coalesce(sf.col("tagset_id"), sf.lit(0)).alias("tagset_id"),
            sf.col("epoch").cast("bigint"),
            sf.col("seq"),
            sf.coalesce(sf.col("shard_hash"), sf.lit(0)).cast("bigint").alias("shard_hash"),
            sf.col("flags").cast("bigint"),
            sf.col("weight"),
            (sf.col("outcome") == int(Outcome.DELIVER)).cast("bigint").alias("delivered"),
        )
    )
    if tagsets is None:
        return frames
    asked = tagsets.dropDuplicates(["tagset_id"]).select("tagset_id", *ASKED)
    return frames.join(sf.broadcast(asked), "tagset_id", "left")


def _rehearse(
    plan: RehearsalPlan, said: Said | None, batches: Iterator[FrameBatch]
) -> Iterator[FrameBatch]:
    rehearsal = _rehearsal(plan)
    for batch in batches:
        if batch.num_rows:
            yield from rehearsal.sums(batch, said)


_last: tuple[tuple[object, ...], Rehearsal] | None = None


def _rehearsal(plan: RehearsalPlan) -> Rehearsal:
    """Return the rehearsal of this process, which is kept for the next task with the same plan.

    A replaced file of a table makes a new rehearsal.
    """
    global _last  # noqa: PLW0603 - a process of Spark does one task at a time
    tables = open_table(plan.table), open_table(plan.candidate)
    key = (plan, *map(id, tables))
    if _last is None or _last[0] != key:
        _last = key, Rehearsal(plan)
    return _last[1]


def _by_tagset(sums: DataFrame) -> DataFrame:
    def skew(side: str) -> Column:
        most, total = sf.max(f"frames_{side}"), sf.sum(f"frames_{side}")
        routes = sf.max(f"routes_{side}")
        return sf.coalesce(most * routes / sf.nullif(total, sf.lit(0)), sf.lit(0.0))

    return (
        sums.groupBy("tagset_id")
        .agg(
            *(sf.sum(name).alias(name) for name in (*_COUNTED, "samples")),
            skew("old").alias("skew_old"),
            skew("new").alias("skew_new"),
            sf.max("routes_old").alias("routes_old"),
            sf.max("routes_new").alias("routes_new"),
        )
        .withColumn(
            "moved_ratio",
            sf.coalesce(sf.col("moved") / sf.nullif(sf.col("frames"), sf.lit(0)), sf.lit(0.0)),
        )
    )


def _totals(by_tagset: DataFrame) -> ReplayTotals:
    def enough(side: str) -> Column:
        routes = sf.col(f"routes_{side}")
        return (routes > 0) & (sf.col("samples") >= routes * MIN_SAMPLES_EACH)

    def greatest(side: str) -> Column:
        skew = sf.col(f"skew_{side}")
        return sf.max(sf.when(enough(side), skew).otherwise(0.0)).alias(f"skew_{side}")

    row = by_tagset.agg(
        *(sf.sum(name).alias(name) for name in _COUNTED),
        sf.count_if(sf.col("tagset_id") != 0).alias("tagsets"),
        sf.count_if(enough("new")).alias("judged"),
        greatest("old"),
        greatest("new"),
    ).first()
    # The sums of no frames are null.
    said = {} if row is None else row.asDict()
    counts = {name: int(said.get(name) or 0) for name in (*_COUNTED, "tagsets", "judged")}
    return ReplayTotals(
        **counts,
        skew_old=float(said.get("skew_old") or 0.0),
        skew_new=float(said.get("skew_new") or 0.0),
    )


def _columns(report: str) -> list[Column]:
    """Return the columns of a report, cast to their declared types."""
    declared = [column.split() for column in REPORT_TABLES[report].split(",")]
    return [sf.col(name).cast(kind).alias(name) for name, kind in declared]
