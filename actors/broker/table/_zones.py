"""The other zones in a broker: their groups, in a table of their own, and the choice of a zone.

A *group* stands for the routes of a zone that are alike but for the tags that name one of them. It
is a route entry as that of a peer broker's destination, and its home broker is the one at the other
end of the gateway link. It is looked up only if the own zone has no route that can take a request.
What is measured belongs to all groups of a service in the zone.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Final

from ....protocol import AddressError
from ....protocol.broker import (
    COUNT_KEY,
    Entry,
    Key,
    Query,
    RouteAdd,
    RouteRemove,
    RouteText,
    RoutingTable,
    TagList,
    TagSet,
    Update,
    WellKnownKey,
    parse_id,
    shard_hash,
)
from ....protocol.cluster import FOLDED_KEY
from ._group import GroupRoute
from ._peers import RESERVED_SERVICES
from ._remote import AnyRoute, PeerRoutes, RemoteKind, RemoteRoute
from ._selector import Ask
from ._services import Services

__all__ = ["GROUPS_FULL", "ZONE_FULL", "Zones"]

GROUPS_FULL: Final = "the table has as many groups of other zones as it may"
ZONE_FULL: Final = "its zone has told as many groups as a zone may"
_RESERVED_NAME: Final = "its service name is reserved"
_OTHER_HOME: Final = "another broker has told it"
_NO_COUNT: Final = "it does not say for how many routes it stands"

MAX_WEIGHED: Final = 256
"""Most queries with remembered shares of their groups; then all are forgotten."""
MAX_COUNTS: Final = 1024
"""Most counts of groups that are remembered as numbers; the least recently used is forgotten."""
MAX_COUNT: Final = 2**31 - 1
"""Most routes that a group may stand for."""

_DIGITS: Final = 10
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE: Final = int(WellKnownKey.SERVICE_NAME)
_FOLDED: Final = (FOLDED_KEY, "1")

Groups = tuple[Entry[RemoteRoute], ...]


class Zones:
    """The groups of all zones but the own one.

    Args:
        limit: See `BrokerOptions.max_groups`.
        services: The counts of services.

    Attributes:
        known: The brokers at the other ends of gateway links that this broker has dialled, by id.
        table: The groups; hidden or swept by broker, as the routes of peer brokers are.
        refused: Groups that were not added as there were too many, since the start.
        random: Returns a random number, 0 or more and less than 1.
    """

    def __init__(self, limit: int, services: Services) -> None:
        self._limit = limit
        self._services = services
        self.known: dict[bytes, PeerRoutes] = {}
        self.table: RoutingTable[RemoteRoute] = RoutingTable()
        self.refused = 0
        self.random: Callable[[], float] = random.random
        self._folded = 0
        # By query, its groups and the sums of their counts up to each.
        self._weighed: dict[Query, tuple[Groups, list[int]]] = {}

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.table)

    # --- what gateways tell -------------------------------------------------------------------

    def room_for(self, peer: PeerRoutes) -> int:
        """Return how many more groups a gateway may tell."""
        return max(0, int(min(self._limit - len(self.table.ids), peer.most - peer.count)))

    def most_of(self, peer: PeerRoutes) -> int:
        """Return how many groups a gateway may tell if no other has told any."""
        return int(min(self._limit, peer.most))

    def add(self, peer: PeerRoutes, route: RouteAdd) -> str:
        """Add a group, or replace it.

        Returns:
            Why it was not added, in a few fixed words; empty if it was, or was known already.
        """
        if route.broker_id != peer.broker_id:
            return _OTHER_HOME
        text = route.text
        name = text.service_name
        if name.startswith(RESERVED_SERVICES):
            return _RESERVED_NAME
        count, others = _parts_of(text)
        if not count:
            return _NO_COUNT
        table, number = self.table, _number(route.route_id, peer)
        known = number in table.ids
        if not known:
            full = len(table.ids) >= self._limit
            if full or peer.count >= peer.most:
                self.refused += 1
                return GROUPS_FULL if full else ZONE_FULL
        shared = peer.services.get(name) or self._shared(peer, name)
        rest = table.rest_of(others)
        if route.timestamp != peer.told_at:
            peer.told_at = route.timestamp
        # Hundreds are told at once, with one timestamp: they share the number.
        made = GroupRoute(number, shared.kind, rest, peer.told_at, count)
        if known:
            update = table.put(made, now=made.timestamp)
            if not update.applied:
                return ""
            if update.previous is not None:
                self._let_go(peer, update.previous.target)
        else:
            table.put_new(made)
        if not shared.routes:
            peer.services[name] = shared
        shared.routes += 1
        peer.count += 1
        peer.told += count
        self._services.joined_elsewhere(shared.service)
        if _FOLDED in rest.tags:
            self._folded += 1
            peer.folded += 1
        return ""

    def _shared(self, peer: PeerRoutes, name: str) -> RemoteKind:
        """Make what the groups of a service in a zone have in common."""
        kind = self.table.kind_of_service(peer.broker_id, name)
        kind.shared = shared = RemoteKind(peer, kind, self._services.of(name))
        return shared

    def remove(self, peer: PeerRoutes, route: RouteRemove) -> bool:
        """Remove a group; return whether it was there."""
        update = self.table.remove(
            _number(route.route_id, peer),
            route.timestamp,
            broker_id=peer.broker_id,
            now=route.timestamp,
            remember=False,
        )
        return self._gone(peer, (update,)) > 0

    def sweep(self, peer: PeerRoutes, limit: int) -> int:
        """Remove groups that a gateway has not told in its round; return how many."""
        return self._gone(peer, self.table.sweep(peer.broker_id, limit))

    def drop(self, peer: PeerRoutes, limit: int) -> int:
        """Remove groups of a gateway; return how many."""
        return self._gone(peer, self.table.drop(peer.broker_id, limit))

    def _gone(self, peer: PeerRoutes, updates: Sequence[Update[RemoteRoute]]) -> int:
        left = [update.previous.target for update in updates if update.previous is not None]
        for route in left:
            self._let_go(peer, route)
        return len(left)

    def _let_go(self, peer: PeerRoutes, route: RemoteRoute) -> None:
        """Count that a group has left, or is replaced."""
        if not isinstance(route, GroupRoute):
            raise AssertionError("a route as a group")  # noqa: TRY004
        shared = route.shared
        peer.count -= 1
        peer.told -= int(route.weight)
        if _FOLDED in route.rest.tags:
            self._folded -= 1
            peer.folded -= 1
        shared.routes -= 1
        if not shared.routes:
            del peer.services[route.kind.service_name]
        shared.left += route.requests
        self._services.left_elsewhere(shared.service, route.requests)

    # --- look-up --------------------------------------------------------------------------------

    def zones(self) -> dict[str, PeerRoutes]:
        """Return the gateway that is used for each zone: of several, one that is not busy.

        One without a link is none, also if nothing of it is hidden: after a bad frame it is away
        for a while.
        """
        found: dict[str, PeerRoutes] = {}
        for peer in self.known.values():
            if peer.address is None or peer.suspended:
                continue
            if peer.zone not in found or found[peer.zone].busy:
                found[peer.zone] = peer
        return found

    def rows(self, zone: str) -> Iterator[RemoteRoute]:
        """Yield the groups of a zone, those that are hidden too; of all zones if it is empty.

        Those of each gateway are as of the first of them.
        """
        for peer in tuple(self.known.values()):
            if zone in ("", peer.zone):
                for entry in self.table.of(peer.broker_id):
                    yield entry.target

    def find(self, ask: Ask, refused: Collection[AnyRoute] = ()) -> Sequence[RemoteRoute]:
        """Return what may take a request: groups, or each a whole zone for a request by RouteId.

        Args:
            ask: The query.
            refused: The routes that have rejected it: those of a gateway stand for its zone.
        """
        found = self._found(ask.query) if self.known else ()
        if not refused or not found:
            return found
        peers = {each.peer for each in refused if isinstance(each, RemoteRoute)}
        return [each for each in found if each.peer not in peers]

    def takes(self, ask: Ask) -> bool:
        """Whether a zone may have a destination for a request."""
        return bool(self.find(ask))

    def _found(self, query: Query) -> Sequence[RemoteRoute]:
        ids = [value for key, value in query if key == _ROUTE_ID]
        if ids:
            return tuple(self._by_id(ids[0] or ""))
        parts = {peer.without for peer in self.known.values()}
        if len(parts) == 1:
            return self._groups(query, next(iter(parts)))
        # Zones that are configured differently: of each those that it concerns.
        return [
            each
            for without in parts
            for each in self._groups(query, without)
            if each.peer.without == without
        ]

    def _by_id(self, text: str) -> Iterator[RemoteRoute]:
        """Yield the zones that may have a route id, the nearest first."""
        try:
            route_id = parse_id(text)
        except AddressError:
            return
        for peer in sorted(self.zones().values(), key=_distance):
            if peer.may_have(route_id):
                yield peer.every

    def _groups(self, query: Query, without: frozenset[Key]) -> Sequence[RemoteRoute]:
        """Return the groups of a query, without the keys that groups lack."""
        rest = query
        if any(key in without for key, _ in query):
            rest = frozenset([tag for tag in query if tag[0] not in without])
            if not rest:
                return tuple(peer.every for peer in self.zones().values() if peer.count)
        table = self.table
        found: Sequence[Entry[RemoteRoute]] = table.candidates(rest)
        if self._folded:
            names = frozenset([tag for tag in rest if tag[0] == _SERVICE])
            if len(names) < len(rest):
                found = (*found, *table.candidates(names | {_FOLDED}))
        return found  # type: ignore[return-value]

    # --- choice ---------------------------------------------------------------------------------

    def pick(self, ask: Ask, refused: Collection[AnyRoute] = ()) -> RemoteRoute | None:
        """Choose a zone, and a group of it, for a request that is not for several.

        Args:
            ask: The query.
            refused: The routes that have rejected it.

        Returns:
            The group; `None` if no zone may have a destination.
        """
        found = self.find(ask, refused)
        if not found:
            return None
        if ask.everywhere:
            found = _of_one_zone(found, ask.shard or shard_hash(ask.sticky))
        return self._pick(ask.query, found)

    def _pick(self, query: Query, found: Sequence[RemoteRoute]) -> RemoteRoute:
        """Choose by count, and of two by latency and load."""
        if len(found) == 1:
            return found[0]
        sums = self._sums(query, found)
        one, other = (
            found[bisect(sums, int(self.random() * sums[-1]))],
            found[bisect(sums, int(self.random() * sums[-1]))],
        )
        best = min(one, other, key=_load)
        if best.busy:
            return next((each for each in found if not each.busy), best)
        return best

    def _sums(self, query: Query, found: Sequence[RemoteRoute]) -> list[int]:
        """Return the sums of the counts up to each group."""
        kept = self._weighed.get(query)
        # The table makes a new tuple when a matching group comes, goes or has another count.
        if kept is not None and kept[0] is found:
            return kept[1]
        sums = list(accumulate(max(1, int(each.weight)) for each in found))
        if isinstance(found, tuple):
            if len(self._weighed) >= MAX_WEIGHED:
                self._weighed.clear()
            self._weighed[query] = found, sums
        return sums

    def divide(
        self, ask: Ask, view: Callable[[TagSet], bool] | None = None
    ) -> list[tuple[PeerRoutes, int]]:
        """Return a gateway of each zone with a match for a multicast, and the number of routes.

        Args:
            ask: The query.
            view: Whether a group with some tags counts; by default each does.
        """
        counts: dict[str, dict[PeerRoutes, int]] = {}
        for route in self.find(ask):
            if view is not None and not view(frozenset(route.common)):
                continue
            peer = route.peer
            zone = counts.setdefault(peer.zone, {})
            zone[peer] = zone.get(peer, 0) + max(1, int(route.weight))
        # Two gateways of one zone tell the same routes.
        return [min(zone.items(), key=lambda each: each[0].busy) for zone in counts.values()]


def _parts_of(text: RouteText) -> tuple[int, TagList]:
    """Return for how many routes a group stands, 0 if it does not say so, and its other tags."""
    if text.count is not None:
        return _count(text.count), text.rest
    tags = text.tags
    counts = [value for key, value in tags if key == COUNT_KEY]
    return _count(counts[0] if counts else None), tuple([t for t in tags if t[0] != COUNT_KEY])


@lru_cache(MAX_COUNTS)
def _count(value: str | None) -> int:
    """Read the number of routes of a group; 0 if it is none."""
    if not value or len(value) > _DIGITS or not (value.isascii() and value.isdecimal()):
        return 0
    count = int(value)
    return count if count <= MAX_COUNT else 0


def _number(route_id: bytes, peer: PeerRoutes) -> bytes:
    """Return the id of a group in the table.

    Two gateways of one zone tell it with the same id. And none can choose an id that is that of a
    group of another gateway: it does not know their masks.
    """
    return (int.from_bytes(route_id) ^ peer.mask).to_bytes(16)


def _distance(peer: PeerRoutes) -> tuple[bool, float]:
    return peer.busy, peer.every.latency


def _load(route: RemoteRoute) -> float:
    return route.latency * (route.outstanding + 1) / max(1.0, route.weight)


def _of_one_zone(found: Sequence[RemoteRoute], key: int) -> Sequence[RemoteRoute]:
    """Return the groups of the zone that a key belongs to, by rendezvous hashing."""
    zones = {each.peer.zone for each in found}
    if len(zones) == 1:
        return found
    mark = key.to_bytes(8)
    best = max(zones, key=lambda zone: blake2b(mark + zone.encode(), digest_size=8).digest())
    return [each for each in found if each.peer.zone == best]
