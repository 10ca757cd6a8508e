"""The mark in a message's tracing text that has every node record the message.

```
{"onward.log": "00f067aa0ba902b7-3-100"}
```

The trace id, 16 hexadecimal digits; how many hops were recorded before, 0 to 255; and how many
messages this one stands for, its weight, 1 to 1,000,000. A recorder passes the message on with the
mark of the next hop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .._tracing import write_tracing

__all__ = ["LOG_KEY", "MAX_LOG_HOP", "MAX_LOG_WEIGHT", "LogMark", "log_mark_of", "with_log_mark"]

MAX_LOG_HOP: Final = 255
"""Most hops that a mark counts; it stays there."""

MAX_LOG_WEIGHT: Final = 1_000_000
"""Most messages that a mark stands for. A greater weight counts as this one: any sender can write
a mark, and it must not outweigh the rest."""

LOG_KEY: Final = "onward.log"
"""The field of a tracing text that the mark is in."""

_MARK: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,3})-([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class LogMark:
    """The mark that makes nodes record the hops of a message.

    Attributes:
        trace_id: The id of the message: 64 bits.
        hop: Number of hops recorded so far, 0 to `MAX_LOG_HOP`.
        weight: Number of messages it stands for, 1 to `MAX_LOG_WEIGHT`: by the rate of the node
            that marked it, whatever those have that it comes by.
    """

    trace_id: int
    hop: int = 0
    weight: int = 1

    def next(self) -> LogMark:
        """Return the mark as the next hop is to see it."""
        return LogMark(self.trace_id, min(self.hop + 1, MAX_LOG_HOP), self.weight)

    def __str__(self) -> str:
        return f"{self.trace_id:016x}-{self.hop}-{self.weight}"


def log_mark_of(fields: Mapping[str, str]) -> LogMark | None:
    """Return the mark in what a tracing text holds; `None` if there is none, or a bad one."""
    match = _MARK.fullmatch(fields.get(LOG_KEY, ""))
    if match is None or int(match[2]) > MAX_LOG_HOP:
        return None
    return LogMark(int(match[1], 16), int(match[2]), max(1, min(int(match[3]), MAX_LOG_WEIGHT)))


def with_log_mark(fields: Mapping[str, str], mark: LogMark) -> str | None:
    """Write a tracing text with another mark, and all else as it is.

    Returns:
        The text; `None` if it would be over `MAX_TRACING` bytes.
    """
    return write_tracing({**fields, LOG_KEY: str(mark)})
