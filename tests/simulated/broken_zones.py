"""Brokers that are broken on purpose in what they do for other zones."""

from __future__ import annotations

from typing import Any, Final

from onward.protocol.broker import Entry, RouteAdd, RouteRemove, TagList
from onward.protocol.cluster import (
    Beaten,
    CaughtUp,
    Element,
    ElementKind,
    Membership,
    PresenceAction,
    RouteGroups,
    SubscriptionEvent,
)
from tests.simulated.cluster_broker import QUERY, Broker, Connection, Peer, Request
from tests.simulated.zone_broker import TO_ZONE, Gate, ZoneBroker
from tests.simulated.zones import checked_run


class CountsNoRouteOut(ZoneBroker):
    """Counts the routes that join, and none that leaves."""

    def left_group(self, before: tuple[str, TagList, int, bytes]) -> None:
        pass


class TellsOnce(RouteGroups):
    """Tells a group when its first route joins and when the last one leaves."""

    def _note(self, group: Any, count: Any) -> None:
        if not (count.told and count.routes):
            super()._note(group, count)


class TellsNoNewNumber(ZoneBroker):
    """Does not tell that a group has become much larger."""

    Groups = TellsOnce


class TellsGroupsOfOtherZones(ZoneBroker):
    """Tells the groups of other zones as those of its own."""

    def add_remote(self, peer: Peer, route: RouteAdd) -> None:
        super().add_remote(peer, route)
        if isinstance(peer, Gate):
            self.groups.joined(route.service_name, ((6, "elsewhere"),))


class FiltersItsOwnRoutesOnly(ZoneBroker):
    """Leaves the routes of its peer brokers out of the filter."""

    def joined_zone(self, route_id: bytes, entry: Entry[Connection | None]) -> None:
        if entry.broker_id == self.id:
            super().joined_zone(route_id, entry)

    def make_filter(self, now: float) -> None:
        self.filter_log.begin(len(self.own))
        self.filter_log.add(self.own)
        self.filter_log.finish(now)


class KeepsRoutesOfTwoZones(ZoneBroker):
    """Does not close the connection of a route that has a newer one in another zone."""

    def end_beaten(self, beaten: Beaten) -> None:
        pass


class LooksUpNoFilter(ZoneBroker):
    """Looks its own routes up in what joins elsewhere, and not in filters."""

    def on_filter(self, peer: Peer, number: int, data: bytes) -> None:
        there, self.own = self.own, {}
        if Element.parse(data).kind is ElementKind.IDS:
            self.own = there
        super().on_filter(peer, number, data)
        self.own = there


class UsesGroupsOfLostLinks(ZoneBroker):
    """Does not hide the groups of a zone to which the link is lost."""

    def act(self, peer: Peer, actions: tuple[PresenceAction, ...]) -> None:
        if isinstance(peer, Gate):
            actions = tuple(each for each in actions if each is not PresenceAction.SUSPEND)
        super().act(peer, actions)


class DialsAZoneOnce(Membership):
    """Does not notice that an attempt to dial another zone has failed."""

    def failed(self, uri: str, cause: str, now: float) -> None:
        if self._zones.book.get(uri) is None:
            super().failed(uri, cause, now)


class StaysWithoutAZone(ZoneBroker):
    """Does not dial another broker of a zone after a failure."""

    Members = DialsAZoneOnce


class ForwardsBetweenZones(ZoneBroker):
    """Sends a request of another zone on to further zones, if no route is here."""

    def no_route(self, request: Request) -> None:
        parent, request.parent = request.parent, None
        super().no_route(request)
        request.parent = parent


class SendsMulticastsBetweenZones(ZoneBroker):
    """Sends a multicast of another zone on to further zones."""

    def multicast(self, request: Request, *, zones: bool) -> None:
        super().multicast(request, zones=True)


class SendsACopyForEachGroup(ZoneBroker):
    """Sends a zone a multicast as often as it has groups for it."""

    def multicast(self, request: Request, *, zones: bool) -> None:
        super().multicast(request, zones=zones)
        for entry in self.zone_table.candidates(QUERY)[1:] if zones else ():
            gate = self.gates[entry.broker_id, TO_ZONE]
            if gate.wire is not None:
                self._send(gate, "request", request, None, (self.id,))


class MeshPeersForwardMulticasts(ZoneBroker):
    """Sends a multicast of a peer broker on to other zones."""

    def serve(
        self, peer: Peer, request: Request, route_id: bytes | None, via: tuple[bytes, ...]
    ) -> None:
        super().serve(peer, request, route_id, via)
        if request.multicast and not isinstance(peer, Gate):
            for gate in self.zones_with_group().values():
                self._send(gate, "request", request, None, (*via, self.id))


class DropsGroupsOfOtherGateways(ZoneBroker):
    """Keeps the groups of one gateway of a zone, and drops those of another with what hides them.

    Few runs show it.
    """

    def add_remote(self, peer: Peer, route: RouteAdd) -> None:
        if isinstance(peer, Gate):
            Broker.add_remote(self, peer, route)
        else:
            super().add_remote(peer, route)

    def remove_remote(self, peer: Peer, route: RouteRemove) -> None:
        if isinstance(peer, Gate):
            Broker.remove_remote(self, peer, route)
        else:
            super().remove_remote(peer, route)

    def apply(self, peer: Peer, event: SubscriptionEvent) -> None:
        super().apply(peer, event)
        if not isinstance(event, CaughtUp) or not isinstance(peer, Gate):
            return
        for other in self.gates.values():
            if (other.zone, other.role, other.wire) == (peer.zone, TO_ZONE, None):
                while self.zone_table.drop(other.broker_id, 100):
                    pass
                other.subscription = self.Subscription(other.broker_id, self.limits)


class ForgetsWhoWaits(ZoneBroker):
    """Does not pass the answer of a peer broker on to the zone that has asked."""

    def on_answer(self, peer: Peer, request: Request, outcome: str, route_id: bytes | None) -> None:
        inside = self.requests.get((request.number, peer.broker_id))
        if inside is not None and inside.parent is not None:
            del self.requests[request.number, peer.broker_id]
            return
        super().on_answer(peer, request, outcome, route_id)


BROKEN: Final[tuple[type[Broker], ...]] = (
    CountsNoRouteOut,
    TellsNoNewNumber,
    TellsGroupsOfOtherZones,
    FiltersItsOwnRoutesOnly,
    KeepsRoutesOfTwoZones,
    LooksUpNoFilter,
    UsesGroupsOfLostLinks,
    StaysWithoutAZone,
    ForwardsBetweenZones,
    SendsMulticastsBetweenZones,
    SendsACopyForEachGroup,
    MeshPeersForwardMulticasts,
    ForgetsWhoWaits,
)
"""Each is one mistake in a broker of a zone."""


def catches(kind: type[Broker], seed: int) -> bool:
    """Return whether a run shows that brokers are broken like this."""
    return bool(checked_run(seed, kind)[2])


def caught(job: tuple[int, int]) -> tuple[int, bool]:
    """Return that for a broker of `BROKEN`, by its number, and a seed."""
    kind, seed = job
    return kind, catches(BROKEN[kind], seed)
