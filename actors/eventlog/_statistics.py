"""The statistics of an event log."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EventLogStatistics", "LogWriterStatistics", "RecorderStatistics"]


@dataclass(frozen=True, slots=True)
class RecorderStatistics:
    """The counters of a recorder since the start.

    Attributes:
        hops: Hops recorded, those dropped later included; `flows` and `events` likewise.
        flows: Rows of flow counters.
        events: Route events, those about the log itself included.
        segments: Segments begun.
        dropped: Records that did not get into the log, by reason.
        left_out: What a limit has kept out of the log, and is not a dropped record: `marks` of
            messages that arrived over links (`max_marked_per_second`); `trace ids` of requesters
            (`max_foreign_per_second`), as their requests are sampled like those without an id;
            `rejects`, which flows count, and `changes` of destinations
            (`max_event_bytes_per_second`), of which the last is recorded; `names`, routes and tag
            sets beyond what a segment can have; `flows` counted in rows without names
            (`max_flows`).
    """

    hops: int
    flows: int
    events: int
    segments: int
    dropped: dict[str, int]
    left_out: dict[str, int]


@dataclass(slots=True)
class LogWriterStatistics:
    """The counters of a writer, which its thread updates.

    Attributes:
        segments: Segments sealed.
        bytes: Bytes written into segments.
        pending: Bytes that wait for the disk.
        lost: Records that were accepted and not written. After a failure of the disk a few of them
            may be in the log all the same.
        recovered: Segments left open by an earlier run and sealed at the start.
        bad: Open files that could not be read and were set aside as `.bad`.
        deleted: Segments and files set aside that were deleted because of age or bytes.
        deleted_unread: Deleted segments that not all readers of the log had read.
        errors: Failures of the disk.
    """

    segments: int = 0
    bytes: int = 0
    pending: int = 0
    lost: int = 0
    recovered: int = 0
    bad: int = 0
    deleted: int = 0
    deleted_unread: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class EventLogStatistics:
    """The figures of an event log at one moment.

    Attributes:
        recorder: The figures of the recorder.
        writer: The figures of the writer.
        trouble: The current failure of the disk; empty if there is none.
    """

    recorder: RecorderStatistics
    writer: LogWriterStatistics
    trouble: str
