"""How often a test with a count tries: few times in `make test`, many in `make test-all`."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

EXHAUSTIVE: Final = os.environ.get("ONWARD_EXHAUSTIVE") == "1"
"""Whether everything is tried that there is. `make test-all` sets the variable."""

ONLY_IN_ALL: Final = pytest.mark.exhaustive

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


def times(few: int, many: int) -> int:
    """Return how many seeds, walks or examples to try."""
    return many if EXHAUSTIVE else few
