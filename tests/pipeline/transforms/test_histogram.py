"""Buckets: exact, in order, without gaps, and the same in Spark as in Python."""

from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st
from pyspark.sql import SparkSession, functions as sf

from onward.pipeline.transforms import (
    MAX_ERROR,
    MAX_LATENCY_US,
    bucket_bounds,
    bucket_column,
    bucket_of,
    latency_histogram,
)
from onward.protocol.eventlog import Kind, Outcome
from tests.pipeline.transforms.rows import frame, hop

LATENCIES = st.integers(0, MAX_LATENCY_US)


@given(LATENCIES)
@example(MAX_LATENCY_US)
def test_a_latency_is_within_the_bounds_of_its_bucket(latency: int) -> None:
    low, above = bucket_bounds(bucket_of(latency))
    assert low <= latency < above
    assert above - 1 - low <= low * MAX_ERROR


def test_buckets_leave_no_gap() -> None:
    last = bucket_of(MAX_LATENCY_US)
    assert bucket_bounds(0)[0] == 0
    for bucket in range(last):
        assert bucket_bounds(bucket)[1] == bucket_bounds(bucket + 1)[0]
        assert bucket_of(bucket_bounds(bucket)[0]) == bucket
    assert bucket_bounds(last)[1] == MAX_LATENCY_US + 1


def test_what_cannot_be_counts_as_the_nearest_that_can() -> None:
    assert bucket_of(-5) == 0
    assert bucket_of(2**40) == bucket_of(MAX_LATENCY_US) == 463


@pytest.mark.spark
def test_spark_and_python_agree_at_every_power_of_two(spark: SparkSession) -> None:
    powers = {2**power + more for power in range(34) for more in (-1, 0, 1)}
    edges = {edge for bucket in range(464) for edge in bucket_bounds(bucket)}
    values = sorted(powers | edges | {edge - 1 for edge in edges} | {-7, 2**40})
    numbers = spark.createDataFrame([(value,) for value in values], "value bigint")

    read = numbers.select("value", bucket_column(sf.col("value")).alias("bucket")).collect()

    assert {row["value"]: row["bucket"] for row in read} == {
        each: bucket_of(each) for each in values
    }


@pytest.mark.spark
def test_what_failed_was_not_fast(spark: SparkSession) -> None:
    rows = [
        hop(1, 0, 5, Outcome.DELIVER, kind=Kind.RESPONSE, tagset=3, latency=40, weight=10),
        hop(2, 0, 5, Outcome.FAILED, kind=Kind.RESPONSE, tagset=3, latency=1),
        # A copy of a multicast: the request as a whole has a hop of its own.
        hop(3, 1, 5, Outcome.FORWARD, kind=Kind.STREAM, tagset=3, latency=1),
        hop(4, 0, 5, Outcome.FORWARD, latency=7),
    ]
    read = latency_histogram(frame(spark, "hops", rows)).orderBy("tagset_id").collect()

    assert [tuple(row)[1:] for row in read] == [(5, 0, 7, 1), (5, 3, bucket_of(40), 10)]
