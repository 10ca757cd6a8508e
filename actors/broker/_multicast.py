"""The forwarder for multicast requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol import Context, Message
from .._worker import Worker
from ._exchange import MulticastRules, exchange_of

if TYPE_CHECKING:
    from .table._index import TagIndexWorker
    from .table._remote import AnyRoute

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
        index, router = self._index, self.node.parts.router
        ask = index.asked(onward[1])
        found = index.candidates(ask)
        own, peers = index.divide(ask)
        if not own and not peers:  # the last destination has left; the message waits for the next
            router.dispatch_or_lose(message.step())
            return
        if exchange is not None and len(found) == len(own) + len(peers) == 1:
            to = (found[0].target.choose(exchange), *onward[2:])
            router.dispatch_or_lose(Message(to, back, payload, source, context))
            return
        # A peer broker, or a zone, gets one copy for all of its destinations.
        routes: list[AnyRoute] = [entry.target for entry in own]
        routes.extend(peer.every for peer, _ in peers)
        if exchange is None:
            index.note_message(ask, message, tuple(routes))
            ways = [route.way(onward[1]) for route in routes[: len(own)]]
            ways.extend((peer.to, onward[1]) for peer, _ in peers)
            for route, way in zip(routes, ways, strict=True):
                # Multicast Routing: "a broker must forward a request to all routes in the list of
                # routes."
                route.choose(None)
                to = (*way, *onward[2:])
                router.dispatch_or_lose(Message(to, back, payload, source, context))
            return
        # Multicast Routing: "The manner with which it forwards the routes depends on the request's
        # RSocket interaction model."
        legs = exchange.divide(self.rules)
        trace = None if context is None else context.trace
        shares = [*(1 for _ in own), *(count for _, count in peers)]
        for route, count in zip(routes, shares, strict=True):
            leg = legs.leg(count)
            to = (route.choose(leg), *onward[2:])
            router.dispatch_or_lose(Message(to, back, payload, source, Context(None, trace, leg)))
        legs.begin()
