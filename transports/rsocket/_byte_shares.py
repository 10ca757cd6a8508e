"""Bytes that all connections of a listener hold, shared among those they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._flow import Flow

__all__ = ["ByteShares", "Pace"]

AGAIN: Final = 0.05
"""Seconds before what has just been measured is measured again."""
REST: Final = 20
"""How many times as long as a measurement takes it rests before the next, if that is longer."""


class Pace:
    """The times at which something that takes a while may be done again.

    Args:
        clock: Tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        """Whether it may be done now."""
        return self.clock() >= self._next

    def done(self, began: float) -> None:
        """Note that it was done just now, and when it began."""
        now = self.clock()
        self._next = now + max(AGAIN, REST * (now - began))

    def hurry(self) -> None:
        """Allow it at once: something has changed that it depends on."""
        self._next = float("-inf")


class ByteShares:
    """Counts bytes held for connections, and says when a source has more than its share.

    A source may hold no more than is free: one alone has half of the room, two a third each. Where
    one finds no room because others hold more than that, it is theirs that goes. What is noted of
    a connection may be out of date, as what it holds goes without a word. So all are measured
    before anything is done about it.

    Args:
        limit: Most bytes of all connections together.
        measure: Returns what a connection holds now.
        clock: Tells the time, in seconds.

    Attributes:
        total: Bytes noted.
        clock: The clock.
    """

    def __init__(
        self, limit: int, measure: Callable[[Flow], int], clock: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._measure = measure
        self.clock = clock
        self._pace = Pace(clock)
        self._noted: dict[Flow, int] = {}
        self._by_source: dict[str, int] = {}
        self.total = 0

    def note(self, link: Flow, size: int) -> None:
        """Note what a connection holds; nothing once it is over."""
        noted, source = self._noted, link.source
        change = size - noted.get(link, 0)
        if size:
            noted[link] = size
        else:
            noted.pop(link, None)
        self.total += change
        own = self._by_source.get(source, 0) + change
        if own:
            self._by_source[source] = own
        else:
            self._by_source.pop(source, None)

    @property
    def full(self) -> bool:
        """Whether all connections hold more than they may together, as far as is noted."""
        return self.total > self._limit

    def exceeds(self, source: str) -> bool:
        """Whether a source holds more than is free, as far as is noted."""
        return self._by_source.get(source, 0) > self._limit - self.total

    def measure(self) -> bool:
        """Measure all connections, unless that was done just now; return whether it was done."""
        if not self._pace.due():
            return False
        began = self.clock()
        for link in tuple(self._noted):
            self.note(link, self._measure(link))
        self._pace.done(began)
        return True

    def give_up(self, link: Flow) -> None:
        """Note that a connection is closed because of what it holds; the next look is at once."""
        self.note(link, 0)
        self._pace.hurry()

    def largest(self, source: str) -> Flow | None:
        """Return the connection of a source that holds the most."""
        own = [link for link in self._noted if link.source == source]
        return max(own, key=self._noted.__getitem__, default=None)

    def overdrawn(self, source: str) -> Flow | None:
        """Return the connection whose bytes have to go so that a source finds room.

        It is of the source that holds the most, if that is more than each of them could have
        together with one more; otherwise of the source itself.
        """
        held = self._by_source
        most = max(held, key=held.__getitem__, default=source)
        if held.get(most, 0) * (len(held) + 1) <= self._limit:
            most = source
        return self.largest(most)
