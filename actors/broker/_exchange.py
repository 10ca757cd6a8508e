"""A request on its way through the broker, and what those who handle it may ask of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol import DeliveryError, Message

if TYPE_CHECKING:
    from ._route import RouteWorker

__all__ = ["Exchange", "exchange_of"]


class Exchange(ABC):
    """One request that came in as frames, from its first frame to its last.

    It travels as `message.context.meta`, so that the workers on the way can see it without
    the payload being touched. The connection that read the request makes it and owns it.

    Attributes:
        size: Bytes held while the request waits for a route.
        ended: True once the requester has gone, cancelled, or been answered in full.
        withdraw: Takes the request out of the queue it waits in, while it waits.
        route: The route that took the request, once one has; its count of outstanding
                requests goes down by one at `end`.
    """

    __slots__ = ("ended", "route", "size", "withdraw")

    def __init__(self, size: int) -> None:
        self.size = size
        self.ended = False
        self.route: RouteWorker | None = None
        self.withdraw: Callable[[], object] | None = None

    @abstractmethod
    def fail(self, error: DeliveryError) -> None:
        """Tell the requester that nothing was handed over. Does nothing once ended."""

    @abstractmethod
    def data(self) -> bytes:
        """Return the whole payload data of the request, without its metadata."""

    @abstractmethod
    def answered_once(self) -> bool:
        """Say whether the request takes at most one answer.

        True for request/response, fire-and-forget and metadata push. A worker of this node
        can be the destination of such a request.
        """

    @abstractmethod
    def whole(self, then: Callable[[], object]) -> bool:
        """Say whether the payload is complete; if not, call `then` once it is."""

    def end(self) -> None:
        """Note that the request is over: nobody waits for it, and its route is free of it."""
        self.ended = True
        route = self.route
        if route is not None:
            self.route = None
            route.outstanding -= 1
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
