"""What an event log may use, and when it writes: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from ...protocol.eventlog import (
    MAX_NAMES,
    MAX_ROUTES,
    MAX_TAGSETS,
    check_log_name,
)
from ...protocol.options import Probability, Range, check_options

__all__ = ["Fsync", "LogOptions"]

Fsync = Literal["seal", "block", "never"]
"""When what is written is made to outlast a power cut: with each segment, each block, or never."""

MIB: Final = 1024 * 1024
DAY: Final = 24 * 3600.0
LEAST_SECONDS: Final = 0.001
"""The shortest that a time may be: a window's length is in whole milliseconds."""

LogTime: TypeAlias = Annotated[float, Range(least=LEAST_SECONDS, most=DAY, unit="seconds")]
"""A time. A row of flows has room for 49 days, a clock of a loop for more."""

LogAge: TypeAlias = Annotated[
    float, Range(least=LEAST_SECONDS, most=100 * 365 * DAY, unit="seconds")
]
"""The age of a file, up to a hundred years."""

Amount: TypeAlias = Annotated[int, Range(least=1, most=1 << 62)]
"""A number that fits into a counter of the log."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What an event log may use, and when it writes.

    Attributes:
        directory: Where the logs are; this one has a folder of its name in there.
        name: The log's name: see `check_log_name`. No two running ones may share it.
        sample_rate: Which part of the messages have their hops recorded, 0 to 1.
        flush_seconds: How long a block waits to be full before it is written all the same.
        window_seconds: How long the windows are for which flows are counted. What a window has so
            far is written with each flush if it is little, else at its end: up to 1,000 counters,
            ways of asking, workers and links. Of one window there may be several rows of a kind.
        seal_bytes: How large a segment gets, in bytes.
        seal_seconds: How old a segment gets. So late at most an event can be read.
        fsync: When what is written is made to outlast a power cut: with each segment as it is
            sealed, with each block, or never. What a process that is killed has written is
            there in any case. After a power cut without it even sealed segments may be damaged.
        max_bytes: How much the sealed segments may be together, and the files that were set aside
            as they could not be read. Over it the oldest are deleted; the newest segment never is,
            and the one under way comes on top.
        max_age_seconds: How old one of these gets before it is deleted.
        max_pending: Bytes that wait for the disk. What comes on top is refused, and counted: with
            less than 64 KiB, a block, all that a busy node records.
        retry_seconds: After a failure of the disk, how long it is left alone.
        max_names: Names in one segment; further ones are recorded as none, and counted.
        max_routes: Route ids in one segment; further ones are recorded as none, and counted.
        max_tagsets: Tag sets in one segment; further ones are recorded as none, and counted.
        max_flows: Flows counted apart in one window; further ones are counted together.
        sample_arrivals: Whether messages that come over links are sampled too, as those are that
            are sent here: for a node whose peers keep no log, or its share of a message's hops
            would be all there is. Only those that end here, and no answers: others may be part
            of what was not sampled elsewhere.
        max_marked_per_second: Messages with a mark that are taken from links, each second; the
            marks of further ones are taken off, and counted. Anybody may write one. With a
            `sample_rate` of 0 none is taken. Answers to requests of this node always are.
        max_foreign_per_second: Requests that are sampled by a trace id that came with them, each
            second. Anybody may write one whose hash is chosen. Beyond it a request is drawn for as
            if it had come without: at the `sample_rate`, under an id of its own.
        max_rejects_per_second: Requests that nobody could take which are recorded as events,
            each second; further ones are only counted.
        max_event_bytes_per_second: Bytes of events of destinations that come, change and go, and as
            many again of requests that nobody could take. Beyond it those requests are only
            counted, and of a destination the last state is told as soon as there is room, with an
            event `lost` at the end that says how many changes were left out. At the defaults
            both together are less than half of `max_bytes` in a week, whatever peers do. Hops and
            counters come on top, and are bounded by other limits.
        max_event_burst: Bytes of either that are saved up for when many come at once.
        close_seconds: How long the end waits for the disk, at most; not longer than nearly half
            of the time that there is to stop the node. What is not written then is logged, and
            is lost or recovered at the next start.

    Raises:
        EventLogError: The name is none.
        ValueError: The rate is not from 0 to 1, a limit is less than 1 or more than there can be,
            or a time is less than a millisecond or more than a day, 100 years for
            `max_age_seconds`.
    """

    directory: Path
    name: str
    sample_rate: Probability = 0.01
    flush_seconds: LogTime = 1.0
    window_seconds: LogTime = 10.0
    seal_bytes: Annotated[int, Range(least=1, most=1024 * MIB)] = 64 * MIB
    seal_seconds: LogTime = 60.0
    fsync: Fsync = "seal"
    max_bytes: Amount = 10 * 1024 * MIB
    max_age_seconds: Annotated[
        float, Range(least=LEAST_SECONDS, most=100 * 365 * DAY, unit="seconds")
    ] = 7 * 24 * 3600.0
    max_pending: Amount = 16 * MIB
    retry_seconds: LogTime = 5.0
    max_names: Annotated[int, Range(least=1, most=MAX_NAMES)] = MAX_NAMES
    max_routes: Annotated[int, Range(least=1, most=MAX_ROUTES)] = MAX_ROUTES
    max_tagsets: Annotated[int, Range(least=1, most=MAX_TAGSETS)] = MAX_TAGSETS
    max_flows: Annotated[int, Range(least=1, most=1 << 24)] = 65_535
    sample_arrivals: bool = False
    max_marked_per_second: Amount = 1000
    max_foreign_per_second: Amount = 1000
    max_rejects_per_second: Amount = 100
    max_event_bytes_per_second: Amount = 4 * 1024
    max_event_burst: Amount = 64 * MIB
    close_seconds: LogTime = 10.0

    def __post_init__(self) -> None:
        check_options(self)
        check_log_name(self.name)
