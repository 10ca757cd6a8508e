"""What each hop of a route over identities can see of a message, and what it cannot.

It follows from the route, and from what the router of the command has found: the relays that it
has chosen, and the nodes that it has asked. A relay reports nothing to the sender, and nothing can
be added to a sealed message on its way, so a trace ends at the first relay and goes on with the
answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..protocol import Route
from ._trace_way import GivenWay, KnownWay, LookedUp, way_of_route

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


def sights_of(route: Route, known: KnownWay | None = None) -> tuple[Sight, ...]:
    """Return what each hop can see from the first identity of a route on; none if it has none.

    Args:
        route: The route.
        known: What the router has found.

    Raises:
        BadIdentity: An address of type 36 is no destination.
        MissingExtra: The extra for identities is not installed.
    """
    given = way_of_route(route)
    return () if given is None else tuple(_sights(given, known or KnownWay()))


def _sights(given: GivenWay, known: KnownWay) -> Iterator[Sight]:
    from ..protocol.identity import DestinationKind, short_text

    to, passed = given.to, given.relays or known.relays
    relays = [f"relay {short_text(each)}" for each in passed]
    if to is None:
        # A plain address behind a relay is one of the node of that relay.
        last = relays.pop()
    else:
        last = f"{to.kind.name.lower()} {short_text(to.identity)}"
        if to.kind is not DestinationKind.NODE:
            last = f"the node of {last}"
        if to.kind is DestinationKind.TOPIC:
            last += ", and those of its subscribers"
        if passed and known.home == passed[-1] and not given.exit:
            last = f"{relays.pop()}, {last}"
    sealing = "the node of the sender" if given.is_first else "the node that has sealed it"
    names = [sealing, *relays, last]
    for at, (before, relay, after) in enumerate(zip(names, names[1:], names[2:], strict=False)):
        if given.exit and relay == names[-2]:
            # An exit opens the message, and seals it for the node that it finds.
            yield Sight(
                relay,
                f"the payload, what it is for, and the identity that has signed it; from {before}",
                f"the nodes before {before}" if at else "-",
            )
            continue
        sees = [f"it comes from {before} and goes on to {after}; size and time"]
        if at:
            sees.append("the sender's node, unless that is anonymous")
        asked = known.asked_of(passed[at])
        if asked:
            sees.append(_asked(asked))
        is_end_known = to is not None and any(each.identity == to.identity for each in asked)
        hidden = "the payload, and" if is_end_known else "the payload, its end, and"
        yield Sight(relay, "; ".join(sees), f"{hidden} nodes further away")
    if to is not None and to.kind is DestinationKind.DOMAIN:
        # No signature goes with a request to a domain, and members pass it on in the clear.
        yield Sight(
            f"members of domain {short_text(to.identity)}, the last and those before it",
            "the payload, what it is for, and the node that it comes from",
            "the nodes before that one",
        )
    else:
        yield Sight(
            last,
            "the payload, what it is for, and the identity that has signed it",
            f"the nodes before {names[-2]}" if relays else "-",
        )
    for node in known.asked():
        if node not in {*passed, known.home}:
            yield Sight(f"node {short_text(node)}", _asked(known.asked_of(node)), "all the rest")
    yield Sight("others on the way", "the nodes next to them; size and time", "all the rest")


def _asked(lookups: tuple[LookedUp, ...]) -> str:
    return f"it was asked for {', '.join(each.name for each in lookups)}"
