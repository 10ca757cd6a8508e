"""The lag of an event loop: how late a timer is called."""

from __future__ import annotations

import asyncio
from typing import Final

from ...protocol.metrics import DurationHistogram
from ..runtime._clock import clock_of

__all__ = ["LoopLag"]

INTERVAL: Final = 0.5
"""The seconds between two timers."""


class LoopLag:
    """A timer that is due every half a second, and a histogram of how late it was.

    Args:
        loop: The loop.

    Attributes:
        histogram: The lags so far.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.histogram = DurationHistogram()
        self._loop = loop
        self._clock = clock_of(loop)
        self._due = 0.0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Set the first timer."""
        self._set()

    def stop(self) -> None:
        """Set no more timers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        self._due = self._clock() + INTERVAL
        self._timer = self._loop.call_later(INTERVAL, self._on_timer)

    def _on_timer(self) -> None:
        self._last = max(0.0, self._clock() - self._due)
        self.histogram.add(self._last)
        self._set()

    @property
    def now(self) -> float:
        """The lag of the last timer, or of one that is overdue, in seconds."""
        overdue = self._clock() - self._due if self._timer is not None else 0.0
        return max(self._last, overdue)
