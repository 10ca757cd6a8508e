"""A request on its way through the broker, and what those who handle it may ask of it."""

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
    Route as WayBack,
    WorkerFailed,
)
from ...protocol.eventlog import Outcome

if TYPE_CHECKING:
    from ..eventlog.recording._request_counting import RequestCounting
    from .local._handlers import Handlers, Request
    from .local._service import Handling
    from .table._route import BrokerRoute

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
    "MergeRules",
    "Merging",
    "exchange_of",
    "outcome_of",
]

ALL_BUSY: Final = "all are busy"
"""Why a request was refused that somebody could have taken who had no room."""

REQUESTER_GONE: Final = "its requester has gone"
"""Why a request was refused that nobody waits for any more."""

# Outcomes as plain numbers: to take one of an enumeration costs more than to count it.
DELIVER: Final = int(Outcome.DELIVER)
UNROUTABLE: Final = int(Outcome.UNROUTABLE)
REJECTED: Final = int(Outcome.REJECTED)
INVALID: Final = int(Outcome.INVALID)
DROP: Final = int(Outcome.DROP)
CANCELED: Final = int(Outcome.CANCELED)
FAILED: Final = int(Outcome.FAILED)
RELAYED: Final = 0x100 + DELIVER
"""`DELIVER`, of a request that is `relayed`: that it was handed over is counted as well."""


@dataclass(slots=True)
class MergeRules:
    """How the answers of several destinations become one, and what became of those.

    Attributes:
        window: Most elements that each destination may be ahead of the requester, and the
            requester of the slowest destination in a channel.
        max_held: Most bytes of answers held for one request because of that; then it is
            CANCELED. And most bytes of the requester's elements; then the destination that
            most of them wait for counts as gone.
        max_total: Most bytes held for all requests together. The one that would exceed it is
            CANCELED.
        patience: How long a destination may hold up a channel for the others, or not read
            what is held for it, in seconds; then it counts as gone.
        fail_on_leave: Whether a destination that is gone ends the request with an error.
        skipped: Destinations that could not take a request they were chosen for, so far.
        left: Destinations that were gone before they had answered in full, so far.
        overflowed: Requests that were ended because too much would have been held, so far.
        held: Bytes held for all requests together now.
        set_aside: Bytes of them in copies that destinations have not begun to read.
        copies: Bytes of them in copies that destinations have not read, by the requester's source.
    """

    window: int = 32
    max_held: int = 16 * 1024 * 1024
    max_total: int = 256 * 1024 * 1024
    patience: float = 5.0
    fail_on_leave: bool = False
    skipped: int = 0
    left: int = 0
    overflowed: int = 0
    held: int = 0
    set_aside: int = 0
    copies: dict[str, int] = field(default_factory=dict)


class Merging(Protocol):
    """A request on its way to several destinations."""

    def branch(self) -> Exchange:
        """Return what one more destination is to take in place of the request."""
        ...

    def begin(self) -> None:
        """Note that there will be no more branches."""


class Exchange:
    """One request that came in as frames, from its first frame to its last.

    It travels as `message.context.meta`, so that the workers on the way can see it without
    the payload being touched. The connection that read the request makes it and owns it.
    Not an abstract base class: `isinstance` of one costs as much as a hop.

    Attributes:
        size: Bytes held while the request waits for a route.
        ended: True once the requester has gone, cancelled, or been answered in full.
        began: When it was read, or handed over if it has waited for a route, in seconds of the
            loop's clock.
        withdraw: Called at the end: takes the request back from where it waits, or from
            those who serve it.
        route: The route that took the request, once one has; its count of outstanding
            requests goes down by one at `end`.
        handed: The way back that a worker of this node was given with the request, once
            one was; from then on it is in doubt what has become of it.
        log: What it is counted on, if the node has an event log; until it has ended.
    """

    __slots__ = ("began", "ended", "handed", "log", "route", "size", "withdraw")

    size: int
    ended: bool
    began: float
    route: BrokerRoute | None
    withdraw: Callable[[], object] | None
    handed: WayBack | None
    log: RequestCounting | None

    def wait(self) -> None:
        """Prepare to wait for a route: keep no more than the request itself."""
        raise NotImplementedError

    def fail(self, error: OnwardError) -> None:
        """Tell the requester; the error says whether to try again. Nothing once ended."""
        raise NotImplementedError

    def data(self) -> bytes:
        """Return the whole payload data of the request, without its metadata."""
        raise NotImplementedError

    def return_route(self) -> WayBack:
        """Return the way back for an answer from a worker of this node."""
        raise NotImplementedError

    def answered_once(self) -> bool:
        """Say whether the request takes at most one answer.

        True for request/response, fire-and-forget and metadata push. A worker of this node
        can be the destination of such a request.
        """
        raise NotImplementedError

    def whole(self, then: Callable[[], object]) -> bool:
        """Say whether the payload is complete; if not, call `then` once it is."""
        raise NotImplementedError

    def request(self) -> Request:
        """Return the request as handlers see it; only once it is `whole`.

        Raises:
            ProtocolError: Its metadata cannot be read.
        """
        raise NotImplementedError

    def serve(self, handlers: Handlers) -> Handling:
        """Join a `whole` request to the handler for it, which this starts.

        Raises:
            ProtocolError: Its metadata cannot be read.
        """
        raise NotImplementedError

    def merge(self, rules: MergeRules) -> Merging:
        """Begin to hand the request to several destinations, whose answers become one."""
        raise NotImplementedError

    @property
    def relayed(self) -> bool:
        """Whether a connection has taken the request, and the event log hears of it at its end.

        That is so for requests that do not last; `forwarded` is not called for those.
        """
        return False

    @property
    def source(self) -> str:
        """Where it comes from: what all connections of one peer have in common; may be empty."""
        return ""

    @property
    def account(self) -> RequestCounting | None:
        """What it is counted on, or what it is a copy of."""
        return self.log

    def forwarded(self) -> None:
        """Note for the event log that the route has been given the request."""
        if self.log is not None:
            self.log.forward(self)

    def end(self, now: float = 0.0, outcome: int = DELIVER) -> None:
        """Note that the request is over: nobody waits for it, and its route is free of it.

        Args:
            now: When it was answered, on the loop's clock; 0 if it says nothing about how
                fast its destination is.
            outcome: How it ended, for the event log: see `Outcome`. The first time counts.
        """
        self.ended = True
        route = self.route
        log = self.log
        if log is not None:
            self.log = None
            # What most requests come to is counted here: to call for it would cost as much.
            cell = log.done.get(route) if outcome == RELAYED else None
            if cell is not None and cell.frames:
                cell.frames += 1
                cell.bytes += self.size
            else:
                log.end(self, route, outcome)
        if route is not None:
            self.route = None
            route.outstanding -= 1
            if now:
                route.ended(now - self.began)
        withdraw = self.withdraw
        if withdraw is not None:
            self.withdraw = None
            withdraw()


def outcome_of(error: Exception) -> int:
    """Return how a request ended that an error ended, for the event log."""
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
    """Return the exchange a message carries, if any."""
    context = message[4]
    if context is None:
        return None
    meta = context.meta
    return meta if isinstance(meta, Exchange) else None
