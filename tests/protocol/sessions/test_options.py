from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from onward.protocol.sessions import LivenessOptions


def test_silence_is_the_pings_and_one_interval_more() -> None:
    assert LivenessOptions().silence == 40
    assert LivenessOptions(ping_interval=2, max_unanswered=1).silence == 4


@pytest.mark.parametrize("value", [0, -1, inf, nan])
@pytest.mark.parametrize(
    "field", ["ping_interval", "max_unanswered", "retry", "forget_after", "close_attempts"]
)
def test_a_time_that_cannot_be(field: str, value: float) -> None:
    given: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=field):
        LivenessOptions(**given)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, nan])
def test_a_jitter_that_cannot_be(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        LivenessOptions(jitter=jitter)


def test_less_than_one_ping_cannot_go_unanswered() -> None:
    given: dict[str, Any] = {"max_unanswered": 0.5}
    with pytest.raises(
        ValueError, match=r"max_unanswered must be a whole number of at least 1, not 0\.5"
    ):
        LivenessOptions(**given)
