"""What a log's files count, by the writer's thread alone, and as a value for everybody."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counts", "LogWriterStatistics"]


@dataclass(slots=True)
class Counts:
    """Counters of a log's files; see `LogWriterStatistics` for what they count."""

    segments: int = 0
    bytes: int = 0
    lost_blocks: int = 0
    lost_hops: int = 0
    lost_flows: int = 0
    lost_events: int = 0
    recovered: int = 0
    recovered_lost_bytes: int = 0
    bad: int = 0
    deleted_by_age: int = 0
    deleted_by_bytes: int = 0
    deleted_unread: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class LogWriterStatistics:
    """What a writer has done so far.

    Attributes:
        segments: Segments sealed, those that tell of a gap included.
        bytes: Bytes written into segments.
        pending: Bytes that wait for the disk.
        refused_blocks: Blocks that `append` refused: too many bytes waited, or the segment had
            failed already.
        lost_blocks: Blocks that `append` took and that were then not written.
        lost_hops: Hops in those, or in what a failing disk did not keep.
        lost_flows: Flows in those.
        lost_events: Route events in those.
        recovered: Segments that an earlier run had left open, and that were sealed at the start.
        recovered_lost_bytes: Bytes at the ends of those that no block could be made of.
        bad: Files left open that could not be read, and were set aside as `.bad`, whole.
        deleted_by_age: Segments deleted as they were too old.
        deleted_by_bytes: Segments deleted as there were too many bytes.
        deleted_unread: Of the deleted ones, those that somebody who reads the log had not read.
        errors: Failures of the disk.
    """

    segments: int
    bytes: int
    pending: int
    refused_blocks: int
    lost_blocks: int
    lost_hops: int
    lost_flows: int
    lost_events: int
    recovered: int
    recovered_lost_bytes: int
    bad: int
    deleted_by_age: int
    deleted_by_bytes: int
    deleted_unread: int
    errors: int
