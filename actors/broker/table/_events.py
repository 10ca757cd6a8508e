"""What happens in a broker, for whoever wants to watch it.

An event is made only while somebody watches. Each subscription keeps a bounded number of events
that have not been taken yet; at the limit the oldest is lost, and the next one taken says how
many were.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias
from uuid import UUID

from ..._errors import LimitReached

__all__ = ["BrokerEvent", "EventKind", "Events", "Subscription"]

EventKind: TypeAlias = Literal["joined", "left", "replaced", "rejected", "lost"]
"""What has happened: a destination joined, left, or was replaced by the one that joins next; a
request was rejected because nobody could take it, or lost on its way to a destination."""


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """Something that has happened in a broker.

    Attributes:
        kind: What.
        at: When, in seconds since the Unix epoch.
        route_id: The destination's identity; `None` if the event is about none.
        service: The destination's service name, or empty.
        tags: The destination's tags as `(name, value)`, for people to read.
        peer: Where the destination is, or empty.
        reason: Why, in a few words, or empty.
        query: What a request asked for, as the value of an address of type 32, or empty.
        missed: Events just before this one that the subscription has lost.
    """

    kind: EventKind
    at: float
    route_id: UUID | None = None
    service: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    peer: str = ""
    reason: str = ""
    query: str = ""
    missed: int = 0


SPARE: Final = 8
"""Questions one peer may have in hand besides half of all subscriptions."""


class Subscription:
    """Events as they happen: an asynchronous iterator for one task, on the node's loop.

    It ends when it is closed, or when the broker has stopped and all has been taken.
    """

    def __init__(self, events: Events, limit: int) -> None:
        self._events = events
        self._limit = limit
        self._kept: deque[BrokerEvent] = deque()
        self._missed = 0
        self._closed = False
        self._taker: asyncio.Future[None] | None = None

    def put(self, event: BrokerEvent) -> None:
        """Keep an event until it is taken; at the limit the oldest is lost."""
        if len(self._kept) >= self._limit:
            self._kept.popleft()
            self._missed += 1
        self._kept.append(event)
        self._wake()

    def end(self) -> None:
        """Let it end once all has been taken: there will be no more."""
        self._closed = True
        self._wake()

    def close(self) -> None:
        """Take no more; idempotent."""
        self._kept.clear()
        self._events.drop(self)
        self.end()

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BrokerEvent:
        while not self._kept:
            if self._closed:
                raise StopAsyncIteration
            self._taker = asyncio.get_running_loop().create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        event, missed = self._kept.popleft(), self._missed
        self._missed = 0
        return replace(event, missed=missed) if missed else event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Events:
    """Where what happens in a broker is told.

    Args:
        max_watchers: Most subscriptions at a time.
        max_events: Events kept for a subscription that does not keep up.

    Attributes:
        watched: Whether anybody watches; if not, no event need be made.
    """

    __slots__ = ("_max_events", "_max_watchers", "_subscriptions", "watched")

    def __init__(self, max_watchers: int, max_events: int) -> None:
        self._max_watchers: Final = max_watchers
        self._max_events: Final = max_events
        self._subscriptions: dict[Subscription, None] = {}
        self.watched = False

    @property
    def share(self) -> int:
        """How many questions and subscriptions one peer may have in hand: the others keep some."""
        return self._max_watchers // 2 + SPARE

    def subscribe(self) -> Subscription:
        """Watch from now on. Call it on the node's loop, and `close` what it returns.

        ```python
        with broker.events.subscribe() as events:
            async for event in events:
                print(event.kind, event.service)
        ```

        Raises:
            LimitReached: `max_watchers` watch already.
        """
        if len(self._subscriptions) >= self._max_watchers:
            raise LimitReached("watchers of the broker", self._max_watchers)
        made = Subscription(self, self._max_events)
        self._subscriptions[made] = None
        self.watched = True
        return made

    def drop(self, subscription: Subscription) -> None:
        """Tell a subscription nothing any more."""
        self._subscriptions.pop(subscription, None)
        self.watched = bool(self._subscriptions)

    def emit(self, event: BrokerEvent) -> None:
        """Tell everybody who watches."""
        for each in self._subscriptions:
            each.put(event)

    def end(self) -> None:
        """End all subscriptions once what they keep has been taken."""
        for each in list(self._subscriptions):
            self.drop(each)
            each.end()

    def __len__(self) -> int:
        """Return how many watch."""
        return len(self._subscriptions)
