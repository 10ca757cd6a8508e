"""How evenly the destinations of a tag set are used, and which keys are the reason."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window, functions as sf

from ...protocol.eventlog import Kind, Outcome
from ._columns import hour_of, is_outcome, with_columns_of

__all__ = ["MAX_HOT_KEYS", "hot_keys", "shard_load"]

MAX_HOT_KEYS: Final = 10_000
"""The most keys that can be asked for, of each tag set and hour."""


def shard_load(flows: DataFrame) -> DataFrame:
    """Tell how the requests for a tag set were spread over its destinations, hour by hour.

    `skew` is what the busiest destination got, divided by what each would have got of an even
    spread: 1 is even. Only destinations that got something are known here, so one that got
    nothing does not make it worse.

    Args:
        flows: The table `flows`.

    Returns:
        The report `shard_load`. `skew` is the same in all rows of a tag set and hour.
    """
    loads = (
        flows.filter(
            is_outcome(Outcome.FORWARD)
            & (sf.col("kind") != int(Kind.LINK))
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
    """Name the keys that most requests are for, of each tag set and hour.

    A key is known by its hash alone. Counts are exact for what was sampled, and add up weights.

    Args:
        hops: The table `hops`.
        top: How many keys of a tag set and hour, at most `MAX_HOT_KEYS`. Of keys with the same
            count those with the smaller hash come first.

    Returns:
        The report `hot_keys`. `share` is of all requests with a key, for that tag set and hour.

    Raises:
        ValueError: `top` is less than 1 or more than `MAX_HOT_KEYS`.
    """
    if not 1 <= top <= MAX_HOT_KEYS:
        raise ValueError(f"top is {top}: it has to be from 1 to {MAX_HOT_KEYS}")
    counted = (
        hops.filter(sf.col("shard_hash") != 0)
        .groupBy(hour_of("ts").alias("hour"), "tagset_id", "shard_hash")
        .agg(sf.sum("weight").alias("frames"))
    )
    together = Window.partitionBy("hour", "tagset_id")
    hottest_first = together.orderBy(sf.desc("frames"), "shard_hash")
    ranked = counted.select(
        "hour",
        "tagset_id",
        "shard_hash",
        "frames",
        (sf.col("frames") / sf.sum("frames").over(together)).alias("share"),
        sf.row_number().over(hottest_first).alias("rank"),
    ).filter(sf.col("rank") <= top)
    return with_columns_of(ranked, "hot_keys")
