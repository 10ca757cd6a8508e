"""The messages that wait for a route.

They are bounded in number, bytes and age; those of one connection in number and bytes. A source
may have no more waiting messages than there are free places: a single source leaves half of the
room to others, two leave a third, and so on. The same holds for a set of tags, except for sources
with less than their part of the free places.

Messages with the same query form a group. A group is filed under the one of its tags that has the
fewest groups. A destination that joins carries all tags of the groups it satisfies, so only the
groups filed under its tags are examined. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from ....protocol import Address, Message
from ....protocol.broker import Query, Tag
from .._options import WaitingOptions
from ._selector import Ask

__all__ = ["Place", "Waiter", "Waiters", "WaitingQuery", "WaitingStatistics"]

SPARE: Final = 64
"""Stale deadlines, beyond as many as there are messages, before they are removed."""

SLICE: Final = 256
"""Most overdue messages that are removed at a time."""


@dataclass(frozen=True, slots=True)
class WaitingStatistics:
    """The figures of the waiting messages at one moment.

    Attributes:
        messages: How many wait.
        size: The bytes they hold together.
        oldest: How long the oldest has waited, in seconds; 0 if none waits.
        waited: How many have waited since the start.
        refused: How many could not wait since the start, for lack of places and of bytes.
    """

    messages: int
    size: int
    oldest: float
    waited: int
    refused: tuple[int, int] = (0, 0)


class WaitingQuery(NamedTuple):
    """The waiting messages with one query.

    Attributes:
        query: The query, as the value of an address of type 32.
        messages: How many wait.
        size: The bytes they hold together.
        sources: How many sources of connections they are from.
        since: The arrival of the oldest, in seconds of the loop's clock.
    """

    query: str
    messages: int
    size: int
    sources: int
    since: float


class Waiter:
    """A message that waits for a route.

    Attributes:
        number: Its number in the order of arrival.
        message: The message.
        ask: Its query.
        origin: Its sender: the first address of the return route; `None` if there is none.
        source: The source of its connection; empty if unknown.
        size: The bytes it holds.
        since: The time of its arrival.
        until: The time until which it may wait.
    """

    __slots__ = ("ask", "message", "number", "origin", "since", "size", "source", "until")

    def __init__(
        self, number: int, message: Message, ask: Ask, source: str, since: float, until: float
    ) -> None:
        self.number: Final = number
        self.message: Final = message
        self.ask: Final = ask
        back = message[1]
        self.origin: Final[Address | None] = back[0] if back else None
        self.source: Final = source
        self.size = 0
        self.since: Final = since
        self.until: Final = until


class Place:
    """A handle for a waiting message; calling it withdraws the message.

    Args:
        waiters: All waiting messages.
        number: The number of the message.
    """

    __slots__ = ("_number", "_waiters")

    def __init__(self, waiters: Waiters, number: int) -> None:
        self._waiters = waiters
        self._number = number

    def __call__(self) -> None:
        """Withdraw the message."""
        self._waiters.withdraw(self._number)

    def grow(self, size: int) -> bool:
        """Count more bytes for the message; return whether there is room for them."""
        return self._waiters.grow(self._number, size)


class _Share:
    """The waiting messages of one connection or of one source."""

    __slots__ = ("numbers", "size")

    def __init__(self) -> None:
        self.numbers: dict[int, None] = {}
        self.size = 0


class _Group:
    """The waiting messages with one query, and their number by source."""

    __slots__ = ("query", "sources", "tag", "waiters")

    def __init__(self, query: Query, tag: Tag) -> None:
        self.query: Final = query
        self.tag: Final = tag
        self.waiters: dict[int, Waiter] = {}
        self.sources: dict[str, int] = {}

    def add(self, waiter: Waiter) -> None:
        """Add a message."""
        self.waiters[waiter.number] = waiter
        self.sources[waiter.source] = self.sources.get(waiter.source, 0) + 1

    def remove(self, waiter: Waiter) -> None:
        """Remove a message."""
        del self.waiters[waiter.number]
        left = self.sources[waiter.source] - 1
        if left:
            self.sources[waiter.source] = left
        else:
            del self.sources[waiter.source]

    def has_place(self, source: str, free: int) -> bool:
        """Whether one more message of a source may wait.

        The group may have as many messages as there are free places. Beyond that each source has
        its part of the free places, so that no source can keep others from the same tags.
        """
        if len(self.waiters) <= free:
            return True
        own = self.sources.get(source, 0)
        return (own + 1) * (len(self.sources) + (not own)) <= free


class Waiters:
    """All messages that wait for a route, in order of arrival.

    Args:
        options: The limits.
    """

    def __init__(self, options: WaitingOptions) -> None:
        self._options = options
        self.waiting: dict[int, Waiter] = {}
        self._groups: dict[Query, _Group] = {}
        self._filed: dict[Tag, dict[Query, _Group]] = {}
        # By sender, for messages with a return route.
        self._shares: dict[Address, _Share] = {}
        # By source, where it is known.
        self._sources: dict[str, _Share] = {}
        # Deadlines, soonest first; some are of messages that no longer wait.
        self._deadlines: list[tuple[float, int]] = []
        self._bytes = 0
        self._last = 0
        self._without_place = 0
        self._without_room = 0

    def add(
        self,
        message: Message,
        ask: Ask,
        size: int,
        since: float,
        patience: float,
        source: str = "",
    ) -> Waiter | None:
        """Add a message.

        Args:
            message: The message.
            ask: Its query.
            size: The bytes it holds.
            since: The time of its arrival.
            patience: How long it may wait from then on, in seconds.
            source: The source of its connection; empty if unknown.

        Returns:
            The waiting message, or `None` if there is no room.
        """
        number = self._last + 1
        waiter = Waiter(number, message, ask, source, since, since + patience)
        if not self._has_place(waiter):
            self._without_place += 1
            return None
        if not self._has_room(waiter, size):
            self._without_room += 1
            return None
        self._last = number
        self.waiting[number] = waiter
        for share in self._shares_of(waiter, make=True):
            share.numbers[number] = None
        self._count(waiter, size)
        query = ask.query
        group = self._groups.get(query) or self._open(query)
        group.add(waiter)
        heappush(self._deadlines, (waiter.until, number))
        return waiter

    def place(self, waiter: Waiter) -> Place:
        """Return the handle of a waiting message."""
        return Place(self, waiter.number)

    def grow(self, number: int, size: int) -> bool:
        """Count more bytes for the message with a number.

        Returns:
            False if there is no room for them: nothing is counted then, and the caller has to
            withdraw the message. True also if the message no longer waits.
        """
        waiter = self.waiting.get(number)
        if waiter is None:
            return True
        if not self._has_room(waiter, size):
            self._without_room += 1
            return False
        self._count(waiter, size)
        return True

    def _has_place(self, waiter: Waiter) -> bool:
        """Whether one more message of its connection, source and query may wait."""
        free = self._options.max_messages - len(self.waiting)
        if free < 1:
            return False
        own, source = self._own(waiter), self._sources.get(waiter.source)
        if own is not None and len(own.numbers) >= self._options.max_messages_per_peer:
            return False
        if source is not None and len(source.numbers) > free:
            return False
        group = self._groups.get(waiter.ask.query)
        return group is None or group.has_place(waiter.source, free)

    def _has_room(self, waiter: Waiter, size: int) -> bool:
        """Whether a message may hold a number of bytes more."""
        free = self._options.max_bytes - self._bytes
        own, source = self._own(waiter), self._sources.get(waiter.source)
        if own is not None and own.size + size > self._options.max_bytes_per_peer:
            return False
        if source is not None and source.size + size > free:
            return False
        return size <= min(free, self._options.max_bytes_per_peer)

    def _own(self, waiter: Waiter) -> _Share | None:
        return None if waiter.origin is None else self._shares.get(waiter.origin)

    def _shares_of(self, waiter: Waiter, *, make: bool = False) -> list[_Share]:
        """Return the shares that count a message: its connection's and its source's."""
        found: list[_Share] = []
        if waiter.origin is not None:
            if make and waiter.origin not in self._shares:
                self._shares[waiter.origin] = _Share()
            found.append(self._shares[waiter.origin])
        if waiter.source:
            if make and waiter.source not in self._sources:
                self._sources[waiter.source] = _Share()
            found.append(self._sources[waiter.source])
        return found

    def _count(self, waiter: Waiter, size: int) -> None:
        waiter.size += size
        self._bytes += size
        for share in self._shares_of(waiter):
            share.size += size

    def _open(self, query: Query) -> _Group:
        filed = self._filed
        tag = min(query, key=lambda each: len(filed.get(each, ())))
        group = self._groups[query] = _Group(query, tag)
        filed.setdefault(tag, {})[query] = group
        return group

    def withdraw(self, number: int) -> Waiter | None:
        """Remove and return the message with a number; `None` if it no longer waits."""
        waiter = self.waiting.pop(number, None)
        if waiter is None:
            return None
        self._bytes -= waiter.size
        for share in self._shares_of(waiter):
            share.size -= waiter.size
            del share.numbers[number]
            if not share.numbers:
                self._forget(waiter, share)
        query = waiter.ask.query
        group = self._groups[query]
        group.remove(waiter)
        if not group.waiters:
            self._close(group)
        if len(self._deadlines) > 2 * len(self.waiting) + SPARE:
            self._deadlines = [(each.until, each.number) for each in self.waiting.values()]
            heapify(self._deadlines)
        return waiter

    def _forget(self, waiter: Waiter, share: _Share) -> None:
        if waiter.origin is not None and self._shares.get(waiter.origin) is share:
            del self._shares[waiter.origin]
        else:
            del self._sources[waiter.source]

    def _close(self, group: _Group) -> None:
        del self._groups[group.query]
        filed = self._filed[group.tag]
        del filed[group.query]
        if not filed:
            del self._filed[group.tag]

    def satisfied(self, tags: Iterable[Tag]) -> list[Waiter]:
        """Return the messages that these tags satisfy, in order of arrival."""
        filed = self._filed
        carried = frozenset(tags)
        found = [
            number
            for tag in carried
            if tag in filed
            for query, group in filed[tag].items()
            if query <= carried
            for number in group.waiters
        ]
        return [self.waiting[number] for number in sorted(found)]

    def of(self, origin: Address) -> list[Waiter]:
        """Remove and return the messages of one peer, in order of arrival."""
        share = self._shares.get(origin)
        return [] if share is None else self._take(list(share.numbers))

    def overdue(self, now: float) -> list[Waiter]:
        """Remove and return overdue messages, the earliest deadline first.

        At most `SLICE` are removed; `deadline` shows whether there are more.
        """
        found: list[int] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now and len(found) < SLICE:
            found.append(heappop(deadlines)[1])
        return self._take(found)

    def clear(self) -> list[Waiter]:
        """Remove and return all messages."""
        return self._take(list(self.waiting))

    def _take(self, numbers: list[int]) -> list[Waiter]:
        taken = (self.withdraw(number) for number in numbers)
        return [waiter for waiter in taken if waiter is not None]

    def deadline(self) -> float | None:
        """Return the earliest deadline; `None` if no message waits."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self.waiting:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def __len__(self) -> int:
        return len(self.waiting)

    def queries(self) -> tuple[Query, ...]:
        """Return the queries with waiting messages."""
        return tuple(self._groups)

    def with_query(self, query: Query) -> tuple[Waiter, ...]:
        """Return the messages with a query, in order of arrival."""
        group = self._groups.get(query)
        return () if group is None else tuple(group.waiters.values())

    def by_query(self) -> tuple[WaitingQuery, ...]:
        """Return the waiting messages by query, in the order of the first message of each."""
        return tuple(_row(group) for group in self._groups.values())

    def statistics(self, now: float) -> WaitingStatistics:
        """Return the current figures."""
        first = next(iter(self.waiting.values()), None)
        oldest = 0.0 if first is None else now - first.since
        refused = self._without_place, self._without_room
        return WaitingStatistics(len(self.waiting), self._bytes, oldest, self._last, refused)


def _row(group: _Group) -> WaitingQuery:
    waiters = group.waiters.values()
    first = next(iter(waiters))
    size = sum(each.size for each in waiters)
    return WaitingQuery(first.ask.text, len(waiters), size, len(group.sources), first.since)
