"""`RestartWait`: the wait of a failed worker before its restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._policy import RestartBackoff

if TYPE_CHECKING:
    from ._cell import Cell

__all__ = ["RestartWait"]


class RestartWait:
    """The wait of a worker between a failure and its restart.

    The worker is not `RUNNING` meanwhile, so its messages wait in its mailbox. It has no task, so
    it is not reported as held up.

    Args:
        cell: The cell of the worker.
        backoff: The lengths of the waits.
        restart: Function that restarts the worker.
    """

    __slots__ = ("_backoff", "_cell", "_restart", "_restarted", "_restarts", "_timer")

    def __init__(self, cell: Cell, backoff: RestartBackoff, restart: Callable[[], None]) -> None:
        self._cell = cell
        self._backoff = backoff
        self._restart = restart
        self._restarts = 0
        self._restarted = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the worker waits for its restart."""
        return self._timer is not None

    def begin(self) -> None:
        """Begin to wait, longer than before the last restart if that was not long ago."""
        loop = self._cell.run_queue.loop
        now = loop.time()
        if now - self._restarted > self._cell.supervision.within:
            self._restarts = 0
        seconds = self._backoff.wait(self._restarts)
        self._restarts += 1
        self._restarted = now + seconds
        self._timer = loop.call_later(seconds, self.end)

    def end(self) -> None:
        """Restart the worker now."""
        self.cancel()
        self._restart()

    def cancel(self) -> None:
        """End the wait without a restart."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
