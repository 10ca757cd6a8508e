"""Errors of pipes say which half of a delivery they are."""

from __future__ import annotations

import pytest

from onward.protocol import DeliveryError, InDoubt, NotDelivered, ProtocolError
from onward.protocol.pipes import PipeBroken, PipeClosed, PipeFrameError, PipeFull, PipeMissed


@pytest.mark.parametrize(
    ("error", "half", "text"),
    [
        (PipeFull("pipe", "7 messages wait"), NotDelivered, "pipe full: pipe (7 messages wait)"),
        (PipeClosed("pipe"), NotDelivered, "pipe closed: pipe"),
        (PipeMissed("pipe"), NotDelivered, "missed by the pipe: pipe"),
        (PipeBroken("pipe", "it was aborted"), InDoubt, "pipe broken: pipe (it was aborted)"),
    ],
)
def test_an_error_says_what_happened(
    error: DeliveryError, half: type[DeliveryError], text: str
) -> None:
    assert isinstance(error, half)
    assert str(error) == text


def test_a_frame_that_is_none_breaks_the_protocol() -> None:
    error = PipeFrameError("version 2, not 1")
    assert isinstance(error, ProtocolError)
    assert (str(error), error.reason) == (
        "no frame of a pipe: version 2, not 1",
        "version 2, not 1",
    )
