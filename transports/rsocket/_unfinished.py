"""Unfinished frames of the connections of a listener."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ._options import LinkOptions

if TYPE_CHECKING:
    from ._flow import Flow

__all__ = ["UnfinishedFrames"]


class UnfinishedFrames:
    """The bounds on the unfinished frames of all connections together, in bytes and in time.

    A frame may have 16 MiB, and each byte of it counts as activity. Under the limits of one
    connection alone, a peer could hold that much on each of its connections for ever.

    Args:
        loop: The loop of the connections.
        options: `max_unfinished` and `frame_timeout`.

    Attributes:
        total: Bytes kept now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: LinkOptions) -> None:
        self._loop = loop
        self._options = options
        # Oldest frame first: all may take equally long.
        self._kept: dict[Flow, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.total = 0

    def note(self, link: Flow, kept: int, since: float) -> None:
        """Record the unfinished bytes of a connection, or close it over the limit.

        Args:
            link: The connection.
            kept: Bytes; 0 if it has none, or has ended.
            since: When the first of them arrived.
        """
        before = self._kept.get(link)
        if before is not None:
            self.total -= before[0]
            if not kept or before[1] != since:
                del self._kept[link]
        if not kept:
            return
        self._kept[link] = kept, since
        self.total += kept
        if self.total > self._options.max_unfinished:
            link.close("unfinished frames", "too many frames are unfinished")
        elif self._timer is None:
            self._watch(since)

    def _watch(self, since: float) -> None:
        self._timer = self._loop.call_at(since + self._options.frame_timeout, self._on_timer)

    def _on_timer(self) -> None:
        """Close the connections with overdue frames, and set the timer for the next."""
        self._timer = None
        now = self._loop.time()
        while self._kept:
            link, (kept, since) = next(iter(self._kept.items()))
            if since + self._options.frame_timeout > now:
                self._watch(since)
                return
            if link.blocked:
                self.note(link, kept, now)  # it is not read: that time does not count
            else:
                link.close("unfinished frame", "a frame was not finished in time")
