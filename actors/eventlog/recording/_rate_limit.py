"""A limit for what peers can cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["RateLimit"]


class RateLimit:
    """A limit for a number of bytes or records each second, which saves what is not used.

    Args:
        rate: The number each second.
        most: The most that is saved.
        now: Returns a monotonic time in seconds.
    """

    __slots__ = ("_at", "_left", "_most", "_now", "_rate")

    def __init__(self, rate: float, most: float, now: Callable[[], float]) -> None:
        self._rate: Final = rate
        self._most: Final = most
        self._now: Final = now
        self._left = most
        self._at = now()

    def take(self, size: int = 1) -> bool:
        """Take a size; return whether it may be recorded.

        It may while anything is left. What exceeds it is charged to the time that follows, so a
        size larger than `most` is possible. Over any time no more is taken than `most`, what the
        rate allows, and the last size.
        """
        now = self._now()
        left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if left <= 0.0:
            self._left = left
            return False
        self._left = left - size
        return True
