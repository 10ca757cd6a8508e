"""Which traces are sampled: as many as the rate says, and the same ones everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.eventlog import EventLogError, sampled, threshold_of, weight_of_rate


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_rate_is_from_0_to_1(bad: float) -> None:
    with pytest.raises(EventLogError, match="is not from 0 to 1"):
        threshold_of(bad)
    with pytest.raises(EventLogError, match="is not from 0 to 1"):
        weight_of_rate(bad)


@given(st.integers(0, (1 << 128) - 1))
def test_none_and_all_are_none_and_all(trace: int) -> None:
    assert not sampled(trace, threshold_of(0.0))
    assert sampled(trace, threshold_of(1.0))


@given(st.integers(0, (1 << 64) - 1), st.floats(0, 1), st.floats(0, 1))
def test_what_is_sampled_is_sampled_at_every_higher_rate(
    trace: int, one: float, two: float
) -> None:
    low, high = sorted((one, two))
    assert sampled(trace, threshold_of(high)) >= sampled(trace, threshold_of(low))


@pytest.mark.parametrize("step", [1, 2, 1 << 16, 1 << 32, 1 << 56])
def test_ids_in_sequence_spread(step: int) -> None:
    threshold = threshold_of(0.1)
    hits = sum(sampled(step * number, threshold) for number in range(200))
    assert 5 <= hits <= 45


def test_the_choice_stays_what_it_is() -> None:
    # Nodes of different versions choose the same traces.
    threshold = threshold_of(0.25)
    assert [number for number in range(24) if sampled(number, threshold)] == [3, 10, 18, 20, 21]


@pytest.mark.parametrize(
    ("rate", "weight"),
    [(1.0, 1), (0.7, 1), (0.01, 100), (1 / 3, 3), (0.0, 1), (1e-300, (1 << 32) - 1), (1e-9, 10**9)],
)
def test_a_hop_stands_for_as_many_as_the_rate_says(rate: float, weight: int) -> None:
    assert weight_of_rate(rate) == weight
