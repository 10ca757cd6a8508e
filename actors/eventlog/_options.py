"""The options of an event log: its limits and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from ...protocol.eventlog import check_log_name
from ...protocol.options import Probability, Range, check_options

__all__ = ["Fsync", "LogOptions"]

Fsync = Literal["seal", "block", "never"]
"""When written data are synced to the disk: with each segment, each block, or never."""

MIB: Final = 1024 * 1024
DAY: Final = 24 * 3600.0
LEAST_SECONDS: Final = 0.001
"""The shortest time: a window's length is in whole milliseconds."""

LogTime: TypeAlias = Annotated[float, Range(least=LEAST_SECONDS, most=DAY, unit="seconds")]
"""A time of at most a day; a row of flows could hold 49 days."""

LogAge: TypeAlias = Annotated[
    float, Range(least=LEAST_SECONDS, most=100 * 365 * DAY, unit="seconds")
]
"""The age of a file, up to a hundred years."""

Amount: TypeAlias = Annotated[int, Range(least=1, most=1 << 62)]
"""A number that fits into a counter of the log."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Limits and intervals of an event log.

    Attributes:
        directory: The directory of the logs; each log has a folder of its name in it.
        name: The log's name; see `check_log_name`. Running logs must have different names.
        sample_rate: The fraction of messages with recorded hops, 0 to 1.
        flush_seconds: Most seconds before a block that is not full is written.
        window_seconds: The length of the windows in which flows are counted. A killed process
            loses the counters of the current one.
        seal_bytes: The size at which a segment is sealed, in bytes.
        seal_seconds: The age at which a segment is sealed, and so the longest time before an event
            can be read.
        fsync: When written data are synced to the disk: with each segment as it is sealed, with
            each block, or never. Data that a killed process has written are kept in any case. A
            power cut may damage data that are not synced, sealed segments included.
        max_bytes: Most bytes of the sealed segments and the files set aside as unreadable. Beyond
            it the oldest are deleted, except the newest segment. The open segment is not counted.
        max_age_seconds: The age at which such a file is deleted.
        max_pending: Most bytes that wait for the disk. Blocks beyond it are refused and counted;
            less than 64 KiB, one block, would refuse all records of a busy node.
        retry_seconds: The pause after a failure of the disk.
        max_flows: Most flows with their own counters in one window; further ones are counted
            together.
        sample_arrivals: Whether messages that arrive over links are sampled as well, for a node
            with peers that keep no log. Only messages that end here and are no replies are sampled;
            the sender's log may have decided on the others.
        max_marked_per_second: Most marked messages accepted from links each second; the marks of
            further ones are removed and counted. Every peer can write a mark. With a `sample_rate`
            of 0 all marks are removed, except on replies to requests of this node.
        max_foreign_per_second: Most requests sampled by their own trace id each second. Every
            requester can choose an id that is sampled. Further requests are sampled like requests
            without an id, at the `sample_rate` and under a new id.
        max_event_bytes_per_second: Most bytes each second of events of destinations, and as many
            again of requests without a destination. Beyond it such requests are only counted. Of a
            destination the last state is recorded as soon as there is room, followed by an event
            `lost` with the number of changes left out. At the defaults both are less than half of
            `max_bytes` in a week, whatever peers do. Hops and counters have other limits.
        max_event_burst: Most unused bytes of either kind that are saved for a burst.
        close_seconds: Most seconds that the end waits for the disk, and at most nearly half of the
            time left to stop the node. Data not written by then are logged, and lost or recovered
            at the next start.

    Raises:
        EventLogError: The name is not valid.
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
    max_flows: Annotated[int, Range(least=1, most=1 << 24)] = 65_535
    sample_arrivals: bool = False
    max_marked_per_second: Amount = 1000
    max_foreign_per_second: Amount = 1000
    max_event_bytes_per_second: Amount = 4 * 1024
    max_event_burst: Amount = 64 * MIB
    close_seconds: LogTime = 10.0

    def __post_init__(self) -> None:
        check_options(self)
        check_log_name(self.name)
