"""Readers of values: functions that return a value of TOML as it is used, or refuse it.

Each takes any value of TOML and raises `ValueError` with a text for people.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Final, cast

from ..options import fold
from ._nearest import suggestion

__all__ = [
    "count",
    "finite_number",
    "flag",
    "one_of",
    "positive_seconds",
    "seconds",
    "shown",
    "size",
    "table",
    "text",
    "texts",
]

_LONGEST_SHOWN: Final = 60


def shown(value: object) -> str:
    """Write a value for an error: short, and as TOML has it where that is short."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    # Dates and times, the rest of what TOML has, are not text and not numbers.
    written = repr(value) if isinstance(value, str | int | float) else str(value)
    return written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…"


def text(value: object) -> str:
    """Return text."""
    if isinstance(value, str):
        return value
    raise ValueError(f"{shown(value)} is not text")


def texts(value: object) -> tuple[str, ...]:
    """Return a list of texts."""
    if isinstance(value, list):
        return tuple(text(each) for each in cast("list[object]", value))
    raise ValueError(f"{shown(value)} is not a list of texts")


def flag(value: object) -> bool:
    """Return a truth value."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"{shown(value)} is not true or false")


def count(value: object) -> int:
    """Return a number of at least 1."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"{shown(value)} is not a whole number of at least 1")


def size(value: object) -> int:
    """Return a number of at least 0."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{shown(value)} is not a whole number of at least 0")


def seconds(value: object) -> float:
    """Return a time of 0 or more."""
    number = finite_number(value)
    if number is not None and number >= 0:
        return number
    raise ValueError(f"{shown(value)} is not a number of seconds, 0 or more")


def positive_seconds(value: object) -> float:
    """Return a time of more than 0."""
    made = seconds(value)
    if not made:
        raise ValueError("0 is not a number of seconds, more than 0")
    return made


def finite_number(value: object) -> float | None:
    """Return a finite number, or `None`."""
    # Too large a whole number would be an OverflowError of `float`.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) >= 10**15:
        return None
    return float(value) if isfinite(value) else None


def table(value: object) -> dict[str, object]:
    """Return a table."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value)
    raise ValueError(f"{shown(value)} is not a table")


def one_of(*allowed: str) -> Callable[[object], str]:
    """Return a function that returns one of some words; case, `-` and `_` do not matter."""
    words = {fold(word): word for word in allowed}

    def read(value: object) -> str:
        if isinstance(value, str) and fold(value) in words:
            return words[fold(value)]
        near = suggestion(value, allowed) if isinstance(value, str) else ""
        raise ValueError(f"{shown(value)} is not one of {', '.join(allowed)}{near}")

    return read
