"""How many batches for one destination are out at a time, by how fast they are taken there.

A receiver that is slower than the sender is no failure. What says that it does not keep up makes
the window half as large, down to one batch, and lets all wait a while, longer each time until a
batch is taken again; each window of batches that are taken makes it larger by one.
"""

from __future__ import annotations

import asyncio
import heapq
from random import random
from typing import Final

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "Flow"]

FIRST_PAUSE: Final = 0.05
"""Seconds that batches wait at most when their receiver does not keep up for the first time; then
twice as long each time."""

LONGEST_PAUSE: Final = 1.0
"""Seconds that such a pause is at most. Half of a pause is by chance, so that tasks do not all come
back at once."""


class Flow:
    """Lets batches out, those with lower numbers first. `enter`, then ask, then `leave`.

    Args:
        most: Batches that may be out, if the receiver keeps up.

    Attributes:
        taken: Batches that were taken.
        limit: Batches that may be out now.
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
        """Wait until a batch may go; each of those that wait has a number of its own."""
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
        """Say that a batch is not out any more, whatever became of it."""
        self._out -= 1
        self._let_out()

    def _let_out(self) -> None:
        while self._turns and not self._paused and self._out < self.limit:
            turn = heapq.heappop(self._turns)[1]
            if not turn.done():
                turn.set_result(None)
                self._out += 1

    def progress(self) -> None:
        """Say that a batch was taken."""
        self.taken += 1
        self._pauses, self._since = 0, None
        self._grown += 1
        if self._grown >= self.limit:
            self._grown = 0
            self.limit = min(self.limit + 1, self._most)

    def push_back(self) -> float:
        """Say that the receiver does not keep up; return for how long that has been so, in seconds.

        That is since the first time after the last batch that was taken.
        """
        loop = asyncio.get_running_loop()
        if self._since is None:
            self._since = loop.time()
        if not self._paused:  # those that were out together are told together
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
