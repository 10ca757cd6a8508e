"""Taking the keys out of a table of TOML, and keeping what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar, cast

from ._errors import FileError, Position, Problem
from ._locate import Lines, Path
from ._nearest import suggestion
from ._values import shown

__all__ = ["FileTable", "Problems"]

T = TypeVar("T")


class Problems:
    """The problems of a file.

    Args:
        file: Its name.
        limit: Problems kept; further ones are counted.
        error: The class of the error.
    """

    def __init__(self, file: str, limit: int, error: type[FileError] = FileError) -> None:
        self._file: Final = file
        self._error: Final = error
        self._limit: Final = limit
        # The lines are read when one is asked for: most files have no problem.
        self._text: tuple[str, int] | None = None
        self._lines: Lines | None = None
        self._found: list[Problem] = []
        self._left_out = 0

    def locate(self, text: str, depth: int) -> None:
        """Keep the text of the file, which `tomllib` has read; see `Lines`."""
        self._text = text, depth

    def place(self, path: Path) -> Position:
        """Return where something stands."""
        if self._lines is None and self._text is not None:
            self._lines = Lines(*self._text)
        line = 1 if self._lines is None else self._lines.of(path)
        return Position(self._file, line, path)

    def add(self, path: Path, text: str) -> None:
        """Keep that something is wrong."""
        place = self.place(path)
        self.add_at(place.line, place.key, text)

    def add_at(self, line: int, key: str, text: str) -> None:
        """Keep that something is wrong in a line."""
        if len(self._found) < self._limit:
            self._found.append(Problem(self._file, line, key, text))
        else:
            self._left_out += 1

    def check(self) -> None:
        """Go on if nothing is wrong.

        Raises:
            FileError: There is a problem. It is of the class of these problems.
        """
        if self._found:
            found = sorted(self._found, key=lambda problem: problem.line)
            raise self._error(tuple(found), self._left_out)


class FileTable:
    """A table of the file. Each key is read once; `finish` reports unknown keys.

    Args:
        problems: The problems of the file, to add to.
        path: Where the table is.
        values: What is in it.
    """

    def __init__(self, problems: Problems, path: Path, values: Mapping[str, object]) -> None:
        self._problems = problems
        self._values = dict(values)
        self._known: list[str] = []
        self.path = path
        self.has_problem = False

    @property
    def place(self) -> Position:
        """The place of the table."""
        return self._problems.place(self.path)

    def add(self, key: str, text: str) -> None:
        """Report a problem of a key, or of the table if the key is empty."""
        self.has_problem = True
        self._problems.add((*self.path, key) if key else self.path, text)

    def maybe(self, key: str, read: Callable[[object], T]) -> T | None:
        """Return a value; `None` if there is none, or it is wrong."""
        self._known.append(key)
        if key not in self._values:
            return None
        try:
            return read(self._values.pop(key))
        except ValueError as error:
            self.add(key, str(error))
            return None

    def take(self, key: str, read: Callable[[object], T], default: T) -> T:
        """Return a value, or the default if there is none, or it is wrong."""
        value = self.maybe(key, read)
        return default if value is None else value

    def need(self, key: str, read: Callable[[object], T]) -> T | None:
        """Return a value that has to be there; `None` if it is not, or is wrong."""
        if key not in self._values:
            self.add("", f"{key} is missing")
        return self.maybe(key, read)

    def table(self, key: str, *, short: str = "") -> FileTable:
        """Return a table in this one; an empty one if there is none.

        Args:
            key: Its key.
            short: If given: anything but a table is short for a table with this key alone.
        """
        self._known.append(key)
        found = self._values.pop(key, {})
        if short and not isinstance(found, dict):
            return _Short(self._problems, (*self.path, key), {short: found})
        if not isinstance(found, dict):
            self.add(key, f"{shown(found)} is not a table")
            found = {}
        values = cast("dict[str, object]", found)
        return FileTable(self._problems, (*self.path, key), values)

    def tables(self, key: str) -> Iterator[FileTable]:
        """Yield the tables of an array of tables."""
        self._known.append(key)
        found = self._values.pop(key, [])
        if not isinstance(found, list):
            self.add(key, f"{shown(found)} is not a list of tables; write [[{key}]]")
            return
        for index, each in enumerate(cast("list[object]", found)):
            path = (*self.path, key, index)
            if isinstance(each, dict):
                yield FileTable(self._problems, path, cast("dict[str, object]", each))
            else:
                self._problems.add(path, f"{shown(each)} is not a table")

    def peek(self, key: str) -> object:
        """Return a value as it stands in the file, without taking it; `None` if there is none."""
        return self._values.get(key)

    def keys(self) -> tuple[str, ...]:
        """Return the keys not taken yet."""
        return tuple(self._values)

    def rest(self) -> dict[str, object]:
        """Return all keys that are not read yet, and mark them as read."""
        rest, self._values = self._values, {}
        return rest

    def finish(self) -> None:
        """Report the unknown keys, with those that are allowed."""
        allowed = sorted(self._known)
        for key in self._values:
            near = suggestion(key, allowed)
            self.add(key, f"unknown key; there are: {', '.join(allowed) or 'none'}{near}")


class _Short(FileTable):
    """A value that is short for a table: all that is wrong is wrong with it."""

    def add(self, key: str, text: str) -> None:
        super().add("", text)
