"""What errors of event logs say."""

from __future__ import annotations

import pytest

from onward.protocol import ProtocolError
from onward.protocol.eventlog import EventLogError, SegmentCorrupt, SegmentNewer, SegmentUnfinished


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SegmentCorrupt(5, "why"), "the segment is damaged at byte 5: why"),
        (
            SegmentNewer(2),
            (
                "the segment has version 2 of the format, this Onward knows 1: read it with a "
                "newer Onward"
            ),
        ),
        (SegmentUnfinished(), "the segment has no end: it is still being written, or was cut off"),
        (EventLogError("why"), "why"),
    ],
)
def test_an_error_says_what_to_know(error: EventLogError, text: str) -> None:
    assert str(error) == text
    assert isinstance(error, ProtocolError)
