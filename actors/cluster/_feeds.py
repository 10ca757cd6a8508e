"""The streams of own routes to the peer brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from math import inf
from typing import Final

from ...protocol.cluster import Position, RouteFeed, RouteFeedStatistics, RouteLog

__all__ = ["Feeds", "RouteStream"]


class RouteStream:
    """The stream to one peer broker: at most one at a time, over all that it has asked for.

    A peer broker that asks for another stream gets that one, and the one before ends.

    Args:
        feeds: The streams to all peer brokers.
        max_batch: Bytes of an element that the peer broker prefers; `None`: as many as we do.
    """

    def __init__(self, feeds: Feeds, max_batch: int | None) -> None:
        self._feeds = feeds
        self._max_batch = max_batch
        self._feed: RouteFeed | None = None

    async def elements(self, position: Position) -> AsyncGenerator[bytes]:
        """Yield the elements from a position on, without an end; advance it only with credit."""
        feeds = self._feeds
        feed = self._feed = RouteFeed(feeds.log, position, max_batch=self._max_batch)
        while self._feed is feed:
            element = feed.next(feeds.clock())
            if element is None:
                # While changes are gathered, no further one need wake it: its timer does.
                await feeds.wait(feed.get_timer(), wakes=not feed.statistics().behind)
            else:
                yield element

    def requested(self, data: bytes) -> AsyncGenerator[bytes]:
        """Return the elements for a request.

        Raises:
            ClusterFrameError: The request cannot be read.
        """
        return self.elements(Position.parse(data))

    def statistics(self) -> RouteFeedStatistics | None:
        """Return the figures of the stream; `None` if none was asked for."""
        return None if self._feed is None else self._feed.statistics()


class Feeds:
    """The streams to all peer brokers, which wait for changes of the log.

    Args:
        log: The log.
        clock: Returns the time in seconds.

    Attributes:
        log: As given.
        clock: As given.
    """

    def __init__(self, log: RouteLog, clock: Callable[[], float]) -> None:
        self.log: Final = log
        self.clock: Final = clock
        # In the order in which they wait: a set has another one in each run.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def wake(self) -> None:
        """Wake the streams that wait for a change, as there is one."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, until: float, *, wakes: bool) -> None:
        """Wait until a stream may have an element.

        Args:
            until: When it has one even without a change.
            wakes: Whether a change wakes it before.
        """
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if wakes:
            self._waiting[change] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if until == inf else until):
                    await change
        finally:
            self._waiting.pop(change, None)
