"""What did not get into the log, and what the log has said of that.

What is lost is counted by reason, and the log says so itself as soon as it can: an event `LOST`.
That event may be lost as well, with the block it is in, long after the block was taken: the
block's receipt tells, and then it is said again with what follows.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ._sink import Figures, Receipt

__all__ = ["BEHIND", "BROKEN", "CLOSED", "FAILED", "Losses"]

CLOSED: Final = "the log is closed"
FAILED: Final = "the disk failed"
BROKEN: Final = "a defect: it could not be packed"
"""Why what cannot be written is dropped; it is logged as well."""
BEHIND: Final = "the disk does not keep up"

MAX_SAID: Final = 64
"""Most events `LOST` that may be lost yet; until it is known of one, what else is lost adds up."""


class Losses:
    """Counts what was dropped, and knows what of it the log has not said yet.

    Attributes:
        dropped: What did not get into the log since the start, by reason.
    """

    __slots__ = ("_again", "_lost", "_said", "_seen", "dropped")

    def __init__(self) -> None:
        self.dropped: Final[Counter[str]] = Counter()
        # Of that, what the log has not said yet.
        self._lost: Counter[str] = Counter()
        # What was taken and then not written, as it was when it was looked at last.
        self._seen = (0, 0, 0)
        # What was said, as long as it may be lost itself: how many, or 0 for a text of its own.
        self._said: list[tuple[Receipt, str, int]] = []
        # Texts that were said and lost.
        self._again: list[str] = []

    def drop(self, count: int, reason: str) -> None:
        """Count what is dropped."""
        self.dropped[reason] += count
        self._lost[reason] += count

    def look(self, figures: Figures, reason: str) -> None:
        """Count what was taken and then not written, and find what is to be said again.

        Args:
            figures: What became of what was taken.
            reason: Why anything was not written.
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
        """Return what is to be said: reasons and how many of each, or texts and 0.

        It counts as said from now on: each is to be given to `said`.
        """
        if len(self._said) >= MAX_SAID:
            return []
        taken = [*self._lost.items(), *((text, 0) for text in self._again)]
        self._lost.clear()
        self._again.clear()
        return taken

    def said(self, receipt: Receipt, text: str, count: int = 0) -> None:
        """Note that something was said, and in which block.

        A text of its own is not said again where `MAX_SAID` are under way; its number is missing,
        and counted, like any other.
        """
        if count or len(self._said) < MAX_SAID:
            self._said.append((receipt, text, count))
