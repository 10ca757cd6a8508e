"""The other zones in the tag index, and requests from and to them."""

from __future__ import annotations

from collections.abc import Callable

from ....protocol import Address
from ....protocol.broker import RouteAdd, RouteRemove
from .._exchange import Exchange
from .._options import BrokerOptions
from ._choice import Candidates
from ._joining import route_add, suspended_add
from ._peer_index import PeerIndex
from ._peers import RESERVED_SERVICES, ZoneFollower
from ._remote import PeerRoutes, PeerRouteWorker, own_route
from ._selector import Ask

__all__ = ["ZoneIndex"]


class ZoneIndex(PeerIndex):
    """A routing table of a zone, with the groups of other zones beside it.

    A request of a client goes to another zone if no destination of the own one can take it. One
    that has come by a gateway link stays in this zone.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Attributes:
        taken_elsewhere: Whether a route id is known to be another principal's in another zone, of
            the id and a principal as `owner_text` makes it; `None` without other zones.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__(options, broker_id)
        self.taken_elsewhere: Callable[[bytes, str], bool] | None = None

    # --- requests from other zones, and to them ---------------------------------------------------

    def choose_within(self, ask: Ask, exchange: Exchange | None) -> Address | None:
        """Choose a destination of the own zone, for a request of another one; see `choose`."""
        answer = self.table.answer(ask.query)
        near: Candidates = answer.near
        candidates: Candidates = (answer.candidates or ()) if ask.everywhere else near
        picked = self.choice.pick(ask, candidates, len(near)) if candidates else None
        if picked is None:
            return None
        route = candidates[picked].target
        if route.busy and not ask.everywhere:
            route = self._free(answer, picked) or route
        return route.choose(exchange)

    def divide(self, ask: Ask) -> tuple[Candidates, tuple[tuple[PeerRoutes, int], ...]]:
        """Return the destinations of a multicast; see `divide_within`.

        Of each other zone with a match there is one broker, which divides the request further.
        """
        own, peers = self.divide_within(ask)
        if self.zones.known:
            peers = (*peers, *self.zones.divide(ask))
        return own, peers

    # --- the own zone -----------------------------------------------------------------------------

    def follow_zone(self, follower: ZoneFollower | None) -> None:
        """Follow the destinations of the zone as they join and leave, and first those there are.

        Workers of reserved services are none of them.

        Args:
            follower: Told of them; `None` ends this.
        """
        self._follower = self.peers.follower = follower
        if follower is not None:
            for entry in self.entries():
                if not entry.service_name.startswith(RESERVED_SERVICES):
                    follower.joined(entry.kind, entry.route_id)

    def beaten_elsewhere(self, route_id: bytes, timestamp: int, *, foreign: bool = False) -> None:
        """End an own destination, as another zone has the one with its route id that stays.

        Args:
            route_id: The id.
            timestamp: That of the other one; one that joins here later is newer again.
            foreign: Whether the other one belongs to another principal, which has had the id first.
        """
        entry, suspended = self.own_route(route_id), self.suspended.get(route_id)
        if entry is not None:
            self.end_beaten(entry, 0 if foreign else timestamp, foreign=foreign)
        elif suspended is not None:
            self.end_suspended(suspended, foreign=foreign)

    def owned_before(self, route_id: bytes, since: int) -> None:
        """Know that the owner of an own destination has had its id in another zone before.

        Args:
            route_id: The id.
            since: Since when, in milliseconds since the Unix epoch.
        """
        entry = self.own_route(route_id) or self.suspended.get(route_id)
        if entry is not None:
            own_route(entry).owned_since = since
            suspended = self.suspended.get(route_id) is entry
            self._follow(suspended_add(entry) if suspended else route_add(entry))

    # --- their groups -----------------------------------------------------------------------------

    def gateway_joined(self, peer: PeerRoutes) -> None:
        """Add a broker of another zone, at the other end of a gateway link, without groups yet.

        Raises:
            LimitReached: The node has as many addresses as it may.
        """
        peer.gateway = True
        worker = PeerRouteWorker(peer)
        to = self.spawn(lambda: worker, mailbox=self._mailbox)
        peer.joined(to, self._cell_of, self.node.loop.time, self._options.choice.latency_decay)
        self.zones.known[peer.broker_id] = peer
        self.table.know_elsewhere(elsewhere=True)

    def gateway_left(self, peer: PeerRoutes) -> None:
        """Remove a broker of another zone, the groups of which are removed already."""
        known = self.zones.known
        if known.get(peer.broker_id) is peer:
            del known[peer.broker_id]
            self.table.know_elsewhere(elsewhere=bool(known))
        if peer.cell is not None:
            peer.cell.worker.stop()
        peer.left()

    def add_group(self, peer: PeerRoutes, route: RouteAdd) -> str:
        """Add a group, or replace it, and release what waits for it; see `Zones.add`."""
        refused = self.zones.add(peer, route)
        if not refused:
            self._zone_releases.begin()
        return refused

    def remove_group(self, peer: PeerRoutes, route: RouteRemove) -> bool:
        """Remove a group; return whether it was there."""
        return self.zones.remove(peer, route)

    def filter_changed(self) -> None:
        """Release what waits for routes that another zone has told the ids of."""
        self._zone_releases.begin()

    def suspend_gateway(self, peer: PeerRoutes) -> None:
        """Hide the groups of a broker of another zone."""
        peer.suspended = True
        self.zones.table.suspend(peer.broker_id)

    def reveal_gateway(self, peer: PeerRoutes) -> None:
        """Show the groups of a broker of another zone again, and release what waits for them."""
        peer.suspended = False
        self.zones.table.reveal(peer.broker_id)
        self._zone_releases.begin()
