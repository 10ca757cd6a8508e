"""The reports of latency: histograms that can be added up, and their quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pyspark.sql import DataFrame, functions as sf

from ...protocol.eventlog import Kind, Outcome
from ._columns import is_outcome, start_of, start_us, with_columns_of
from ._histogram import bucket_column, with_quantiles

__all__ = ["latency_histogram", "latency_quantiles", "merge_latency"]

_SECONDS: Final[Mapping[str, int]] = MappingProxyType({"minute": 60, "hour": 3_600, "day": 86_400})


def latency_histogram(hops: DataFrame) -> DataFrame:
    """Count latencies by bucket, for each minute, destination and tag set.

    The latency of a successful request is the time from its first frame to its end. That of a
    message is the time its worker took, even if it was forwarded. Failures are omitted: failing
    fast is not being fast. `n` is a sum of weights, which estimates the number of all requests,
    not of the sample.

    Args:
        hops: The table `hops`.

    Returns:
        The report `latency_hist`; `bucket_bounds` returns the bounds of a bucket.
    """
    went_on = (sf.col("kind") == int(Kind.MESSAGE)) & is_outcome(Outcome.FORWARD, Outcome.RETURN)
    # One number for minute and bucket makes a shorter key.
    slot = start_us("ts", 60) + bucket_column(sf.col("latency_us"))
    counted = (
        hops.filter(is_outcome(Outcome.DELIVER) | went_on)
        .select(slot.alias("slot"), "dest_node", "tagset_id", "weight")
        .groupBy("slot", "dest_node", "tagset_id")
        .agg(sf.sum("weight").alias("n"))
        .withColumn("bucket", sf.pmod("slot", sf.lit(60_000_000)))
        .withColumn("minute", sf.timestamp_micros(sf.col("slot") - sf.col("bucket")))
    )
    return with_columns_of(counted, "latency_hist")


def merge_latency(
    histogram: DataFrame, unit: Literal["minute", "hour", "day"] = "hour"
) -> DataFrame:
    """Merge histograms into ones of longer times, without the hops.

    Args:
        histogram: The report `latency_hist`.
        unit: The longer time; a day is UTC.

    Returns:
        The same columns; `minute` is the start of the unit.
    """
    merged = (
        histogram.withColumn("minute", start_of("minute", _SECONDS[unit]))
        .groupBy("minute", "dest_node", "tagset_id", "bucket")
        .agg(sf.sum("n").alias("n"))
    )
    return with_columns_of(merged, "latency_hist")


def latency_quantiles(histogram: DataFrame) -> DataFrame:
    """Return the median and the 95th and 99th percentile of histograms.

    The relative error of each is at most a sixteenth (`MAX_ERROR`).

    Args:
        histogram: The report `latency_hist`, of minutes or merged.

    Returns:
        The report `latency_quantiles`, in microseconds.
    """
    read = with_quantiles(
        histogram,
        ("minute", "dest_node", "tagset_id"),
        p50_us=0.5,
        p95_us=0.95,
        p99_us=0.99,
    )
    return with_columns_of(read, "latency_quantiles")
