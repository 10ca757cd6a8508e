"""What simulated nodes with identities may have at most, and what is left of them: nothing."""

from __future__ import annotations

from collections.abc import Iterator

from onward.actors.identity import IdentityOptions
from onward.actors.identity.links._session import MAX_WAITING
from onward.protocol.identity import MAX_EXPECTED
from onward.transports.simulated import SimulatedNetwork
from tests.simulated.identity_places import HELD, Place

__all__ = ["excesses", "left_of"]


def excesses(place: Place, options: IdentityOptions) -> Iterator[str]:
    """Yield what a node has more of than it may."""
    router = place.identities._router
    parked = router.awaited._parked
    sizes = {
        "links": (len(router.links._links), options.max_correspondents),
        "windows": (len(router.incoming._windows), max(64, 2 * options.max_correspondents)),
        "engines": (len(router.engines), options.max_engines),
        "ways": (len(router.peers._ways), options.max_peers),
        "answers that are awaited": (
            len(place.identities._relays.ways.expected),
            MAX_EXPECTED,
        ),
        "messages held": (place.identities.relay_statistics().held, HELD),
        "requests to domains": (place.identities.domain_statistics().pending, 1000),
        "clocks": (len(router.greetings._clocks), 2 * options.max_peers),
        "parked": (
            max(map(parked.count, parked), default=0),
            options.max_parked,
        ),
        "waiting": (
            max((len(each.waiting) for each in router.peers.sessions.values()), default=0),
            MAX_WAITING + 1,
        ),
    }
    for name, (size, most) in sizes.items():
        if size > most:
            yield f"{place.node.name} has {size} {name}, and may have {most}"


def left_of(place: Place, network: SimulatedNetwork) -> dict[str, int]:
    """Return what is left of a node that has stopped."""
    router = place.identities._router
    return {
        "sessions": len(router.peers.sessions),
        "ways": len(router.peers._ways),
        "engines": len(router.engines),
        "parked": len(router.awaited._parked),
        "links": len(network.place(place.node).links),
    }
