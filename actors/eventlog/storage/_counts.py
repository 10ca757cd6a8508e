"""The counters of a log's files and of its current segment, written by the writer's thread only."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.eventlog import SegmentFooter

__all__ = ["Counts", "LogWriterStatistics", "SegmentProgress"]

_HOPS, _FLOWS, _EVENTS = b"R", b"F", b"E"


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


class SegmentProgress:
    """Counters for the records of the current segment: written, in doubt and lost.

    Args:
        count: The counters of lost records.
    """

    def __init__(self, count: Counts) -> None:
        self._count = count
        self.clear()

    def __bool__(self) -> bool:
        """Whether there is any record."""
        return any(self._records.values())

    def clear(self) -> None:
        """Reset the counters for another segment."""
        self._records = {_HOPS: 0, _FLOWS: 0, _EVENTS: 0}
        self._in_doubt: tuple[bytes, int] | None = None
        """The last block, while it is written or after the disk failed on it."""

    def footer(self, last_seq: int, ended_us: int) -> SegmentFooter:
        """Return the segment's footer."""
        records = self._records
        return SegmentFooter(records[_HOPS], records[_FLOWS], records[_EVENTS], last_seq, ended_us)

    def write(self, kind: bytes, records: int) -> None:
        """Count a block before it is written: after a failure all of it may be there."""
        if kind in self._records:
            self._records[kind] += records
            self._in_doubt = kind, records

    def keep(self) -> None:
        """Confirm the last block, which is in the log and synced as `fsync` requires."""
        self._in_doubt = None

    def drop(self, kind: bytes, records: int) -> None:
        """Count a block that is not written."""
        self._count.lost_blocks += 1
        self._lose(kind, records)

    def lose_doubt(self) -> None:
        """Count the block in doubt as lost."""
        if self._in_doubt is not None:
            kind, records = self._in_doubt
            self._in_doubt = None
            self._records[kind] -= records
            self._lose(kind, records)

    def lose_all(self) -> None:
        """Count all records of the segment as lost."""
        self._in_doubt = None
        for kind, records in self._records.items():
            self._lose(kind, records)
            self._records[kind] = 0

    def _lose(self, kind: bytes, records: int) -> None:
        if kind == _HOPS:
            self._count.lost_hops += records
        elif kind == _FLOWS:
            self._count.lost_flows += records
        elif kind == _EVENTS:
            self._count.lost_events += records
