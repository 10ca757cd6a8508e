"""Brokers that are broken on purpose: a harness that does not catch them shows nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from onward.protocol.broker import Entry, RouteAdd, RouteRemove, Update
from onward.protocol.cluster import (
    Element,
    ElementKind,
    Membership,
    PeerInfo,
    Position,
    PresenceAction,
    RouteFeed,
    RouteLog,
    RouteSubscription,
    SubscriptionEvent,
)
from tests.simulated.cluster_broker import QUERY, Broker, Connection, Peer, Request
from tests.simulated.clusters import checked_run


class AppliesRemovalsOfOtherHomes(Broker):
    """Removes the entry that it shows, whichever broker's removal it is."""

    def remove_remote(self, peer: Peer, route: RouteRemove) -> None:
        entry = self.table.get(route.route_id)
        if entry is not None:
            later = max(route.timestamp, entry.timestamp + 1)
            route = RouteRemove(entry.broker_id, route.route_id, later)
        super().remove_remote(peer, route)


class OneStartLikeAnother(RouteFeed):
    """Goes on from a number of an earlier start."""

    __slots__ = ()

    def __init__(self, log: RouteLog, position: Position, **more: Any) -> None:
        if position.instance:
            position = Position(log.instance, min(position.sequence, log.sequence))
        super().__init__(log, position, **more)


class OneStartLikeTheNext(RouteSubscription):
    """Takes the changes of a later start for those of the one before."""

    def receive(self, element: Element, now: float, clock: int) -> tuple[SubscriptionEvent, ...]:
        position = self.position
        if position.instance and element.kind is not ElementKind.SNAPSHOT:
            self._position = Position(element.instance, element.sequence - len(element.frames))
        return super().receive(element, now, clock)


class KeepsLogPositionAcrossInstances(Broker):
    """Does not tell a restart, as sender and as receiver."""

    Feed = OneStartLikeAnother
    Subscription = OneStartLikeTheNext


class RelaysOthersRoutes(Broker):
    """Tells of the routes of others as if they were its own."""

    def add_remote(self, peer: Peer, route: RouteAdd) -> None:
        super().add_remote(peer, route)
        # Once: else the route goes round for ever.
        if route.route_id not in self.own and route.route_id not in self.log._numbers:
            self.tell(replace(route, broker_id=self.id))


class ForgetsTheSweep(Broker):
    """Keeps what a snapshot did not name."""

    def sweep(self, peer: Peer) -> None:
        pass


class RevealsAtOnce(Broker):
    """Uses the routes of a broker that is back before it knows what has changed."""

    def on_linked(self, peer: Peer) -> None:
        super().on_linked(peer)
        self.table.reveal(peer.broker_id)


class UsesRoutesOfLostLinks(Broker):
    """Does not hide the routes of a broker that is away."""

    def act(self, peer: Peer, actions: tuple[PresenceAction, ...]) -> None:
        super().act(peer, tuple(each for each in actions if each is not PresenceAction.SUSPEND))


class PartsAreWhole(RouteSubscription):
    """Has a position in the middle of a snapshot."""

    def receive(self, element: Element, now: float, clock: int) -> tuple[SubscriptionEvent, ...]:
        events = super().receive(element, now, clock)
        if self._round is not None:
            self._position = self._round
        return events


class CountsAPartAsTheWhole(Broker):
    """Goes on behind a snapshot of which it has the beginning."""

    Subscription = PartsAreWhole


class KeepsBeatenConnections(Broker):
    """Does not close the connection of a route that has a newer one elsewhere."""

    def beaten(self, update: Update[Connection | None]) -> None:
        pass


class TrustsItsClockAlone(Broker):
    """Does not look at what it knows of a route when it registers it."""

    def next_timestamp(self, route_id: bytes) -> int:
        return self.clock()


class DialsOnce(Membership):
    """Does not notice that an attempt to dial has failed."""

    def failed(self, uri: str, cause: str, now: float) -> None:
        pass


