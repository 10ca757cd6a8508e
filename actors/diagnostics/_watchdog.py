"""The watchdog: a thread that detects event loops held by code that does not await.

There is one for all nodes of the process, and it ends with the last of them. It schedules a
callback on each loop; if that does not run in time, the frames of the loop's thread show the code
that holds it. Messages have no overhead.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol
from weakref import ref

from ..runtime._run_queue import Phase

if TYPE_CHECKING:
    from ..runtime._run_queue import RunQueue

__all__ = ["WATCHDOG", "LoopObserver", "LoopWatch", "Watchdog"]


class LoopObserver(Protocol):
    """An observer of the event loop of a node."""

    @property
    def run_queue(self) -> RunQueue:
        """The run queue on the loop, which is watched until its node has stopped."""
        ...

    def loop_held(self, frame: FrameType) -> None:
        """Report a held loop once, with the current frame of its thread.

        Called on the watchdog's thread.
        """


class LoopWatch:
    """A periodic check of one event loop.

    Args:
        watched: The observer of the loop, by a weak reference.
        patience: Time within which the loop must run the callback, in seconds.
        clock: The function that returns the time, in seconds.
    """

    def __init__(
        self, watched: LoopObserver, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watched = ref(watched)
        self._patience = patience
        self._clock = clock
        self._asked: float | None = None  # time of the pending callback's scheduling
        self._told = False

    def look(self) -> float | None:
        """Schedule the callback, or check whether it has run.

        Returns:
            The seconds until the next check, or `None` to end the checks.
        """
        watched = self._watched()
        if watched is None or watched.run_queue.phase is Phase.CLOSED:
            return None
        if watched.run_queue.phase is Phase.NOT_STARTED:
            return self._patience
        now = self._clock()
        if self._asked is None:
            self._asked, self._told = now, False
            try:
                watched.run_queue.loop.call_soon_threadsafe(self._alive)
            except RuntimeError:
                return None  # the loop was closed without stopping the node
            return self._patience
        left = self._asked + self._patience - now
        if left <= 0 and not self._told:
            self._told = True
            frame = sys._current_frames().get(watched.run_queue.thread_id)
            if frame is not None:
                watched.loop_held(frame)
        return left if left > 0 else self._patience

    def _alive(self) -> None:
        self._asked = None


class Watchdog:
    """The thread that checks the loops. Its methods are safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watches: dict[LoopWatch, None] = {}
        self._thread: threading.Thread | None = None

    def watch(self, watch: LoopWatch) -> None:
        """Add a loop, to be checked until its node has stopped."""
        with self._changed:
            self._watches[watch] = None
            if self._thread is None:
                # A daemon, so that it does not keep the interpreter from ending.
                self._thread = threading.Thread(
                    target=self._run, name="onward-watchdog", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def forget(self, watch: LoopWatch) -> None:
        """Remove a loop."""
        with self._changed:
            self._watches.pop(watch, None)
            self._changed.notify()

    @property
    def thread(self) -> threading.Thread | None:
        """The thread, while there are loops to check."""
        return self._thread

    def _run(self) -> None:
        while True:
            with self._changed:
                watches = list(self._watches)
            waits = {each: each.look() for each in watches}
            with self._changed:
                for each, wait in waits.items():
                    if wait is None:
                        self._watches.pop(each, None)
                if not self._watches:
                    self._thread = None
                    return
                if len(self._watches) == len(watches):
                    left = [wait for wait in waits.values() if wait is not None]
                    self._changed.wait(min(left, default=0.0))


WATCHDOG: Final = Watchdog()
