"""The numbers that stand for names, routes and tag sets within one segment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["CHUNK", "Numbers"]

CHUNK: Final = 2048
"""Most definitions in one block: with names and tag sets of the greatest length it stays under
the limit of a block."""

T = TypeVar("T", bound=Hashable)


class Numbers(Generic[T]):
    """Numbers from 1 on, in the order things are first named; 0 if there is no room.

    Args:
        limit: How many there may be in one segment.
        write: Makes the block that defines some of them.

    Attributes:
        refused: How many times there was no room, since the start.
    """

    __slots__ = ("_known", "_limit", "_new", "_write", "get", "refused")

    def __init__(self, limit: int, write: Callable[[list[T]], bytes]) -> None:
        self._limit: Final = limit
        self._write: Final = write
        self._known: dict[T, int] = {}
        self._new: list[T] = []
        self.get: Callable[[T], int | None] = self._known.get
        self.refused = 0

    def __len__(self) -> int:
        """Return how many there are in this segment."""
        return len(self._known)

    def add(self, thing: T) -> int:
        """Return the number of something, and give it one if it has none."""
        number = self._known.get(thing)
        if number is not None:
            return number
        if len(self._known) >= self._limit:
            self.refused += 1
            return 0
        number = self._known[thing] = len(self._known) + 1
        self._new.append(thing)
        return number

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks of what is not defined yet; each is done with when the next is taken.

        Who stops early, as a block could not be written, finds the same blocks again.
        """
        while self._new:
            yield self._write(self._new[:CHUNK])
            del self._new[:CHUNK]

    def forget(self) -> None:
        """Begin anew: another segment begins."""
        self._known.clear()
        self._new.clear()
