"""Errors of event logs; they join the tree of `onward.protocol`.

```
ProtocolError
└── EventLogError
    ├── SegmentCorrupt       bytes that are no segment: damaged, or not written by Onward
    ├── SegmentNewer         a segment of a later format
    └── SegmentUnfinished    a segment without its end
```
"""

from __future__ import annotations

from .._errors import ProtocolError

__all__ = ["EventLogError", "SegmentCorrupt", "SegmentNewer", "SegmentUnfinished"]


class EventLogError(ProtocolError):
    """Something that an event log cannot hold, or a segment that cannot be read."""


class SegmentCorrupt(EventLogError):
    """Bytes that are no segment: they were damaged, or something else wrote them.

    Attributes:
        offset: Where, in bytes from the start of the segment.
        reason: What is wrong there.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"the segment is damaged at byte {self.offset}: {self.reason}"


class SegmentNewer(EventLogError):
    """A segment of a later format than this Onward knows.

    Attributes:
        version: The format's version.
    """

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version

    def __str__(self) -> str:
        return (
            f"the segment has version {self.version} of the format, this Onward knows 1: "
            "read it with a newer Onward"
        )


class SegmentUnfinished(EventLogError):
    """A segment without its footer: it is still being written, or was cut off."""

    def __str__(self) -> str:
        return "the segment has no end: it is still being written, or was cut off"
