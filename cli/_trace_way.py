"""The way of a traced message to an identity: what its route says, and what the router has found.

The second is known to the node of the command: no other one is asked for it, or told of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..actors.tracing import Trace
from ..protocol import IDENTITY, Route

if TYPE_CHECKING:
    from ..actors.identity import LookupStep
    from ..protocol.identity import Destination, Identity
    from ..transports.identity import Identities

__all__ = ["GivenWay", "KnownWay", "LookedUp", "WayWatch", "way_of_route"]


class GivenWay(NamedTuple):
    """The way that a route says, from its first identity on.

    Attributes:
        relays: The relays that it names.
        to: The destination behind them; `None` for an address of the last relay.
        exit: Whether the last relay finds the destination.
        is_first: Whether the route begins with an identity, so that its sender seals the message.
    """

    relays: tuple[Identity, ...]
    to: Destination | None
    exit: bool
    is_first: bool


def way_of_route(route: Route) -> GivenWay | None:
    """Return the way that a route says; `None` if there is no identity in it.

    Raises:
        BadIdentity: An address of type 36 is no destination.
        MissingExtra: The extra for identities is not installed.
    """
    first = next((at for at, each in enumerate(route) if each.type == IDENTITY), None)
    if first is None:
        return None
    from ..protocol.identity import DestinationKind, parse_target

    relays: list[Identity] = []
    for each in route[first:]:
        if each.type != IDENTITY:
            break
        target = parse_target(each.value.decode("utf-8", "replace"))
        if target.destination.kind is not DestinationKind.RELAY:
            return GivenWay(tuple(relays), target.destination, target.exit, first == 0)
        relays.append(target.destination.identity)
    return GivenWay(tuple(relays), None, exit=False, is_first=first == 0)


class LookedUp(NamedTuple):
    """An identity that was looked up for a message.

    Attributes:
        identity: The identity.
        name: Its kind, as far as it is known, and the identity in short.
        asked: The nodes that were asked, in order.
        answered: The first one that has known it; `None` for none.
    """

    identity: Identity
    name: str
    asked: tuple[Identity, ...]
    answered: Identity | None


@dataclass(frozen=True, slots=True)
class KnownWay:
    """The way of a message as the router of its node has found it.

    Attributes:
        relays: The relays that it was sealed for, before the node of its destination.
        home: The node of its destination; `None` if it is not known.
        lookups: What was looked up for it.
        known: What was known of its destination without that; empty for nothing.
    """

    relays: tuple[Identity, ...] = ()
    home: Identity | None = None
    lookups: tuple[LookedUp, ...] = ()
    known: str = ""

    def asked(self) -> tuple[Identity, ...]:
        """Return the nodes that were asked for anything."""
        return tuple(dict.fromkeys(node for each in self.lookups for node in each.asked))

    def asked_of(self, node: Identity) -> tuple[LookedUp, ...]:
        """Return what a node was asked for."""
        return tuple(each for each in self.lookups if node in each.asked)

    def lines(self) -> list[str]:
        """Return where the knowledge is from, as text."""
        return [*map(_line, self.lookups), *([self.known] if self.known else ())]

    def row(self) -> dict[str, Any]:
        """Return it as values that JSON can represent."""
        from ..protocol.identity import identity_text

        return {
            "relays": [*map(identity_text, self.relays)],
            "lookups": [
                {
                    "identity": identity_text(each.identity),
                    "asked": [*map(identity_text, each.asked)],
                    "answered": None if each.answered is None else identity_text(each.answered),
                }
                for each in self.lookups
            ],
            "known": self.known,
        }


class WayWatch:
    """Watch over what the router of a node learns for one message."""

    def __init__(self) -> None:
        self._identities: Identities | None = None
        # What was looked up, the nodes that were asked, and whether each has known it.
        self._steps: dict[Identity, dict[Identity, bool]] = {}

    def begin(self, identities: Identities) -> None:
        """Watch the look-ups of a node."""
        self._identities = identities
        identities.watch_lookups(self._note)

    def _note(self, step: LookupStep) -> None:
        asked = self._steps.setdefault(step.identity, {})
        asked[step.node] = step.answered or asked.get(step.node, False)

    def found(self, traced: Trace) -> KnownWay:
        """Return the way of the message, after its trace."""
        identities, given = self._identities, way_of_route(traced.route)
        if given is None:
            return KnownWay()
        if identities is None or not given.is_first:
            return KnownWay(_relays_of(traced, None))  # the router of another node has sent it on
        return KnownWay(
            _relays_of(traced, traced.own_node),
            None if given.to is None else _home(identities, given.to.identity),
            tuple(
                LookedUp(
                    identity,
                    _name(identities, identity),
                    tuple(asked),
                    next((node for node, known in asked.items() if known), None),
                )
                for identity, asked in self._steps.items()
            ),
            "" if given.to is None else self._known(identities, given.to),
        )

    def _known(self, identities: Identities, to: Destination) -> str:
        name, home = _name(identities, to.identity), _home(identities, to.identity)
        kind, asked = name.partition(" ")[0], to.kind.name.lower()
        if kind not in {asked, "identity"}:
            return f"{name} is no {asked}: write {IDENTITY}#{kind}:…"
        if kind == "identity" or to.identity in self._steps:
            return ""
        if home == to.identity and home in identities.peers():
            return f"{name} was known: it is joined"
        if home in identities.peers():
            return f"{name} was known: its node, which is joined, has told of it"
        return f"{name} was known: its advert was in the directory"


def _line(found: LookedUp) -> str:
    from ..protocol.identity import short_text

    asked = ", ".join(map(short_text, found.asked))
    answered = "none" if found.answered is None else short_text(found.answered)
    return f"looked up {found.name}: asked {asked}; answered by {answered}"


def _name(identities: Identities, identity: Identity) -> str:
    from ..protocol.identity import short_text

    record = identities.directory.peek(identity)
    known = None if record is None else record.advert
    return f"{'identity' if known is None else known.kind.name.lower()} {short_text(identity)}"


def _home(identities: Identities, identity: Identity) -> Identity | None:
    """Return the node of an engine, or a node itself, by its advert."""
    from ..protocol.identity import node_of_advert, read_advert

    record = identities.directory.peek(identity)
    if record is None or record.advert is None:
        return None
    return node_of_advert(read_advert(record.advert).advert)


def _relays_of(traced: Trace, node_id: str | None) -> tuple[Identity, ...]:
    """Return the relays that a message was sealed for, by the reports of its hops.

    Args:
        traced: The trace.
        node_id: The node that has sealed it: its reports alone count. `None`: any node.
    """
    from ..actors.identity._carriage import shown_carriage

    for hop in traced.hops:
        if node_id in {None, hop.report.node_id}:
            for address in hop.report.onward_route[1:2]:
                carriage = shown_carriage(address)
                if carriage is not None:
                    return carriage.relays
    return ()
