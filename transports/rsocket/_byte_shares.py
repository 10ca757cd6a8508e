"""Bytes held for the connections of a listener, shared among the sources of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._flow import Flow

__all__ = ["ByteShares", "Pace"]

AGAIN: Final = 0.05
"""Least seconds between two measurements."""
REST: Final = 20
"""Least time between two measurements, in durations of the last one."""


class Pace:
    """The rate limit of an expensive operation.

    Args:
        clock: Tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._next = float("-inf")

    def due(self) -> bool:
        """Whether the operation may be done now."""
        return self.clock() >= self._next

    def done(self, began: float) -> None:
        """Set the time of the next operation after one that has just ended."""
        now = self.clock()
        self._next = now + max(AGAIN, REST * (now - began))

    def hurry(self) -> None:
        """Allow the next operation at once."""
        self._next = float("-inf")


class ByteShares:
    """The bytes held for connections, and the share of each source.

    A source may hold no more bytes than are free: one alone has half of the limit, two have a third
    each. If a source finds no room because another exceeds its share, bytes of the other are given
    up. Releases are not counted, so the figures may be outdated: all connections are measured
    before anything is given up.

    Args:
        limit: Most bytes of all connections together.
        measure: Returns the bytes that a connection holds now.
        clock: Tells the time, in seconds.

    Attributes:
        total: Bytes counted.
        reached: How often a source found no room for what it had to hold.
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
        self.reached = 0

    def note(self, link: Flow, size: int) -> None:
        """Set the bytes of a connection; 0 after its end."""
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
        """Whether the bytes counted for all connections exceed the limit."""
        return self.total > self._limit

    def exceeds(self, source: str) -> bool:
        """Whether the bytes counted for a source exceed the free ones."""
        return self._by_source.get(source, 0) > self._limit - self.total

    def measure(self) -> bool:
        """Measure all connections, rate limited; return whether they were measured."""
        if not self._pace.due():
            return False
        began = self.clock()
        for link in tuple(self._noted):
            self.note(link, self._measure(link))
        self._pace.done(began)
        return True

    def give_up(self, link: Flow) -> None:
        """Remove a connection closed for its bytes, and allow the next measurement at once."""
        self.note(link, 0)
        self._pace.hurry()

    def largest(self, source: str) -> Flow | None:
        """Return the connection of a source that holds the most bytes."""
        own = [link for link in self._noted if link.source == source]
        return max(own, key=self._noted.__getitem__, default=None)

    def overdrawn(self, source: str) -> Flow | None:
        """Return the connection to give up so that a source finds room.

        It is of the source with the most bytes, if that is more than an equal share among all
        sources and one more; otherwise of the given source.
        """
        held = self._by_source
        most = max(held, key=held.__getitem__, default=source)
        if held.get(most, 0) * (len(held) + 1) <= self._limit:
            most = source
        return self.largest(most)
