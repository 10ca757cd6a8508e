"""Whether the other end of a channel is there: it is asked when nothing is heard of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .._worker import Worker

__all__ = ["Keeping"]

_LEAST: Final = 0.01
"""The shortest time between two looks, in seconds."""


class Keeping:
    """Watches the other end of a channel, with the timers of the worker that hears it.

    An end that is asked, and that does not answer, is asked again and again, each time after twice
    the time. When nothing has been heard for `limit`, it is gone.

    Args:
        worker: Whose timers are used.
        limit: After how long without a word the other end is gone, in seconds.
        first: After how long it is asked a second time, in seconds.
        keep_alive: After how long without a word it is asked, in seconds.
        ask: Asks it.
        gone: Is called once when it is gone.

    Attributes:
        heard_at: When something was heard last, in seconds of the loop's clock.
    """

    __slots__ = (
        "_ask",
        "_first",
        "_gone",
        "_is_heard",
        "_keep_alive",
        "_limit",
        "_limit_now",
        "_wait",
        "_worker",
        "heard_at",
    )

    def __init__(
        self,
        worker: Worker,
        limit: float,
        first: float,
        keep_alive: float,
        *,
        ask: Callable[[], object],
        gone: Callable[[], object],
    ) -> None:
        self._worker = worker
        self._limit = self._limit_now = limit
        self._first = self._wait = first
        self._keep_alive = max(keep_alive, first)
        self._ask = ask
        self._gone = gone
        self._is_heard = False
        self.heard_at = worker.node.loop.time()

    def begin(self, first_limit: float, *, at_once: bool) -> None:
        """Watch from now on.

        Args:
            first_limit: After how long the other end is gone if it has not been heard at all, in
                seconds.
            at_once: Whether to ask now, and again until it is heard: so it knows that it has been
                found.
        """
        self._limit_now = first_limit
        self._is_heard = not at_once
        wait = self._keep_alive
        if at_once:
            self._ask()
            wait = self._first
        self._worker.after(min(wait, first_limit), self._look)

    def heard(self, now: float) -> None:
        """Note that the other end is there."""
        self.heard_at = now
        self._is_heard = True
        self._limit_now = self._limit
        self._wait = self._first

    def _look(self) -> None:
        silent = self._worker.node.loop.time() - self.heard_at
        if silent >= self._limit_now:
            self._gone()
            return
        if self._is_heard and silent < self._keep_alive:
            wait = self._keep_alive - silent
        else:
            self._ask()
            wait = self._wait
            self._wait = min(2 * wait, self._keep_alive)
        # Of two times that are nearly the same there is always a rest, which is no time at all.
        self._worker.after(max(min(wait, self._limit_now - silent), _LEAST), self._look)
