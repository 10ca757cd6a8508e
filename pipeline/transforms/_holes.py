"""The report of holes in each log: events that were not recorded, and events that were lost.

A balance over a hole is meaningless, so an audit includes both. A broker or node that could not
record events writes an event with their number and the reason. Lost events show as numbers that
are missing in a segment or between two.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as sf

from ...protocol.eventlog import EventName
from ._churn import event_text

__all__ = ["MAX_REASONS", "log_holes"]

MAX_REASONS: Final = 3
"""Most reasons of one log in the report, the first in alphabetical order."""

_SAID: Final = r"^([0-9]{1,18}) events?: (.*)$"
"""The pattern of the reason of an event `LOST`."""


def log_holes(
    segments: DataFrame,
    events: DataFrame,
    completeness: DataFrame,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """Return the number of events that each log lacks between two times.

    Args:
        segments: The whole table `segments`: numbers are missing between two of them.
        events: The table `route_events`.
        completeness: The table `completeness`. Missing numbers without a known time, such as those
            of a damaged segment at the end of a run, count at any time.
        since: The begin; by default the first event.
        until: The end; by default the last event.

    Returns:
        A row for each log that lacks events: `log`, `absent` (numbered, but not in the lake),
        `unrecorded` (reported by the log as not recorded) and `reasons`, at most `MAX_REASONS`.
        Events that were numbered before they were lost are in both figures.
    """
    numbers = _numbers(segments)
    whole = numbers.groupBy("broker").agg(sf.sum("absent").alias("known"))
    unplaced = (
        completeness.groupBy("broker")
        .agg(sf.max("missing").alias("missing"))
        .join(whole, "broker", "left")
        .select(
            "broker",
            sf.greatest(
                sf.col("missing") - sf.coalesce("known", sf.lit(0)), sf.lit(0).cast("bigint")
            ).alias("absent"),
        )
    )
    placed = numbers.filter(_touches("began", "ended", since, until)).select("broker", "absent")
    said = events.filter(sf.col("event") == event_text(EventName.LOST)).filter(
        _touches("ts", "ts", since, until)
    )
    told = sf.regexp_extract("reason", _SAID, 1)
    # A reason of another form counts as one lost event.
    lost = said.select(
        "broker",
        sf.when(told == "", 1).otherwise(told.cast("bigint")).alias("unrecorded"),
        sf.when(told == "", sf.col("reason"))
        .otherwise(sf.regexp_extract("reason", _SAID, 2))
        .alias("reason"),
    )
    nothing = sf.lit(0).cast("bigint")
    no_reason = sf.lit(None).cast("string")
    both = (
        placed.unionByName(unplaced)
        .select("broker", "absent", nothing.alias("unrecorded"), no_reason.alias("reason"))
        .unionByName(lost.select("broker", nothing.alias("absent"), "unrecorded", "reason"))
    )
    reasons = sf.slice(sf.sort_array(sf.collect_set("reason")), 1, MAX_REASONS)
    return (
        both.groupBy(sf.col("broker").alias("log"))
        .agg(
            sf.sum("absent").alias("absent"),
            sf.sum("unrecorded").alias("unrecorded"),
            reasons.alias("reasons"),
        )
        .filter((sf.col("absent") > 0) | (sf.col("unrecorded") > 0))
        .select("log", "absent", "unrecorded", "reasons")
    )


def _numbers(segments: DataFrame) -> DataFrame:
    """Return `broker`, `began`, `ended`, `absent`: missing numbers and their approximate time."""
    log = Window.partitionBy("broker")
    run = Window.partitionBy("broker", "epoch").orderBy("first_seq")
    in_order = Window.partitionBy("broker").orderBy("epoch", "first_seq")
    # Events before the first segment were deleted before the lake was begun.
    is_first_run = sf.col("epoch") == sf.min("epoch").over(log)
    before = sf.coalesce(
        sf.lag("last_seq").over(run),
        sf.when(is_first_run, sf.col("first_seq") - 1).otherwise(0),
    )
    none = sf.lit(0).cast("bigint")
    # The numbers of a damaged and skipped segment lie between its neighbours. It has a second row
    # if it was repaired and read later.
    placed = segments.filter(sf.col("last_seq").isNotNull()).select(
        "broker",
        "started",
        sf.coalesce("ended", "started").alias("ended"),
        sf.lag("ended").over(in_order).alias("ended_before"),
        sf.greatest(sf.col("first_seq") - 1 - before, none).alias("between"),
        sf.greatest(
            sf.col("last_seq")
            - sf.col("first_seq")
            + 1
            - sf.col("hops")
            - sf.col("flows")
            - sf.col("events"),
            none,
        ).alias("inside"),
    )
    gaps = placed.select(
        "broker",
        sf.coalesce("ended_before", "started").alias("began"),
        sf.col("started").alias("ended"),
        sf.col("between").alias("absent"),
    )
    insides = placed.select(
        "broker", sf.col("started").alias("began"), "ended", sf.col("inside").alias("absent")
    )
    return gaps.unionByName(insides).filter(sf.col("absent") > 0)


def _touches(began: str, ended: str, since: datetime | None, until: datetime | None) -> Column:
    """Whether a row's time overlaps the range of two times; a row without a time does."""
    touches = sf.lit(True)
    if since is not None:
        touches = touches & (sf.col(ended).isNull() | (sf.col(ended) >= sf.lit(since)))
    if until is not None:
        touches = touches & (sf.col(began).isNull() | (sf.col(began) < sf.lit(until)))
    return touches
