"""The addresses of other nodes, as their adverts say them."""

from __future__ import annotations

from ...protocol import IDENTITY
from ...protocol.identity import (
    DestinationKind,
    Identity,
    IdentityError,
    NodeAdvert,
    RemoteRoute,
    ViaNode,
    parse_destination,
)

__all__ = ["relay_of", "way_to"]


def way_to(advert: NodeAdvert) -> RemoteRoute | None:
    """Return the route to a node by its advert; `None` if it leads to none."""
    for address in sorted(advert.addresses, key=lambda each: each.weight, reverse=True):
        relay = relay_of(address.route)
        if relay is not None:
            return ViaNode(relay)
    return None


def relay_of(address: str) -> Identity | None:
    """Return the relay that holds a place for a node, if its address says so: `36#relay:...`."""
    if not address.startswith(_RELAY):
        return None
    try:
        destination = parse_destination(address.removeprefix(_PREFIX))
    except IdentityError:
        return None
    return destination.identity if destination.kind is DestinationKind.RELAY else None


_PREFIX = f"{IDENTITY}#"
_RELAY = f"{_PREFIX}relay:"
