"""What each hop of a route over identities can see of a message, and what it cannot.

It follows from the route: a relay reports nothing to the sender, and nothing can be added to a
sealed message on its way, so a trace ends at the first relay and goes on with the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..protocol import IDENTITY, Address, Route

__all__ = ["Sight", "sights_of"]


@dataclass(frozen=True, slots=True)
class Sight:
    """Sight of a hop: what it can see, and what it cannot.

    Attributes:
        hop: The hop.
        sees: What it can see.
        hidden: What it cannot.
    """

    hop: str
    sees: str
    hidden: str


def sights_of(route: Route) -> tuple[Sight, ...]:
    """Return what each hop can see from the first identity of a route on; none if it has none.

    Raises:
        BadIdentity: An address of type 36 is no destination.
        MissingExtra: The extra for identities is not installed.
    """
    first = next((at for at, each in enumerate(route) if each.type == IDENTITY), None)
    return () if first is None else tuple(_sights(route[first:]))


def _sights(route: Route) -> Iterator[Sight]:
    from ..protocol.identity import Destination, DestinationKind, parse_target, short_text

    def destination(address: Address) -> Destination | None:
        if address.type != IDENTITY:
            return None
        return parse_target(address.value.decode("utf-8", "replace")).destination

    found = [destination(each) for each in route]
    lets_out = any(
        each.type == IDENTITY and parse_target(each.value.decode("utf-8", "replace")).exit
        for each in route
    )
    ends = (at for at, to in enumerate(found) if to is None or to.kind is not DestinationKind.RELAY)
    end = next(ends, len(found))
    relays = [f"relay {short_text(to.identity)}" for to in found[:end] if to is not None]
    to = found[end] if end < len(found) else None
    if to is None:
        # A plain address behind a relay is one of the node of that relay.
        last, what = relays.pop(), ""
    else:
        what = f"{to.kind.name.lower()} {short_text(to.identity)}"
        last = what if to.kind is DestinationKind.NODE else f"the node of {what}"
        if to.kind is DestinationKind.TOPIC:
            last += ", and those of its subscribers"
    names = ["the node of the sender", *relays, last]
    for before, relay, after in zip(names, names[1:], names[2:], strict=False):
        if lets_out and relay == names[-2]:
            # An exit opens the message, and seals it for the node that it finds.
            yield Sight(
                relay,
                f"the payload, what it is for, and the identity that has signed it; from {before}",
                f"the nodes before {before}" if relay != names[1] else "-",
            )
            continue
        yield Sight(
            relay,
            f"it comes from {before} and goes on to {after}; size and time",
            "the payload, the sender, its end, and nodes further away",
        )
    if to is not None and to.kind is DestinationKind.DOMAIN:
        # No signature goes with a request to a domain, and members pass it on in the clear.
        yield Sight(
            f"members of {what}, the last and those before it",
            "the payload, what it is for, and the node that it comes from",
            "the nodes before that one",
        )
    else:
        yield Sight(
            last,
            "the payload, what it is for, and the identity that has signed it",
            f"the nodes before {names[-2]}" if relays else "-",
        )
    yield Sight("others on the way", "the nodes next to them; size and time", "all the rest")
