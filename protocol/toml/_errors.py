"""The problems of a file: all of them at once, each with its line."""

from __future__ import annotations

from dataclasses import dataclass

from .._errors import ProtocolError
from ._locate import Path, path_text

__all__ = ["FileError", "Position", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a file.

    Attributes:
        file: The file's name, as given.
        line: The line, from 1.
        key: The place in the file, as in `links[0].from`; empty for the file as a whole.
        text: The fault, what would be allowed, and what may have been meant.
    """

    file: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.file}:{self.line}: {key}{self.text}"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file.

    Attributes:
        file: The file's name, as given.
        line: The line, from 1.
        path: The keys and, in lists, numbers from 0 that lead to it.
    """

    file: str
    line: int
    path: Path

    @property
    def key(self) -> str:
        """The path as text, as in `nodes.front.workers.echo`."""
        return path_text(self.path)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}"


class FileError(ProtocolError):
    """A file cannot be used; the error names all its faults.

    Attributes:
        problems: The faults, in the order of the lines; at least one.
        left_out: The number of further problems, which are not among them.
    """

    def __init__(self, problems: tuple[Problem, ...], left_out: int = 0) -> None:
        super().__init__(problems, left_out)
        self.problems = problems
        self.left_out = left_out

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        if self.left_out:
            lines.append(f"and {self.left_out} more")
        return "\n".join(lines)
