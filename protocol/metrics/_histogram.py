"""A histogram of durations in buckets of powers of two.

The bucket of a duration is the number of bits of its microseconds: one operation of the processor
in place of a search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .._closed import close_class

__all__ = ["BUCKETS", "DurationHistogram", "Durations", "quantile"]

FIRST_BITS: Final = 6
"""The bits of the first bucket: 64 microseconds."""

BUCKETS: Final[tuple[float, ...]] = tuple(
    2**bits / 1_000_000 for bits in range(FIRST_BITS, FIRST_BITS + 21)
)
"""The upper bounds of the buckets, in seconds: powers of two from 64 microseconds to 67 seconds."""


@dataclass(frozen=True, slots=True)
class Durations:
    """The counts of a histogram at one moment.

    Attributes:
        counts: The durations in each bucket of `BUCKETS`, not added up, and those above the last.
        total: Their sum, in seconds.
    """

    counts: tuple[int, ...]
    total: float


class DurationHistogram:
    """A count of durations by buckets.

    A duration is counted in whole microseconds, rounded down.
    """

    __slots__ = ("_counts", "_total")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self._total = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a duration; a negative one, as of a clock that was set back, counts as 0.

        Args:
            seconds: The duration.
            count: How many of them it stands for.
        """
        if seconds < 0.0:
            seconds = 0.0
        self._total += seconds * count
        # The bound belongs to its bucket: 64 microseconds are in the first one.
        bits = (int(seconds * 1_000_000) - 1).bit_length() - FIRST_BITS
        if bits < 0:
            bits = 0
        elif bits >= len(BUCKETS):
            bits = len(BUCKETS)
        self._counts[bits] += count

    def merge(self, other: DurationHistogram) -> None:
        """Add the counts of another histogram."""
        self._total += other._total
        for number, count in enumerate(other._counts):
            self._counts[number] += count

    def read(self) -> Durations:
        """Return the counts at this moment."""
        return Durations(tuple(self._counts), self._total)


def quantile(durations: Durations, share: float) -> float | None:
    """Return the duration that a share of all durations does not exceed, in seconds.

    Between the bounds of a bucket it is interpolated, so it is right to within a factor of two.
    Above the last bound it is that bound.

    Args:
        durations: The counts.
        share: The share: 0.99 for 99 %.

    Returns:
        The duration; `None` if there are no counts.
    """
    whole = sum(durations.counts)
    if not whole:
        return None
    rank, below = share * whole, 0
    for number, count in enumerate(durations.counts[:-1]):
        if count and below + count >= rank:
            lower = BUCKETS[number - 1] if number else 0.0
            part = max(0.0, rank - below) / count
            return lower + (BUCKETS[number] - lower) * part
        below += count
    return BUCKETS[-1]


for _each in (Durations, DurationHistogram):
    close_class(_each)
