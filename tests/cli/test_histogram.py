"""The histogram of durations: its error is bounded, and so is its size."""

from __future__ import annotations

import math

from hypothesis import given, strategies as st

from onward.cli._histogram import _BUCKETS, _LONGEST, Histogram, _bucket, _end

DURATIONS = st.lists(st.floats(0, 3600, allow_nan=False), min_size=1, max_size=200)


@given(DURATIONS, st.floats(0.001, 1))
def test_a_quantile_is_that_of_the_sorted_durations(durations: list[float], part: float) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.add(each)
    exact = sorted(durations)[math.ceil(part * len(durations)) - 1]
    found = histogram.quantile(part)
    assert exact - 1e-6 <= found <= exact * (1 + 1 / 128) + 2e-6
    assert histogram.quantile(1) == max(durations)
    assert (histogram.count, histogram.longest) == (len(durations), max(durations))
    assert histogram.shortest == min(durations)
    assert math.isclose(histogram.mean, sum(durations) / len(durations), abs_tol=1e-9)


@given(st.integers(0, _LONGEST))
def test_a_duration_is_in_its_bucket(microseconds: int) -> None:
    bucket = _bucket(microseconds)
    assert 0 <= bucket < _BUCKETS
    assert microseconds < _end(bucket)
    assert bucket == 0 or _end(bucket - 1) <= microseconds


def test_the_longest_and_none() -> None:
    histogram = Histogram()
    assert (histogram.quantile(0.5), histogram.mean, histogram.shortest) == (0, 0, 0)
    assert _bucket(_LONGEST) == _BUCKETS - 1
    histogram.add(1e9)
    assert histogram.quantile(0.5) * 1e6 == _LONGEST + 1
    assert histogram.longest == 1e9
