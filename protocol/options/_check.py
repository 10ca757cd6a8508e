"""Checking the fields of options, and single arguments that are options."""

from __future__ import annotations

from dataclasses import Field, fields
from functools import cache
from typing import Any, Final, get_type_hints

from ._kinds import REFUSED, ValueKind, kind_of

__all__ = ["check_options", "check_value"]

_LONGEST_SHOWN: Final = 80
"""Most characters of a value in an error."""


def check_options(options: Any) -> None:
    """Check each field of a frozen dataclass against its annotation, and keep what it is read as.

    Call it in `__post_init__`; what several fields have to be together is checked after it.
    Numbers have to be finite, and a truth value is no number. A member of an enum, or a word of a
    `Literal`, may be given as text in any spelling that topology files have: case, `-` and `_` do
    not matter. A list may stand for a tuple.

    Args:
        options: The dataclass.

    Raises:
        ValueError: A field has another type or is out of its range. The text names the class, the
            field, what is accepted and the value.
    """
    made = options.__class__
    for name, kind in _kinds(made):
        value = getattr(options, name)
        read = kind.read(value)
        if read is REFUSED:
            raise ValueError(_refused(f"{made.__name__}.{name}", kind, value))
        if read is not value:
            object.__setattr__(options, name, read)


def check_value(name: str, value: object, wanted: Any) -> Any:
    """Return an argument, checked as `check_options` checks a field.

    Args:
        name: What the error calls it.
        value: The argument.
        wanted: Its type, as in an annotation.

    Raises:
        ValueError: It is of another type, or out of its range.
    """
    kind = _kind(wanted)
    read = kind.read(value)
    if read is REFUSED:
        raise ValueError(_refused(name, kind, value))
    return read


def _shown(value: object) -> str:
    """Return the text of a value for an error, shortened where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _refused(name: str, kind: ValueKind, value: object) -> str:
    written = kind.shown(value) if kind.shown is not None else ""
    return f"{name} must be {kind.text}, not {written or _shown(value)}"


_kind: Final = cache(kind_of)


@cache
def _kinds(made: Any) -> tuple[tuple[str, ValueKind], ...]:
    hints = get_type_hints(made, include_extras=True)
    listed: tuple[Field[Any], ...] = fields(made)
    return tuple((field.name, kind_of(hints[field.name])) for field in listed)