class GivesUpDialling(Broker):
    """Does not dial again after a failure."""

    Members = DialsOnce


class VouchesForAll(Membership):
    """Passes on what it has heard."""

    def _vouched(self) -> list[PeerInfo]:
        return [self.own, *(each.info for each in self._known)]


class PassesOnHearsay(Broker):
    """Tells of brokers that it has no link with."""

    Members = VouchesForAll


class Silent(RouteFeed):
    """Sends no mark."""

    __slots__ = ()

    def next(self, now: float) -> bytes | None:
        data = super().next(now)
        marks = data is not None and Element.parse(data).kind is ElementKind.MARK
        return super().next(now) if marks else data


class NeverMarks(Broker):
    """Does not say when a subscriber has caught up."""

    Feed = Silent


class Skips(RouteFeed):
    """Forgets what a subscriber without credit has missed."""

    __slots__ = ()

    def _begin_snapshot(self) -> None:
        super()._begin_snapshot()
        if self._elements:
            self._snapshot = None
            self._sequence, self._in_step = self._target, True


class SkipsWhatTheLogHasLost(Broker):
    """Goes on with the latest change when a subscriber was too slow."""

    Feed = Skips


class ForwardsForPeerBrokers(Broker):
    """Sends a request of a peer broker on, if the destination is not here."""

    def serve(
        self, peer: Peer, request: Request, route_id: bytes | None, via: tuple[bytes, ...]
    ) -> None:
        entry: Entry[Connection | None] | None
        entry = None if route_id is None else self.table.get(route_id)
        other = None if entry is None else self.peers.get(entry.broker_id)
        if other is not None and other.wire is not None:
            self._send(other, "request", request, route_id, (*via, self.id))
        super().serve(peer, request, route_id, via)


class SendsACopyForEachRoute(Broker):
    """Sends a peer broker a multicast as often as it has destinations for it."""

    def request(self, request: Request) -> None:
        super().request(request)
        if request.multicast:
            for entry in self.table.candidates(QUERY)[1:]:
                if entry.broker_id != self.id:
                    self._send(self.peers[entry.broker_id], "request", request, None, (self.id,))


class ForgetsRequestsOfLostLinks(Broker):
    """Does not end the requests that were under way by a link."""

    def _cancel(self, peer: Peer) -> None:
        pass


class ReadsAllAnewWithEachLoss(Broker):
    """Asks all peer brokers for all of their routes when the link to one of them is lost."""

    def on_lost(self, peer: Peer, reason: str) -> None:
        super().on_lost(peer, reason)
        for other in self.peers.values():
            if other is not peer and other.wire is not None:
                other.subscription = self.Subscription(other.broker_id, self.limits)
                self._subscribe(other)


BROKEN: Final[tuple[type[Broker], ...]] = (
    AppliesRemovalsOfOtherHomes,
    KeepsLogPositionAcrossInstances,
    RelaysOthersRoutes,
    ForgetsTheSweep,
    RevealsAtOnce,
    UsesRoutesOfLostLinks,
    CountsAPartAsTheWhole,
    KeepsBeatenConnections,
    TrustsItsClockAlone,
    GivesUpDialling,
    PassesOnHearsay,
    NeverMarks,
    SkipsWhatTheLogHasLost,
    ForwardsForPeerBrokers,
    SendsACopyForEachRoute,
    ForgetsRequestsOfLostLinks,
    ReadsAllAnewWithEachLoss,
)
"""Each is one mistake in a broker."""


def catches(kind: type[Broker], seed: int) -> bool:
    """Return whether a run shows that brokers are broken like this."""
    return bool(checked_run(seed, kind)[2])


def caught(job: tuple[int, int]) -> tuple[int, bool]:
    """Return that for a broker of `BROKEN`, by its number, and a seed."""
    kind, seed = job
    return kind, catches(BROKEN[kind], seed)
