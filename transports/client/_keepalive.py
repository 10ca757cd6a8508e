"""Detection of silent brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["KeepaliveMonitor"]


class KeepaliveMonitor:
    """The keepalive monitor of a connection: it suspects a silent broker, then closes.

    Attributes:
        heard: The time of the last read, in seconds of the loop's clock.

    Args:
        link: The connection.
    """

    __slots__ = ("_asked", "_due", "_link", "_timer", "heard")

    def __init__(self, link: ClientLink) -> None:
        self.heard = link.loop.time()
        self._link = link
        self._due: float | None = None  # since when an answer is due
        self._asked = False  # whether a KEEPALIVE was sent since
        self._timer: asyncio.TimerHandle | None = None

    def hear(self) -> float:
        """Record a read; return the time."""
        self.heard = now = self._link.loop.time()
        self._due = None
        self._asked = False
        return now

    def expect(self) -> None:
        """Record that an answer of the broker is due."""
        if self._due is None:
            self._due = self._link.loop.time()

    def suspected(self) -> bool:
        """Return whether the broker is silent for `suspect_after` with an answer due.

        The delay may be the destination's. So a suspected broker is sent a KEEPALIVE, which it
        answers at once.
        """
        since = self._due
        link = self._link
        if since is None or link.loop.time() - since <= link.options.suspect_after:
            return False
        if not self._asked:
            self._asked = True
            link.send_keepalive()
        return True

    def watch(self) -> None:
        """Close the connection after `lifetime` in silence.

        Defect 9 of the `rsocket` package (0.4.20): it takes up to twice as long, and never
        recovers.
        """
        # SETUP Frame, Max Lifetime: "Time (in milliseconds) that a client will allow a server to
        # not respond to a KEEPALIVE before it is assumed to be dead."
        link = self._link
        due = self.heard + link.options.lifetime
        if link.loop.time() >= due:
            link.abort(f"the broker was silent for {link.options.lifetime:g} s")
        else:
            self._timer = link.loop.call_at(due, self.watch)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
