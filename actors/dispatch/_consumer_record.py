"""A consumer as its name knows it: the way to hand it a message, and when it accepts one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ...protocol import Message, Route
from ...protocol.dispatch import ConsumerTarget, Name, Refusal, Share
from ...protocol.security import Principal

if TYPE_CHECKING:
    from ..runtime._cell import Cell
    from ._consumer import ConsumerWorker
    from ._name_state import NameState

__all__ = ["Accept", "ConsumerRecord"]


class Accept(Enum):
    """The moment at which a delivery counts as accepted by its consumer."""

    HANDLED = "handled"
    """Its handler has returned and has settled it in no other way."""
    REPLY = "reply"
    """Its worker has replied; the reply is the answer to the producer."""
    HANDED = "handed"
    """It was put into the mailbox of its worker, or sent on the link to it."""
    SELF = "self"
    """The handler has accepted it by a call, perhaps long after it has returned."""


@dataclass(slots=True, eq=False)
class ConsumerRecord:
    """A consumer of a name.

    Attributes:
        number: Its number at this node.
        route: The route to it.
        window: Messages that it has at a time.
        accept: When a delivery counts as accepted.
        remote: Whether the first address of the route is a link.
        ended: Called when it has been detached by its name, with the reason.
        state: The state of its name.
        worker: The worker of its handler, if it has one.
        local: The name of this node that gets the copies, in place of a worker.
        active: Whether messages are sent to it; a standby is not.
        by_credit: Whether its credit comes by calls, and not back with what it has settled.
        circuits: Whether it is a container of circuits.
        deliver: Takes a message and its token, in place of the route.
        principal: The principal that consumes; `None` for a program of this node.
        label: Its name in an event log; empty until it is needed.
        share: What its source has at this node; `None`: the program itself.
        watched: The workers with which it ends.
    """

    number: int
    route: Route
    window: int
    accept: Accept
    remote: bool
    ended: Callable[[Refusal], None]
    state: NameState
    worker: ConsumerWorker | None = None
    local: Name | None = None
    active: bool = False
    by_credit: bool = False
    circuits: bool = False
    deliver: Callable[[Message, bytes | None], None] | None = None
    principal: Principal | None = None
    label: str = ""
    share: Share | None = None
    watched: tuple[Cell, ...] = ()

    @property
    def is_fast(self) -> bool:
        """Whether copies may come to it on the fast path: it is a worker of this node."""
        return not (self.remote or self.local or self.deliver or self.circuits)

    @property
    def target(self) -> ConsumerTarget:
        """It as the target of a copy."""
        return ConsumerTarget(self.number)
