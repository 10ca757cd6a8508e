"""What is not in the lake, by log: events that were not recorded, and those that got lost since.

A balance over a hole is worth nothing, so both belong to each audit. A broker or node that could
not record something says how much and why, in an event of its own; what it numbered and is not in
the lake shows as numbers that are missing in a segment, or between two.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as sf

from ...protocol.eventlog import EventName
from ._churn import event_text

__all__ = ["MAX_REASONS", "log_holes"]

MAX_REASONS: Final = 3
"""Reasons of one log that are told, the first in the order of letters."""

_SAID: Final = r"^([0-9]{1,18}) events?: (.*)$"
"""What the reason of an event `LOST` looks like."""


def log_holes(
    segments: DataFrame,
    events: DataFrame,
    completeness: DataFrame,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """Tell what each log lacks between two times.

    Args:
        segments: The table `segments`, all of it: numbers are missing between two.
        events: The table `route_events`.
        completeness: The table `completeness`. What it knows to be missing and segments do not
            say when, such as a damaged segment at the end of a run, counts at any time.
        since: From when on; from the first by default.
        until: Up to when; to the last by default.

    Returns:
        A row for each log that lacks something: `log`, `absent` (numbered, and not in the lake),
        `unrecorded` (the log says itself that it could not take them) and `reasons`, at most
        `MAX_REASONS`. Events that were numbered before they were lost are in both figures.
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
    # An event that cannot be read still says that something was lost.
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
    """Return `broker`, `began`, `ended`, `absent`: numbers without an event, and about when."""
    log = Window.partitionBy("broker")
    run = Window.partitionBy("broker", "epoch").orderBy("first_seq")
    in_order = Window.partitionBy("broker").orderBy("epoch", "first_seq")
    # What was before the first segment of a lake was deleted before there was one.
    is_first_run = sf.col("epoch") == sf.min("epoch").over(log)
    before = sf.coalesce(
        sf.lag("last_seq").over(run),
        sf.when(is_first_run, sf.col("first_seq") - 1).otherwise(0),
    )
    none = sf.lit(0).cast("bigint")
    # Of a segment that is damaged, and was skipped, the numbers lie between its neighbours; it may
    # be there a second time, as it was when it had been put right.
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
    """Tell what lies between two times, or over one of them; what has no time always does."""
    touches = sf.lit(True)
    if since is not None:
        touches = touches & (sf.col(ended).isNull() | (sf.col(ended) >= sf.lit(since)))
    if until is not None:
        touches = touches & (sf.col(began).isNull() | (sf.col(began) < sf.lit(until)))
    return touches
