"""What a dispatcher performs later: actions of a later turn, and what is due of its names."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from .._worker import Worker
from ..runtime._timer import Timer

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["Alarm", "Schedule", "Scheduled"]

_SPARE: Final = 64
"""Times of no use that are kept beyond as many as there are others."""


class Scheduled(Protocol):
    """A part of a dispatcher of which something is due at times.

    Attributes:
        scheduled: When `due` is called next, in seconds.
    """

    scheduled: float | None

    def get_timer(self) -> float | None:
        """Return when `due` has to be called, in seconds; `None` if nothing is due."""
        ...

    def due(self, now: float) -> None:
        """Perform what is due, and have the schedule armed again."""
        ...


class Alarm:
    """A timer that is set for the earliest of the times that it is asked for.

    Args:
        worker: The worker of the dispatcher, which has the timer.
        function: It is called at that time.
    """

    def __init__(self, worker: Worker, function: Callable[[], object]) -> None:
        self._worker: Final = worker
        self._function: Final = function
        self._timer: Timer | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        """Call the function at a time, in seconds of the loop, or earlier if it is due earlier."""
        if self._timer is not None and self._timer.active:
            if self._at <= at:
                return
            self._timer.cancel()
        self._at = at
        now = self._worker.node.loop.time()
        self._timer = self._worker.after(max(0.0, at - now), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._function()


class Schedule:
    """The actions of later turns, and the times at which something of a name is due.

    Args:
        core: The dispatcher.
        worker: Its worker, which has the timers.
    """

    def __init__(self, core: DispatchCore, worker: Worker) -> None:
        self._core: Final = core
        self._worker: Final = worker
        self._actions: Final = deque[Callable[[], object]]()
        self._set = False
        self._alarm: Final = Alarm(worker, self._due)
        self._times: list[tuple[float, int, Scheduled]] = []
        self._stale = 0  # times in there that are of no use any more
        self._order: Final = count()

    def soon(self, action: Callable[[], object]) -> None:
        """Perform an action in a later turn; all that wait share a timer."""
        self._actions.append(action)
        if not self._set:
            self._set = True
            self._worker.after(0, self._run)

    def perform(self) -> None:
        """Perform the actions that wait, before something that must come after them."""
        for _ in range(len(self._actions)):
            if not self._actions:
                return  # one of them has had the rest performed, as a consumer has stopped
            try:
                self._actions.popleft()()
            except Exception as error:  # noqa: BLE001 - the others must be performed too
                self._core.fault("an action of a dispatcher", error)

    def _run(self) -> None:
        self.perform()
        self._set = bool(self._actions)
        if self._set:
            self._worker.after(0, self._run)

    def __len__(self) -> int:
        """Return the number of times that are kept, those of no use any more included."""
        return len(self._times)

    def arm(self, state: Scheduled) -> None:
        """Look at a name, or a part of a dispatcher, again when something of it is due."""
        at = state.get_timer()
        if at is None or (state.scheduled is not None and state.scheduled <= at):
            return
        rearmed = state.scheduled is not None
        state.scheduled = at
        if rearmed:
            self._disused()
        heappush(self._times, (at, next(self._order), state))
        self._alarm.set(self._times[0][0])

    def forget(self, state: Scheduled) -> None:
        """Forget when something of a name is due, as its state is forgotten."""
        if state.scheduled is not None:
            state.scheduled = None
            self._disused()

    def _disused(self) -> None:
        """Count a time that is of no use; remove all of these once they are more than the others.

        A state that was forgotten would be kept until its time has come, otherwise.
        """
        self._stale += 1
        if 2 * self._stale > len(self._times) + _SPARE:
            self._times = [each for each in self._times if each[2].scheduled == each[0]]
            heapify(self._times)
            self._stale = 0

    def _due(self) -> None:
        """Perform what is due of all names."""
        now = self._core.now()
        while self._times and self._times[0][0] <= now:
            at, _, state = heappop(self._times)
            if state.scheduled != at:
                self._stale -= 1
                continue
            state.scheduled = None
            try:
                state.due(now)
            except Exception as error:  # noqa: BLE001 - the other names are due too
                self._core.fault("what is due of a name", error)
        if self._times:
            self._alarm.set(self._times[0][0])
