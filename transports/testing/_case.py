"""The cases of the suite: a name, an expectation in one line, and a check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ._claims import Claims

if TYPE_CHECKING:
    from ._stage import Stage

__all__ = ["Case", "case"]

_Scene: TypeAlias = "Callable[[Stage], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Case:
    """One expectation of a transport.

    Attributes:
        name: A few words with `_` between them.
        claim: The expectation, in one line.
        needs: The names of the claims without which the case is skipped.
        scene: The check; raises `AssertionError` if the expectation does not hold.
    """

    name: str
    claim: str
    needs: tuple[str, ...]
    scene: _Scene

    def unclaimed(self, claims: Claims) -> str:
        """Return the first claim that is missing, or ""."""
        for need in self.needs:
            claimed = getattr(claims, need)
            if claimed is None or claimed is False:
                return need
        return ""


def case(cases: list[Case], *needs: str) -> Callable[[_Scene], _Scene]:
    """Add a function to a list of cases, with its name and the first line of its docstring."""

    def add(scene: _Scene) -> _Scene:
        claim = (scene.__doc__ or "").strip().split("\n")[0].rstrip(".")
        cases.append(Case(getattr(scene, "__name__", ""), claim, needs, scene))
        return scene

    return add
