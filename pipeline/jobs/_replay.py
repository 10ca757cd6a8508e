"""The job `replay`: rehearses a change over a day's traffic, and writes the reports of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession, functions as sf

from ...protocol import counted
from ..replay import GateFailed, ReplayTotals, check_gates, replay
from ._index import LogsOf
from ._progress import Progress, Silent, stage
from ._rehearsed import keep_rehearsal
from ._reports import Day
from ._run import names_of
from ._tables import Shown, shown
from ._utc import in_utc

if TYPE_CHECKING:
    from ..ingest import Lake

__all__ = ["Gates", "Rehearsed", "ReplayMethods", "run_replay"]


@dataclass(frozen=True, slots=True)
class ReplayMethods:
    """The methods for requests that name none; `None` is the default, or no change."""

    shard_old: str | None = None
    shard_new: str | None = None
    method_old: str | None = None
    method_new: str | None = None


@dataclass(frozen=True, slots=True)
class Gates:
    """The limits on a change; see `check_gates`."""

    max_moved: float | None = None
    fail_if_lost: bool = False
    max_skew: float | None = None
    max_unknown: float = 0.0
    max_stale: float = 0.0


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """The result of a rehearsal.

    Attributes:
        totals: The totals of all tag sets.
        failed: The limits that the change exceeds.
        tagsets: The tag sets with the most frames, as text.
    """

    totals: ReplayTotals
    failed: tuple[GateFailed, ...]
    tagsets: Shown


def run_replay(
    spark: SparkSession,
    lake: Lake,
    day: date,
    table: str | Path,
    candidate: str | Path,
    *,
    methods: ReplayMethods | None = None,
    gates: Gates | None = None,
    brokers: Collection[str] = (),
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Rehearsed:
    """Rehearse a change, and write the reports `replay_summary` and `replay_routes` of the day.

    Args:
        spark: The session.
        lake: The lake.
        day: The day of the traffic, UTC.
        table: The current table.
        candidate: The candidate table.
        methods: The current and the candidate methods.
        gates: The limits on the change.
        brokers: The brokers of the requests; all by default. A table is that of one broker.
        out: The folder for the reports; by default the lake's own, where the page finds them.
        progress: The receiver of the progress.

    Raises:
        PipelineError: The lake or a table cannot be read, the lake has no log of a broker, or a
            method is not installed.
    """
    told, chosen, limits = progress or Silent(), methods or ReplayMethods(), gates or Gates()
    around = Day(spark, lake, day)
    hops = around.table("hops")
    if brokers:
        LogsOf(lake, brokers).check(spark)
        hops = hops.filter(sf.col("broker").isin(sorted(brokers)))
    with in_utc(spark), stage(told, "replay") as current:
        result = replay(
            spark,
            hops,
            around.dimension("dim_tagset"),
            table,
            candidate,
            shard_old=chosen.shard_old,
            shard_new=chosen.shard_new,
            method_old=chosen.method_old,
            method_new=chosen.method_new,
        )
        with result:
            lake.write_report(result.summary, "replay_summary", day, out)
            lake.write_report(result.routes, "replay_routes", day, out)
            keep_rehearsal(lake, day, out, _about(table, candidate, chosen, brokers))
            tagsets = shown(result.summary, names_of(around), 10)
        totals = result.totals
        current.says(
            f"{counted(totals.frames, 'frame', ',')}, {counted(totals.tagsets, 'tag set', ',')}"
        )
    failed = check_gates(
        result.totals,
        max_moved=limits.max_moved,
        fail_if_lost=limits.fail_if_lost,
        max_skew=limits.max_skew,
        max_unknown=limits.max_unknown,
        max_stale=limits.max_stale,
    )
    return Rehearsed(result.totals, tuple(failed), tagsets)


def _about(
    table: str | Path, candidate: str | Path, methods: ReplayMethods, brokers: Collection[str]
) -> str:
    """Return the description of a rehearsal, a sentence."""
    said = (
        "the table as it is"
        if str(table) == str(candidate)
        else f"{Path(candidate).name} instead of {Path(table).name}"
    )
    parts = [said]
    for what, old, new in (
        ("shard requests", methods.shard_old, methods.shard_new),
        ("unicast requests", methods.method_old, methods.method_new),
    ):
        if old != new:
            parts.append(f"{what} by {new or 'default'} instead of {old or 'default'}")
        elif old is not None:
            parts.append(f"{what} by {old}")
    if brokers:
        parts.append(f"requests of {', '.join(sorted(brokers))}")
    return f"Rehearsed: {'; '.join(parts)}."
