"""Samples of the times of messages: how long they wait in mailboxes, and how long handlers take.

A clock read for each message would cost as much as a hop. So the first turn in one of `EVERY`
passes of the run queue is measured, and the wait is that of a probe, which is put behind the
messages that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol.metrics import DurationHistogram
from ._mailbox import Turn
from ._state import RUNNING

if TYPE_CHECKING:
    from ._cell import Cell
    from ._mailbox import Target

__all__ = ["MAX_KINDS", "OTHER_KIND", "TurnTimes"]

EVERY: Final = 16
"""Passes of the run queue for each one with a measured turn; a power of two."""

SPARE: Final = 16
"""Free places of a mailbox below which no probe takes one."""

MAX_KINDS: Final = 100
"""The maximum number of classes of workers with figures of their own."""

OTHER_KIND: Final = "other"
"""The name of all further classes together."""


class TurnTimes:
    """The times of the workers of a node, by class.

    Args:
        clock: Returns a monotonic time in seconds.
        every: Passes of the run queue for each one with a measured turn; a power of two.
        kinds: The maximum number of classes of workers with figures of their own.

    Attributes:
        waits: How long probes have waited in mailboxes.
        handling: How long handlers have taken for a message: the mean of a turn, which counts for
            each of its messages. Of a handler that awaits it is the time until it first does so.
    """

    __slots__ = ("_clock", "_kinds", "_mask", "_passes", "handling", "waits")

    def __init__(
        self, clock: Callable[[], float], every: int = EVERY, kinds: int = MAX_KINDS
    ) -> None:
        self._clock = clock
        self._mask = every - 1
        self._kinds = kinds
        self._passes = 0
        self.waits: dict[str, DurationHistogram] = {}
        self.handling: dict[str, DurationHistogram] = {}

    def due(self) -> bool:
        """Count a pass of the run queue; return whether a turn of it is to be measured."""
        self._passes += 1
        return not self._passes & self._mask

    def take(self, ready: deque[Target]) -> int:
        """Measure the turn of the first target; return its cost in messages.

        Args:
            ready: The targets that are to have a turn; there is one at least.
        """
        target = ready.popleft()
        newest = (ready[-1] if ready else target).cell_of()
        if newest is not None:
            self._probe(newest)
        cell = target.cell_of()
        before = 0 if cell is None else cell.handled
        began = self._clock()
        try:
            cost = target.turn()
        except BaseException as error:
            # As in `RunQueue.drain`.
            target.recover(error)
            if not isinstance(error, Exception):
                raise
            return 1
        if cell is not None and cell.handled > before:
            count = cell.handled - before
            self._of(self.handling, cell).add((self._clock() - began) / count, count)
        return cost

    def _probe(self, cell: Cell) -> None:
        queue = cell.queue
        if cell.state == RUNNING and queue and len(queue) + SPARE < cell.limit:
            cell.post(_Probe(self, self._clock()))

    def waited(self, cell: Cell, since: float) -> None:
        """Count the wait of a probe."""
        self._of(self.waits, cell).add(self._clock() - since)

    def _of(self, histograms: dict[str, DurationHistogram], cell: Cell) -> DurationHistogram:
        kind = type(cell.worker).__name__
        if kind not in histograms and len(histograms) >= self._kinds:
            kind = OTHER_KIND
        found = histograms.get(kind)
        if found is None:
            found = histograms[kind] = DurationHistogram()
        return found


class _Probe(Turn):
    """An item in a mailbox that only measures its wait."""

    __slots__ = ("_since", "_times")

    def __init__(self, times: TurnTimes, since: float) -> None:
        self._times = times
        self._since = since

    def perform(self, cell: Cell) -> None:
        """Count the wait."""
        self._times.waited(cell, self._since)
