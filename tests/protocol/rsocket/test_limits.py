from __future__ import annotations

from typing import Any

import pytest

from onward.protocol.rsocket import MAX_FRAME, ConnectionLimits


@pytest.mark.parametrize("size", [0, 63, MAX_FRAME + 1])
def test_sizes_no_frame_can_have(size: int) -> None:
    with pytest.raises(
        ValueError, match="mtu must be None or a whole number of bytes from 64 to 16777215"
    ):
        ConnectionLimits(mtu=size)
    with pytest.raises(
        ValueError, match="max_frame must be a whole number of bytes from 64 to 16777215"
    ):
        ConnectionLimits(max_frame=size)
    with pytest.raises(
        ValueError, match="max_setup must be a whole number of bytes from 64 to 16777215"
    ):
        ConnectionLimits(max_setup=size)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_streams": 0},
        {"max_keepalive_data": -1},
        {"setup_timeout": 0},
        {"max_keepalive": -1},
        {"max_lifetime": float("nan")},
    ],
)
def test_numbers_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        ConnectionLimits(**wrong)


def test_the_bounds_themselves() -> None:
    for size in (64, MAX_FRAME):
        assert ConnectionLimits(mtu=size, max_frame=size).mtu == size
    assert ConnectionLimits().max_frame == MAX_FRAME
    assert ConnectionLimits().mtu is None
