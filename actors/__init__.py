"""Who holds state: workers, the node they run on, and the actors of the broker.

`Worker` is what you derive from, `Node` is where workers live; `onward.actors.broker` is
the broker made of them.
"""

from ._background import BackgroundNode, new_event_loop
from ._dead_letters import DeadLetter, DeadLetters
from ._errors import LimitReached, RoutingLoop, TooManyRequests, UnknownScheme, WouldDeadlock
from ._future import LoopFuture
from ._node import Node
from ._policy import Mailbox, NodeLimits, OnFailure, Overflow, Supervision
from ._router import Rule
from ._statistics import NodeStatistics, WorkerStatistics
from ._timer import Timer
from ._transport import Listener, Transport
from ._worker import ThreadWorker, Worker

__all__ = [
    "BackgroundNode",
    "DeadLetter",
    "DeadLetters",
    "LimitReached",
    "Listener",
    "LoopFuture",
    "Mailbox",
    "Node",
    "NodeLimits",
    "NodeStatistics",
    "OnFailure",
    "Overflow",
    "RoutingLoop",
    "Rule",
    "Supervision",
    "ThreadWorker",
    "Timer",
    "TooManyRequests",
    "Transport",
    "UnknownScheme",
    "Worker",
    "WorkerStatistics",
    "WouldDeadlock",
    "new_event_loop",
]
