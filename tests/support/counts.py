"""How often a test with a count tries: few times in `make test`, many in `make test-all`.

To measure coverage takes a simulated run four times as long. What is only tried in `make test-all`
goes through the same code again with other seeds: of such runs the few are measured.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

EXHAUSTIVE: Final = os.environ.get("ONWARD_EXHAUSTIVE") == "1"
"""Whether everything is tried that there is. `make test-all` sets the variable."""

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


def runs(few: int, many: int, at_once: int = 1) -> list[Any]:
    """Return the first number of each part of some runs, as values of a parameter.

    Those beyond the few are not measured.
    """
    return [
        first if first < few else pytest.param(first, marks=UNMEASURED)
        for first in range(0, times(few, many), at_once)
    ]


def times(few: int, many: int) -> int:
    """Return how many seeds, walks or examples to try."""
    return many if EXHAUSTIVE else few
