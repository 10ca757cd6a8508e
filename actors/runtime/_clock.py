"""What tells the time on an event loop, to the microsecond."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["clock_of"]


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """Return a loop's clock, or for uvloop the one behind it.

    uvloop reads its clock once in each turn and in whole milliseconds, in which most
    destinations answer: by it they would all be equally fast. It is the monotonic clock's time.
    """
    return time.monotonic if type(loop).__module__.split(".")[0] == "uvloop" else loop.time
