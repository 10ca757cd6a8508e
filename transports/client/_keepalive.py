"""How long a broker has been silent, and what that means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["KeepaliveMonitor"]


class KeepaliveMonitor:
    """Gives a broker up that has been silent for `lifetime`, and suspects it before.

    Attributes:
        heard: When something came last, in seconds of the loop's clock.

    Args:
        link: The connection.
    """

    __slots__ = ("_asked", "_due", "_link", "_timer", "heard")

    def __init__(self, link: ClientLink) -> None:
        self.heard = link.loop.time()
        self._link = link
        self._due: float | None = None  # since when there is something to answer
        self._asked = False  # whether it was asked for a sign of life since
        self._timer: asyncio.TimerHandle | None = None

    def hear(self) -> float:
        """Note that something has come; return the time."""
        self.heard = now = self._link.loop.time()
        self._due = None
        self._asked = False
        return now

    def expect(self) -> None:
        """Note that the broker has something to answer."""
        if self._due is None:
            self._due = self._link.loop.time()

    def suspected(self) -> bool:
        """Say whether nothing has come for `suspect_after` since there was something to answer.

        A destination may take its time. So who is suspected is asked for a sign of life, which
        a broker gives at once.
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
        """Give the broker up when it has been silent for too long.

        Defect 9 of the `rsocket` package (0.4.20): it notices after one to two times as long,
        and never recovers.
        """
        link = self._link
        due = self.heard + link.options.lifetime
        if link.loop.time() >= due:
            link.abort(f"the broker was silent for {link.options.lifetime:g} s")
        else:
            self._timer = link.loop.call_at(due, self.watch)

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
