"""What an operator can ask a program to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["Operation", "Operations"]

Operation: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[object]]
"""A function that does what was asked for. Its arguments are checked by it; a `ValueError` has the
text of the answer then. What it returns is the answer, and can be written as JSON."""


class Operations:
    """The operations of a program by name."""

    def __init__(self) -> None:
        self._known: dict[str, Operation] = {}

    def add(self, name: str, operation: Operation) -> None:
        """Add an operation.

        Raises:
            ValueError: There is one of this name.
        """
        if name in self._known:
            raise ValueError(f"there is an operation {name} already")
        self._known[name] = operation

    def find(self, name: str) -> Operation | None:
        """Return the operation of a name, if there is one."""
        return self._known.get(name)
