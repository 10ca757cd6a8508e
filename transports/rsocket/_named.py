"""Requests that name a route instead of tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...actors.routing._given import check_payload
from ...protocol import (
    TAGS,
    Address,
    AddressError,
    Context,
    DeliveryError,
    Message,
    NotDelivered,
    NotExposed,
    Outside,
    ProtocolError,
    Route,
    route as route_of,
)
from ...protocol.broker import MAX_ROUTE_TEXT, MIME_ROUTE, BrokerFrameError
from ...protocol.rsocket import MalformedComposite, entry_finder
from ..node._link import MAX_WORK, TooMuchWork

if TYPE_CHECKING:
    from ...protocol.security import Principal
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["NamedRequests", "route_in"]

_find: Final = entry_finder(MIME_ROUTE.encode())


def route_in(metadata: bytes) -> Route | None:
    """Return the route that composite metadata names; `None` if they name none.

    Raises:
        BrokerFrameError: The route is too long, or not UTF-8.
        AddressError: It cannot be read.
        RouteError: It is empty, or has too many addresses.
    """
    try:
        found = _find(metadata, 0, len(metadata))
    except MalformedComposite:
        return None
    if found is None:
        return None
    _, start, end = found
    if end - start > MAX_ROUTE_TEXT:
        raise BrokerFrameError("route", f"over {MAX_ROUTE_TEXT} bytes")
    try:
        text = metadata[start:end].decode()
    except UnicodeDecodeError:
        raise BrokerFrameError("route", "not UTF-8") from None
    named = route_of(text)
    if not named:
        raise AddressError(text, "an empty route")
    return named


class NamedRequests:
    """The requests of one connection that name routes, which only exposed addresses can begin.

    A request becomes a message with its data as payload and a return route for the answer, as for
    a worker that is a destination. The first address must be exposed at the listener (`expose=`),
    and the others are checked as for messages from another node (`allow=`). Tag queries in a route
    are allowed by the broker's rules, as those of requests are.

    Args:
        link: The requester's connection.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._at = (link.worker.address, *link.shared.listener)

    def send(self, exchange: StreamExchange, route: Route, principal: Principal) -> None:
        """Send a request along a route, or keep it until it is whole.

        Args:
            exchange: The request.
            route: The route.
            principal: The principal that the rules decide by.

        Raises:
            NotDelivered: The first address is not exposed, cannot be reached, or takes no such
                request; or the message would cause too much work.
            NotAllowed: The rules do not allow a tag query in the route.
            ProtocolError: The request is too big.
        """
        node, exposed = self._link.node, self._link.shared.exposed
        first = route[0]
        if not exposed.lets_in(first) and not node.parts.guards.is_exposed(first, self._at):
            node.dead_letters.denied += 1
            raise NotExposed(first)
        route = self._permitted(route, principal)
        if not exchange.answered_once():
            text = "a route takes request/response and fire-and-forget only"
            raise NotDelivered("the destination", text)
        if exchange.whole(lambda: self._send_late(exchange, route)):
            self._send_whole(exchange, route)

    def _permitted(self, route: Route, principal: Principal) -> Route:
        """Return a route with the tag queries in it as the peer may send them.

        Raises:
            NotAllowed: The rules do not allow one of them.
        """
        broker = self._link.broker
        if broker.authorization is None or all(each.type != TAGS for each in route):
            return route
        asked = broker.index.asked
        return tuple(
            broker.permitted(asked(each), principal).address if each.type == TAGS else each
            for each in route
        )

    def _send_late(self, exchange: StreamExchange, route: Route) -> None:
        if exchange.ended:
            return
        try:
            self._send_whole(exchange, route)
        except (DeliveryError, ProtocolError) as error:
            exchange.fail(error)

    def _send_whole(self, exchange: StreamExchange, route: Route) -> None:
        node = self._link.node
        payload, back = exchange.data(), exchange.return_route()
        check_payload(payload, node.limits)
        if len(payload) * len(route) > MAX_WORK:
            raise TooMuchWork(route[0], f"{len(payload)} bytes along {len(route)} addresses")
        behind = len(route) - 1
        outside = Outside(behind, self._allows) if behind else None
        own = self._link.return_route[0]
        message = Message(route, back, payload, own, Context(meta=exchange, outside=outside))
        # From now on its outcome is in doubt, except for the first hop: see `Broker`.
        exchange.handed = back
        if behind:
            node.parts.guards.let_in(message)
        else:
            node.parts.router.dispatch(message)
        if not back:
            exchange.end()

    def _allows(self, address: Address) -> bool:
        """Whether exposed workers may pass a message of this peer on to an address."""
        link = self._link
        return link.shared.exposed.allows(address) or link.node.parts.guards.is_exposed(
            address, self._at
        )
