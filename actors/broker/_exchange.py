"""The interface of an exchange: a request in progress through the broker.

It is the requester's side as the broker sees it. The interfaces of the two ends are in `_ends`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ...protocol import (
    InDoubt,
    Message,
    NoRoute,
    NotDelivered,
    OnwardError,
    Route,
    WorkerFailed,
)
from ...protocol._closed import close_class
from ...protocol.eventlog import Outcome

if TYPE_CHECKING:
    from .._node import Node
    from ._ends import DestinationEnd, StartEnd
    from ._instrument import RequestCounting
    from .local._handlers import Request
    from .table._remote import AnyRoute

__all__ = [
    "ALL_BUSY",
    "CANCELED",
    "DELIVER",
    "DROP",
    "FAILED",
    "INVALID",
    "REJECTED",
    "RELAYED",
    "REQUESTER_GONE",
    "UNROUTABLE",
    "Exchange",
    "MulticastExchange",
    "MulticastRules",
    "exchange_of",
    "outcome_of",
    "refuse_copy",
    "requester_of",
]

ALL_BUSY: Final = "all are busy"
"""The reason for refusing a request when every matching destination is busy."""

REQUESTER_GONE: Final = "its requester has gone"
"""The reason for refusing a request that its requester no longer waits for."""

HANDED_OVER: Final = "it has been handed over already"
"""The reason for refusing another copy of a message that carries an exchange."""

# Outcomes as plain numbers: access to an enumeration member costs more than the count.
DELIVER: Final = int(Outcome.DELIVER)
UNROUTABLE: Final = int(Outcome.UNROUTABLE)
REJECTED: Final = int(Outcome.REJECTED)
INVALID: Final = int(Outcome.INVALID)
DROP: Final = int(Outcome.DROP)
CANCELED: Final = int(Outcome.CANCELED)
FAILED: Final = int(Outcome.FAILED)
RELAYED: Final = 0x100 + DELIVER
"""`DELIVER` for a `relayed` request, with the count of its forwarding included."""


@dataclass(slots=True)
class MulticastRules:
    """The limits for merging the responses to multicasts, and the counters of all multicasts.

    Attributes:
        window: Most elements that a destination may be ahead of the requester, and, in a
            channel, the requester of the slowest destination.
        max_held: Most bytes of responses held for one request; beyond it the request is
            CANCELED. Also most bytes of the requester's elements held; beyond it the
            destination that most of them wait for counts as gone.
        max_total: Most bytes held for all requests together. A request that would exceed it is
            CANCELED.
        patience: How long a destination may hold up a channel or leave held elements unread,
            in seconds; then it counts as gone.
        fail_on_leave: Whether the loss of a destination ends the request with an error.
        skipped: Destinations that could not take a request they were chosen for, so far.
        left: Destinations that left before they had answered in full, so far.
        overflowed: Requests ended because they would have held too much, so far.
        exceeded: Those of them that ended because of `max_total`.
        held: Bytes held for all requests now.
        set_aside: Bytes of these in copies that destinations have not begun to read.
        copies: Bytes of these in unread copies, by the requester's source.
    """

    window: int = 32
    max_held: int = 16 * 1024 * 1024
    max_total: int = 256 * 1024 * 1024
    patience: float = 5.0
    fail_on_leave: bool = False
    skipped: int = 0
    left: int = 0
    overflowed: int = 0
    exceeded: int = 0
    held: int = 0
    set_aside: int = 0
    copies: dict[str, int] = field(default_factory=dict)


close_class(MulticastRules)


class MulticastExchange(Protocol):
    """A multicast exchange while its legs are created."""

    def leg(self, shares: int = 1) -> Exchange:
        """Return the exchange for one more leg.

        Args:
            shares: The destinations that it is for: several, if it goes to a peer broker.
        """
        ...

    def begin(self) -> None:
        """Begin merging: no more legs follow."""


class Exchange:
    """A request in progress, from its first element to its outcome.

    It travels as `message.context.meta`, so that workers can see it without reading the
    payload. The connection that read the request makes it and owns it. What the destination needs
    of the request is here in elements: its data and metadata once they are `whole`, a way to
    start the destination's end, or a return route for the answer of a worker. It is no abstract
    base class: `isinstance` with one costs as much as a hop.

    Attributes:
        size: Bytes held while the request waits for a route.
        ended: True once the requester has gone, has cancelled or has its full answer.
        began: When the request was read, or, if it waited for a route, forwarded; in seconds
            of the loop's clock.
        withdraw: Called at the end; removes the request from the waiting requests or stops
            its handler.
        route: The route entry of the chosen destination; `end` reduces its count of
            outstanding requests.
        handed: The return route that a worker of this node got with the request's payload. Once
            it is set, the outcome of the request is in doubt, and messages with this exchange are
            plain ones; see `exchange_of`.
        log: The request's counters in the event log, if the node has one, until the end.
    """

    __slots__ = ("began", "ended", "handed", "log", "route", "size", "withdraw")

    size: int
    ended: bool
    began: float
    route: AnyRoute | None
    withdraw: Callable[[], object] | None
    handed: Route | None
    log: RequestCounting | None

    def wait(self) -> None:
        """Prepare to wait for a route: release all but the request itself."""
        raise NotImplementedError

    def fail(self, error: OnwardError) -> None:
        """Send an error to the requester, unless the exchange has ended."""
        raise NotImplementedError

    def data(self) -> bytes:
        """Return the whole payload data of the request, without its metadata."""
        raise NotImplementedError

    def return_route(self) -> Route:
        """Return the return route for a reply from a worker of this node."""
        raise NotImplementedError

    def answer(self, payload: bytes) -> None:
        """Send the answer of a worker of this node to the requester: one element, which completes.

        Raises:
            NotDelivered: The request is over, or has been answered already.
        """
        raise NotImplementedError

    def answered_once(self) -> bool:
        """Whether the request has at most one answer.

        True for request/response, fire-and-forget and metadata push. A worker of this node
        can be the destination of such a request.
        """
        raise NotImplementedError

    def whole(self, then: Callable[[], object]) -> bool:
        """Whether the payload is complete; if not, call `then` once it is."""
        raise NotImplementedError

    def request(self) -> Request:
        """Return the `whole` request for a handler.

        Raises:
            ProtocolError: Its metadata cannot be read.
        """
        raise NotImplementedError

    def start(self, start: StartEnd) -> DestinationEnd:
        """Start the destination's end of a `whole` request, and connect the two in elements.

        Raises:
            ProtocolError: Its metadata cannot be read.
        """
        raise NotImplementedError

    def divide(self, rules: MulticastRules) -> MulticastExchange:
        """Begin a multicast of the request."""
        raise NotImplementedError

    @property
    def relayed(self) -> bool:
        """Whether a connection has taken the request and the event log counts it at its end.

        This holds for short requests; `forwarded` is not called for them.
        """
        return False

    @property
    def kept(self) -> bool:
        """Whether the request has neither ended nor been handed over."""
        return not self.ended

    @property
    def source(self) -> str:
        """The common name of all connections of the requesting peer; empty if unknown."""
        return ""

    @property
    def account(self) -> RequestCounting | None:
        """The request's counters in the event log; for a leg, those of the request."""
        return self.log

    def forwarded(self) -> None:
        """Count in the event log that the destination has the request."""
        if self.log is not None:
            self.log.forward(self)

    def end(self, now: float = 0.0, outcome: int = DELIVER) -> None:
        """End the exchange and release its destination.

        Args:
            now: When it was answered, on the loop's clock; 0 if the time says nothing about the
                destination's latency.
            outcome: How it ended, for the event log; see `Outcome`. The first call counts.
        """
        self.ended = True
        route = self.route
        log = self.log
        if log is not None:
            self.log = None
            # The usual outcome is counted here: a call would cost as much as the count.
            cell = log.done.get(route) if outcome == RELAYED else None
            if cell is not None and cell.frames:
                cell.frames += 1
                cell.bytes += self.size
            else:
                log.end(self, route, outcome)
        if route is not None:
            self.route = None
            if now:
                route.ended(now - self.began)
            else:
                route.outstanding -= 1
                # As `service.count` does, without the call.
                route.service.counts[outcome & 0xF] += 1
                if route.remote is True:
                    route.kind.shared.others += 1
        withdraw = self.withdraw
        if withdraw is not None:
            self.withdraw = None
            withdraw()


