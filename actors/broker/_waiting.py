"""Messages that wait for a route.

They are bounded in number, bytes and age. Those that ask for the same tags are one group, and a
group is filed under one of its tags: the one with the fewest groups. A destination that joins
carries all tags of the groups it satisfies, so only the groups filed under its tags are looked
at. Time is an argument, in seconds of any clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from ...protocol import Message
from ...protocol.broker import Query, Tag
from ._selector import Ask

__all__ = ["Waiter", "Waiters", "WaitingStatistics"]

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
        size: The bytes it holds.
        since: When it came.
        until: When it has waited long enough.
    """

    __slots__ = ("ask", "message", "number", "since", "size", "until")

    def __init__(
        self, number: int, message: Message, ask: Ask, size: int, since: float, until: float
    ) -> None:
        self.number: Final = number
        self.message: Final = message
        self.ask: Final = ask
        self.size: Final = size
        self.since: Final = since
        self.until: Final = until


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
        max_waiters: Most messages.
        max_bytes: Most bytes they may hold together.
    """

    def __init__(self, max_waiters: int, max_bytes: int) -> None:
        self._max_waiters = max_waiters
        self._max_bytes = max_bytes
        self._all: dict[int, Waiter] = {}
        self._groups: dict[Query, _Group] = {}
        self._filed: dict[Tag, dict[Query, _Group]] = {}
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
        if len(self._all) >= self._max_waiters or self._bytes + size > self._max_bytes:
            return None
        self._last = number = self._last + 1
        waiter = Waiter(number, message, ask, size, since, since + patience)
        self._all[number] = waiter
        self._bytes += size
        query = ask.query
        group = self._groups.get(query) or self._open(query)
        group.waiters[number] = waiter
        heappush(self._deadlines, (waiter.until, number))
        return waiter

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
        """Take out those that ask for no other tags than these, in the order they came."""
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
        return self._take(sorted(found))

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
