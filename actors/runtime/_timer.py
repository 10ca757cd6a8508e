"""Timers of workers, with actions that run in the worker's turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol._closed import close_class
from ...protocol.options import Seconds, check_timeout, check_value
from .._coroutines import is_generator
from .._errors import YIELDS, BadHandler, LimitReached
from ._mailbox import Turn

if TYPE_CHECKING:
    from ._cell import Cell

__all__ = ["Timer"]


class Timer(Turn):
    """An action that a worker runs later, once or repeatedly.

    Made by `Worker.after` and `Worker.every`. The action never runs beside a handler of the
    same worker: when due, it waits for its turn like a message, but regardless of the mailbox's
    limit. Late runs of a repeated action are skipped: at most one waits. An exception of the
    action is a failure of the worker, as in a handler. A timer ends with its worker, also
    when the worker is restarted.
    """

    __slots__ = ("_action", "_cell", "_due", "_handle", "_period", "_timers", "_waiting")

    def __init__(
        self, cell: Cell, seconds: float, action: Callable[[], object], *, repeat: bool
    ) -> None:
        if repeat:
            check_value("seconds", seconds, Seconds)
        else:
            check_timeout(seconds, "seconds")
        timers = cell.timers
        if timers is None:
            timers = cell.timers = {}
        limit = cell.run_queue.limits.timers
        if len(timers) >= limit:
            raise LimitReached("timers", limit)
        timers[self] = None
        self._timers = timers
        self._cell = cell
        self._action: Callable[[], object] | None = action
        self._period = seconds if repeat else None
        self._due = cell.run_queue.loop.time() + seconds
        self._handle: asyncio.TimerHandle | None = None
        self._waiting = False
        cell.run_queue.call_on_loop(self._arm)

    @property
    def active(self) -> bool:
        """Whether the action may still run."""
        return self._action is not None

    def cancel(self) -> None:
        """Cancel the timer; an action that is due but has not begun is not run. Idempotent."""
        if self._action is None:
            return
        handle = self._handle
        self._end()
        if handle is not None:
            self._cell.run_queue.call_on_loop(handle.cancel)

    def perform(self, cell: Cell) -> None:
        """Run the action in the worker's turn."""
        action = self._action
        self._waiting = False
        if action is None:
            return
        if self._period is None:
            self._end()
        result = cell.call(action)
        if not cell.suspend(result, cell.turn_done) and is_generator(result):
            raise BadHandler(f"a timer of {type(cell.worker).__name__}", YIELDS)

    def _end(self) -> None:
        self._action = None
        self._handle = None  # it refers to this timer, also when it has run
        self._timers.pop(self, None)

    def _arm(self) -> None:
        if self._action is not None:
            self._handle = self._cell.run_queue.loop.call_at(self._due, self._fire)

    def _fire(self) -> None:
        if self._action is None:
            self._handle = None  # it was cancelled from another thread meanwhile
            return
        if self._period is not None:
            now = self._cell.run_queue.loop.time()
            self._due += self._period * max(1, (now - self._due) // self._period + 1)
            self._arm()
        if not self._waiting:
            self._waiting = True
            self._cell.post(self)


close_class(Timer)
