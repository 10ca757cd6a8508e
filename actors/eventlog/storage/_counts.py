"""The counters of a log's files, written by the writer's thread only, and their values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counts", "LogWriterStatistics"]


@dataclass(slots=True)
class Counts:
    """Counters of a log's files, as described at `LogWriterStatistics`."""

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
    """The figures of a writer at one moment.

    Attributes:
        segments: Segments sealed, those that record a gap included.
        bytes: Bytes written into segments.
        pending: Bytes that wait for the disk.
        refused_blocks: Blocks that `append` refused: too many bytes waited, or the segment had
            failed already.
        lost_blocks: Blocks that `append` accepted and that were not written.
        lost_hops: Hops in these blocks, or in data that a failing disk did not keep.
        lost_flows: Flows likewise.
        lost_events: Route events likewise.
        recovered: Segments left open by an earlier run and sealed at the start.
        recovered_lost_bytes: Bytes at their ends that form no whole block.
        bad: Open files that could not be read and were set aside as `.bad`.
        deleted_by_age: Segments deleted because of their age.
        deleted_by_bytes: Segments deleted because of the limit of bytes.
        deleted_unread: Deleted segments that not all readers of the log had read.
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
