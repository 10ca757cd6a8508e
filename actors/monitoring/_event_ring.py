"""The recent events of a broker, kept so that readers can begin where they have stopped.

All readers share one ring: a slow one costs nothing, and loses what the ring no longer has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from ..broker import Broker, BrokerEvent

__all__ = ["EventReader", "EventRing", "RecentEvent", "RecentEvents"]

T = TypeVar("T")

MAX_EVENTS: Final = 1000
"""The maximum number of events kept; the oldest is forgotten."""

MAX_READ: Final = 100
"""The maximum number of events that a reader gets at a time."""


@dataclass(frozen=True, slots=True)
class RecentEvent(Generic[T]):
    """An event with its place among all events since the start.

    Attributes:
        number: Its number.
        event: The event.
        missed: Events just before this one that the reader has lost.
    """

    number: int
    event: T
    missed: int = 0


class RecentEvents(Generic[T]):
    """The last events of a source.

    Args:
        limit: The maximum number of events kept.

    Attributes:
        last: The number of the last event, from 1 on, with those that were lost before the ring.
        lost: Events that were lost before the ring.
    """

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self.last = 0
        self.lost = 0
        self._kept: deque[tuple[int, T]] = deque(maxlen=limit)
        self._news: asyncio.Future[None] | None = None

    def add(self, event: T, missed: int = 0) -> None:
        """Keep an event, and wake the readers.

        Args:
            event: The event.
            missed: Events just before it that were lost.
        """
        self.last += 1 + missed
        self.lost += missed
        self._kept.append((self.last, event))
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def after(self, number: int) -> list[RecentEvent[T]]:
        """Return the events after a number, oldest first, at most `MAX_READ` of them."""
        new = (each for each in self._kept if each[0] > number)
        found: list[RecentEvent[T]] = []
        for at, event in islice(new, MAX_READ):
            found.append(RecentEvent(at, event, at - number - 1))
            number = at
        return found

    async def wait(self) -> None:
        """Wait for the next event."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        # One future for all readers: the end of one must not cancel it.
        await asyncio.shield(self._news)

    def read(self, after: int | None = None) -> EventReader[T]:
        """Return a reader.

        Args:
            after: The number of the last event that it has had, of this run of the program; `None`,
                or a number that no event has had: the reader gets the events from now on.
        """
        return EventReader(self, self.last if after is None or after > self.last else after)


class EventRing(RecentEvents[BrokerEvent]):
    """The last events of a broker.

    Args:
        broker: The broker.
        limit: The maximum number of events kept.
    """

    def __init__(self, broker: Broker, limit: int = MAX_EVENTS) -> None:
        super().__init__(limit)
        self._broker = broker
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Keep the events from now on.

        Raises:
            LimitReached: The broker has too many subscriptions.
        """
        subscription = self._broker.events.subscribe()

        async def keep() -> None:
            with subscription as events:
                async for event in events:
                    self.add(event, event.missed)

        self._task = asyncio.get_running_loop().create_task(keep())

    async def stop(self) -> None:
        """Keep no more events."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


class EventReader(Generic[T]):
    """A reader of the ring, from a number on.

    Args:
        ring: The ring.
        number: The number of the last event that it has had.
    """

    def __init__(self, ring: RecentEvents[T], number: int) -> None:
        self._ring = ring
        self.number = number

    async def next(self) -> list[RecentEvent[T]]:
        """Return the next events, at least one, when there are some."""
        while not (found := self._ring.after(self.number)):
            await self._ring.wait()
        self.number = found[-1].number
        return found
