"""Circuits of simulated nodes: both ends learn of each loss, and agree whatever the seed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulated.broken_circuits import BROKEN, catches
from tests.simulated.circuits import run_circuits
from tests.support.counts import UNMEASURED, runs


@pytest.mark.parametrize("seed", runs(3, 60))
def test_ends_agree_after_each_trouble(seed: int) -> None:
    run = run_circuits(seed)
    assert run.wrong == []
    assert run.ends


@UNMEASURED
@pytest.mark.parametrize("broken", BROKEN)
def test_nodes_that_are_broken_on_purpose_are_caught(broken: type[Any]) -> None:
    assert any(catches(broken, seed) for seed in range(4))
