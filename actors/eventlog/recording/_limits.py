"""How much of what strangers cause gets into the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Budget", "PerSecond"]


class PerSecond:
    """Lets so many through each second.

    Args:
        limit: How many.
        now: Tells seconds; it does not go back.

    Attributes:
        left_out: How many it has not let through.
    """

    __slots__ = ("_left", "_limit", "_now", "_until", "left_out")

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit: Final = limit
        self._now: Final = now
        self._until = float("-inf")
        self._left = 0
        self.left_out = 0

    def take(self) -> bool:
        """Say whether one more may be recorded."""
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
    """Lets so many bytes through each second, and saves up what is not used.

    Args:
        rate: How many bytes a second.
        most: How many are saved up.
        now: Tells seconds; it does not go back.
    """

    __slots__ = ("_at", "_left", "_most", "_now", "_rate")

    def __init__(self, rate: float, most: float, now: Callable[[], float]) -> None:
        self._rate: Final = rate
        self._most: Final = most
        self._now: Final = now
        self._left = most
        self._at = now()

    def take(self, size: int) -> bool:
        """Say whether something of so many bytes may be recorded.

        It may as long as there is any left, and what it takes too much is made up for later: what
        is larger than all that can be saved up comes through as well.
        """
        now = self._now()
        left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        let = left > 0.0
        self._left = left - size if let else left
        return let

    def charge(self, size: int) -> None:
        """Take so many bytes whatever is left: it is made up for later."""
        self._left -= size
