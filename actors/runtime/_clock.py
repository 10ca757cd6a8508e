"""The clock of an event loop, to the microsecond."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["clock_of"]


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return a loop's clock; for uvloop, the monotonic clock.

    uvloop's clock is the monotonic clock, read once in each turn, in whole milliseconds. Most
    destinations answer within one, so their latencies could not be told apart.
    """
    return time.monotonic if type(loop).__module__.split(".")[0] == "uvloop" else loop.time
