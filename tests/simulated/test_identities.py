"""Simulated nodes with identities: what is promised of messages holds whatever the seed."""

from __future__ import annotations

import pytest

from tests.simulated.broken_identities import BROKEN, Broken, catches
from tests.simulated.identities import checked_run, run_identities
from tests.support.counts import UNMEASURED, runs


@pytest.mark.parametrize("seed", runs(4, 60))
def test_each_message_comes_once_from_its_sender_or_not_at_all(seed: int) -> None:
    assert checked_run(seed)[2] == []


@UNMEASURED
@pytest.mark.parametrize("broken", BROKEN)
def test_nodes_that_are_broken_on_purpose_are_caught(broken: type[Broken]) -> None:
    assert any(catches(broken, seed) for seed in broken.seeds)


@UNMEASURED
def test_a_run_is_repeated_exactly_by_its_seed() -> None:
    assert run_identities(1) == run_identities(1) != run_identities(3)
