"""Windows in which flows are counted, and a wall clock that detects when it is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["WallClock", "Windows"]

MAX_CLOCK_STEP: Final = 1_000_000
"""Most microseconds between wall clock and monotonic clock before the log records a step."""


class WallClock:
    """A wall clock that detects when it is set.

    Args:
        clock: Returns nanoseconds since the Unix epoch.
        now: Returns a monotonic time in seconds.
    """

    __slots__ = ("_clock", "_now", "_skew")

    def __init__(self, clock: Callable[[], int], now: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._now: Final = now
        self._skew = 0

    def us(self) -> int:
        """Return the time in microseconds since the Unix epoch."""
        return self._clock() // 1000

    def step(self) -> int:
        """Return by how many microseconds the clock was set since the last call; 0 if not."""
        skew = self.us() - int(self._now() * 1e6)
        step = skew - self._skew
        self._skew = skew
        return step if abs(step) > MAX_CLOCK_STEP else 0


class Windows:
    """The windows of time for counting, which are the same in all logs.

    Args:
        seconds: The length of a window.

    Attributes:
        start: The start of the current window, in microseconds since the Unix epoch.
        length_ms: The length of a window, in milliseconds.
    """

    __slots__ = ("_length", "length_ms", "start")

    def __init__(self, seconds: float) -> None:
        self._length: Final = int(seconds * 1e6)
        self.length_ms: Final = int(seconds * 1000)
        self.start = 0

    def of(self, now_us: int) -> int:
        """Return the start of the window that contains a time."""
        return now_us // self._length * self._length
