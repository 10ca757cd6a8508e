"""The keepalive of a channel: checks whether the other end of an idle channel is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .._worker import Worker

__all__ = ["Keeping"]

_LEAST: Final = 0.01
"""The shortest time between two checks, in seconds."""


class Keeping:
    """The keepalive of one end of a channel, on the timers of the worker that receives its frames.

    A keepalive without an answer is repeated, each time after twice the time. When nothing has been
    received for `limit`, the other end is gone.

    Args:
        worker: The worker that provides the timers.
        limit: The time without a frame after which the other end is gone, in seconds.
        first: The time after which the first keepalive is repeated, in seconds.
        keep_alive: The time without a frame after which a keepalive is sent, in seconds.
        ask: Sends a keepalive.
        gone: Called once when the other end is gone.

    Attributes:
        heard_at: The time of the last frame, in seconds of the loop's clock.
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
        """Start the keepalive.

        Args:
            first_limit: The time after which the other end is gone if no frame has come at all, in
                seconds.
            at_once: Whether to send a keepalive now, and repeat it until the first frame: it shows
                the other end that the handshake's answer arrived.
        """
        self._limit_now = first_limit
        self._is_heard = not at_once
        wait = self._keep_alive
        if at_once:
            self._ask()
            wait = self._first
        self._worker.after(min(wait, first_limit), self._look)

    def heard(self, now: float) -> None:
        """Record that a frame of the other end came."""
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
        # Rounding leaves a tiny rest between two nearly equal times; it must not set a timer of 0.
        self._worker.after(max(min(wait, self._limit_now - silent), _LEAST), self._look)
