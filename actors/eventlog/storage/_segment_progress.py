"""What was written into a segment, what of it is in doubt, and what of it is lost."""

from __future__ import annotations

from typing import Final

from ....protocol.eventlog import SegmentFooter
from ..recording._sink import Receipt
from ._counts import Counts
from ._folder import LogFolder

__all__ = ["NOTHING", "SegmentProgress"]

_HOPS, _FLOWS, _EVENTS = b"R", b"F", b"E"

NOTHING: Final = SegmentFooter(0, 0, 0, 0, 0)
"""Of a segment of which nothing is kept."""


class SegmentProgress:
    """Counts the records of one segment after another.

    Args:
        count: Where to count what is lost.
        folder: The log's; what it has to tell of earlier runs is taken out once the log says it.
    """

    def __init__(self, count: Counts, folder: LogFolder) -> None:
        self._count = count
        self._folder = folder
        self._records = {_HOPS: 0, _FLOWS: 0, _EVENTS: 0}
        self._in_doubt: tuple[bytes, int, Receipt | None] | None = None
        """The block that is written, or that the disk failed with: the last one."""

    def __bool__(self) -> bool:
        """Say whether there is any record."""
        return any(self._records.values())

    def clear(self) -> None:
        """Begin with another segment."""
        self._records = {_HOPS: 0, _FLOWS: 0, _EVENTS: 0}
        self._in_doubt = None

    def footer(self, last_seq: int, ended_us: int) -> SegmentFooter:
        """Return the footer that the segment is sealed with."""
        records = self._records
        return SegmentFooter(records[_HOPS], records[_FLOWS], records[_EVENTS], last_seq, ended_us)

    def write(self, kind: bytes, records: int, receipt: Receipt | None) -> None:
        """Count a block before it is written: even if that fails all of it may be there."""
        if kind in self._records:
            self._records[kind] += records
            self._in_doubt = kind, records, receipt

    def keep(self, receipt: Receipt | None) -> None:
        """Note that a block is in the log, and lasts as long as `fsync` has it."""
        self._in_doubt = None
        if receipt is not None:
            receipt.kept = True
            if receipt.says:
                self._folder.notices.forget(receipt.says)

    def drop(self, kind: bytes, records: int, receipt: Receipt | None) -> None:
        """Count a block that is not written at all."""
        self._count.lost_blocks += 1
        self._lose(kind, records)
        if receipt is not None:
            receipt.kept = False

    def settle(self, kept: SegmentFooter) -> None:
        """Count what was written and is not there, and settle what was in doubt."""
        self._settle({_HOPS: kept.hops, _FLOWS: kept.flows, _EVENTS: kept.events})

    def give_up(self, *, all_of_it: bool) -> None:
        """Count as lost what is in doubt, as nobody will read it again; or all there is."""
        kept = dict.fromkeys(self._records, 0) if all_of_it else dict(self._records)
        if self._in_doubt is not None and not all_of_it:
            kind, records, _ = self._in_doubt
            kept[kind] -= records
        self._settle(kept)

    def _settle(self, kept: dict[bytes, int]) -> None:
        if self._in_doubt is not None:
            kind, _, receipt = self._in_doubt
            # What is kept of a segment is its front, and this was the last to be written.
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
