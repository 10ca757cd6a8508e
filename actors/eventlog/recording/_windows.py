"""Windows in which flows are counted, and a wall clock that somebody sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["WallClock", "Windows"]

MAX_CLOCK_STEP: Final = 1_000_000
"""Microseconds by which the clock may differ from what has passed before that is an event."""


class WallClock:
    """Tells the time, and notes if it was set.

    Args:
        clock: Tells nanoseconds since the Unix epoch.
        now: Tells seconds; it does not go back.
    """

    __slots__ = ("_clock", "_now", "_skew")

    def __init__(self, clock: Callable[[], int], now: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._now: Final = now
        self._skew = 0

    def us(self) -> int:
        """Return the microseconds since the Unix epoch."""
        return self._clock() // 1000

    def step(self) -> int:
        """Return by how many microseconds the clock was set since the last time; 0 if not."""
        skew = self.us() - int(self._now() * 1e6)
        step = skew - self._skew
        self._skew = skew
        return step if abs(step) > MAX_CLOCK_STEP else 0


class Windows:
    """Which window it is: all logs have the same ones.

    Args:
        seconds: How long one is.

    Attributes:
        start: When the present one began, in microseconds since the Unix epoch.
        length_ms: How long one is, in milliseconds.
    """

    __slots__ = ("_length", "length_ms", "start")

    def __init__(self, seconds: float) -> None:
        self._length: Final = int(seconds * 1e6)
        self.length_ms: Final = int(seconds * 1000)
        self.start = 0

    def of(self, now_us: int) -> int:
        """Return when the window began that a time is in."""
        return now_us // self._length * self._length
