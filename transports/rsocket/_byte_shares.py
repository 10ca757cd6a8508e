"""Bytes that all connections of a listener hold, shared among those they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ._flow import Flow

__all__ = ["ByteShares"]

AGAIN: Final = 0.05
"""Seconds before all connections are measured again: that takes a while where there are many."""


class ByteShares:
    """Counts bytes held for connections, and says when a source has more than its share.

    A source may hold no more than is free: one alone has half of the room, two a third each. What
    is noted of a connection may be out of date, as what it holds goes without a word. So all are
    measured before anything is done about it.

    Args:
        limit: Most bytes of all connections together.
        measure: Returns what a connection holds now.
        clock: Tells the time, in seconds.

    Attributes:
        total: Bytes noted.
    """

    def __init__(
        self, limit: int, measure: Callable[[Flow], int], clock: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._measure = measure
        self._clock = clock
        self._noted: dict[Flow, int] = {}
        self._by_source: dict[str, int] = {}
        self._measured = float("-inf")
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

    def exceeds(self, source: str) -> bool:
        """Whether a source holds more than is free, as far as is noted."""
        return self._by_source.get(source, 0) > self._limit - self.total

    def measure(self) -> bool:
        """Measure all connections, unless that was done just now; return whether it was done."""
        now = self._clock()
        if now - self._measured < AGAIN:
            return False
        self._measured = now
        for link in tuple(self._noted):
            self.note(link, self._measure(link))
        return True

    def give_up(self, link: Flow) -> None:
        """Note that a connection is closed because of what it holds; the next look is at once."""
        self.note(link, 0)
        self._measured = float("-inf")

    def largest(self, source: str) -> Flow | None:
        """Return the connection of a source that holds the most."""
        own = [link for link in self._noted if link.source == source]
        return max(own, key=self._noted.__getitem__, default=None)
