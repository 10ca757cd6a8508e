"""The memory that Python code has allocated, by the line that has done so: `tracemalloc`."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from typing import Any, Final

__all__ = ["MAX_FRAMES", "MAX_LINES", "MemoryTrace"]

MAX_SECONDS: Final = 600.0
"""The seconds after which tracing ends by itself, as it slows allocations down."""

MAX_OVERHEAD: Final = 256 * 1024 * 1024
"""The bytes of tracing itself above which it ends."""

INTERVAL: Final = 1.0
"""The seconds between two looks at them."""

MAX_FRAMES: Final = 16
"""The maximum number of frames that are kept of an allocation."""

MAX_LINES: Final = 100
"""The maximum number of lines in a report."""


class MemoryTrace:
    """The tracing of allocations, which ends by itself.

    There is one for a process, so tracing that another part has begun is shown, and can be ended.

    Args:
        loop: The loop of its timer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reading = asyncio.Lock()

    def start(self, frames: int = 1) -> None:
        """Trace allocations from now on.

        Args:
            frames: The frames that are kept of an allocation, at most `MAX_FRAMES`.
        """
        self.stop()
        tracemalloc.start(min(frames, MAX_FRAMES))
        self._until = self._loop.time() + MAX_SECONDS
        self._timer = self._loop.call_later(INTERVAL, self._look)

    def stop(self) -> None:
        """Trace no more, and forget what was traced."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tracemalloc.stop()

    def _look(self) -> None:
        self._timer = None
        if self._loop.time() >= self._until or tracemalloc.get_tracemalloc_memory() > MAX_OVERHEAD:
            self.stop()
        else:
            self._timer = self._loop.call_later(INTERVAL, self._look)

    async def report(self, lines: int = 20) -> dict[str, Any]:
        """Return what is allocated, as values that JSON can represent.

        The blocks are read in one go, which holds the loop for about a second for each million of
        them; they are added up in a thread.

        Args:
            lines: The lines of code with the most bytes, at most `MAX_LINES`.
        """
        found: dict[str, Any] = {
            "tracing": tracemalloc.is_tracing(),
            "blocks": sys.getallocatedblocks(),
            "collections": [each["collections"] for each in gc.get_stats()],
        }
        async with self._reading:
            if not tracemalloc.is_tracing():
                return found
            size, peak = tracemalloc.get_traced_memory()
            found |= {
                "bytes": size,
                "peak": peak,
                "overhead": tracemalloc.get_tracemalloc_memory(),
                "seconds_left": max(0.0, self._until - self._loop.time()),
            }
            found["lines"] = await asyncio.to_thread(_lines, min(lines, MAX_LINES))
        return found


def _lines(most: int) -> list[dict[str, Any]]:
    try:
        snapshot = tracemalloc.take_snapshot()
    except RuntimeError:
        return []  # it was ended meanwhile
    return [
        {
            "at": [f"{frame.filename}:{frame.lineno}" for frame in reversed(each.traceback)],
            "bytes": each.size,
            "blocks": each.count,
        }
        for each in snapshot.statistics("traceback")[:most]
    ]
