"""Dispatchers of simulated nodes: what is promised of messages holds whatever the seed."""

from __future__ import annotations

import pytest

from tests.simulated.broken_dispatchers import BROKEN, catches
from tests.simulated.dispatchers import checked_run, run_dispatchers
from tests.support.counts import UNMEASURED, runs

QUICK = 1, 203, 202, 11, *range(20, 40), 504, 540, 230317
"""Seeds, of which the first are those of small networks."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", runs(2, 12))
def test_each_message_has_its_outcome_and_nothing_is_left(seed: int) -> None:
    assert checked_run(seed)[2] == []


@UNMEASURED
@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=each.__name__, marks=[] if number < 3 else [pytest.mark.exhaustive])
        for number, each in enumerate(BROKEN)
    ],
)
def test_dispatchers_that_are_broken_on_purpose_are_caught(number: int) -> None:
    assert any(catches(BROKEN[number], seed) for seed in QUICK)


@UNMEASURED
def test_a_run_is_repeated_exactly_by_its_seed() -> None:
    assert run_dispatchers(1).tale() == run_dispatchers(1).tale() != run_dispatchers(3).tale()
