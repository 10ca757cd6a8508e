"""The round trip time of confirmations, and the timeout that follows: RFC 6298 in floats."""

from __future__ import annotations

__all__ = ["RoundTrip"]

_SMOOTH = 1 / 8
_VARY = 1 / 4


class RoundTrip:
    """The smoothed round trip of a pipe.

    Args:
        first: The timeout before anything has been measured, in seconds.
        least: The shortest timeout, in seconds.
        most: The longest timeout, in seconds.

    Attributes:
        smoothed: The round trip, in seconds; `None` before the first measurement.
        shortest: The shortest one measured, in seconds; 0 before the first.
        backoff: How often the timeout has been doubled.
    """

    __slots__ = ("_first", "_least", "_most", "_varies", "backoff", "shortest", "smoothed")

    def __init__(self, first: float, least: float, most: float) -> None:
        self._first, self._least, self._most = first, least, most
        self.smoothed: float | None = None
        self.shortest = 0.0
        self._varies = 0.0
        self.backoff = 0

    def measured(self, seconds: float) -> None:
        """Add a measurement, of a segment that was sent only once."""
        if self.smoothed is None:
            self.smoothed = self.shortest = seconds
            self._varies = seconds / 2
            return
        self.shortest = min(self.shortest, seconds)
        self._varies += _VARY * (abs(self.smoothed - seconds) - self._varies)
        self.smoothed += _SMOOTH * (seconds - self.smoothed)

    def timeout(self) -> float:
        """Return how long to wait for a confirmation, in seconds."""
        if self.smoothed is None:
            timeout = self._first
        else:
            timeout = max(self._least, self.smoothed + 4 * self._varies)
        return min(self._most, timeout * 2.0**self.backoff)

    def overtaken(self) -> float:
        """Return after how long something that later things overtook is lost, in seconds."""
        return 9 / 8 * max(self.smoothed or 0.0, self._least / 8)

    def back_off(self) -> None:
        """Double the timeout, until something is heard."""
        self.backoff = min(self.backoff + 1, 32)
