"""Full passes of the cyclic collector, put off while objects are loaded that stay.

A full pass looks at each object of the process, and one comes whenever their number has grown by a
quarter. While a table of hundreds of thousands of routes is loaded that is a dozen times, for
longer each time, up to about 100 ms in which nothing is relayed. It finds nothing: routes are in no
cycles, and removed ones are freed at once. Passes over young objects go on meanwhile.

The collector belongs to the process, so there is one `FullPasses` for all loaders in it, and none
has to say that it has finished. Objects are not frozen: what is in a cycle and dies later would
stay for ever.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Final

__all__ = ["LEASE", "LONGEST", "PAUSE", "FullPasses", "put_off_full_passes"]

LEASE: Final = 1.0
"""Seconds after the last slice of a load until full passes may come again."""
LONGEST: Final = 30.0
"""Most seconds for which they are put off in one go; then one may come at once."""
PAUSE: Final = 1.0
"""Seconds after that in which they are not put off again."""

_NEVER: Final = 2**31 - 1  # the largest threshold


class FullPasses:
    """The full passes of the collector.

    Args:
        clock: Returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._off = False
        self._before = 0  # the threshold to set back
        self._since = self._until = self._not_before = 0.0

    def put_off(self) -> None:
        """Put full passes off for a while: called for each slice of what is loaded."""
        now = self._clock()
        young, middle, full = gc.get_threshold()
        if full != _NEVER:
            if now < self._not_before:
                return
            self._off, self._before, self._since = True, full, now
            gc.set_threshold(young, middle, _NEVER)
            if self._look not in gc.callbacks:
                gc.callbacks.append(self._look)
        elif not self._off:
            return  # the program has switched them off
        elif now >= self._since + LONGEST:
            self._not_before = now + PAUSE
            self._resume()
        self._until = now + LEASE

    def _look(self, phase: str, info: dict[str, Any]) -> None:
        """Look, at each pass over objects that are not the youngest, whether the load is over.

        The collector calls it, as a timer would end with the loop that it was set in.
        """
        if phase == "start" and info["generation"] and self._clock() >= self._until:
            self._resume()

    def _resume(self) -> None:
        young, middle, full = gc.get_threshold()
        if self._off and full == _NEVER:  # no other has set it since
            gc.set_threshold(young, middle, self._before)
        self._off = False


put_off_full_passes: Final = FullPasses(time.monotonic).put_off
"""Put the full passes of this process off for a while."""
