"""Dispatch by name over a network of nodes, without I/O."""

from ._choice import (
    Chooser,
    ConsumerTarget,
    LinkTarget,
    RemoteNode,
    Target,
)
from ._errors import (
    BadName,
    BadPattern,
    BadSemantics,
    DispatchError,
    PatternInUse,
    TooManyProvisions,
    UnknownProvision,
)
from ._graph import (
    Graph,
    LinkStates,
    Paths,
    join_links,
)
from ._limits import (
    DispatchLimits,
    NameSize,
)
from ._outcomes import (
    ACCEPTED,
    ALL,
    MODIFIED,
    RECEIVED,
    RELEASED,
    Accepted,
    DeliveryState,
    FanOut,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Tally,
)

__all__ = [
    "ACCEPTED",
    "ALL",
    "MODIFIED",
    "RECEIVED",
    "RELEASED",
    "Accepted",
    "BadName",
    "BadPattern",
    "BadSemantics",
    "Chooser",
    "ConsumerTarget",
    "DeliveryState",
    "DispatchError",
    "DispatchLimits",
    "FanOut",
    "Graph",
    "LinkStates",
    "LinkTarget",
    "Modified",
    "NameSize",
    "Outcome",
    "Paths",
    "PatternInUse",
    "Received",
    "Rejected",
    "Released",
    "RemoteNode",
    "Tally",
    "Target",
    "TooManyProvisions",
    "UnknownProvision",
    "join_links",
]
