"""Circuits of simulated nodes: both ends learn of each loss, and agree whatever the seed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from onward.actors.dispatch._circuit_table import CircuitTable
from onward.protocol.dispatch import CircuitFrameKind, Circuits
from tests.simulated.circuits import run_circuits
from tests.support.counts import UNMEASURED, runs

_receive = Circuits.receive


def _nothing(*_values: Any) -> tuple[()]:
    return ()


def _doubling(circuits: Circuits, number: int, side: Any, data: bytes, now: float) -> Any:
    sends = _receive(circuits, number, side, data, now)
    return sends * 2 if data[2] == CircuitFrameKind.TRANSFER else sends


@pytest.mark.parametrize("seed", runs(3, 60))
def test_ends_agree_after_each_trouble(seed: int) -> None:
    run = run_circuits(seed)
    assert run.wrong == []
    assert run.ends


@UNMEASURED
@pytest.mark.parametrize(
    ("kind", "method", "broken"),
    [
        (CircuitTable, "link_lost", _nothing),
        (Circuits, "link_lost", _nothing),
        (Circuits, "receive", _doubling),
    ],
)
def test_nodes_that_are_broken_on_purpose_are_caught(kind: type, method: str, broken: Any) -> None:
    with mock.patch.object(kind, method, broken):
        assert any(run_circuits(seed).wrong for seed in range(4))
