"""A thread that notices when an event loop does not go on, and where it is held.

There is one for all nodes of the process, and it ends with the last of them. It asks each
loop for a sign of life; a loop that gives none in time is held by somebody's code, which the
frames of its thread show. Nothing is paid for it on the way of a message.
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

__all__ = ["WATCHDOG", "LoopWatch", "Watchdog", "Watched"]


class Watched(Protocol):
    """Whose event loop is watched."""

    @property
    def node(self) -> RunQueue:
        """The node that lives on the loop; it is watched until it has stopped."""
        ...

    def loop_held(self, frame: FrameType) -> None:
        """Hear, once for each time, that the loop is held and what frame its thread is in.

        Called on the thread that watches.
        """


class LoopWatch:
    """Asks one event loop for signs of life.

    Args:
        watched: Whose loop. It is not kept alive for this.
        patience: How long a sign may take, in seconds.
        clock: What tells the time, in seconds.
    """

    def __init__(
        self, watched: Watched, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watched = ref(watched)
        self._patience = patience
        self._clock = clock
        self._asked: float | None = None  # when the sign was asked for that has not come
        self._told = False

    def look(self) -> float | None:
        """Ask for a sign of life, or see whether it has come.

        Returns:
            After how many seconds to look again; `None`: not any more.
        """
        watched = self._watched()
        if watched is None or watched.node.phase is Phase.CLOSED:
            return None
        if watched.node.phase is Phase.NOT_STARTED:
            return self._patience
        now = self._clock()
        if self._asked is None:
            self._asked, self._told = now, False
            try:
                watched.node.loop.call_soon_threadsafe(self._alive)
            except RuntimeError:
                return None  # the loop was closed without stopping the node
            return self._patience
        left = self._asked + self._patience - now
        if left <= 0 and not self._told:
            self._told = True
            frame = sys._current_frames().get(watched.node.thread_id)
            if frame is not None:
                watched.loop_held(frame)
        return left if left > 0 else self._patience

    def _alive(self) -> None:
        self._asked = None


class Watchdog:
    """The thread that looks. Its methods are safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watches: dict[LoopWatch, None] = {}
        self._thread: threading.Thread | None = None

    def watch(self, watch: LoopWatch) -> None:
        """Look after one more loop, until it says that it is over."""
        with self._changed:
            self._watches[watch] = None
            if self._thread is None:
                # A daemon: it must not keep the interpreter from ending.
                self._thread = threading.Thread(
                    target=self._run, name="onward-watchdog", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def forget(self, watch: LoopWatch) -> None:
        """Look after a loop no more."""
        with self._changed:
            self._watches.pop(watch, None)
            self._changed.notify()

    @property
    def thread(self) -> threading.Thread | None:
        """The thread, while there is something to look after."""
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
