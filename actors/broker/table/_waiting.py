"""Messages that wait for a route.

They are bounded in number, bytes and age, and those of one connection in number and bytes. No
source, which is where a peer's connections come from, has more of them than are free: so one alone
leaves half of the room to others, two leave a third, and so on. The same goes for a set of tags,
but for sources that have less than their part of what is left.

Those that ask for the same tags are one group, and a group is filed under one of its tags: the
one with the fewest groups. A destination that joins
carries all tags of the groups it satisfies, so only the groups filed under its tags are looked
at. Time is an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from ....protocol import Address, Message
from ....protocol.broker import Query, Tag
from .._options import BrokerOptions
from ._selector import Ask

__all__ = ["Place", "Waiter", "Waiters", "WaitingStatistics"]

SPARE: Final = 64
"""Deadlines of messages that wait no more, above as many as wait, before they are cleared out."""

SLICE: Final = 256
"""Messages that have waited long enough, of which so many are taken out in one go."""


@dataclass(frozen=True, slots=True)
class WaitingStatistics:
    """What waits for a route at one moment.

    Attributes:
        messages: How many.
        size: The bytes they hold together.
        oldest: How long the oldest has waited, in seconds; 0 if none waits.
        waited: How many have waited since the start.
    """

    messages: int
    size: int
    oldest: float
    waited: int


class Waiter:
    """A message that waits for a route.

    Attributes:
        number: Its place in the order they came.
        message: The message.
        ask: What it asks for.
        origin: Who sent it: the first step of its way back; `None` if it has none.
        source: Where it comes from; empty if nothing is known of it.
        size: The bytes it holds.
        since: When it came.
        until: When it has waited long enough.
    """

    __slots__ = ("ask", "message", "number", "origin", "since", "size", "source", "until")

    def __init__(
        self, number: int, message: Message, ask: Ask, source: str, since: float, until: float
    ) -> None:
        self.number: Final = number
        self.message: Final = message
        self.ask: Final = ask
        way_back = message[1]
        self.origin: Final[Address | None] = way_back[0] if way_back else None
        self.source: Final = source
        self.size = 0
        self.since: Final = since
        self.until: Final = until


class Place:
    """A place among those that wait. Calling it gives it up.

    Args:
        waiters: Where it is.
        number: What waits there.
    """

    __slots__ = ("_number", "_waiters")

    def __init__(self, waiters: Waiters, number: int) -> None:
        self._waiters = waiters
        self._number = number

    def __call__(self) -> None:
        """Give it up."""
        self._waiters.withdraw(self._number)

    def grow(self, size: int) -> bool:
        """Count more bytes for what waits; return whether there is room for them."""
        return self._waiters.grow(self._number, size)


class _Share:
    """What waits of one connection, or of one source."""

    __slots__ = ("numbers", "size")

    def __init__(self) -> None:
        self.numbers: dict[int, None] = {}
        self.size = 0


class _Group:
    """Those that ask for the same tags, and how many of them each source has."""

    __slots__ = ("query", "sources", "tag", "waiters")

    def __init__(self, query: Query, tag: Tag) -> None:
        self.query: Final = query
        self.tag: Final = tag
        self.waiters: dict[int, Waiter] = {}
        self.sources: dict[str, int] = {}

    def add(self, waiter: Waiter) -> None:
        """Count one more."""
        self.waiters[waiter.number] = waiter
        self.sources[waiter.source] = self.sources.get(waiter.source, 0) + 1

    def remove(self, waiter: Waiter) -> None:
        """Count one less."""
        del self.waiters[waiter.number]
        left = self.sources[waiter.source] - 1
        if left:
            self.sources[waiter.source] = left
        else:
            del self.sources[waiter.source]

    def has_place(self, source: str, free: int) -> bool:
        """Whether one more of a source may wait.

        All of them may have as many places as are free. Beyond that each source has its part of
        what is free, so that none can keep the others from asking for the same tags.
        """
        if len(self.waiters) <= free:
            return True
        own = self.sources.get(source, 0)
        return (own + 1) * (len(self.sources) + (not own)) <= free


class Waiters:
    """All messages that wait for a route, in the order they came.

    Args:
        options: How many, how many bytes, and how much of either for one connection.
    """

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self._all: dict[int, Waiter] = {}
        self._groups: dict[Query, _Group] = {}
        self._filed: dict[Tag, dict[Query, _Group]] = {}
        # Of those that have a way back; there are no more than wait.
        self._shares: dict[Address, _Share] = {}
        # Of those whose source is known.
        self._sources: dict[str, _Share] = {}
        # Deadlines, soonest first; some are of messages that wait no more.
        self._deadlines: list[tuple[float, int]] = []
        self._bytes = 0
        self._last = 0

    def add(
        self,
        message: Message,
        ask: Ask,
        size: int,
        since: float,
        patience: float,
        source: str = "",
    ) -> Waiter | None:
        """Let a message wait.

        Args:
            message: The message.
            ask: What it asks for.
            size: The bytes it holds.
            since: When it came.
            patience: How long it may wait from then on, in seconds.
            source: Where it comes from; empty if nothing is known of it.

        Returns:
            What waits, or `None` if there is no room.
        """
        number = self._last + 1
        waiter = Waiter(number, message, ask, source, since, since + patience)
        if not self._has_place(waiter) or not self._has_room(waiter, size):
            return None
        self._last = number
        self._all[number] = waiter
        for share in self._shares_of(waiter, make=True):
            share.numbers[number] = None
        self._count(waiter, size)
        query = ask.query
        group = self._groups.get(query) or self._open(query)
        group.add(waiter)
        heappush(self._deadlines, (waiter.until, number))
        return waiter

    def place(self, waiter: Waiter) -> Place:
        """Return the place of what waits."""
        return Place(self, waiter.number)

    def grow(self, number: int, size: int) -> bool:
        """Count more bytes for what waits under a number.

        Returns:
            False if there is no room for them: nothing is counted then, and it is up to the
            caller to have it wait no longer. True if it waits no more.
        """
        waiter = self._all.get(number)
        if waiter is None:
            return True
        if not self._has_room(waiter, size):
            return False
        self._count(waiter, size)
        return True

    def _has_place(self, waiter: Waiter) -> bool:
        """Whether one more may wait, of its connection, of its source, and for its tags."""
        free = self._options.max_waiters - len(self._all)
        if free < 1:
            return False
        own, source = self._own(waiter), self._sources.get(waiter.source)
        if own is not None and len(own.numbers) >= self._options.max_waiters_per_peer:
            return False
        if source is not None and len(source.numbers) > free:
            return False
        group = self._groups.get(waiter.ask.query)
        return group is None or group.has_place(waiter.source, free)

    def _has_room(self, waiter: Waiter, size: int) -> bool:
        """Whether it may hold so many bytes more."""
        free = self._options.max_waiting_bytes - self._bytes
        own, source = self._own(waiter), self._sources.get(waiter.source)
        if own is not None and own.size + size > self._options.max_waiting_bytes_per_peer:
            return False
        if source is not None and source.size + size > free:
            return False
        return size <= min(free, self._options.max_waiting_bytes_per_peer)

    def _own(self, waiter: Waiter) -> _Share | None:
        return None if waiter.origin is None else self._shares.get(waiter.origin)

    def _shares_of(self, waiter: Waiter, *, make: bool = False) -> list[_Share]:
        """Return the shares that count what waits: its connection's, and its source's."""
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
        """Take out what waits under a number; `None` if it waits no more."""
        waiter = self._all.pop(number, None)
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
        if len(self._deadlines) > 2 * len(self._all) + SPARE:
            self._deadlines = [(each.until, each.number) for each in self._all.values()]
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
        """Return those that ask for no other tags than these, in the order they came."""
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
        return [self._all[number] for number in sorted(found)]

    def of(self, origin: Address) -> list[Waiter]:
        """Take out those of one peer, in the order they came."""
        share = self._shares.get(origin)
        return [] if share is None else self._take(list(share.numbers))

    def overdue(self, now: float) -> list[Waiter]:
        """Take out those that have waited long enough, the first to be so first.

        `SLICE` of them at a time: look at `deadline` for whether there are more.
        """
        found: list[int] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now and len(found) < SLICE:
            found.append(heappop(deadlines)[1])
        return self._take(found)

    def clear(self) -> list[Waiter]:
        """Take out all."""
        return self._take(list(self._all))

    def _take(self, numbers: list[int]) -> list[Waiter]:
        taken = (self.withdraw(number) for number in numbers)
        return [waiter for waiter in taken if waiter is not None]

    def deadline(self) -> float | None:
        """Return when the first of those that wait has waited long enough; `None` if none waits."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][1] not in self._all:
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def __len__(self) -> int:
        return len(self._all)

    def statistics(self, now: float) -> WaitingStatistics:
        """Return the figures at this moment."""
        first = next(iter(self._all.values()), None)
        oldest = 0.0 if first is None else now - first.since
        return WaitingStatistics(len(self._all), self._bytes, oldest, self._last)
