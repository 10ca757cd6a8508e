"""The output of a recorder: segments of blocks, each after the definitions that it refers to.

All data made from names and tags of peers pass through here. A defect in their packing costs a
block and the rest of the segment; it never reaches the routing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from ....protocol.eventlog._blocks import EVENTS, FLOWS, HOPS
from ..._log import SeldomLogger, shown
from .._options import LogOptions
from ._dictionary import SegmentDictionary

__all__ = ["BEHIND", "BROKEN", "CLOSED", "EVENTS", "FLOWS", "HOPS", "Output", "Sink"]

CLOSED: Final = "the log is closed"
FAILED: Final = "the disk failed"
BROKEN: Final = "a defect: it could not be packed"
"""The reason for records dropped because of a defect, which is also logged."""
BEHIND: Final = "the disk does not keep up"

_logger: Final = logging.getLogger("onward.actors.eventlog")


class Sink(Protocol):
    """The receiver of blocks: see `LogWriter`. No method blocks."""

    def begin(self, started_us: int, last_seq: int) -> bool:
        """Begin a segment; return whether there was room."""
        ...

    def append(self, kind: bytes, body: bytes, records: int = 0) -> bool:
        """Add a block; return whether it was accepted."""
        ...

    def seal(self, last_seq: int, ended_us: int) -> None:
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
        clock: Returns nanoseconds since the Unix epoch.
        now: Returns a monotonic time in seconds.

    Attributes:
        naming: The numbers of names, routes and tag sets in this segment.
        dropped: Records that did not get into the log since the start, by reason.
        segments: Segments begun.
        records: Records in this segment.
        total: Hops, flows and events since the start, written or dropped, by type of block.
        refusing: The reason why this segment takes nothing more, if there is one.
    """

    __slots__ = (
        "_began",
        "_begun",
        "_clock",
        "_now",
        "_options",
        "_seen",
        "_seldom",
        "_sink",
        "_size",
        "_unreported",
        "dropped",
        "naming",
        "records",
        "refusing",
        "segments",
        "total",
    )

    def __init__(
        self,
        sink: Sink,
        options: LogOptions,
        *,
        clock: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._sink: Final = sink
        self._options: Final = options
        self._clock: Final = clock
        self._now: Final = now
        self.naming: Final = SegmentDictionary(self._define_early)
        self.dropped: Final[Counter[str]] = Counter()
        # Losses that no event `LOST` reports yet, and the records accepted and not written.
        self._unreported: Counter[str] = Counter()
        self._seen = 0
        self._seldom: Final = SeldomLogger(_logger, now)
        self.segments = 0
        self.records = 0
        self.total: Final = {HOPS: 0, FLOWS: 0, EVENTS: 0}
        self.refusing: str | None = CLOSED
        self._size = 0
        self._began = 0.0
        self._begun = False

    # --- segments -------------------------------------------------------------------------

    def begin(self, last_seq: int) -> None:
        """Begin a segment, after the last number in use."""
        self.naming.forget()
        self.records = self._size = 0
        self._began = self._now()
        begun = self._sink.begin(self._clock() // 1000, last_seq)
        self._begun = begun
        self.refusing = None if begun else BEHIND
        self.segments += begun

    def end(self, last_seq: int) -> None:
        """End the segment, with the last number in use."""
        if self._begun:
            self._begun = False
            self._sink.seal(last_seq, self._clock() // 1000)

    @property
    def full(self) -> bool:
        """Whether the segment has reached its size limit."""
        return self._size >= self._options.seal_bytes

    @property
    def due(self) -> bool:
        """Whether to begin another segment: this one is old, large or has failed."""
        most = self._options.seal_seconds
        if self._sink.trouble() is not None:
            most = min(most, self._options.retry_seconds)
        return self.full or self.refusing is not None or self._now() - self._began >= most

    # --- blocks ---------------------------------------------------------------------------

    def put(self, kind: bytes, records: int, pack: Callable[[], bytes]) -> bool:
        """Write a block of records after its definitions; or drop it, and count.

        Args:
            kind: `HOPS`, `FLOWS` or `EVENTS`.
            records: The number of records.
            pack: Makes the body, for which the writer's thread makes the checksum.

        Returns:
            Whether it was accepted.
        """
        self.total[kind] += records
        if self.refusing is None:
            try:
                body = pack()
                self._define()
                if self.refusing is None and self._append(kind, body, records):
                    self.records += records
                    return True
            except Exception as error:  # noqa: BLE001 - a defect must not stop the routing
                self.failed(error)
        self.drop(records, self.refusing or BEHIND)
        return False

    def _define(self) -> None:
        """Write the new names, routes and tag sets."""
        for kind, body in self.naming.take_new():
            if self.refusing is None and not self._append(kind, body):
                # Later blocks may refer to them.
                self.refusing = BEHIND

    def _define_early(self) -> None:
        self.guarded(self._define)

    def _append(self, kind: bytes, body: bytes, records: int = 0) -> bool:
        self._size += len(body)
        return self._sink.append(kind, body, records)

    # --- losses ---------------------------------------------------------------------------

    def drop(self, records: int, reason: str) -> None:
        """Count records that are not written."""
        if reason == BEHIND:
            reason = self._sink.trouble() or BEHIND
        self.dropped[reason] += records
        self._unreported[reason] += records

    def guarded(self, step: Callable[[], object]) -> None:
        """Call a function and log its exception, which must not reach the routing."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the purpose of this method
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """End the segment after a defect; the next tick begins another."""
        self.refusing = BROKEN
        self.log_defect(error)

    def log_defect(self, error: Exception) -> None:
        """Log an error of packing, once a minute."""
        text = "the event log %s could not pack a record: %s"
        self._seldom.log(
            logging.ERROR,
            "packing",
            text,
            self._options.name,
            shown(repr(error)),
            extra={"event": "event_log.not_packed"},
        )

    def look_at_losses(self) -> None:
        """Count records that were accepted and not written."""
        lost = self._sink.lost() - self._seen
        if lost:
            self._seen += lost
            self.drop(lost, self._sink.trouble() or FAILED)

    def take_losses(self) -> Counter[str]:
        """Return the losses to report, by reason; none while nothing can be written.

        If the report is refused, give them back to `keep_losses`.
        """
        self.look_at_losses()
        if self.refusing is not None or self._sink.trouble() is not None:
            return Counter()
        taken, self._unreported = self._unreported, Counter()
        return taken

    def keep_losses(self, losses: Counter[str]) -> None:
        """Report losses later."""
        self._unreported += losses
