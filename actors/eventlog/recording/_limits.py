"""Rate limits for the parts of the log that peers can cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Budget", "PerSecond"]


class PerSecond:
    """A limit for a number of records each second.

    Args:
        limit: The number each second.
        now: Returns a monotonic time in seconds.

    Attributes:
        left_out: Records beyond the limit.
    """

    __slots__ = ("_left", "_limit", "_now", "_until", "left_out")

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit: Final = limit
        self._now: Final = now
        self._until = float("-inf")
        self._left = 0
        self.left_out = 0

    def take(self) -> bool:
        """Take one record's place; return whether it may be recorded."""
        now = self._now()
        if now >= self._until:
            self._until = now + 1.0
            self._left = self._limit
        if self._left <= 0:
            self.left_out += 1
            return False
        self._left -= 1
        return True


class Budget:
    """A limit for bytes each second, which saves unused bytes.

    Args:
        rate: Bytes each second.
        most: Most bytes that are saved.
        now: Returns a monotonic time in seconds.
    """

    __slots__ = ("_at", "_left", "_most", "_now", "_rate")

    def __init__(self, rate: float, most: float, now: Callable[[], float]) -> None:
        self._rate: Final = rate
        self._most: Final = most
        self._now: Final = now
        self._left = most
        self._at = now()

    def take(self, size: int) -> bool:
        """Take the bytes of a record; return whether it may be recorded.

        It may while any bytes are left. Excess bytes are charged to the time that follows, so a
        record larger than `most` is possible.
        """
        now = self._now()
        left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        let = left > 0.0
        self._left = left - size if let else left
        return let

    def charge(self, size: int) -> None:
        """Charge bytes whatever is left."""
        self._left -= size
