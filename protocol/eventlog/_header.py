"""The two ends of a segment: the header identifies it, the footer seals it.

```
header   "ONWL" | length u32 | crc32 u32 | CBOR {v, broker, log, epoch, first_seq, ...}
footer   a block of type Z: CBOR {hops, flows, events, last_seq, ended_us}
```

Numbers are little-endian; the header's check is over its CBOR.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from struct import Struct
from typing import Final
from zlib import crc32

from ._blocks import BLOCK_HEADER, FOOTER, block
from ._cbor import MAX_I64, Fields, dumps
from ._errors import EventLogError, SegmentCorrupt, SegmentNewer, SegmentUnfinished
from ._records import FLOW, HOP, Hop
from ._segment_names import MAX_EPOCH, check_log_name

__all__ = [
    "LOG_ID_SIZE",
    "MAGIC",
    "MAX_FOOTER",
    "MAX_HEADER",
    "VERSION",
    "SegmentFooter",
    "SegmentHeader",
    "read_footer",
    "read_header",
]

MAGIC: Final = b"ONWL"
"""The first bytes of a segment."""

VERSION: Final = 1
"""The version of the format that this Onward writes, and the last one that it reads."""

MAX_HEADER: Final = 64 * 1024
"""Most bytes of a header, with its first twelve."""

MAX_FOOTER: Final = 4 * 1024
"""Most bytes of a footer, as a block: so much of a file's end is enough to read it."""

LOG_ID_SIZE: Final = 16
"""Bytes of a log's identity."""

_START: Final = Struct("<4sII")
_HOP_FIELDS: Final = [field.name for field in fields(Hop)]


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment: its log, epoch and first number.

    Attributes:
        broker: The log's name: of a broker or a node.
        log: The log's identity, 16 bytes: two logs with one name differ in it.
        epoch: The number of the writer's run, from 1 on.
        first_seq: The number of the first event, or of the next to be given if there is none.
        started_us: Time of its creation, in microseconds since the Unix epoch.
        sample_rate: The share of messages that have hops in it, 0 to 1.
        version: The version of the format.
    """

    broker: str
    log: bytes
    epoch: int
    first_seq: int
    started_us: int
    sample_rate: float
    version: int = VERSION

    def serialize(self) -> bytes:
        """Return the first bytes of the segment.

        Raises:
            EventLogError: The name is none, or a number is out of range.
        """
        check_log_name(self.broker)
        if len(self.log) != LOG_ID_SIZE:
            raise EventLogError(f"a log's identity has {LOG_ID_SIZE} bytes")
        if not (0 <= self.epoch <= MAX_EPOCH and 0 < self.first_seq <= MAX_I64):
            raise EventLogError(f"no header for epoch {self.epoch}, event {self.first_seq}")
        if not (isfinite(self.sample_rate) and 0 <= self.sample_rate <= 1):
            raise EventLogError(f"a sampling rate of {self.sample_rate} is not from 0 to 1")
        body = dumps(
            {
                "v": self.version,
                "broker": self.broker,
                "log": self.log,
                "epoch": self.epoch,
                "first_seq": self.first_seq,
                "started_us": self.started_us,
                "sample_rate": float(self.sample_rate),
                "record_size": HOP.size,
                "flow_size": FLOW.size,
                "fields": _HOP_FIELDS,
            }
        )
        return _START.pack(MAGIC, len(body), crc32(body)) + body


@dataclass(frozen=True, slots=True)
class SegmentFooter:
    """The footer of a sealed segment: its counts.

    Attributes:
        hops: Number of hops.
        flows: Number of flows.
        events: Number of route events.
        last_seq: The last number given; `first_seq - 1` if none was. What is missing of the
            numbers between was lost before it was written.
        ended_us: Time of sealing, in microseconds since the Unix epoch.
    """

    hops: int
    flows: int
    events: int
    last_seq: int
    ended_us: int

    def serialize(self) -> bytes:
        """Return it as a block, the last of a segment."""
        return block(
            FOOTER,
            dumps(
                {
                    "hops": self.hops,
                    "flows": self.flows,
                    "events": self.events,
                    "last_seq": self.last_seq,
                    "ended_us": self.ended_us,
                }
            ),
        )


def header_size(data: bytes | memoryview) -> int:
    """Return how long the header is, looking at the first twelve bytes only.

    Raises:
        SegmentUnfinished: There are fewer bytes.
        SegmentCorrupt: It is no segment, or says that the header is over `MAX_HEADER`.
    """
    if len(data) < _START.size:
        if bytes(data[:4]) != MAGIC[: len(data)]:
            raise SegmentCorrupt(0, "no segment of an event log")
        raise SegmentUnfinished
    magic, length, _ = _START.unpack_from(data)
    if magic != MAGIC:
        raise SegmentCorrupt(0, "no segment of an event log")
    if length > MAX_HEADER - _START.size:
        raise SegmentCorrupt(4, f"a header of {length} bytes, over the limit of {MAX_HEADER}")
    return _START.size + int(length)


def read_header(data: bytes | memoryview) -> SegmentHeader:
    """Read the header; at most the first `MAX_HEADER` bytes are looked at.

    Raises:
        SegmentUnfinished: It is cut short.
        SegmentCorrupt: It is damaged, or no header.
        SegmentNewer: It is of a later format.
    """
    size = header_size(data)
    if len(data) < size:
        raise SegmentUnfinished
    body = bytes(data[_START.size : size])
    if crc32(body) != _START.unpack_from(data)[2]:
        raise SegmentCorrupt(_START.size, "the check of the header")
    read = Fields(body, _START.size)
    version = read.number("v", 1)
    if version > VERSION:
        raise SegmentNewer(version)
    read.expect("record_size", HOP.size)
    read.expect("flow_size", FLOW.size)
    read.expect("fields", _HOP_FIELDS)
    try:
        broker = check_log_name(read.text("broker"))
    except SegmentCorrupt:
        raise
    except EventLogError as error:
        read.refuse(str(error))
    return SegmentHeader(
        broker,
        read.octets("log", LOG_ID_SIZE),
        read.number("epoch", 0, MAX_EPOCH),
        read.number("first_seq", 1),
        read.number("started_us", -MAX_I64),
        read.rate("sample_rate"),
        version,
    )


def parse_footer(body: bytes, offset: int) -> SegmentFooter:
    """Read the body of a footer.

    Raises:
        SegmentCorrupt: It is none.
    """
    read = Fields(body, offset)
    return SegmentFooter(
        read.number("hops"),
        read.number("flows"),
        read.number("events"),
        read.number("last_seq"),
        read.number("ended_us", -MAX_I64),
    )


def read_footer(tail: bytes | memoryview) -> SegmentFooter:
    """Read the footer from the end of a file, without the rest.

    Args:
        tail: The last bytes of the file, `MAX_FOOTER` of them or all.

    Raises:
        SegmentUnfinished: They do not end with a footer.
        SegmentCorrupt: The footer's fields are wrong.
    """
    tail = bytes(tail[-MAX_FOOTER:])
    start = tail.rfind(FOOTER)
    while start >= 0:
        found = tail[start:]
        body = found[BLOCK_HEADER.size :]
        if len(found) >= BLOCK_HEADER.size and block(FOOTER, body) == found:
            return parse_footer(body, start)
        start = tail.rfind(FOOTER, 0, start)
    raise SegmentUnfinished
