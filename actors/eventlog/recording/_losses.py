"""The records that did not get into the log, and the events that report them.

Losses are counted by reason and reported in an event `LOST` as soon as possible. That event may be
lost with its block, long after the block was accepted. Its receipt shows that, and the loss is
reported again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ._sink import Figures, Receipt

__all__ = ["BEHIND", "BROKEN", "CLOSED", "FAILED", "Losses"]

CLOSED: Final = "the log is closed"
FAILED: Final = "the disk failed"
BROKEN: Final = "a defect: it could not be packed"
"""The reason for records dropped because of a defect, which is also logged."""
BEHIND: Final = "the disk does not keep up"

MAX_SAID: Final = 64
"""Most events `LOST` in flight; further losses add up until one of them is settled."""


class Losses:
    """The counters of dropped records, and the losses that are not reported yet.

    Attributes:
        dropped: Records that did not get into the log since the start, by reason.
    """

    __slots__ = ("_again", "_lost", "_said", "_seen", "dropped")

    def __init__(self) -> None:
        self.dropped: Final[Counter[str]] = Counter()
        # Losses not reported yet.
        self._lost: Counter[str] = Counter()
        # Records accepted and not written, as of the last look.
        self._seen = (0, 0, 0)
        # Reports in flight: the number of records, or 0 for a text of its own.
        self._said: list[tuple[Receipt, str, int]] = []
        # Texts that were reported and lost.
        self._again: list[str] = []

    def drop(self, count: int, reason: str) -> None:
        """Count dropped records."""
        self.dropped[reason] += count
        self._lost[reason] += count

    def look(self, figures: Figures, reason: str) -> None:
        """Count records accepted and not written, and find reports to repeat.

        Args:
            figures: The figures of the writer.
            reason: The reason for which records were not written.
        """
        lost = figures.lost_hops, figures.lost_flows, figures.lost_events
        count = sum(lost) - sum(self._seen)
        self._seen = lost
        if count:
            self.drop(count, reason)
        waiting: list[tuple[Receipt, str, int]] = []
        for each in self._said:
            receipt, text, many = each
            kept = receipt.kept
            if kept is None:
                waiting.append(each)
            elif kept:
                continue
            elif many:
                self._lost[text] += many
            else:
                self._again.append(text)
        self._said = waiting

    def take(self) -> list[tuple[str, int]]:
        """Return the losses to report: reasons with their counts, or texts with 0.

        They count as reported from now on: pass each to `said`.
        """
        if len(self._said) >= MAX_SAID:
            return []
        taken = [*self._lost.items(), *((text, 0) for text in self._again)]
        self._lost.clear()
        self._again.clear()
        return taken

    def said(self, receipt: Receipt, text: str, count: int = 0) -> None:
        """Store a report with the receipt of its block.

        With `MAX_SAID` in flight, a text of its own is not stored and so not repeated; its missing
        number is counted like any other.
        """
        if count or len(self._said) < MAX_SAID:
            self._said.append((receipt, text, count))
