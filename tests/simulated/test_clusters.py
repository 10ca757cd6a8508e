"""Clusters in virtual time: what is promised holds whatever the seed."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.simulated.broken_clusters import BROKEN, CountsAPartAsTheWhole, catches
from tests.simulated.cluster_machine import ClusterMachine
from tests.simulated.clusters import checked_run, run
from tests.support.counts import UNMEASURED, runs, times

AT_ONCE = 20
RARELY_CAUGHT = (CountsAPartAsTheWhole,)
"""Those that fifty runs may hide."""


@UNMEASURED
@pytest.mark.slow
@pytest.mark.parametrize("first", runs(40, 600, AT_ONCE))
def test_a_cluster_that_is_healed_has_one_table(first: int) -> None:
    found = {seed: checked_run(seed)[2] for seed in range(first, first + AT_ONCE)}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@UNMEASURED
@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(
            number,
            id=each.__name__,
            marks=[pytest.mark.exhaustive] if each in RARELY_CAUGHT else [],
        )
        for number, each in enumerate(BROKEN)
    ],
)
def test_a_broker_that_is_broken_on_purpose_is_caught(number: int) -> None:
    assert any(catches(BROKEN[number], seed) for seed in range(300))


def test_a_run_is_repeated_exactly_by_its_seed() -> None:
    assert run(7) == run(7) != run(8)


TestCluster = UNMEASURED(ClusterMachine.TestCase)
TestCluster.settings = settings(max_examples=times(15, 300), stateful_step_count=30, deadline=None)
