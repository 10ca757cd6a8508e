"""The forwarder for multicast requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol import Context, Message
from .._worker import Worker
from ._exchange import MulticastRules, exchange_of

if TYPE_CHECKING:
    from .table._index import TagIndexWorker

__all__ = ["Multicast"]


class Multicast(Worker):
    """A forwarder to every destination that carries the tags.

    A message arrives with this worker first and the tag query second on its onward route.
    Each destination gets a copy in which its address replaces both. The return route is
    unchanged: all destinations reply to the same address. An exchange is split into legs,
    and their responses are merged.

    Args:
        index: The tag index.
        rules: The rules for merging, with the counters of all multicasts.
    """

    def __init__(self, index: TagIndexWorker, rules: MulticastRules) -> None:
        super().__init__()
        self._index = index
        self.rules = rules

    def handle_message(self, message: Message) -> None:
        """Send the message to each destination."""
        onward, back, payload, source, context = message
        exchange = exchange_of(message)
        if exchange is not None and exchange.ended:
            return
        ask = self._index.asked(onward[1])
        found = self._index.candidates(ask)
        if found and exchange is None:
            self._index.note_message(ask, message, tuple(entry.target for entry in found))
        if len(found) == 1:
            to = (found[0].target.choose(exchange), *onward[2:])
            self.node.parts.router.dispatch_or_lose(Message(to, back, payload, source, context))
        elif not found:  # the last destination has left; the message waits for the next
            self.node.parts.router.dispatch_or_lose(message.step())
        elif exchange is None:
            for entry in found:
                # Multicast Routing: "a broker must forward a request to all routes in the list of
                # routes."
                to = (entry.target.choose(None), *onward[2:])
                self.node.parts.router.dispatch_or_lose(Message(to, back, payload, source, context))
        else:
            # Multicast Routing: "The manner with which it forwards the routes depends on the
            # request's RSocket interaction model."
            legs = exchange.divide(self.rules)
            trace = None if context is None else context.trace
            for entry in found:
                leg = legs.leg()
                to = (entry.target.choose(leg), *onward[2:])
                about = Context(None, trace, leg)
                self.node.parts.router.dispatch_or_lose(Message(to, back, payload, source, about))
            legs.begin()
