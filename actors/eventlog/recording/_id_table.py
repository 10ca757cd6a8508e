"""The numbers that stand for names, routes and tag sets within one segment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["MAX_BYTES", "PIECE", "IdTable"]

PIECE: Final = 64 * 1024
"""Bytes of a block of definitions; the last of them comes on top. So long at most it takes to
make one: some hundred microseconds."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of the names of one segment, and of its routes, and of its tag sets; what comes on
top has no number."""

T = TypeVar("T", bound=Hashable)


class IdTable(Generic[T]):
    """Numbers from 1 on, in the order things are first named; 0 if there is no room.

    Args:
        limit: How many there may be in one segment.
        write: Makes the block that defines some of them.
        size: Tells how many bytes one takes in a block, at most.

    Attributes:
        refused: How many times there was no room, since the start.
        waiting: Bytes of those that are not defined yet.
    """

    __slots__ = (
        "_bytes",
        "_known",
        "_limit",
        "_new",
        "_size",
        "_write",
        "get",
        "refused",
        "waiting",
    )

    def __init__(
        self, limit: int, write: Callable[[list[T]], bytes], size: Callable[[T], int]
    ) -> None:
        self._limit: Final = limit
        self._write: Final = write
        self._size: Final = size
        self._known: dict[T, int] = {}
        self._new: list[T] = []
        self._bytes = 0
        self.get: Callable[[T], int | None] = self._known.get
        self.refused = 0
        self.waiting = 0

    def __len__(self) -> int:
        """Return how many there are in this segment."""
        return len(self._known)

    def add(self, thing: T) -> int:
        """Return the number of something, and give it one if it has none."""
        number = self._known.get(thing)
        if number is not None:
            return number
        size = self._size(thing)
        if len(self._known) >= self._limit or self._bytes + size > MAX_BYTES:
            self.refused += 1
            return 0
        number = self._known[thing] = len(self._known) + 1
        self._new.append(thing)
        self._bytes += size
        self.waiting += size
        return number

    def blocks(self) -> Iterator[bytes]:
        """Yield the blocks of what is not defined yet; each is done with when the next is taken.

        Who stops early, as a block could not be written, finds the same blocks again.
        """
        while self._new:
            size = count = 0
            for thing in self._new:
                size += self._size(thing)
                count += 1
                if size >= PIECE:
                    break
            yield self._write(self._new[:count])
            del self._new[:count]
            self.waiting -= size

    def forget(self) -> None:
        """Begin anew: another segment begins."""
        self._known.clear()
        self._new.clear()
        self._bytes = self.waiting = 0
