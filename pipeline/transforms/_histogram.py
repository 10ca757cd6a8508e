"""Log-linear histograms with 16 buckets to each power of two; their counts can be added up.

Values up to 31 have a bucket each. A further bucket spans at most a sixteenth of its lower bound,
which bounds the error of each quantile: `MAX_ERROR`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as sf

__all__ = [
    "MAX_ERROR",
    "MAX_LATENCY_US",
    "bucket_bounds",
    "bucket_column",
    "bucket_of",
    "share_below",
    "with_quantiles",
]

_BITS: Final = 4
_PER_OCTAVE: Final = 1 << _BITS

MAX_ERROR: Final = 1 / _PER_OCTAVE
"""The largest relative error of a quantile that is computed from buckets."""

MAX_LATENCY_US: Final = 2**32 - 1
"""The largest latency in the log, in microseconds; longer ones count as this."""


def bucket_of(latency_us: int) -> int:
    """Return the number of the bucket of a latency in microseconds, from 0 to 463.

    A negative latency counts as 0, one above `MAX_LATENCY_US` as that.
    """
    value = min(max(latency_us, 0), MAX_LATENCY_US)
    shift = max(0, value.bit_length() - 1 - _BITS)
    return (shift << _BITS) + (value >> shift)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the lower bounds of a bucket and of the next one, in microseconds."""
    shift = max(0, (bucket >> _BITS) - 1)
    low = (bucket - (shift << _BITS)) << shift
    return low, low + (1 << shift)


def bucket_column(latency_us: Column) -> Column:
    """Return `bucket_of` as a column."""
    value = sf.least(sf.greatest(latency_us, sf.lit(0)), sf.lit(MAX_LATENCY_US)).cast("bigint")
    # The half keeps the logarithm of a power of two from being rounded below its integer.
    highest = sf.floor(sf.log2(value + sf.lit(0.5)))
    shift = sf.greatest(highest - _BITS, sf.lit(0)).cast("int")
    return (shift * _PER_OCTAVE + sf.call_function("shiftright", value, shift)).cast("int")


def _shift(bucket: Column) -> Column:
    return sf.greatest(sf.shiftright(bucket, _BITS) - 1, sf.lit(0)).cast("int")


def _low(bucket: Column) -> Column:
    shift = _shift(bucket)
    start = (bucket - shift * _PER_OCTAVE).cast("bigint")
    return sf.call_function("shiftleft", start, shift)


def _width(bucket: Column) -> Column:
    return sf.call_function("shiftleft", sf.lit(1).cast("bigint"), _shift(bucket))


def share_below(bucket: Column, latency_us: Column) -> Column:
    """Return the share of a bucket, from 0 to 1, that is within a latency if spread evenly.

    The error is at most a part of the bucket that the latency is in.
    """
    within = (latency_us + 1 - _low(bucket)) / _width(bucket)
    return sf.least(sf.greatest(within, sf.lit(0.0)), sf.lit(1.0))


def with_quantiles(counts: DataFrame, keys: tuple[str, ...], **quantiles: float) -> DataFrame:
    """Return quantiles computed from counts of buckets.

    The quantile q is the least value that at least a share q of the values does not exceed. Within
    its bucket values are assumed to be spread evenly; the relative error is at most `MAX_ERROR`.

    Args:
        counts: Columns `bucket` and `n`, and the keys; a bucket may occur more than once.
        keys: The columns to group by; each group has a row of quantiles.
        **quantiles: The names of columns, each with its quantile from 0 to 1.

    Returns:
        The keys, `n`, and the quantiles as doubles.
    """
    whole = Window.partitionBy(*keys)
    summed = counts.groupBy(*keys, "bucket").agg(sf.sum("n").alias("n"))
    ranked = summed.select(
        *keys,
        "bucket",
        "n",
        sf.sum("n").over(whole.orderBy("bucket")).alias("upto"),
        sf.sum("n").over(whole).alias("all"),
    )
    below = sf.col("upto") - sf.col("n")
    found: list[Column] = []
    for name, quantile in quantiles.items():
        rank = sf.col("all") * sf.lit(quantile)
        place = (rank - below) / sf.col("n")
        value = _low(sf.col("bucket")) + place * (_width(sf.col("bucket")) - 1)
        here = (below < rank) & (rank <= sf.col("upto"))
        found.append(sf.max(sf.when(here, value)).alias(name))
    return ranked.groupBy(*keys).agg(sf.sum("n").alias("n"), *found)
