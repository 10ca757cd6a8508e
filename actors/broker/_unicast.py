"""The forwarder for unicast and shard requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol import Message
from .._worker import Worker
from ._exchange import exchange_of, refuse_copy

if TYPE_CHECKING:
    from .table._index import TagIndexWorker

__all__ = ["Unicast"]


class Unicast(Worker):
    """A forwarder to the one destination that the selector picks.

    A message arrives with this worker first and the tag query second on its onward route.
    Both are replaced by the address of the destination. Each query has its own selector, so
    alternating queries do not disturb each other.
    """

    def __init__(self, index: TagIndexWorker) -> None:
        super().__init__()
        self._index = index

    def handle_message(self, message: Message) -> None:
        """Replace the query by the address of the chosen destination."""
        exchange = exchange_of(message)
        if exchange is not None:
            if exchange.ended:
                return
            if exchange.route is not None:  # else its first destination would count it for ever
                refuse_copy(self.node, message)
                return
        index = self._index
        chosen = index.chosen(index.asked(message.onward_route[1]), message)
        if chosen is None:  # the last destination has left; the message waits for the next
            self.node.parts.router.dispatch_or_lose(message.step())
            return
        self.node.parts.router.dispatch_or_lose(message.step().redirect(*chosen))
