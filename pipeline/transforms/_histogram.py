"""Buckets of a log-linear histogram: of 16 to each power of two, so that counts can be added up.

Values up to 31 have a bucket each. From there on a bucket spans at most a sixteenth of its lower
bound, which is what bounds the error of every quantile read from it: `MAX_ERROR`.
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
"""How far, relative to the true one, a quantile that is read from buckets can be off."""

MAX_LATENCY_US: Final = 2**32 - 1
"""Microseconds; what takes longer counts as this. It is the most that the log can say."""


def bucket_of(latency_us: int) -> int:
    """Return the number of the bucket of a latency in microseconds, from 0 to 463.

    Less than 0 counts as 0, more than `MAX_LATENCY_US` as that.
    """
    value = min(max(latency_us, 0), MAX_LATENCY_US)
    shift = max(0, value.bit_length() - 1 - _BITS)
    return (shift << _BITS) + (value >> shift)


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the least latency of a bucket and the least of the next, in microseconds."""
    shift = max(0, (bucket >> _BITS) - 1)
    low = (bucket - (shift << _BITS)) << shift
    return low, low + (1 << shift)


def bucket_column(latency_us: Column) -> Column:
    """Return `bucket_of` as a column."""
    value = sf.least(sf.greatest(latency_us, sf.lit(0)), sf.lit(MAX_LATENCY_US)).cast("bigint")
    # Half more keeps the logarithm of a power of two on its side of the whole number.
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
    """Return the share of a bucket that is within a latency, from 0 to 1, if it is spread evenly.

    It is off by a part of the one bucket that the latency is in.
    """
    within = (latency_us + 1 - _low(bucket)) / _width(bucket)
    return sf.least(sf.greatest(within, sf.lit(0.0)), sf.lit(1.0))


def with_quantiles(counts: DataFrame, keys: tuple[str, ...], **quantiles: float) -> DataFrame:
    """Read quantiles from counts of buckets.

    The quantile q is the least value that at least q of the counted are not above. The bucket
    that it is in is known; its place in there is by even spread, which is off by at most
    `MAX_ERROR` of it.

    Args:
        counts: Columns `bucket` and `n`, and the keys; a bucket can be there more than once.
        keys: What there is a row of quantiles for.
        **quantiles: The name of a column, and the quantile from 0 to 1 it has.

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
