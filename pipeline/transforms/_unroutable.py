"""The report of unroutable queries, each with the nearest match among the destinations.

The search does not compare every query with every destination. Destinations are reduced to the
tags of unroutable queries, and equal ones become one candidate.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window, functions as sf

from ...protocol.eventlog import EventName, Outcome
from ._churn import event_text
from ._columns import hour_of, is_asked, is_leg, is_outcome, with_columns_of

__all__ = ["MAX_CANDIDATES", "MAX_SEARCHED", "unroutable"]

MAX_SEARCHED: Final = 1_000
"""Most tag sets of an hour with a search, the most frequent ones. `nearest` of others is null."""

MAX_CANDIDATES: Final = 1_000
"""Most candidates of an hour that are compared, those with most tags. If there are more, the
result may not be the nearest."""


def unroutable(flows: DataFrame, tagsets: DataFrame, events: DataFrame) -> DataFrame:
    """Return the unroutable queries, hour by hour, and the tags of them that a destination carried.

    Args:
        flows: The table `flows`.
        tagsets: The table `dim_tagset`.
        events: The table `route_events`, since the registration of the oldest destination: one
            that registered before is unknown.

    Returns:
        The report `unroutable`. `first_ts` and `last_ts` are the starts of the first and the last
        window. `nearest` is the largest part of the tags that one destination of the hour carried.
        It is empty if none carried any. It is null without a search, as the tag set is unknown or
        not among the first `MAX_SEARCHED`. It has all tags if the destination was registered for a
        part of the hour. Of several equally large parts it is the first in the order of keys and
        values.
    """
    wanted = (
        flows.filter(
            is_asked() & ~is_leg() & is_outcome(Outcome.UNROUTABLE) & (sf.col("frames") > 0)
        )
        .groupBy(hour_of("window_start").alias("hour"), "tagset_id")
        .agg(
            sf.sum("frames").alias("frames"),
            sf.min("window_start").alias("first_ts"),
            sf.max("window_start").alias("last_ts"),
        )
        .join(tagsets.select("tagset_id", "tags"), "tagset_id", "left")
    )
    most_first = Window.partitionBy("hour").orderBy(sf.desc("frames"), "tagset_id")
    ranked = wanted.withColumn("rank", sf.row_number().over(most_first))
    is_searched = (sf.col("rank") <= MAX_SEARCHED) & sf.col("tags").isNotNull()
    searched = ranked.filter(is_searched).select(
        "hour", "tagset_id", sf.sort_array(sf.map_entries("tags")).alias("asked")
    )
    common = sf.array_intersect("asked", "carried")
    nearest = (
        searched.join(_candidates(searched, events), "hour")
        .select("hour", "tagset_id", common.alias("common"))
        # The largest, and the first of equally large ones.
        .groupBy("hour", "tagset_id")
        .agg(sf.min(sf.struct((-sf.size("common")).alias("size"), "common")).alias("best"))
        .select("hour", "tagset_id", sf.col("best.common").alias("common"))
    )
    none = sf.array().cast("array<struct<key:string,value:string>>")
    found = sf.map_from_entries(sf.coalesce(sf.col("common"), none))
    told = ranked.join(nearest, ["hour", "tagset_id"], "left").withColumn(
        "nearest", sf.when(is_searched, found)
    )
    return with_columns_of(told, "unroutable")


def _candidates(searched: DataFrame, events: DataFrame) -> DataFrame:
    """Return `hour` and `carried`: the searched tags that a destination of that hour had."""
    missed = searched.select(sf.explode("asked").alias("tag")).distinct()
    hours = searched.select("hour").distinct()
    carried = (
        _lives(events)
        .select(
            "broker", "route_id", "since", "until", sf.explode(sf.map_entries("tags")).alias("tag")
        )
        .join(missed, "tag", "left_semi")
        .groupBy("broker", "route_id", "since", "until")
        .agg(sf.sort_array(sf.collect_set("tag")).alias("carried"))
    )
    is_there = (sf.col("since") < sf.col("hour") + sf.expr("interval 1 hour")) & (
        sf.col("until").isNull() | (sf.col("until") > sf.col("hour"))
    )
    largest_first = Window.partitionBy("hour").orderBy(sf.desc(sf.size("carried")), "carried")
    return (
        carried.join(sf.broadcast(hours), is_there)
        .select("hour", "carried")
        .distinct()
        .withColumn("rank", sf.row_number().over(largest_first))
        .filter(sf.col("rank") <= MAX_CANDIDATES)
        .select("hour", "carried")
    )


def _lives(events: DataFrame) -> DataFrame:
    """Return the tags of destinations with their times; a null `until` means that they are current.

    All destinations of a broker's run end when its next run begins.
    """
    begin = [event_text(name) for name in (EventName.UP, EventName.RETAG)]
    end = [event_text(name) for name in (EventName.DOWN, EventName.DRAIN)]
    runs = (
        events.groupBy("broker", "epoch")
        .agg(sf.min("ts").alias("began"))
        .select(
            "broker",
            "epoch",
            sf.lead("began").over(Window.partitionBy("broker").orderBy("epoch")).alias("run_ended"),
        )
    )
    in_order = Window.partitionBy("broker", "route_id").orderBy("epoch", "seq")
    return (
        events.filter(sf.col("event").isin(*begin, *end) & sf.col("route_id").isNotNull())
        .select("broker", "epoch", "seq", "ts", "event", "route_id", "tags")
        .withColumn("changed", sf.lead("ts").over(in_order))
        .filter(sf.col("event").isin(*begin))
        .join(runs, ["broker", "epoch"])
        .select(
            "broker",
            "route_id",
            sf.col("ts").alias("since"),
            sf.least("changed", "run_ended").alias("until"),
            "tags",
        )
    )
