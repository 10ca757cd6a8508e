"""How often a test with a count tries: few times in `make test`, many in `make test-all`.

To measure coverage takes a simulated run four times as long, and many seeds go through the code of
the few again. So `make test-all` measures the run with few, and then runs the tests that have a
count once more, with many, without measuring. Of those with a count the first run leaves out the
ones that are not measured either way.
"""

from __future__ import annotations

import ast
import os
from functools import lru_cache
from typing import Any, Final

import pytest

TRIES: Final = os.environ.get("ONWARD_TRIES", "few")
"""How much is tried: `few`, or `many`.

Of the two runs of `make test-all`, `measured` has few tries, and `counted` many of those tests that
have a count.
"""

_COUNTS: Final = frozenset({"EXHAUSTIVE", "runs", "times"})
"""The names of this module by which a test is known to have a count."""

EXHAUSTIVE: Final = TRIES in ("many", "counted")
"""Whether as much is tried as there is."""

ONLY_IN_ALL: Final = pytest.mark.exhaustive

UNMEASURED: Final = pytest.mark.no_cover
"""The mark of a test without coverage: what it runs is measured by others, or is broken on purpose.
"""

FEW_EXAMPLES: Final = 25
"""Examples of a property that sets no number. Exhaustive are Hypothesis's own hundred."""


def exhaustive(*values: Any) -> list[Any]:
    """Return values of a parameter, or tuples for several, that only `make test-all` tries."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),  # pyright: ignore[reportUnknownArgumentType]
            marks=ONLY_IN_ALL,
        )
        for value in values
    ]


def runs(few: int, many: int, at_once: int = 1) -> range:
    """Return the first number of each part of some runs, as values of a parameter."""
    return range(0, times(few, many), at_once)


def times(few: int, many: int) -> int:
    """Return how many seeds, walks or examples to try."""
    return many if EXHAUSTIVE else few


def is_chosen(item: pytest.Item) -> bool:
    """Whether a test belongs to this run."""
    if TRIES == "counted":
        return has_count(item)
    # The run after this one has it, with many tries.
    return not (TRIES == "measured" and item.get_closest_marker("no_cover") and has_count(item))


def has_count(item: pytest.Item) -> bool:
    """Whether a test tries more if there is time: a property, or one that uses a count."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return True
    if not isinstance(item, pytest.Function):
        return False
    whole = item.originalname if item.cls is None else item.cls.__name__
    return whole in uses_of_counts(item.path.read_text())


@lru_cache(maxsize=1)
def uses_of_counts(source: str) -> frozenset[str]:
    """Return the names in a module that have to do with a count, each by one before it or itself.

    A test is told by its body, its decorators, or what it calls or is given as a fixture. A module
    has tests without a count as well: a second run of those would show nothing.
    """
    statements = ast.parse(source).body
    found = {
        each.asname or each.name
        for statement in statements
        if isinstance(statement, ast.ImportFrom) and statement.module == __name__
        for each in statement.names
        if each.name in _COUNTS
    }
    pairs = [(_bound(each), _read(each)) for each in statements]
    before = -1
    while before != len(found):
        before = len(found)
        for bound, read in pairs:
            if read & found:
                found |= bound
    return frozenset(found)


def _bound(statement: ast.stmt) -> set[str]:
    """Return what a statement defines or changes: of `X.settings = ...` that is `X`."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    names = (each for target in targets for each in ast.walk(target))
    return {each.id for each in names if isinstance(each, ast.Name)}


def _read(statement: ast.stmt) -> set[str]:
    """Return the names and parameters in a statement: a fixture is given by a parameter."""
    return {
        each.id if isinstance(each, ast.Name) else each.arg
        for each in ast.walk(statement)
        if isinstance(each, (ast.Name, ast.arg))
    }
