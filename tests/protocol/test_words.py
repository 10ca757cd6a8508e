from __future__ import annotations

import pytest

from onward.actors import LimitReached
from onward.protocol import (
    FrameTooBig,
    OnwardError,
    PayloadNotBytes,
    PayloadTooBig,
    RouteTooLong,
    counted,
)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "byte", "0 bytes"),
        (1, "byte", "1 byte"),
        (2, "byte", "2 bytes"),
        (1, "address", "1 address"),
        (65, "address", "65 addresses"),
    ],
)
def test_counted(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PayloadTooBig(2, 1), "a payload of 2 bytes is over the limit of 1 byte"),
        (FrameTooBig(2, 1), "a frame of 2 bytes is over the limit of 1 byte"),
        (RouteTooLong(65, 64), "a route of 65 addresses is over the limit of 64"),
        (RouteTooLong(1, 0), "a route of 1 address is over the limit of 0"),
        (PayloadNotBytes("str"), "a payload is bytes, not str"),
        (PayloadNotBytes("dict", "metadata"), "metadata is bytes, not dict"),
        (LimitReached("timers", 1), "the limit of 1 for timers is reached"),
    ],
)
def test_errors(error: OnwardError, text: str) -> None:
    assert str(error) == text
