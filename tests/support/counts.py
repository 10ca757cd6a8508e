"""How often a test with a count tries: few times in `make test`, many in `make test-all`.

To measure coverage takes a simulated run four times as long, and many seeds go through the code of
the few again. So `make test-all` measures the run with few, and then runs the tests that have a
count once more, with many, without measuring.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

TRIES: Final = os.environ.get("ONWARD_TRIES", "few")
"""Few or many tries, or `counted`: many, and no tests but those that have a count."""

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


def has_count(item: pytest.Item) -> bool:
    """Whether a test tries more if there is time: a property, or of a module with counts."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return True
    names = vars(item.module) if isinstance(item, pytest.Function) else {}
    return any(names.get(each.__name__) is each for each in (times, runs)) or "EXHAUSTIVE" in names
