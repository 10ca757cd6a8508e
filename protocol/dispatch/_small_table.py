"""A table of which most have one item: a node has three for each name, with its one consumer.

The smallest dictionary takes 224 bytes, a `Single` 48. A table is empty, a single item, or, from
the second item on, a dictionary, in the order in which items were put into it. So it is replaced
when it changes: `table = put(table, key, value)`. No value is `None`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

__all__ = ["EMPTY", "Single", "SmallTable", "put", "without"]

K = TypeVar("K")
V = TypeVar("V")


class Single(Generic[K, V]):
    """A table of one item, to be read like a dictionary."""

    __slots__ = ("_key", "_value")

    def __init__(self, key: K, value: V) -> None:
        self._key: Final = key
        self._value: Final = value

    def __len__(self) -> int:
        """Return 1."""
        return 1

    def __iter__(self) -> Iterator[K]:
        """Return an iterator over the one key."""
        return iter((self._key,))

    def __getitem__(self, key: K) -> V:
        """Return the value, if this is its key."""
        if key != self._key:
            raise KeyError(key)
        return self._value

    def get(self, key: K) -> V | None:
        """Return the value; `None` if this is not its key."""
        return self._value if key == self._key else None

    def values(self) -> tuple[V]:
        """Return the one value."""
        return (self._value,)

    def items(self) -> tuple[tuple[K, V]]:
        """Return the one item."""
        return ((self._key, self._value),)


SmallTable: TypeAlias = Single[K, V] | dict[K, V]
"""A table that is replaced when it changes."""

EMPTY: Final[dict[Any, Any]] = {}
"""The table without an item, which all share and none changes."""


def put(table: SmallTable[K, V], key: K, value: V) -> SmallTable[K, V]:
    """Return a table with an item more, or with another value of a key in its place."""
    if isinstance(table, Single):
        table = dict(table.items())
    elif table is EMPTY:
        return Single(key, value)
    table[key] = value
    return table


def without(table: SmallTable[K, V], key: K) -> SmallTable[K, V]:
    """Return a table without a key, which may not be in it."""
    if isinstance(table, Single):
        return table if table.get(key) is None else EMPTY
    table.pop(key, None)
    return table or EMPTY
