from __future__ import annotations

import math
from typing import Any

import pytest

from onward.transports.simulated import Faults, SimulationOptions, Traffic


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"latency": (2, 1)}, "the shortest time first"),
        ({"latency": (-1, 1)}, "Faults.latency must be a tuple of 2"),
        ({"loss": 1.1}, "Faults.loss must be a number"),
        ({"duplicate": -0.1}, "Faults.duplicate must be a number"),
        ({"reorder": 2}, "Faults.reorder must be a number"),
        ({"reorder_by": -1}, "Faults.reorder_by must be a number"),
        ({"latency": (0, math.inf)}, "Faults.latency must be a tuple of 2"),
        ({"latency": (math.inf, math.inf)}, "Faults.latency must be a tuple of 2"),
        ({"latency": (0, math.nan)}, "Faults.latency must be a tuple of 2"),
        ({"latency": (math.nan, 1)}, "Faults.latency must be a tuple of 2"),
        ({"loss": math.nan}, "Faults.loss must be a number"),
        ({"reorder_by": math.nan}, "Faults.reorder_by must be a number"),
        ({"reorder_by": math.inf}, "Faults.reorder_by must be a number"),
    ],
)
def test_what_cannot_be(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Faults(**wrong)


def test_options_are_positive() -> None:
    with pytest.raises(ValueError, match="window must be a whole number"):
        SimulationOptions(window=0)
    for number in (math.nan, math.inf):
        with pytest.raises(ValueError, match="detection must be a number of seconds, more than 0"):
            SimulationOptions(detection=number)


def test_traffic_adds_up() -> None:
    assert Traffic(1, 2, 3, 4, 5, 6, 7, 8) + Traffic(1, 1, 1, 1, 1, 1, 1, 1) == Traffic(
        2, 3, 4, 5, 6, 7, 8, 9
    )
