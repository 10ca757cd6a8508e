"""Patterns of names, and a table that finds the best one for a name.

`*` stands for exactly one token, `#` for any number of tokens, none included. Which of the
patterns that match is the best is decided token by token, from the left: a token itself is better
than `*`, `*` than the end of the pattern, and the end than `#`. Of two tokens themselves behind a
`#`, that which the name has earlier is better. So a name has one best pattern, in whatever order
they were added.

The table keeps patterns without `*` and `#` in a dictionary, and all others in a tree by their
tokens. A search is at one place of the name until it meets a `#`, and from there on at a set of
places, which is a number of bits. So it looks at each branch of the tree at most once, whatever
the name is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from ._errors import BadPattern, PatternInUse, UnknownProvision
from ._limits import DispatchLimits
from ._tokens import canonical

__all__ = ["NamePattern", "PatternTable"]

T = TypeVar("T")

_LIMITS: Final = DispatchLimits()
_ANY: Final = "*"
_REST: Final = "#"


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A pattern of names. Two are equal if they have the same tokens.

    Attributes:
        tokens: The tokens in normal form: of `*` and `#` next to each other each `*` comes first,
            and one `#` is left.
        written: The pattern as it was written.
    """

    tokens: tuple[str, ...]
    written: str = field(compare=False)

    @classmethod
    def parse(cls, text: str, limits: DispatchLimits = _LIMITS) -> NamePattern:
        """Read a pattern.

        Raises:
            BadPattern: It has no token, is over a limit, or has characters that are not printable.
        """
        if not text.isprintable():
            raise BadPattern(text, "a character that is not printable")
        size = len(text.encode())
        if size > limits.max_name:
            raise BadPattern(text, f"{size} bytes are over the limit of {limits.max_name}")
        key = canonical(text)
        if not key:
            raise BadPattern(text, "there is no token")
        tokens = key.split(".")
        if len(tokens) > limits.max_tokens:
            raise BadPattern(
                text, f"{len(tokens)} tokens are over the limit of {limits.max_tokens}"
            )
        return cls(tuple(_normal(tokens)), text)

    @classmethod
    def of_prefix(cls, text: str, limits: DispatchLimits = _LIMITS) -> NamePattern:
        """Return the pattern of a prefix: `P/#`, which matches `P`, `P/x` and `P.x`, and not `Px`.

        Args:
            text: The prefix; a separator at its end does not matter.
            limits: As for `parse`.

        Raises:
            BadPattern: As for `parse`.
        """
        stripped = text.rstrip("./")
        if not canonical(stripped):
            raise BadPattern(text, "there is no token")
        return cls.parse(f"{stripped}/#", limits)

    @property
    def is_exact(self) -> bool:
        """Whether it has no `*` and no `#`."""
        return _ANY not in self.tokens and _REST not in self.tokens

    def __str__(self) -> str:
        return self.written


def _normal(tokens: list[str]) -> Iterator[str]:
    """Yield tokens in normal form: `#.#` is `#`, and `#.*` is `*.#`."""
    has_rest = False
    for token in tokens:
        if token == _REST:
            has_rest = True
            continue
        if has_rest and token != _ANY:
            yield _REST
            has_rest = False
        yield token
    if has_rest:
        yield _REST


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    """A pattern of the table, and its value."""

    pattern: NamePattern
    value: T


class _Branch(Generic[T]):
    """A place in the tree of patterns: what follows it, and the pattern that ends at it."""

    __slots__ = ("any", "entry", "rest", "tokens")

    def __init__(self) -> None:
        self.tokens: dict[str, _Branch[T]] = {}
        self.any: _Branch[T] | None = None
        self.rest: _Branch[T] | None = None
        self.entry: _Entry[T] | None = None

    def get(self, token: str) -> _Branch[T] | None:
        """Return what follows by a token of a pattern, or `None`."""
        if token == _ANY:
            return self.any
        if token == _REST:
            return self.rest
        return self.tokens.get(token)

    def make(self, token: str) -> _Branch[T]:
        """Return what follows by a token of a pattern; it is made if it is not there."""
        found = self.get(token)
        if found is not None:
            return found
        made = _Branch[T]()
        if token == _ANY:
            self.any = made
        elif token == _REST:
            self.rest = made
        else:
            self.tokens[token] = made
        return made

    def cut(self, token: str) -> None:
        """Remove what follows by a token of a pattern."""
        if token == _ANY:
            self.any = None
        elif token == _REST:
            self.rest = None
        else:
            del self.tokens[token]

    @property
    def is_empty(self) -> bool:
        """Whether no pattern ends here or behind."""
        return self.entry is None and not (self.any or self.rest or self.tokens)


