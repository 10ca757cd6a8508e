"""A broker's events and the subscriptions to them.

Events are made only while there are subscriptions. Each subscription keeps a bounded number of
events. At the limit the oldest is lost, and the next one carries the number of lost events.
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

EventKind: TypeAlias = Literal[
    "joined",
    "left",
    "replaced",
    "rejected",
    "lost",
    "draining",
    "serving",
    "peer-up",
    "peer-lost",
]
"""The kind of an event: a destination joined, left, or was replaced by the one that joins next; a
request was rejected because no destination could take it, or lost on its way to one; the broker
drains, or its drain was taken back and it serves again; the link to a peer broker is up, or lost
with all its destinations."""


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """A change of a destination, or the failure of a request.

    Attributes:
        kind: The kind of event.
        at: Its time, in seconds since the Unix epoch.
        route_id: The destination's route id; `None` if the event has no destination.
        service: The destination's service name, or empty.
        tags: The destination's tags as `(name, value)`, in text form.
        peer: The destination's network address, or the name of a peer broker, or empty.
        reason: The reason in a few words, or empty.
        query: The request's query, as the value of an address of type 32, or empty.
        missed: Events just before this one that the subscription has lost.
        principal: The destination's principal, as in `RouteStatistics`.
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
    principal: str = ""


SPARE: Final = 8
"""Management requests that one peer may have in progress, besides half of all subscriptions."""


class Subscription:
    """An asynchronous iterator over events, for one task on the node's loop.

    It ends when it is closed, or when the broker has stopped and all events have been taken.
    """

    def __init__(self, events: Events, limit: int) -> None:
        self._events = events
        self._limit = limit
        self._kept: deque[BrokerEvent] = deque()
        self._missed = 0
        self._closed = False
        self._taker: asyncio.Future[None] | None = None

    def put(self, event: BrokerEvent) -> None:
        """Store an event until it is taken; at the limit the oldest is lost."""
        if len(self._kept) >= self._limit:
            self._kept.popleft()
            self._missed += 1
        self._kept.append(event)
        self._wake()

    def end(self) -> None:
        """End the iterator once the stored events have been taken."""
        self._closed = True
        self._wake()

    def close(self) -> None:
        """Discard the stored events and end the iterator; idempotent."""
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
    """The subscriptions to a broker's events.

    Args:
        max_watchers: Most subscriptions at a time.
        max_events: Most events stored for a slow subscription.

    Attributes:
        watched: Whether there is a subscription; without one, no event need be made.
        refused: Subscriptions refused because there were too many, since the start.
    """

    __slots__ = ("_max_events", "_max_watchers", "_subscriptions", "refused", "watched")

    def __init__(self, max_watchers: int, max_events: int) -> None:
        self._max_watchers: Final = max_watchers
        self._max_events: Final = max_events
        self._subscriptions: dict[Subscription, None] = {}
        self.watched = False
        self.refused = 0

    @property
    def share(self) -> int:
        """The number of management requests that one peer may have in progress."""
        return self._max_watchers // 2 + SPARE

    def subscribe(self) -> Subscription:
        """Subscribe to all events from now on. Call it on the node's loop, and `close` the result.

        ```python
        with broker.events.subscribe() as events:
            async for event in events:
                print(event.kind, event.service)
        ```

        Raises:
            LimitReached: There are `max_watchers` subscriptions already.
        """
        if len(self._subscriptions) >= self._max_watchers:
            self.refused += 1
            raise LimitReached("watchers of the broker", self._max_watchers)
        made = Subscription(self, self._max_events)
        self._subscriptions[made] = None
        self.watched = True
        return made

    def drop(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self._subscriptions.pop(subscription, None)
        self.watched = bool(self._subscriptions)

    def emit(self, event: BrokerEvent) -> None:
        """Put an event into each subscription."""
        for each in self._subscriptions:
            each.put(event)

    def end(self) -> None:
        """End all subscriptions once their stored events have been taken."""
        for each in list(self._subscriptions):
            self.drop(each)
            each.end()

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._subscriptions)
