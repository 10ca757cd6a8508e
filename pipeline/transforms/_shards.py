"""The reports of load over the destinations of a tag set, and of the most frequent keys."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window, functions as sf

from ...protocol.eventlog import Kind, Outcome
from ._columns import hour_of, is_leg, is_outcome, with_columns_of

__all__ = ["MAX_HOT_KEYS", "hot_keys", "shard_load"]

MAX_HOT_KEYS: Final = 10_000
"""Most keys in a report for each tag set and hour."""

_SLICE_SHIFT: Final = 58
"""Hashes are divided into 64 ordered slices, so that few keys of equal frequency are in one."""


def shard_load(flows: DataFrame) -> DataFrame:
    """Return how the requests for a tag set were spread over its destinations, hour by hour.

    `skew` is the load of the busiest destination divided by the average load: 1 is even.
    Destinations without requests are unknown here, so they do not increase it.

    Args:
        flows: The table `flows`.

    Returns:
        The report `shard_load`. `skew` is the same in all rows of a tag set and hour.
    """
    loads = (
        flows.filter(
            is_outcome(Outcome.FORWARD)
            & (sf.col("kind") != int(Kind.LINK))
            & ~is_leg()
            & (sf.col("route_id") != 0)
            & (sf.col("frames") > 0)
        )
        .groupBy(hour_of("window_start").alias("hour"), "tagset_id", "route_id")
        .agg(sf.sum("frames").alias("frames"))
    )
    together = Window.partitionBy("hour", "tagset_id")
    frames = sf.col("frames")
    spread = loads.select(
        "hour",
        "tagset_id",
        "route_id",
        "frames",
        (frames / sf.sum(frames).over(together)).alias("share"),
        (sf.max(frames).over(together) / sf.avg(frames).over(together)).alias("skew"),
    )
    return with_columns_of(spread, "shard_load")


def hot_keys(hops: DataFrame, top: int = 20) -> DataFrame:
    """Return the most frequent keys of each tag set and hour.

    A key is known by its hash alone. Counts are sums of weights, and exact for the sample.

    Args:
        hops: The table `hops`.
        top: The number of keys for a tag set and hour, at most `MAX_HOT_KEYS`. Keys with the same
            count are sorted by hash.

    Returns:
        The report `hot_keys`. `share` is that of all requests with a key for the tag set and hour.

    Raises:
        ValueError: `top` is less than 1 or more than `MAX_HOT_KEYS`.
    """
    if not 1 <= top <= MAX_HOT_KEYS:
        raise ValueError(f"top is {top}: it has to be from 1 to {MAX_HOT_KEYS}")
    counted = (
        hops.filter(sf.col("shard_hash") != 0)
        .groupBy(hour_of("ts").alias("hour"), "tagset_id", "shard_hash")
        .agg(sf.sum("weight").alias("frames"))
        .withColumn("slice", sf.shiftright("shard_hash", _SLICE_SHIFT))
    )
    frames, least = sf.col("frames"), sf.col("least")
    hot = counted.join(_last_slices(counted, top), ["hour", "tagset_id"]).filter(
        (frames > least) | ((frames == least) & (sf.col("slice") <= sf.col("last")))
    )
    together = Window.partitionBy("hour", "tagset_id")
    hottest_first = together.orderBy(sf.desc("frames"), "shard_hash")
    ranked = hot.select(
        "hour",
        "tagset_id",
        "shard_hash",
        "frames",
        (frames / sf.col("total")).alias("share"),
        sf.row_number().over(hottest_first).alias("rank"),
    ).filter(sf.col("rank") <= top)
    return with_columns_of(ranked, "hot_keys")


def _last_slices(counted: DataFrame, top: int) -> DataFrame:
    """Return for each tag set and hour its `total`, and the last slice with a top key.

    That is the slice `last` of the keys that occur `least` times.

    Most keys are rare, and sorting all of them would take the longest. So they are counted by
    frequency and by the slice of their hash. All keys up to the last slice with a top key are then
    only a few more than the top ones.
    """
    slices = counted.groupBy("hour", "tagset_id", "frames", "slice").agg(
        sf.count("*").alias("keys")
    )
    hottest_first = Window.partitionBy("hour", "tagset_id").orderBy(sf.desc("frames"), "slice")
    before = sf.sum("keys").over(hottest_first) - sf.col("keys")
    place = sf.struct((-sf.col("frames")).alias("less"), "slice")
    return (
        slices.withColumn("before", before)
        .groupBy("hour", "tagset_id")
        .agg(
            sf.sum(sf.col("frames") * sf.col("keys")).alias("total"),
            sf.max(sf.when(sf.col("before") < top, place)).alias("place"),
        )
        .select(
            "hour",
            "tagset_id",
            "total",
            (-sf.col("place.less")).alias("least"),
            sf.col("place.slice").alias("last"),
        )
    )
