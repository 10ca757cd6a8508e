"""The paths of messages over relays: those that routes name, and those that links remember."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ....protocol import IDENTITY, Address, LinkDown, UnreadableAddress
from ....protocol.identity import (
    MAX_HOPS,
    OLD_KEY_TIME,
    AtNode,
    DeliverLocally,
    Destination,
    DestinationKind,
    EngineAdvert,
    Hop,
    Identity,
    IdentityError,
    LookUp,
    NodeAdvert,
    Refuse,
    Target,
    ViaRelay,
    parse_target,
    read_advert,
    short_text,
)
from ..._errors import Unresolved
from .._carriage import is_reserved

if TYPE_CHECKING:
    from ....protocol import Route
    from .._router import Router

__all__ = ["RelayPaths", "RememberedWays", "hops_to", "read_relays"]


class RelayPaths:
    """The knowledge of the nodes that messages go over.

    Args:
        router: The router.
    """

    __slots__ = ("_asked", "_router")

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        # When others were asked for the advert of a relay that there is no link to.
        self._asked: Final[OrderedDict[Identity, float]] = OrderedDict()

    def home(self, destination: Destination) -> Identity | None:
        """Return the node of a destination, as far as it is known here."""
        identity = destination.identity
        if destination.kind is DestinationKind.NODE:
            return identity
        if self._router.engines.of(identity) is not None:
            return self._router.own
        route = self._router.table.route(destination)
        if isinstance(route, AtNode):
            return route.node
        record = self._router.directory.lookup(identity)
        advert = None if record is None or record.advert is None else read_advert(record.advert)
        if advert is not None and isinstance(advert.advert, EngineAdvert):
            return advert.advert.node
        return None

    def sealing_key(self, node: Identity) -> bytes | None:
        """Return the key that is sealed to for a node, by its advert."""
        record = self._router.directory.lookup(node)
        if record is None or record.advert is None:
            return None
        advert = read_advert(record.advert).advert
        return advert.kx if isinstance(advert, NodeAdvert) else None

    def missing(
        self, to: Address, hops: tuple[Identity, ...], target: Target, own: Identity
    ) -> Identity | None:
        """Return the identity of which more has to be known first, if there is one.

        Raises:
            Unresolved: The router refuses a hop, or so many.
        """
        _check_number(to, hops, target)
        for hop in hops:
            kind = DestinationKind.RELAY if hop == hops[0] else DestinationKind.NODE
            match self._router.decide(Destination(kind, hop), target.scope, own):
                case DeliverLocally():
                    raise Unresolved(to, "this node is no relay of its own messages")
                case Refuse(reason):
                    raise Unresolved(to, f"the router refuses it: {reason.value}")
                case LookUp(wanted) if wanted.kind is DestinationKind.DOMAIN:
                    return wanted.identity
                case LookUp() | ViaRelay(link=None) if hop == hops[0]:
                    return hop
                case _:
                    if self.sealing_key(hop) is None:
                        return hop
        return None

    def path(self, nodes: tuple[Identity, ...]) -> list[Hop] | LinkDown:
        """Return the nodes with the keys to seal to, or why there is no path over them."""
        path: list[Hop] = []
        for node in nodes:
            key = self.sealing_key(node)
            if self._router.table.is_banned(node):
                return LinkDown(short_text(node), "it is banned")
            if key is None:
                return LinkDown(short_text(node), "the key to seal to is not known")
            path.append(Hop(node, key))
            if node != nodes[-1]:
                self._refresh(node)
        return path

    def _refresh(self, node: Identity) -> None:
        """Ask for the advert of a relay from time to time, as its key may be another one by now.

        A node that there is a link to tells it by itself.
        """
        router, now = self._router, self._router.loop_time()
        if node in router.peers.sessions or self._asked.get(node, -_REFRESH) > now - _REFRESH:
            return
        self._asked[node] = now
        self._asked.move_to_end(node)
        if len(self._asked) > _MAX_ASKED:
            self._asked.popitem(last=False)
        router.lookups.ask(node)


class RememberedWays:
    """The identities that are reached through a relay which no route names.

    The links remember what the addresses of these are replaced by, until it is forgotten here.

    Args:
        router: The router.
    """

    __slots__ = ("_router", "_ways")

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        # By the node that has them: the relay, and the identities.
        self._ways: Final[dict[Identity, tuple[Identity, dict[Identity, None]]]] = {}

    def remember(self, home: Identity, relay: Identity, identity: Identity) -> None:
        """Remember that an identity at a node is reached through a relay."""
        found = self._ways.get(home)
        if found is None or found[0] != relay or len(found[1]) >= _MAX_REMEMBERED:
            self.forget(home)
            if len(self._ways) >= _MAX_REMEMBERED:
                self.forget(next(iter(self._ways)))
            found = self._ways[home] = relay, {}
        found[1][identity] = None

    def forget(self, home: Identity) -> None:
        """Resolve anew what leads to a node through a relay: there may be another way to it now."""
        _, identities = self._ways.pop(home, (home, {}))
        for identity in identities:
            self._router.links.forget(identity)

    def forget_all(self) -> None:
        """Resolve anew all that leads through relays, as changes of the directory were lost."""
        for home in tuple(self._ways):
            self.forget(home)

    def relay_lost(self, relay: Identity) -> None:
        """Resolve anew what leads to any node through a relay, as the link to that has ended."""
        for home in [home for home, (via, _) in self._ways.items() if via == relay]:
            self.forget(home)


_REFRESH: Final = OLD_KEY_TIME / 2000
"""Time after which others are asked for the advert of a relay again, in seconds: a key that
was replaced opens for twice as long."""
_MAX_ASKED: Final = 1024
"""Most relays of which it is remembered when their adverts were asked for. Beyond: some are asked
for earlier."""
_MAX_REMEMBERED: Final = 1024
"""Most nodes behind relays of which the links remember addresses, and most identities at each.
Beyond: some are resolved anew."""


def hops_to(relays: tuple[Identity, ...], home: Identity) -> tuple[Identity, ...]:
    """Return the nodes that a message is sealed for."""
    return relays if relays and relays[-1] == home else (*relays, home)


def read_relays(route: Route, target: Target) -> tuple[tuple[Identity, ...], Target, int]:
    """Return the relays that a route begins with, what is behind them, and how many addresses.

    A plain address behind a relay is one of the node of that relay, as is the end of the route.

    Raises:
        UnreadableAddress: An address among them is no destination, or says what may not be there.
    """
    relays: list[Identity] = []
    while target.destination.kind is DestinationKind.RELAY:
        relays.append(target.destination.identity)
        following = route[len(relays)] if len(relays) < len(route) else None
        if following is None or following[0] != IDENTITY:
            node = Destination(DestinationKind.NODE, relays[-1])
            return tuple(relays), replace(target, destination=node), len(relays)
        if target.rprefs is not None or target.tprefs is not None or target.exit:
            raise UnreadableAddress(route[len(relays) - 1], "wishes stand at the destination")
        try:
            target = parse_target(following[1].decode())
        except (IdentityError, UnicodeDecodeError) as error:
            raise UnreadableAddress(following, str(error)) from None
    used = len(relays) + 1
    if any(map(is_reserved, route[used : used + 1])):
        raise UnreadableAddress(route[used], "the router alone writes it")
    return tuple(relays), target, used


def _check_number(to: Address, hops: tuple[Identity, ...], target: Target) -> None:
    """Check how many hops there are.

    Raises:
        Unresolved: There are more than may be, fewer relays than are asked for, or two of the same
            node in a row.
    """
    if len(hops) > MAX_HOPS:
        raise Unresolved(to, f"a path has at most {MAX_HOPS} hops, with the last node, not more")
    # An exit is a relay as well.
    relays = len(hops) if target.exit else len(hops) - 1
    asked = 0 if target.tprefs is None else target.tprefs.hops
    if relays < asked:
        raise Unresolved(to, f"it asks for {asked} relays or more, and its way has {relays}")
    if any(hop == following for hop, following in pairwise(hops)):
        raise Unresolved(to, "a relay follows itself")
