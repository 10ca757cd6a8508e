"""The numbers for names, routes and tag sets within one segment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["MAX_BYTES", "PIECE", "IdTable"]

PIECE: Final = 64 * 1024
"""Bytes after which a block of definitions ends: it takes some hundred microseconds to make."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of the names, of the routes and of the tag sets of one segment; further ones get no
number."""

T = TypeVar("T", bound=Hashable)


class IdTable(Generic[T]):
    """Numbers from 1 on in the order of first use; 0 beyond a limit.

    Args:
        limit: Most entries in one segment.
        write: Makes the block that defines some of them.
        size: Returns the most bytes that an entry takes in a block.

    Attributes:
        refused: Entries beyond the limit, since the start.
        waiting: Bytes of entries that are not defined yet.
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
        """Return the number of entries in this segment."""
        return len(self._known)

    def add(self, thing: T) -> int:
        """Return the number of an entry, a new one if it has none."""
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
        """Yield the blocks of new entries; taking the next one confirms the one before.

        A block that is not confirmed is yielded again by the next call.
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
        """Clear the table for another segment."""
        self._known.clear()
        self._new.clear()
        self._bytes = self.waiting = 0