class PatternTable(Generic[T]):
    """Values by pattern, of which the best one for a name can be found.

    A search for a name takes a few dictionary look-ups; the number of patterns does not matter
    but for those of which the beginning matches the name.
    """

    __slots__ = ("_exact", "_root", "_size")

    def __init__(self) -> None:
        self._exact: dict[str, _Entry[T]] = {}
        self._root = _Branch[T]()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """Yield all values, those of patterns without `*` and `#` first."""
        for entry in self._exact.values():
            yield entry.value
        waiting = [self._root]
        while waiting:
            branch = waiting.pop()
            if branch.entry is not None:
                yield branch.entry.value
            waiting += [each for each in (branch.rest, branch.any) if each is not None]
            waiting += branch.tokens.values()

    def add(self, pattern: NamePattern, value: T) -> None:
        """Add a value.

        Raises:
            PatternInUse: There is one of an equal pattern.
        """
        other = self._entry(pattern)
        if other is not None:
            raise PatternInUse(pattern.written, other.pattern.written)
        self._put(_Entry(pattern, value))
        self._size += 1

    def replace(self, pattern: NamePattern, value: T) -> T:
        """Put a value in the place of another one, and return that.

        Raises:
            UnknownProvision: There is none of an equal pattern.
        """
        other = self._entry(pattern)
        if other is None:
            raise UnknownProvision(pattern.written)
        self._put(_Entry(pattern, value))
        return other.value

    def remove(self, pattern: NamePattern) -> T:
        """Remove a value and return it.

        Raises:
            UnknownProvision: There is none of an equal pattern.
        """
        found = self._entry(pattern)
        if found is None:
            raise UnknownProvision(pattern.written)
        self._size -= 1
        if pattern.is_exact:
            return self._exact.pop(".".join(pattern.tokens)).value
        path = [self._root]
        for token in pattern.tokens:
            path.append(path[-1].make(token))
        path[-1].entry = None
        for token in reversed(pattern.tokens):
            if not path.pop().is_empty:
                break
            path[-1].cut(token)
        return found.value

    def get(self, pattern: NamePattern) -> T | None:
        """Return the value of an equal pattern, or `None`."""
        found = self._entry(pattern)
        return None if found is None else found.value

    def find(self, name: str) -> T | None:
        """Return the value of the best pattern for a name, or `None` if none matches."""
        key = canonical(name)
        found = self._exact.get(key)
        if found is None:
            found = _best(self._root, key.split("."), 0)
        return None if found is None else found.value

    def _entry(self, pattern: NamePattern) -> _Entry[T] | None:
        if pattern.is_exact:
            return self._exact.get(".".join(pattern.tokens))
        branch = self._root
        for token in pattern.tokens:
            follows = branch.get(token)
            if follows is None:
                return None
            branch = follows
        return branch.entry

    def _put(self, entry: _Entry[T]) -> None:
        if entry.pattern.is_exact:
            self._exact[".".join(entry.pattern.tokens)] = entry
            return
        branch = self._root
        for token in entry.pattern.tokens:
            branch = branch.make(token)
        branch.entry = entry


def _best(branch: _Branch[T], name: list[str], place: int) -> _Entry[T] | None:
    """Return the best pattern behind a branch for a name from a place on, before any `#`."""
    if place < len(name):
        follows = branch.tokens.get(name[place])
        if follows is not None and (found := _best(follows, name, place + 1)) is not None:
            return found
        if branch.any is not None and (found := _best(branch.any, name, place + 1)) is not None:
            return found
    elif branch.entry is not None:
        return branch.entry
    rest = branch.rest
    # In normal form neither `*` nor another `#` stands behind a `#`.
    if rest is None or rest.tokens.keys().isdisjoint(name[place:]):
        return None if rest is None else rest.entry
    places: dict[str, int] = {}
    for at in range(place, len(name)):
        places[name[at]] = places.get(name[at], 0) | 1 << at
    end = 1 << len(name)
    return _best_of(rest, places, end, _from(1 << place, end))


def _from(lowest: int, end: int) -> int:
    """Return the places from a place on, up to the end."""
    return end * 2 - lowest


def _earliest(hit: tuple[int, int, _Branch[T]]) -> int:
    return hit[0]


def _best_of(branch: _Branch[T], places: dict[str, int], end: int, at: int) -> _Entry[T] | None:
    """Return the best pattern behind a branch for a name from any of some places on.

    Args:
        branch: The branch; it is behind a `#`.
        places: The places of each token of the name, one bit for each.
        end: The bit of the place behind the last token.
        at: The places where the name may go on, at least one.
    """
    if branch.tokens:
        hits = [
            (hit & -hit, hit, follows)
            for token, all_places in places.items()
            if (hit := all_places & at) and (follows := branch.tokens.get(token)) is not None
        ]
        hits.sort(key=_earliest)
        for _, hit, follows in hits:
            found = _best_of(follows, places, end, hit << 1)
            if found is not None:
                return found
    if branch.any is not None and (after := (at & ~end) << 1):
        found = _best_of(branch.any, places, end, after)
        if found is not None:
            return found
    if branch.entry is not None and at & end:
        return branch.entry
    return None if branch.rest is None else _best_of(branch.rest, places, end, _from(at & -at, end))
