"""The adaptive window of unanswered batches for one destination.

A slow receiver is no failure. A sign that it does not keep up halves the window, down to one
batch, and starts a pause, which doubles each time until a batch is taken. Each full window of
taken batches enlarges it by one.
"""

from __future__ import annotations

import asyncio
import heapq
from random import random
from typing import Final

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "BatchWindow"]

FIRST_PAUSE: Final = 0.05
"""The longest first pause for a receiver that does not keep up, in seconds. Each further pause is
twice as long."""

LONGEST_PAUSE: Final = 1.0
"""The longest pause, in seconds. Half of a pause is random, so that tasks do not all resume at
once."""


class BatchWindow:
    """A window that admits batches, lower numbers first: `enter`, send, then `leave`.

    Args:
        most: The largest number of unanswered batches.

    Attributes:
        taken: Batches that were taken.
        limit: The current limit of unanswered batches.
    """

    __slots__ = (
        "_grown",
        "_most",
        "_out",
        "_paused",
        "_pauses",
        "_since",
        "_turns",
        "limit",
        "taken",
    )

    def __init__(self, most: int) -> None:
        self.taken = 0
        self.limit = most
        self._most = most
        self._out = 0
        self._grown = 0
        self._pauses = 0
        self._paused = False
        self._since: float | None = None
        self._turns: list[tuple[int, asyncio.Future[None]]] = []

    async def enter(self, number: int) -> None:
        """Wait until a batch may be sent; numbers of waiting batches are distinct."""
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._turns, (number, turn))
        self._let_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Record that a batch was answered or has failed."""
        self._out -= 1
        self._let_out()

    def _let_out(self) -> None:
        while self._turns and not self._paused and self._out < self.limit:
            turn = heapq.heappop(self._turns)[1]
            if not turn.done():
                turn.set_result(None)
                self._out += 1

    def progress(self) -> None:
        """Record that a batch was taken."""
        self.taken += 1
        self._pauses, self._since = 0, None
        self._grown += 1
        if self._grown >= self.limit:
            self._grown = 0
            self.limit = min(self.limit + 1, self._most)

    def push_back(self) -> float:
        """Record that the receiver does not keep up; return for how long, in seconds.

        The time counts from the first such record after the last batch that was taken.
        """
        loop = asyncio.get_running_loop()
        if self._since is None:
            self._since = loop.time()
        if not self._paused:  # batches sent together are refused together
            self.limit, self._grown = max(1, self.limit // 2), 0
            pause = min(FIRST_PAUSE * 2**self._pauses, LONGEST_PAUSE)
            self._pauses = min(self._pauses + 1, 60)
            self._paused = True
            pause *= (1 + random()) / 2  # noqa: S311 - no secret
            loop.call_later(pause, self._go_on)
        return loop.time() - self._since

    def _go_on(self) -> None:
        self._paused = False
        self._let_out()