close_class(Exchange)


def outcome_of(error: Exception) -> int:
    """Return the outcome that an error gives a request, for the event log."""
    if isinstance(error, NoRoute):
        if error.detail == REQUESTER_GONE:
            return CANCELED
        return REJECTED if error.detail == ALL_BUSY else UNROUTABLE
    if isinstance(error, NotDelivered):
        return REJECTED
    if isinstance(error, WorkerFailed):
        return FAILED
    return DROP if isinstance(error, InDoubt) else INVALID


def exchange_of(message: Message) -> Exchange | None:
    """Return the exchange that a message carries in place of a payload, if any.

    Once a worker of this node has been given the payload, the messages that it sends on are its
    own: they carry what it has put into them, and the exchange only waits for the answer.
    """
    context = message[4]
    if context is None:
        return None
    meta = context.meta
    return meta if isinstance(meta, Exchange) and meta.handed is None else None


def refuse_copy(node: Node, message: Message) -> None:
    """Make another copy of an exchange's message a dead letter; the exchange goes on."""
    context = message[4]
    alone = None if context is None else context._replace(meta=None)
    node.dead_letter(message._replace(context=alone), HANDED_OVER)


def requester_of(message: Message) -> Exchange | None:
    """Return the exchange that a message came from, if any, whether it carries it or a payload."""
    context = message[4]
    meta = None if context is None else context.meta
    return meta if isinstance(meta, Exchange) else None
