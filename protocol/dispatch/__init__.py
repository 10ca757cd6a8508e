"""Dispatch by name over a network of nodes, without I/O."""

from ._errors import (
    BadName,
    BadPattern,
    BadSemantics,
    DispatchError,
    PatternInUse,
    TooManyProvisions,
    UnknownProvision,
)
from ._limits import DispatchLimits, NameSize

__all__ = [
    "BadName",
    "BadPattern",
    "BadSemantics",
    "DispatchError",
    "DispatchLimits",
    "NameSize",
    "PatternInUse",
    "TooManyProvisions",
    "UnknownProvision",
]
