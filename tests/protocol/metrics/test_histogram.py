"""A histogram of durations in buckets of powers of two."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from onward.protocol.metrics import BUCKETS, DurationHistogram, Durations, quantile


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


def test_a_duration_may_stand_for_several_and_histograms_are_merged() -> None:
    first, second = DurationHistogram(), DurationHistogram()
    first.add(0.5, 16)
    second.add(0.5)
    second.add(100.0)
    first.merge(second)
    found = first.read()
    assert (sum(found.counts), found.counts[-1], found.total) == (18, 1, 108.5)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
def test_no_durations_have_no_quantiles(share: float) -> None:
    assert quantile(DurationHistogram().read(), share) is None


def test_quantiles_are_interpolated_between_the_bounds() -> None:
    counts = [0] * (len(BUCKETS) + 1)
    counts[1] = 4  # 64 to 128 microseconds
    found = Durations(tuple(counts), 0.0)
    assert quantile(found, 0.0) == 0.000064
    assert quantile(found, 0.5) == pytest.approx(0.000096)
    assert quantile(found, 1.0) == 0.000128
    counts[0], counts[-1] = 4, 1
    found = Durations(tuple(counts), 0.0)
    assert quantile(found, 2 / 9) == pytest.approx(0.000032)
    assert quantile(found, 1.0) == BUCKETS[-1]


@given(st.lists(st.integers(0, 60_000_000), min_size=1), st.floats(0.0, 1.0))
def test_a_quantile_is_right_to_within_its_bucket(us: list[int], share: float) -> None:
    histogram = DurationHistogram()
    for each in us:
        histogram.add(each / 1_000_000)
    found = quantile(histogram.read(), share)
    assert found is not None
    exact = sorted(us)[max(0, -int(-share * len(us) // 1) - 1)] / 1_000_000
    bucket = bisect_left(BUCKETS, exact)
    assert (BUCKETS[bucket - 1] if bucket else 0.0) <= found + 1e-6
    assert found <= BUCKETS[min(bucket + 1, len(BUCKETS) - 1)]
