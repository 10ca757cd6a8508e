from __future__ import annotations

import math
from typing import Any

import pytest

from onward.transports.simulated import Faults, SimulationOptions, Traffic


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"latency": (2, 1)}, "a latency of 2 to 1 seconds"),
        ({"latency": (-1, 1)}, "a latency of -1 to 1 seconds"),
        ({"loss": 1.1}, "loss is a probability, and 1.1 is none"),
        ({"duplicate": -0.1}, "duplicate is a probability"),
        ({"reorder": 2}, "reorder is a probability"),
        ({"reorder_by": -1}, "reorder_by is a time, and -1 seconds is none"),
        ({"latency": (0, math.inf)}, "a latency of 0 to inf seconds"),
        ({"latency": (math.inf, math.inf)}, "a latency of inf to inf seconds"),
        ({"latency": (0, math.nan)}, "a latency of 0 to nan seconds"),
        ({"latency": (math.nan, 1)}, "a latency of nan to 1 seconds"),
        ({"loss": math.nan}, "loss is a probability, and nan is none"),
        ({"reorder_by": math.nan}, "reorder_by is a time, and nan seconds is none"),
        ({"reorder_by": math.inf}, "reorder_by is a time, and inf seconds is none"),
    ],
)
def test_what_cannot_be(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Faults(**wrong)


def test_options_are_positive() -> None:
    with pytest.raises(ValueError, match="window has to be more than 0"):
        SimulationOptions(window=0)
    for number in (math.nan, math.inf):
        with pytest.raises(ValueError, match="detection has to be more than 0, and finite"):
            SimulationOptions(detection=number)


def test_traffic_adds_up() -> None:
    assert Traffic(1, 2, 3, 4, 5, 6, 7, 8) + Traffic(1, 1, 1, 1, 1, 1, 1, 1) == Traffic(
        2, 3, 4, 5, 6, 7, 8, 9
    )
