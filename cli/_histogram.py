"""A histogram of durations with bounded memory and a bounded error.

Buckets are linear within each power of two, as in HdrHistogram: a duration is counted in
microseconds, exactly up to 256 and in steps of less than 1/128 of itself above that.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Histogram"]

_BITS: Final = 7
_LINEAR: Final = 1 << (_BITS + 1)
"""Microseconds up to which each has a bucket of its own."""

_LONGEST: Final = (1 << 36) - 1
"""Microseconds of the longest duration, 19 hours; longer ones are counted as this."""

_BUCKETS: Final = _LINEAR + (36 - _BITS - 1) * (1 << _BITS)


class Histogram:
    """Durations, counted by buckets.

    Attributes:
        count: The number of durations.
        total: Their sum in seconds.
        shortest: The shortest one in seconds; 0 if there is none.
        longest: The longest one in seconds; 0 if there is none.
    """

    __slots__ = ("_counts", "count", "longest", "shortest", "total")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.total = 0.0
        self.shortest = 0.0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration in seconds, 0 or more."""
        self._counts[_bucket(min(int(seconds * 1e6), _LONGEST))] += 1
        self.shortest = min(self.shortest, seconds) if self.count else seconds
        self.longest = max(self.longest, seconds)
        self.count += 1
        self.total += seconds

    @property
    def mean(self) -> float:
        """The mean in seconds; 0 if there is none."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """Return the duration in seconds that a part of all does not exceed; 0 if there is none.

        Args:
            part: The part, above 0 and at most 1; 0.99 is the 99th percentile.
        """
        wanted = part * self.count
        found = 0
        for number, count in enumerate(self._counts):
            found += count
            if count and found >= wanted:
                # The end of the bucket, but never more than what there was.
                return min(_end(number) / 1e6, self.longest)
        return 0.0


def _bucket(microseconds: int) -> int:
    if microseconds < _LINEAR:
        return microseconds
    shift = microseconds.bit_length() - _BITS - 1
    return _LINEAR + (shift - 1) * (1 << _BITS) + (microseconds >> shift) - (1 << _BITS)


def _end(bucket: int) -> int:
    """Return the first number of microseconds above a bucket."""
    if bucket < _LINEAR:
        return bucket + 1
    shift, step = divmod(bucket - _LINEAR, 1 << _BITS)
    return (step + 1 + (1 << _BITS)) << (shift + 1)
