"""The adverts that other nodes tell, and the routes that follow from them.

All go into the directory, whatever they are of. What is told leads to no route by itself: a route
is learned when a message of this node needs it, or when a node tells of its own engine. A route
that is there follows the directory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from ....protocol.identity import (
    Advert,
    AdvertEnvelope,
    AdvertResponse,
    AdvertSource,
    AtNode,
    BadRecord,
    ControlContent,
    Destination,
    DestinationKind,
    DomainAdvert,
    EngineAdvert,
    HasMembers,
    Identity,
    IdentityUpdated,
    NodeAdvert,
    PutOutcome,
    RateLimiter,
    RelayLoadLimits,
    RelayStatus,
    RemoteRoute,
    node_of_advert,
    open_advert,
    read_advert,
    serialize_control,
)

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["HeardAdverts"]

WayTo: TypeAlias = Callable[[NodeAdvert], RemoteRoute | None]
"""Returns the route to a node by its advert; `None` if it leads to none."""


class HeardAdverts:
    """The adverts that a node hears, and the routes of its router by them.

    Args:
        router: The router.
        way_to: Returns the route to a node by its advert.
    """

    def __init__(self, router: Router, way_to: WayTo) -> None:
        self._router: Final = router
        self._way_to: Final = way_to
        limits = RelayLoadLimits(rate=_RATE, burst=_BURST)
        self._rates: Final = RateLimiter(limits)
        # The newest version of the adverts of engines that are not where it says.
        self._gone: Final[OrderedDict[Identity, int]] = OrderedDict()

    def hear(
        self, node: Identity, envelopes: Iterable[AdvertEnvelope], ahead: int = 0
    ) -> list[Identity]:
        """Put adverts that a node tells into the directory, and learn where its engines are.

        Args:
            node: The node that tells them.
            envelopes: The adverts.
            ahead: The time by which its clock is ahead of that here, in milliseconds.

        Returns:
            The identities of which more is known now.
        """
        router, heard = self._router, list[Identity]()
        for envelope in envelopes:
            if self._rates.spend(node, router.loop_time()) is not RelayStatus.OK:
                router.counts["adverts beyond those that a node may tell"] += 1
                continue
            identity = self._put(node, envelope, ahead)
            if identity is not None:
                heard.append(identity)
        return heard

    def _put(self, node: Identity, envelope: AdvertEnvelope, ahead: int) -> Identity | None:
        router = self._router
        try:
            advert = read_advert(envelope).advert
        except BadRecord:
            router.counts["records that cannot be read"] += 1
            return None
        if advert.identity == router.own or router.engines.of(advert.identity) is not None:
            self._put_own(envelope)
            return None
        of_node = node_of_advert(advert) == node
        if of_node and self._has_newer(advert):
            # It was started again, or its clock set back: it hears of it, and makes a newer one.
            self._tell_back(node, advert.identity)
            return None
        # What a node says of itself is compared with its own clock, up to a limit.
        by = min(max(0, ahead), _MOST_AHEAD) if of_node else 0
        outcome = router.directory.put(envelope, AdvertSource.NETWORK, node, by)
        if outcome not in _GOOD:
            router.counts[f"adverts that are refused: {outcome.value}"] += 1
            return None
        if of_node and isinstance(advert, EngineAdvert) and not self._is_banned(advert.identity):
            # Believed of itself, by the node that has it.
            self._gone.pop(advert.identity, None)
            self.learn(advert.identity, node)
        return None if outcome is PutOutcome.KNOWN else advert.identity

    def _put_own(self, envelope: AdvertEnvelope) -> None:
        """Receive an advert of this node or of an engine of it, maybe of an earlier start."""
        advert = open_advert(envelope, self._router.verifiers)
        if advert is None:
            self._router.counts[f"adverts that are refused: {PutOutcome.BAD_SIGNATURE.value}"] += 1
        elif node_of_advert(advert) == self._router.own:
            self._router.own_adverts.heard(advert)
        elif isinstance(advert, EngineAdvert):
            self._router.own_adverts.heard_elsewhere(advert)

    def _has_newer(self, advert: Advert) -> bool:
        """Whether another advert of an identity is known, which is newer or of the same version."""
        record = self._router.directory.peek(advert.identity)
        if record is None or record.advert is None:
            return False
        known = read_advert(record.advert).advert
        return known.version >= advert.version and known != advert

    def _tell_back(self, node: Identity, identity: Identity) -> None:
        router = self._router
        response = AdvertResponse(identity, router.directory.adverts_for(identity)[:1])
        content = ControlContent(serialize_control(response))
        router.outgoing.say(node, content)

    def _is_banned(self, identity: Identity) -> bool:
        # To learn a route is to trust it: the ban would be over.
        return self._router.table.is_banned(identity)

    def says_to_be_at(self, engine: Identity, node: Identity) -> bool:
        """Whether an engine says itself that it is at a node."""
        if self._router.is_at(engine, node):
            return True
        record = self._router.directory.peek(engine)
        if record is None or record.advert is None:
            return False
        advert = read_advert(record.advert).advert
        return isinstance(advert, EngineAdvert) and advert.node == node

    def not_there(self, engine: Identity, node: Identity) -> None:
        """Forget the route to an engine, as the node where it was says that it does not know it."""
        router = self._router
        if not router.is_at(engine, node):
            return
        record = router.directory.peek(engine)
        if record is not None and record.advert is not None:
            self._gone[engine] = read_advert(record.advert).advert.version
            self._gone.move_to_end(engine)
            if len(self._gone) > _MAX_GONE:
                self._gone.popitem(last=False)
        router.table.update(Destination(DestinationKind.ENGINE, engine), None)
        router.links.way_lost(engine, "the engine is not at its node any more")

    # --- routes -------------------------------------------------------------------------------

    def learn(self, engine: Identity, node: Identity) -> None:
        """Learn that an engine is at a node, which can have so many routes and no more.

        Requests to it at another node end: what answers is not there any more.
        """
        router, destination = self._router, Destination(DestinationKind.ENGINE, engine)
        before = router.table.route(destination)
        router.table.update(destination, AtNode(node))
        if isinstance(before, AtNode) and before.node != node:
            router.links.way_lost(engine, "the engine is at another node now")
        beyond = router.table.beyond(node, _MOST_AT_NODE)
        if beyond is not None:
            router.table.update(beyond, None)
            router.counts["engines that made room for others of their node"] += 1

    def use(self, destination: Destination) -> bool:
        """Learn the route to a destination by the directory; return whether there is one."""
        record = self._router.directory.lookup(destination.identity)
        advert = None if record is None else record.advert
        if advert is None or self._is_banned(destination.identity):
            return False
        found = self._route(read_advert(advert).advert)
        if found is None or found[0] != destination:
            return False
        self._set(*found)
        return True

    def follow(self, update: IdentityUpdated) -> None:
        """Replace the route to an identity that there is, as its advert is another one."""
        record = update.record
        if record is None or record.advert is None or self._is_banned(update.identity):
            return
        advert = read_advert(record.advert).advert
        destination = Destination(_KINDS.get(type(advert), DestinationKind.TOPIC), update.identity)
        before = self._router.table.route(destination)
        found = self._route(advert)
        if isinstance(before, AtNode) and destination.kind is DestinationKind.TOPIC:
            self._router.links.forget(before.node)  # the address of the topic led there
        if before is not None and (found is None or found[1] != before):
            self._set(destination, None if found is None else found[1])

    def follow_all(self) -> None:
        """Replace all routes by what the directory says now, as some of its changes were lost."""
        router = self._router
        for destination in router.table.destinations():
            record = router.directory.peek(destination.identity)
            self.follow(IdentityUpdated(destination.identity, record))

    def _set(self, destination: Destination, route: RemoteRoute | None) -> None:
        match route:
            case AtNode(node):
                self.learn(destination.identity, node)
            case _:
                self._router.table.update(destination, route)

    def _route(self, advert: Advert) -> tuple[Destination, RemoteRoute] | None:
        """Return what an advert says of a route."""
        route: RemoteRoute | None = None
        match advert:
            case EngineAdvert(identity=engine, node=node, version=version):
                # One of this node that is not here has ended, and may have moved.
                if version > self._gone.get(engine, -1) and node != self._router.own:
                    route = AtNode(node)
            case NodeAdvert():
                route = self._way_to(advert)
            case DomainAdvert(nodes=nodes):
                route = HasMembers(frozenset(nodes))
            case _:
                pass
        kind = _KINDS.get(type(advert))
        if route is None or kind is None:
            return None
        return Destination(kind, advert.identity), route


_KINDS: Final[dict[type[Advert], DestinationKind]] = {
    EngineAdvert: DestinationKind.ENGINE,
    NodeAdvert: DestinationKind.NODE,
    DomainAdvert: DestinationKind.DOMAIN,
}
_GOOD: Final = frozenset({PutOutcome.STORED, PutOutcome.REPLACED, PutOutcome.KNOWN})
_RATE: Final = 200
"""Adverts of one node that are looked at in each second, in the long run. More are dropped, and
counted."""
_BURST: Final = 20_000
"""Adverts of one node that are looked at at once: those of all its engines, and more. Beyond: as
above."""
_MOST_AHEAD: Final = 600_000
"""Most time by which the clock of a node counts as ahead, in milliseconds: the longest time of a
message."""
_MOST_AT_NODE: Final = 16_384
"""Most engines that are remembered of one node. Beyond: its oldest is let go, and counted."""
_MAX_GONE: Final = 4096
"""Most engines of which it is remembered that they are not where their adverts say. Beyond: the
one that was found so longest ago is forgotten, and found so again."""
