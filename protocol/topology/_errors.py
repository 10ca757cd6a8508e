"""What is wrong with a topology file: all of it at once, each with its line."""

from __future__ import annotations

from dataclasses import dataclass

from .._errors import ProtocolError

__all__ = ["Problem", "TopologyError"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a topology file.

    Attributes:
        file: The file's name, as given.
        line: The line, from 1.
        key: Where in the file, as in `links[0].from`; empty for the file as a whole.
        text: What is wrong, what would be allowed, and what may have been meant.
    """

    file: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.file}:{self.line}: {key}{self.text}"


class TopologyError(ProtocolError):
    """A topology file cannot be used; it says everything that is wrong with it.

    Attributes:
        problems: What is wrong, in the order of the lines; at least one.
        left_out: Further problems, which are not among them; see `TopologyLimits.problems`.
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
