"""The lag of an event loop, by the wall clock and by the CPU time of its thread."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

__all__ = ["LAGS", "LoopLag"]

EVERY: Final = 0.01
"""Seconds between two timers."""
LAGS: Final = ("lag, worst", "lag, 99%", "lag, worst, own", "lag, 99%, own")
"""The figures, in milliseconds. `own` is CPU time of the loop's thread. In the rest of a lag the
machine ran other processes.
"""


class LoopLag:
    """The lag of a loop, measured every 10 ms.

    Args:
        loop: The loop; it runs on the calling thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lags: list[float] = []
        self._own: list[float] = []
        self.begin()

    def begin(self) -> None:
        """Discard the figures and start to measure."""
        self._lags.clear()
        self._own.clear()
        self._look_later()

    def stop(self) -> None:
        """Stop measuring."""
        self._timer.cancel()

    def taken(self) -> dict[str, Any]:
        """Return the figures since `begin`, and stop measuring."""
        self.stop()
        return dict(zip(LAGS, (*_ends(self._lags), *_ends(self._own)), strict=True))

    def _look_later(self) -> None:
        self._due, self._computed = time.perf_counter() + EVERY, time.thread_time()
        self._timer = self._loop.call_later(EVERY, self._look)

    def _look(self) -> None:
        lag = max(0.0, time.perf_counter() - self._due)
        self._lags.append(lag)
        self._own.append(min(lag, time.thread_time() - self._computed))
        self._look_later()


def _ends(lags: list[float]) -> tuple[float, float]:
    ordered = sorted(lags) or [0.0]
    return 1000 * ordered[-1], 1000 * ordered[len(ordered) * 99 // 100]
