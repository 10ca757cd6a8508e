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
from ._graph import Graph, LinkStates, Paths, join_links
from ._limits import DispatchLimits, NameSize

__all__ = [
    "BadName",
    "BadPattern",
    "BadSemantics",
    "DispatchError",
    "DispatchLimits",
    "Graph",
    "LinkStates",
    "NameSize",
    "Paths",
    "PatternInUse",
    "TooManyProvisions",
    "UnknownProvision",
    "join_links",
]
