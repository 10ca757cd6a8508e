"""The addresses of other nodes, as their adverts say them."""

from __future__ import annotations

from typing import Final

from ....protocol import IDENTITY
from ....protocol.identity import (
    AdvertAddress,
    DestinationKind,
    Identity,
    IdentityError,
    NodeAdvert,
    parse_destination,
)

__all__ = ["by_weight", "relay_of"]

_PREFIX: Final = f"{IDENTITY}#"
_RELAY: Final = f"{_PREFIX}relay:"


def by_weight(advert: NodeAdvert) -> list[AdvertAddress]:
    """Return the addresses of a node, the one to try first at first."""
    return sorted(advert.addresses, key=lambda each: each.weight, reverse=True)


def relay_of(address: str) -> Identity | None:
    """Return the relay that holds a place for a node, if its address says so: `36#relay:...`."""
    if not address.startswith(_RELAY):
        return None
    try:
        destination = parse_destination(address.removeprefix(_PREFIX))
    except IdentityError:
        return None
    return destination.identity if destination.kind is DestinationKind.RELAY else None
