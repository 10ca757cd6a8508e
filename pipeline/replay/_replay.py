"""The rehearsal on Spark: hops and their tag sets in, sums of both sides out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark.sql import Column, DataFrame, SparkSession, functions as sf

from ...protocol.eventlog import Kind, Outcome
from .._schema import REPORT_TABLES
from ._gates import MIN_FRAMES_EACH, ReplayTotals
from ._questions import MethodSet
from ._rehearsal import FRAMES, Plan, Rehearsal
from ._sums import SUMS, Batch
from ._tables import open_table, shown_path

__all__ = ["ReplayResult", "frames_of", "replay"]

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
_SUMMED: Final = (*_COUNTED, "frames_old", "frames_new")


class ReplayResult:
    """What would happen. Close it, or use it in a `with`: Spark keeps what it was made of.

    Attributes:
        summary: The report `replay_summary`: for each tag set what moves.
        routes: The report `replay_routes`: for each route what it gets.
        totals: All of it in a few numbers.
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
        """Let go of what Spark keeps; the tables can still be made, by doing all again."""
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
    """Resolve logged requests twice, as it is and as it would be.

    Only what brokers recorded counts, each request once and as often as its weight says. The
    tables are read where the frames are: drivers and executors must see the files, at these
    paths, or under their names if Spark was given them (`--files`). What is chosen by load,
    latency or memory is chosen as `Resolver` says.

    Args:
        spark: The session.
        hops: The table `hops`, of any time.
        tagsets: The table `dim_tagset`.
        table: The table as it is: a snapshot, or lines of JSON.
        candidate: The table as it would be.
        shard_old: As `BrokerOptions.shard_method` is; it counts where a request names none.
        shard_new: As it would be; `None` for as it is.
        method_old: As `BrokerOptions.method` is; it counts where a request names none.
        method_new: As it would be; `None` for as it is.

    Raises:
        TableUnreadable: A table is damaged. One that only the executors see is looked at there,
            and the error is that of Spark's job; see `known_error`.
        BadMethod: Nobody knows a method.
    """
    plan = Plan(
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
    sums = (
        frames_of(hops, tagsets)
        .mapInArrow(partial(_rehearse, plan), SUMS)
        .groupBy("tagset_id", "route_id")
        .agg(
            *(sf.sum(name).alias(name) for name in _SUMMED),
            # The same in all batches.
            sf.max("routes_old").alias("routes_old"),
            sf.max("routes_new").alias("routes_new"),
        )
        .persist()
    )
    try:
        return ReplayResult(sums)
    except BaseException:
        sums.unpersist()
        raise


def frames_of(hops: DataFrame, tagsets: DataFrame) -> DataFrame:
    """Return the requests among hops, with what they ask for: the columns `FRAMES`.

    Copies of a multicast are left out: the request as a whole is there as well. So are requests
    that nobody could read.
    """
    asked = tagsets.dropDuplicates(["tagset_id"]).select("tagset_id", "text", "routing", "method")
    return (
        hops.where(sf.col("kind").between(int(Kind.RESPONSE), int(Kind.PUSH)))
        .where(~sf.col("outcome").isin(int(Outcome.FORWARD), int(Outcome.INVALID)))
        .where(sf.coalesce(sf.col("tagset_id"), sf.lit(0)) != 0)
        .join(sf.broadcast(asked), "tagset_id", "left")
        .select(
            sf.col("tagset_id"),
            sf.col("epoch").cast("bigint"),
            sf.col("seq"),
            sf.coalesce(sf.col("shard_hash"), sf.lit(0)).cast("bigint").alias("shard_hash"),
            sf.col("flags").cast("bigint"),
            sf.col("weight"),
            (sf.col("outcome") == int(Outcome.DELIVER)).cast("bigint").alias("delivered"),
            *(sf.col(name) for name in FRAMES[-3:]),
        )
    )


def _rehearse(plan: Plan, batches: Iterator[Batch]) -> Iterator[Batch]:
    rehearsal = _rehearsal(plan)
    for batch in batches:
        if batch.num_rows:
            yield from rehearsal.sums(batch)


_last: tuple[tuple[object, ...], Rehearsal] | None = None


def _rehearsal(plan: Plan) -> Rehearsal:
    """Return the rehearsal of this process: one task after the other has the same plan.

    The tables are looked at anew: one that was replaced is another.
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
            *(sf.sum(name).alias(name) for name in _COUNTED),
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
    def greatest(side: str) -> Column:
        enough = sf.col("frames") >= sf.col(f"routes_{side}") * MIN_FRAMES_EACH
        return sf.max(sf.when(enough, sf.col(f"skew_{side}")).otherwise(0.0)).alias(f"skew_{side}")

    row = by_tagset.agg(
        *(sf.sum(name).alias(name) for name in _COUNTED),
        sf.count("*").alias("tagsets"),
        greatest("old"),
        greatest("new"),
    ).first()
    # Of no frames the sums are null.
    said = {} if row is None else row.asDict()
    counts = {name: int(said.get(name) or 0) for name in (*_COUNTED, "tagsets")}
    return ReplayTotals(
        **counts,
        skew_old=float(said.get("skew_old") or 0.0),
        skew_new=float(said.get("skew_new") or 0.0),
    )


def _columns(report: str) -> list[Column]:
    """Return the columns of a report, cast to what it declares."""
    declared = [column.split() for column in REPORT_TABLES[report].split(",")]
    return [sf.col(name).cast(kind).alias(name) for name, kind in declared]
