"""The stateful parts: workers, nodes and the broker.

`Worker` is the base class of workers, and `Node` runs them. `onward.actors.broker` is
the broker, made of workers.
"""

from ._background import BackgroundNode, new_event_loop
from ._chains import ChainMismatch, start_chain
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
    Unresolved,
    WouldDeadlock,
)
from ._node import Node
from ._reloads import PrepareReload, ReloadFailed, Reloads, ReloadStatistics
from ._transport import Listener, Transport
from ._typed import Rejection, TypedWorker, call, typed
from ._values import MissingExtra, decode_value, encode_value
from ._worker import ThreadWorker, Worker
from .diagnostics._diagnostics import Diagnostics, DiagnosticsOptions, DiagnosticsStatistics
from .instruments._instrument import Instrument, Linked, TracedMessage, Watch
from .instruments._statistics import NodeStatistics, WorkerStatistics
from .pykka._future import LoopFuture
from .routing._dead_letters import DeadLetter, DeadLetters
from .routing._pending import Pending
from .routing._rules import Rule
from .runtime._policy import (
    MailboxOptions,
    NodeLimits,
    OnFailure,
    Overflow,
    RestartBackoff,
    Supervision,
)
from .runtime._timer import Timer

__all__ = [
    "BackgroundNode",
    "BadHandler",
    "ChainMismatch",
    "DeadLetter",
    "DeadLetters",
    "Diagnostics",
    "DiagnosticsOptions",
    "DiagnosticsStatistics",
    "Expired",
    "GivenUp",
    "Instrument",
    "LimitReached",
    "Linked",
    "Listener",
    "LoopFuture",
    "MailboxOptions",
    "MissingExtra",
    "Node",
    "NodeLimits",
    "NodeNotStarted",
    "NodeStatistics",
    "OnFailure",
    "Overflow",
    "Pending",
    "PrepareReload",
    "Refused",
    "Rejection",
    "ReloadFailed",
    "ReloadStatistics",
    "Reloads",
    "RestartBackoff",
    "RoutingLoop",
    "Rule",
    "RuleInUse",
    "Supervision",
    "ThreadWorker",
    "Timer",
    "TooManyRequests",
    "TracedMessage",
    "Transport",
    "TypedWorker",
    "UnknownScheme",
    "Unresolved",
    "Watch",
    "Worker",
    "WorkerStatistics",
    "WouldDeadlock",
    "call",
    "decode_value",
    "encode_value",
    "new_event_loop",
    "start_chain",
    "typed",
]
