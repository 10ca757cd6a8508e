"""What did not get into the log, and what the log has said of that.

What is lost is counted by reason, and the log says so itself as soon as it can: an event `LOST`.
That event may be lost as well, with the block it is in, long after the block was taken: then it
is said again with what follows.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ._sink import Figures

__all__ = ["BEHIND", "BROKEN", "CLOSED", "FAILED", "Losses"]

CLOSED: Final = "the log is closed"
FAILED: Final = "the disk failed"
BROKEN: Final = "a defect: it could not be packed"
"""Why what cannot be written is dropped; it is logged as well."""
BEHIND: Final = "the disk does not keep up"


class Losses:
    """Counts what was dropped, and knows what of it the log has not said yet.

    Attributes:
        dropped: What did not get into the log since the start, by reason.
    """

    __slots__ = ("_lost", "_seen", "_told", "_told_end", "dropped")

    def __init__(self) -> None:
        self.dropped: Final[Counter[str]] = Counter()
        # Of that, what the log has not said yet.
        self._lost: Counter[str] = Counter()
        # What was taken and then not written, as it was when it was looked at last.
        self._seen = (0, 0, 0)
        # What was said last, as long as it may be lost itself, and how much had been handed on
        # then.
        self._told: Counter[str] = Counter()
        self._told_end = 0

    def drop(self, count: int, reason: str) -> None:
        """Count what is dropped."""
        self.dropped[reason] += count
        self._lost[reason] += count

    def look(self, figures: Figures, handed: int, reason: str) -> int:
        """Count what was taken and then not written.

        Args:
            figures: What became of what was taken.
            handed: Bytes of all blocks that were taken so far.
            reason: Why anything was not written.

        Returns:
            How many flows were lost since the last time.
        """
        lost = figures.lost_hops, figures.lost_flows, figures.lost_events
        hops, flows, events = (now - then for now, then in zip(lost, self._seen, strict=True))
        self._seen = lost
        if hops or flows or events:
            self.drop(hops + flows + events, reason)
        if self._told and events:
            self._lost.update(self._told)
        if figures.pending <= handed - self._told_end:
            self._told.clear()
        return flows

    def take(self) -> Counter[str]:
        """Return what is to be said, which counts as said from now on."""
        lost, self._lost = self._lost, Counter()
        return lost

    def told(self, lost: Counter[str], handed: int) -> None:
        """Note that what `take` returned was said, up to so many bytes handed on.

        If that was dropped at once, it is to be said again. What said so counts as well then: its
        number is missing like the others.
        """
        if self._lost:
            self._lost.update(lost)
        else:
            self._told = lost
            self._told_end = handed
