"""The records of a segment that are written, in doubt or lost."""

from __future__ import annotations

from typing import Final

from ....protocol.eventlog import SegmentFooter
from ..recording._sink import Receipt
from ._counts import Counts
from ._folder import LogFolder

__all__ = ["NOTHING", "SegmentProgress"]

_HOPS, _FLOWS, _EVENTS = b"R", b"F", b"E"

NOTHING: Final = SegmentFooter(0, 0, 0, 0, 0)
"""The footer of a segment without records."""


class SegmentProgress:
    """Counters for the records of the current segment.

    Args:
        count: The counters of lost records.
        folder: The log's folder; its notices are removed once the log has them.
    """

    def __init__(self, count: Counts, folder: LogFolder) -> None:
        self._count = count
        self._folder = folder
        self._records = {_HOPS: 0, _FLOWS: 0, _EVENTS: 0}
        self._in_doubt: tuple[bytes, int, Receipt | None] | None = None
        """The last block, while it is written or after the disk failed on it."""

    def __bool__(self) -> bool:
        """Whether there is any record."""
        return any(self._records.values())

    def clear(self) -> None:
        """Reset the counters for another segment."""
        self._records = {_HOPS: 0, _FLOWS: 0, _EVENTS: 0}
        self._in_doubt = None

    def footer(self, last_seq: int, ended_us: int) -> SegmentFooter:
        """Return the segment's footer."""
        records = self._records
        return SegmentFooter(records[_HOPS], records[_FLOWS], records[_EVENTS], last_seq, ended_us)

    def write(self, kind: bytes, records: int, receipt: Receipt | None) -> None:
        """Count a block before it is written: after a failure all of it may be there."""
        if kind in self._records:
            self._records[kind] += records
            self._in_doubt = kind, records, receipt

    def keep(self, receipt: Receipt | None) -> None:
        """Confirm the last block, which is in the log and synced as `fsync` requires."""
        self._in_doubt = None
        if receipt is not None:
            receipt.kept = True
            if receipt.says:
                self._folder.notices.forget(receipt.says)

    def drop(self, kind: bytes, records: int, receipt: Receipt | None) -> None:
        """Count a block that is not written."""
        self._count.lost_blocks += 1
        self._lose(kind, records)
        if receipt is not None:
            receipt.kept = False

    def settle(self, kept: SegmentFooter) -> None:
        """Count lost records from the final footer, and settle the block in doubt."""
        self._settle({_HOPS: kept.hops, _FLOWS: kept.flows, _EVENTS: kept.events})

    def give_up(self, *, all_of_it: bool) -> None:
        """Count the block in doubt as lost, or all records of the segment."""
        kept = dict.fromkeys(self._records, 0) if all_of_it else dict(self._records)
        if self._in_doubt is not None and not all_of_it:
            kind, records, _ = self._in_doubt
            kept[kind] -= records
        self._settle(kept)

    def _settle(self, kept: dict[bytes, int]) -> None:
        if self._in_doubt is not None:
            kind, _, receipt = self._in_doubt
            # A segment keeps its front, and this block was written last.
            if kept[kind] >= self._records[kind]:
                self.keep(receipt)
            elif receipt is not None:
                receipt.kept = False
            self._in_doubt = None
        for kind, records in kept.items():
            self._lose(kind, max(0, self._records[kind] - records))
        self._records = kept

    def _lose(self, kind: bytes, records: int) -> None:
        if kind == _HOPS:
            self._count.lost_hops += records
        elif kind == _FLOWS:
            self._count.lost_flows += records
        elif kind == _EVENTS:
            self._count.lost_events += records
