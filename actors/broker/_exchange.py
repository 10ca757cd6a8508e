"""A request on its way through the broker, and what those who handle it may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ...protocol import Message, OnwardError, Route as WayBack

if TYPE_CHECKING:
    from ._handlers import Handlers, Request
    from ._route import BrokerRoute
    from ._service import Handling

__all__ = ["Exchange", "MergeRules", "Merging", "exchange_of"]


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
        began: When it was read, in seconds of the loop's clock.
        withdraw: Called at the end: takes the request back from where it waits, or from
            those who serve it.
        route: The route that took the request, once one has; its count of outstanding
            requests goes down by one at `end`.
        handed: The way back that a worker of this node was given with the request, once
            one was; from then on it is in doubt what has become of it.
    """

    __slots__ = ("began", "ended", "handed", "route", "size", "withdraw")

    size: int
    ended: bool
    began: float
    route: BrokerRoute | None
    withdraw: Callable[[], object] | None
    handed: WayBack | None

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

    def end(self, now: float = 0.0) -> None:
        """Note that the request is over: nobody waits for it, and its route is free of it.

        Args:
            now: When it was answered, on the loop's clock; 0 if it says nothing about how
                fast its destination is.
        """
        self.ended = True
        route = self.route
        if route is not None:
            self.route = None
            route.outstanding -= 1
            if now:
                route.ended(now - self.began)
        withdraw = self.withdraw
        if withdraw is not None:
            self.withdraw = None
            withdraw()


def exchange_of(message: Message) -> Exchange | None:
    """Return the exchange a message carries, if any."""
    context = message[4]
    if context is None:
        return None
    meta = context.meta
    return meta if isinstance(meta, Exchange) else None
