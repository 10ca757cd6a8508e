"""The output of a recorder: segments of blocks, each after the definitions that it refers to.

All data made from names and tags of peers pass through here. A defect in their packing costs a
block and the rest of the segment; it never reaches the routing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from ....protocol.eventlog import SegmentFooter, SegmentHeader
from ..._log import SeldomLogger, shown
from .._options import LogOptions
from ._dictionary import SegmentDictionary

__all__ = ["BEHIND", "BROKEN", "EVENTS", "FLOWS", "HOPS", "Output", "Sink"]

HOPS: Final = 0
FLOWS: Final = 1
EVENTS: Final = 2
"""Indices of the three kinds of records in their counters."""

CLOSED: Final = "the log is closed"
FAILED: Final = "the disk failed"
BROKEN: Final = "a defect: it could not be packed"
"""The reason for records dropped because of a defect, which is also logged."""
BEHIND: Final = "the disk does not keep up"

_logger: Final = logging.getLogger("onward.actors.eventlog")


class Sink(Protocol):
    """The receiver of blocks: a `LogWriter`. No method blocks."""

    def begin(self, header: bytes, first_seq: int) -> None:
        """Begin a segment."""
        ...

    def append(self, block: bytes, body: bytes | None = None, /) -> bool:
        """Add a block, or its type and its body; return whether it was accepted."""
        ...

    def seal(self, footer: bytes) -> None:
        """End the segment."""
        ...

    def trouble(self) -> str | None:
        """Return the current failure, if there is one."""
        ...

    def lost(self) -> int:
        """Return the number of records that were accepted and not written."""
        ...


class Output:
    """The output of segments, with counters of accepted and dropped records.

    Args:
        sink: The receiver of blocks.
        options: The log's options.
        log_id: The log's identity, 16 bytes.
        epoch: The number of this run.
        clock: Returns nanoseconds since the Unix epoch.
        now: Returns a monotonic time in seconds.

    Attributes:
        naming: The numbers of names, routes and tag sets in this segment.
        dropped: Records that did not get into the log since the start, by reason.
        segments: Segments begun.
        segment: Hops, flows and events in this segment.
        total: Hops, flows and events since the start, written or dropped.
        size: Bytes in this segment.
        broken: Whether a defect has ended this segment.
        closed: Whether nothing is written.
    """

    __slots__ = (
        "_began",
        "_clock",
        "_epoch",
        "_failed_at",
        "_log_id",
        "_lost",
        "_now",
        "_options",
        "_seen",
        "_seldom",
        "_sink",
        "broken",
        "closed",
        "dropped",
        "naming",
        "segment",
        "segments",
        "size",
        "total",
    )

    def __init__(
        self,
        sink: Sink,
        options: LogOptions,
        *,
        log_id: bytes,
        epoch: int,
        clock: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._sink: Final = sink
        self._options: Final = options
        self._log_id: Final = log_id
        self._epoch: Final = epoch
        self._clock: Final = clock
        self._now: Final = now
        self.naming: Final = SegmentDictionary(options, self._define_early, self.failed)
        self.dropped: Final[Counter[str]] = Counter()
        # Losses that no event `LOST` reports yet, and the records accepted and not written.
        self._lost: Counter[str] = Counter()
        self._seen = 0
        self._seldom: Final = SeldomLogger(_logger, now)
        self.segments = 0
        self.segment = [0, 0, 0]
        self.total = [0, 0, 0]
        self.size = 0
        self._began = 0.0
        self._failed_at: float | None = None
        self.broken = False
        self.closed = True

    # --- segments -------------------------------------------------------------------------

    def begin(self, first_seq: int) -> None:
        """Begin a segment, with the number of the next record."""
        self.naming.forget()
        self.segment = [0, 0, 0]
        self.size = 0
        self._began = self._now()
        self._failed_at = None
        self.broken = False
        self.segments += 1
        options = self._options
        started = self._clock() // 1000
        header = SegmentHeader(
            options.name, self._log_id, self._epoch, first_seq, started, options.sample_rate
        )
        self._sink.begin(header.serialize(), first_seq)

    def end(self, last_seq: int) -> None:
        """End the segment, with the last number in use."""
        hops, flows, events = self.segment
        footer = SegmentFooter(hops, flows, events, last_seq, self._clock() // 1000)
        self._sink.seal(footer.serialize())

    @property
    def full(self) -> bool:
        """Whether the segment has reached its size limit."""
        return self.size >= self._options.seal_bytes

    @property
    def due(self) -> bool:
        """Whether to begin another segment: this one is old, large or has failed."""
        now = self._now()
        failed = self._failed_at
        return (
            now - self._began >= self._options.seal_seconds
            or self.full
            or (failed is not None and now - failed >= self._options.retry_seconds)
            or self.broken
        )

    # --- blocks ---------------------------------------------------------------------------

    def put(
        self,
        which: int,
        count: int,
        made: bytes | Callable[[], bytes],
        body: bytes | None = None,
    ) -> bool:
        """Write a block of records after its definitions; or drop it, and count.

        Args:
            which: `HOPS`, `FLOWS` or `EVENTS`.
            count: The number of records.
            made: The block, or a function that makes it; or its type, if the body is separate.
            body: Its body, for which the writer's thread makes the checksum.

        Returns:
            Whether it was accepted.
        """
        written = self._write(which, count, made, body)
        if not written:
            self.drop(which, count, BROKEN if self.broken else None)
        return written

    def _write(
        self, which: int, count: int, made: bytes | Callable[[], bytes], body: bytes | None
    ) -> bool:
        if self.closed or self.broken:
            return False
        try:
            block = made if isinstance(made, bytes) else made()
            written = self._define() and self._append(block, body)
        except Exception as error:  # noqa: BLE001 - a defect must not stop the routing
            self.failed(error)
            return False
        if written:
            self.segment[which] += count
            self.total[which] += count
        elif self._failed_at is None:
            self._failed_at = self._now()
        return written

    def _define(self) -> bool:
        """Write the new names, routes and tag sets; return whether all are written."""
        return all(self._append(made) for made in self.naming.blocks())

    def _define_early(self) -> None:
        if not self.broken and self._failed_at is None:
            self.guarded(self._define)

    def _append(self, made: bytes, body: bytes | None = None) -> bool:
        # The writer's thread makes the checksum of a separate body.
        if not self._sink.append(made, body):
            return False
        self.size += len(made if body is None else body)
        return True

    # --- failures -------------------------------------------------------------------------

    def drop(self, which: int, count: int, reason: str | None = None) -> None:
        """Count dropped records; the default reason is the failure of the disk."""
        self.total[which] += count
        if reason is None:
            reason = CLOSED if self.closed else self._sink.trouble() or BEHIND
        self._lose(count, reason)

    def _lose(self, count: int, reason: str) -> None:
        self.dropped[reason] += count
        self._lost[reason] += count

    def unpacked(self, which: int, error: Exception) -> None:
        """Count a record that could not be packed."""
        self.drop(which, 1, BROKEN)
        self._log(error)

    def failed(self, error: Exception) -> None:
        """End the segment after a defect; the next tick begins another."""
        self.broken = True
        self._log(error)

    def guarded(self, step: Callable[[], object]) -> None:
        """Call a function and log its exception, which must not reach the routing."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the purpose of this method
            self.failed(error)

    def _log(self, error: Exception) -> None:
        text = "the event log %s could not pack a record: %s"
        self._seldom.log(logging.ERROR, "packing", text, self._options.name, shown(repr(error)))

    def look_at_losses(self) -> None:
        """Count records that were accepted and not written."""
        lost = self._sink.lost()
        if lost > self._seen:
            self._lose(lost - self._seen, self._sink.trouble() or FAILED)
            self._seen = lost

    def take_losses(self) -> Counter[str]:
        """Return the losses to report in events `LOST`, by reason.

        If these events are refused, give them back to `keep_losses`. One that is accepted, and
        then lost with a failing disk, is not repeated: it counts as a record, and the records
        that it reported are missing by their numbers, and in the statistics.
        """
        taken, self._lost = self._lost, Counter()
        return taken

    def keep_losses(self, losses: Counter[str]) -> None:
        """Report losses later."""
        self._lost.update(losses)
