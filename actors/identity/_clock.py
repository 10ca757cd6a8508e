"""The clock of a node, which may be wrong and be set right while the node runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["CLOCK_TOLERANCE", "ClockWatch"]

CLOCK_TOLERANCE: Final = 5_000
"""Most time by which a clock may be set, in milliseconds, without more. Beyond: the node signs its
adverts anew and tells them; if it was set back, its links begin anew as well. Below, what is sent
to the node may be refused as long as the clock was set back by."""


class ClockWatch:
    """A watch for steps of the clock of a node.

    Args:
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        loop_time: Returns the time of a clock that is not set, in seconds.
    """

    __slots__ = ("_ahead", "_loop_time", "_milliseconds")

    def __init__(self, milliseconds: Callable[[], int], loop_time: Callable[[], float]) -> None:
        self._milliseconds: Final = milliseconds
        self._loop_time: Final = loop_time
        self._ahead = self._now_ahead()

    def take_step(self) -> int:
        """Return by how much the clock was set since the last step, in milliseconds; 0 for little.

        Little by little is a step as well, once it is more than `CLOCK_TOLERANCE`.
        """
        ahead = self._now_ahead()
        step = ahead - self._ahead
        if abs(step) <= CLOCK_TOLERANCE:
            return 0
        self._ahead = ahead
        return step

    def _now_ahead(self) -> int:
        return self._milliseconds() - int(self._loop_time() * 1000)
