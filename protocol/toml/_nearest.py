"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["nearest", "suggestion"]

MAX_COMPARED = 64
"""Longest name that is compared, in characters: the comparison is quadratic."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that takes the fewest changes of a character, if they are few.

    Few is a third of the characters, at least one; two that are swapped count as one change.
    Of names that are equally near, the first.
    """
    if len(name) > MAX_COMPARED:
        return None
    best: str | None = None
    fewest = max(1, len(name) // 3) + 1
    for other in names:
        if abs(len(other) - len(name)) < fewest:
            changes = _changes(name.lower(), other.lower())
            if changes < fewest:
                best, fewest = other, changes
    return best


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing."""
    found = nearest(name, names)
    return f"; did you mean {found!r}?" if found else ""


def _changes(one: str, two: str) -> int:
    """Count the characters to insert, delete, replace or swap with the next."""
    before: list[int] = []
    last = list(range(len(two) + 1))
    for row, character in enumerate(one, 1):
        now = [row]
        for column, other in enumerate(two, 1):
            cost = min(
                last[column] + 1, now[column - 1] + 1, last[column - 1] + (character != other)
            )
            if row > 1 and column > 1 and one[row - 2] == other and two[column - 2] == character:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        before, last = last, now
    return last[-1]
