"""A sliding window of numbers that were seen."""

from __future__ import annotations

__all__ = ["NumberWindow"]


class NumberWindow:
    """The numbers that were seen, of those up to the highest one that a window covers.

    Bit `n` of `_seen` is the number `highest - n`.

    Args:
        width: Numbers that the window covers.

    Attributes:
        highest: The highest number that was seen; -1 if there is none.
    """

    __slots__ = ("_seen", "_width", "highest")

    def __init__(self, width: int) -> None:
        self._width = width
        self._seen = 0
        self.highest = -1

    def is_below(self, number: int) -> bool:
        """Whether a number is below the window."""
        return number <= self.highest - self._width

    def has_seen(self, number: int) -> bool:
        """Whether a number that is not below the window was seen."""
        return number <= self.highest and bool(self._seen >> (self.highest - number) & 1)

    def add(self, number: int) -> None:
        """Add a number that is not below the window."""
        ahead = number - self.highest
        if ahead <= 0:
            self._seen |= 1 << -ahead
            return
        # Far ahead nothing of the window is left; it is not shifted by what a sender says.
        kept = self._seen << ahead if ahead < self._width else 0
        self._seen = (kept & (1 << self._width) - 1) | 1
        self.highest = number
