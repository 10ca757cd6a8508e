"""Ranges of numbers: those that were missed, until the sender has heard of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ._frames import Ranges

__all__ = ["MAX_RANGES", "MissedNumbers", "ranges_of"]

MAX_RANGES: Final = 256
"""Ranges of a kind that one confirmation names; what is beyond them is named by a later one."""


class MissedNumbers:
    """Numbers that were missed, and that the sender may not have heard of.

    A sender says with each frame what it needs to hear nothing of any more, and no frame is taken
    that is a window beyond that: so there are never more ranges than the window has numbers.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._ranges)

    def add(self, first: int, last: int) -> None:
        """Add numbers, which were not missed before."""
        ranges = self._ranges
        at = len(ranges)
        while at and ranges[at - 1][0] > last:
            at -= 1
        if at and ranges[at - 1][1] == first - 1:
            at -= 1
            first = ranges.pop(at)[0]
        if at < len(ranges) and ranges[at][0] == last + 1:
            last = ranges.pop(at)[1]
        ranges.insert(at, (first, last))

    def heard(self, base: int) -> None:
        """Forget what is below the number from which on the sender wants to hear of them."""
        ranges, count = self._ranges, 0
        while count < len(ranges) and ranges[count][1] < base:
            count += 1
        if count:
            del ranges[:count]

    def up_to(self, done: int) -> tuple[int, Ranges]:
        """Return what one confirmation can say of what is dealt with.

        Args:
            done: All up to this number are dealt with.

        Returns:
            Up to which number they are said to be dealt with, which is less when there are too many
            ranges to name, and what was missed of them.
        """
        ranges = self._ranges
        if len(ranges) > MAX_RANGES and ranges[MAX_RANGES][0] <= done:
            done = ranges[MAX_RANGES][0] - 1
            ranges = ranges[:MAX_RANGES]
        return done, tuple((first, min(last, done)) for first, last in ranges if first <= done)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return numbers, which are in ascending order, as ranges."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return tuple(found)
