"""Messages that wait for a route.

They are bounded in number, bytes and age, and those of one peer in number and bytes, so that no
peer has all the room. Those that ask for the same tags are one group, and a
group is filed under one of its tags: the one with the fewest groups. A destination that joins
carries all tags of the groups it satisfies, so only the groups filed under its tags are looked
at. Time is an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from ...protocol import Address, Message
from ...protocol.broker import Query, Tag
from ._options import BrokerOptions
from ._selector import Ask

__all__ = ["Place", "Waiter", "Waiters", "WaitingStatistics"]

SPARE: Final = 64
"""Deadlines of messages that wait no more, above as many as wait, before they are cleared out."""


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
        size: The bytes it holds.
        since: When it came.
        until: When it has waited long enough.
    """

    __slots__ = ("ask", "message", "number", "origin", "since", "size", "until")

    def __init__(
        self, number: int, message: Message, ask: Ask, size: int, since: float, until: float
    ) -> None:
        self.number: Final = number
        self.message: Final = message
        self.ask: Final = ask
        way_back = message[1]
        self.origin: Final[Address | None] = way_back[0] if way_back else None
        self.size = size
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
    """What waits of one peer."""

    __slots__ = ("numbers", "size")

    def __init__(self) -> None:
        self.numbers: dict[int, None] = {}
        self.size = 0


class _Group:
    """Those that ask for the same tags."""

    __slots__ = ("query", "tag", "waiters")

    def __init__(self, query: Query, tag: Tag) -> None:
        self.query: Final = query
        self.tag: Final = tag
        self.waiters: dict[int, Waiter] = {}


class Waiters:
    """All messages that wait for a route, in the order they came.

    Args:
        options: How many, how many bytes, and how much of either for one peer.
    """

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self._all: dict[int, Waiter] = {}
        self._groups: dict[Query, _Group] = {}
        self._filed: dict[Tag, dict[Query, _Group]] = {}
        # Of those that have a way back; there are no more than wait.
        self._shares: dict[Address, _Share] = {}
        # Deadlines, soonest first; some are of messages that wait no more.
        self._deadlines: list[tuple[float, int]] = []
        self._bytes = 0
        self._last = 0

    def add(
        self, message: Message, ask: Ask, size: int, since: float, patience: float
    ) -> Waiter | None:
        """Let a message wait.

        Args:
            message: The message.
            ask: What it asks for.
            size: The bytes it holds.
            since: When it came.
            patience: How long it may wait from then on, in seconds.

        Returns:
            What waits, or `None` if there is no room.
        """
        number = self._last + 1
        waiter = Waiter(number, message, ask, 0, since, since + patience)
        share = None if waiter.origin is None else self._shares.get(waiter.origin)
        if len(self._all) >= self._options.max_waiters or not self._has_room(share, size):
            return None
        if share is not None and len(share.numbers) >= self._options.max_waiters_per_peer:
            return None
        self._last = number
        self._all[number] = waiter
        if waiter.origin is not None:
            if share is None:
                share = self._shares[waiter.origin] = _Share()
            share.numbers[number] = None
        self._count(waiter, size)
        query = ask.query
        group = self._groups.get(query) or self._open(query)
        group.waiters[number] = waiter
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
        share = None if waiter.origin is None else self._shares[waiter.origin]
        if not self._has_room(share, size):
            return False
        self._count(waiter, size)
        return True

    def _has_room(self, share: _Share | None, size: int) -> bool:
        own = size if share is None else share.size + size
        return (
            self._bytes + size <= self._options.max_waiting_bytes
            and own <= self._options.max_waiting_bytes_per_peer
        )

    def _count(self, waiter: Waiter, size: int) -> None:
        waiter.size += size
        self._bytes += size
        if waiter.origin is not None:
            self._shares[waiter.origin].size += size

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
        size = waiter.size
        self._bytes -= size
        origin = waiter.origin
        if origin is not None:
            share = self._shares[origin]
            share.size -= size
            del share.numbers[number]
            if not share.numbers:
                del self._shares[origin]
        query = waiter.ask.query
        group = self._groups[query]
        del group.waiters[number]
        if not group.waiters:
            self._close(group)
        if len(self._deadlines) > 2 * len(self._all) + SPARE:
            self._deadlines = [(each.until, each.number) for each in self._all.values()]
            heapify(self._deadlines)
        return waiter

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
        """Take out those that have waited long enough, the first to be so first."""
        found: list[int] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
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
