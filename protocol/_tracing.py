"""The tracing text of a message: Ockam's fourth field, read and written; no I/O.

It is a JSON object of texts. `traceparent` and `tracestate` are W3C's, and Rust nodes write them.
`onward` is our own: the *mark* of a message with hops that are reported to a worker, the tracer.
`_trace_report` has the payload of these reports, and `onward.report` marks a message as one.

```
{"traceparent": "00-<trace id>-<span id>-01", "onward": "<trace id>-<hop id>-<depth> 0#<tracer>"}
{"onward.report": "<trace id>"}
```

Any sender can set this text. A text that is not of this form is not an error: it is passed on
unchanged and otherwise ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from ._address import Address
from ._errors import ProtocolError

__all__ = [
    "MAX_MARK_DEPTH",
    "MAX_TRACING",
    "TraceMark",
    "read_tracing",
    "reported_trace",
    "trace_mark_of",
    "tracing_of_report",
    "with_trace_mark",
    "write_tracing",
]

MAX_TRACING: Final = 4096
"""Most bytes of a tracing text that is read or written, as UTF-8. A longer one is passed on and
not looked at."""

MAX_MARK_DEPTH: Final = 256
"""Most hops a mark counts. A message that has come so far is not reported any more."""

KEY: Final = "onward"
REPORT: Final = "onward.report"

_TRACE: Final = re.compile(r"[0-9a-f]{32}")
_MARK: Final = re.compile(r"([0-9a-f]{32})-([0-9a-f]{16})-([0-9]{1,3}) (.{3,})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TraceMark:
    """The mark that requests a report of each hop of a message.

    Attributes:
        trace: The id of the trace: 32 hexadecimal digits in lower case.
        hop: The id of the previous hop: 16 hexadecimal digits.
        depth: Number of hops reported so far, 0 to `MAX_MARK_DEPTH`.
        tracer: The address that reports are sent to: the last of the return route.
    """

    trace: str
    hop: str
    depth: int
    tracer: Address

    def next(self, hop: str) -> TraceMark:
        """Return the mark as the next hop is to see it."""
        return TraceMark(self.trace, hop, self.depth + 1, self.tracer)

    def __str__(self) -> str:
        return f"{self.trace}-{self.hop}-{self.depth} {self.tracer}"


def read_tracing(text: str) -> dict[str, str] | None:
    """Read a tracing text.

    Returns:
        What it holds; `None` if it is over `MAX_TRACING` bytes or no JSON object of texts.
    """
    # Characters first: counting the bytes of a text makes a copy of it.
    if len(text) > MAX_TRACING:
        return None
    if not text.isascii() and len(text.encode("utf-8", "surrogatepass")) > MAX_TRACING:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    read = cast("dict[str, object]", fields)  # the keys of a JSON object are texts
    for value in read.values():
        if type(value) is not str:  # a loop, as a generator would take as long as the parser
            return None
    return cast("dict[str, str]", read)


def write_tracing(fields: Mapping[str, str]) -> str | None:
    """Write a tracing text.

    Returns:
        The text; `None` if there is nothing to write, or more than `MAX_TRACING` bytes.
    """
    if not fields:
        return None
    # Escaped to ASCII, so that its characters are its bytes.
    text = json.dumps(dict(fields), separators=(",", ":"))
    return text if len(text) <= MAX_TRACING else None


def trace_mark_of(fields: Mapping[str, str]) -> TraceMark | None:
    """Return the mark in what a tracing text holds; `None` if there is none, or a bad one."""
    match = _MARK.fullmatch(fields.get(KEY, ""))
    if match is None or int(match[3]) > MAX_MARK_DEPTH:
        return None
    try:
        tracer = Address.parse(match[4])
    except ProtocolError:
        return None
    return TraceMark(match[1], match[2], int(match[3]), tracer)


def with_trace_mark(fields: Mapping[str, str], mark: TraceMark) -> str | None:
    """Write a tracing text with another mark, and all else as it is.

    Returns:
        The text; `None` if it would be over `MAX_TRACING` bytes.
    """
    return write_tracing({**fields, KEY: str(mark)})


def tracing_of_report(trace: str) -> str:
    """Return the tracing text of a report of a hop.

    Args:
        trace: The trace that it belongs to: 32 hexadecimal digits in lower case.
    """
    return f'{{"{REPORT}":"{trace}"}}'


def reported_trace(fields: Mapping[str, str]) -> str | None:
    """Return which trace a message claims to be a report of; `None` if it claims nothing."""
    trace = fields.get(REPORT, "")
    return trace if _TRACE.fullmatch(trace) else None
