"""A histogram of durations in buckets of powers of two."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from onward.protocol.metrics import BUCKETS, DurationHistogram


def test_the_buckets_are_powers_of_two_from_64_us_to_67_s() -> None:
    assert len(BUCKETS) == 21
    assert (BUCKETS[0], BUCKETS[-1]) == (0.000064, 67.108864)
    assert all(later == 2 * former for former, later in pairwise(BUCKETS))


@given(st.integers(0, 200_000_000))
def test_a_duration_is_in_the_first_bucket_whose_bound_it_does_not_exceed(us: int) -> None:
    histogram = DurationHistogram()
    histogram.add(
        (us + 0.5) / 1_000_000
    )  # amid a microsecond, where no float is rounded to another
    bounds = [round(bound * 1_000_000) for bound in BUCKETS]
    counts = histogram.read().counts
    assert counts.index(1) == bisect_left(bounds, us)
    assert sum(counts) == 1


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 0.0000001])
def test_no_time_and_negative_time_are_in_the_first_bucket(seconds: float) -> None:
    histogram = DurationHistogram()
    histogram.add(seconds)
    assert histogram.read().counts[0] == 1
    assert histogram.read().total == max(0.0, seconds)
