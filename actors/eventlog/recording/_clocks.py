"""Rate limits for what peers can cause, the windows of flows, and a wall clock that may be set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Budget", "PerSecond", "WallClock", "Windows"]


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
