"""Who holds state: workers, the node they run on, and the actors of the broker.

`Worker` is what you derive from, `Node` is where workers live; `onward.actors.broker` is
the broker made of them.
"""

from ._background import BackgroundNode, new_event_loop
from ._dead_letters import DeadLetter, DeadLetters
from ._diagnostics import Diagnostics, DiagnosticsOptions, DiagnosticsStatistics
from ._errors import (
    BadHandler,
    Expired,
    GivenUp,
    LimitReached,
    NodeNotStarted,
    Refused,
    RoutingLoop,
    RuleInUse,
    TooManyRequests,
    UnknownScheme,
    WouldDeadlock,
)
from ._future import LoopFuture
from ._node import Node
from ._observer import Observer, Tracer
from ._policy import Mailbox, NodeLimits, OnFailure, Overflow, Supervision
from ._router import Rule
from ._statistics import NodeStatistics, WorkerStatistics
from ._timer import Timer
from ._transport import Listener, Transport
from ._typed import MissingExtra, TypedWorker, call
from ._worker import ThreadWorker, Worker

__all__ = [
    "BackgroundNode",
    "BadHandler",
    "DeadLetter",
    "DeadLetters",
    "Diagnostics",
    "DiagnosticsOptions",
    "DiagnosticsStatistics",
    "Expired",
    "GivenUp",
    "LimitReached",
    "Listener",
    "LoopFuture",
    "Mailbox",
    "MissingExtra",
    "Node",
    "NodeLimits",
    "NodeNotStarted",
    "NodeStatistics",
    "Observer",
    "OnFailure",
    "Overflow",
    "Refused",
    "RoutingLoop",
    "Rule",
    "RuleInUse",
    "Supervision",
    "ThreadWorker",
    "Timer",
    "TooManyRequests",
    "Tracer",
    "Transport",
    "TypedWorker",
    "UnknownScheme",
    "Worker",
    "WorkerStatistics",
    "WouldDeadlock",
    "call",
    "new_event_loop",
]
