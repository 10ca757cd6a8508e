"""The events of a simulated network: one queue, one timer and one history."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

from ._faults import Event

__all__ = ["Clockwork"]

_Due: TypeAlias = "tuple[float, int, Callable[..., object], tuple[Any, ...]]"


class Clockwork:
    """A scheduler that calls actions at their time, those of one time in the order of scheduling.

    The loop's timers do not guarantee an order for two that are due at once.

    Args:
        loop: The loop with the clock.
        history: The number of events kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, history: int) -> None:
        self.loop = loop
        self.history: deque[Event] = deque(maxlen=history)
        self._due: list[_Due] = []
        self._order = 0
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._running = False
        self._stopped = False

    def number(self) -> int:
        """Return the number of the next message."""
        self._number += 1
        return self._number

    @property
    def now(self) -> float:
        """The time of the loop's clock; in a scheduled call at least the time that it was set for.

        The loop calls timers early by less than the resolution of its clock.
        """
        now = self.loop.time()
        return max(now, self._timer_at) if self._running else now

    def at(self, when: float, action: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call at a time of the loop's clock."""
        if self._stopped:
            return
        self._order += 1
        heappush(self._due, (when, self._order, action, arguments))
        if not self._running and (self._timer is None or when < self._timer_at):
            self._arm(when)

    def stop(self) -> None:
        """Cancel all scheduled calls."""
        self._stopped = True
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

    def note(self, kind: str, source: str, target: str) -> None:
        """Record an event that is not about a message."""
        self.history.append(Event(self.loop.time(), kind, source, target))

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_at(when, self._go)

    def _go(self) -> None:
        self._timer = None
        self._running = True
        due, now = self._due, self._timer_at
        try:
            while due and due[0][0] <= now:
                _, _, action, arguments = heappop(due)
                action(*arguments)
        finally:
            self._running = False
            if due:
                self._arm(due[0][0])
