"""Messages of a node to identities, and the routes to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...protocol import IDENTITY, Address, AddressLike, Message, Route, address as as_address
from ...protocol.identity import (
    Destination,
    DestinationKind,
    Identity,
    Ordering,
    Reliability,
    RoutingPrefs,
    RoutingScope,
    Security,
    Target,
    TransportPrefs,
    parse_target,
    target_text,
)
from ._own_identity import OwnIdentity

__all__ = ["MessageCalls"]


class MessageCalls(OwnIdentity):
    """A node that sends to identities; see `Identities`."""

    def route_to(
        self,
        to: Destination | Identity | str,
        *rest: AddressLike,
        relays: Iterable[Identity] = (),
        scope: RoutingScope | None = None,
        ordered: bool = True,
        reliable: bool = True,
        hops: int = 0,
        exit: bool = False,  # noqa: A002
    ) -> Route:
        """Return the route to an identity, which any worker may send to.

        Args:
            to: What it is to: a destination, its text as in `engine:…`, or an engine.
            rest: The addresses behind it.
            relays: The relays that it goes through, each of which opens one layer of encryption.
            scope: How far the message may go; anywhere by default.
            ordered: Whether its order is to be kept.
            reliable: Whether it is to wait while no way to it is known.
            hops: The fewest relays that it may go through; over fewer it is refused.
            exit: Whether the last relay lets it out, and finds the node of the destination. It can
                read the message.

        Raises:
            BadIdentity: The text is of no destination.
            BadRecord: There are more hops than a message may have.
        """
        target = parse_target(to) if isinstance(to, str) else Target(_destination(to))
        if scope is not None:
            target = replace(target, rprefs=RoutingPrefs(scope))
        if hops or not (ordered and reliable):
            prefs = TransportPrefs(
                Ordering.ORDERED if ordered else Ordering.UNORDERED,
                Reliability.RELIABLE if reliable else Reliability.UNRELIABLE,
                Security.ONION if hops else Security.DIRECT,
                hops,
            )
            target = replace(target, tprefs=prefs)
        if exit:
            target = replace(target, exit=True)
        way = [Target(Destination(DestinationKind.RELAY, each)) for each in relays]
        first = (Address(IDENTITY, target_text(each).encode()) for each in (*way, target))
        return *first, *map(as_address, rest)

    def send(
        self,
        to: Destination | Identity | str,
        payload: bytes,
        *,
        rest: Iterable[AddressLike] = (),
        relays: Iterable[Identity] = (),
    ) -> None:
        """Send a message of the node to an identity; see `route_to` and `Node.send`."""
        self._worker.node.send(self.route_to(to, *rest, relays=relays), payload)

    async def request(
        self,
        to: Destination | Identity | str,
        payload: bytes,
        *,
        rest: Iterable[AddressLike] = (),
        relays: Iterable[Identity] = (),
        timeout: float = 30.0,
    ) -> Message:
        """Send a request of the node to an identity, and return its answer.

        See `route_to` and `Node.request`; a worker that is an engine asks by `Worker.request`, and
        is then the one that asks.
        """
        route = self.route_to(to, *rest, relays=relays)
        return await self._worker.node.request(route, payload, timeout=timeout)


def _destination(to: Destination | Identity) -> Destination:
    return to if isinstance(to, Destination) else Destination(DestinationKind.ENGINE, to)
