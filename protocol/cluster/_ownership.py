"""The owner of a route id: which principal may have it, and which of several registrations stays.

With rules a route id belongs to its principal, and of two principals to the one that has had it
first. All that decides on it is here, for a registration, for brokers of one zone that meet, and
for two zones. A broker knows the registrations of its zone, and the suspended sessions: a session
that is suspended gets no requests, and its route id belongs to its principal still. So each broker
with rules tells its own ones to its peer brokers, as routes of a service that none can have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ..broker import NO_OWNER, RouteAdd, bounded_since

__all__ = [
    "SUSPENDED_SERVICE",
    "RoutePlace",
    "SuspendedPlaces",
    "inherited",
    "is_foreign",
    "may_take",
    "standing",
    "suspended_place",
    "zone_ids",
]

SUSPENDED_SERVICE: Final = "onward.suspended"
"""The service name of a ROUTE_ADD that tells of a suspended session. It is a reserved one: a broker
that does not know it refuses such a route as it does others of reserved names."""


@dataclass(frozen=True, slots=True, order=True)
class RoutePlace:
    """A registration of a route, or its suspended session.

    Of two with one owner, or an unknown one, the larger one stays.

    Attributes:
        timestamp: When it was made, in milliseconds since the Unix epoch, by the home broker.
        broker_id: 16 bytes: the home broker.
        owner: The owner, as `owner_text` makes it; `None` if it is not known. It is not compared.
        since: Since when the owner has had the route id, in milliseconds since the Unix epoch; 0
            for the timestamp. It is not compared.
    """

    timestamp: int
    broker_id: bytes
    owner: str | None = field(default=None, compare=False)
    since: int = field(default=0, compare=False)

    @property
    def claim(self) -> tuple[int, bytes]:
        """Its place among the routes of other owners: the smallest one stays."""
        return bounded_since(self.since, self.timestamp), self.broker_id


def is_foreign(one: RoutePlace, other: RoutePlace) -> bool:
    """Whether two registrations are known to belong to different owners."""
    return None not in (one.owner, other.owner) and one.owner != other.owner


def _first_owner(places: Iterable[RoutePlace]) -> str | None:
    """Return the owner with the earliest claim, of those known; a worker of a broker is first."""
    known = (each for each in places if each.owner is not None)
    first = min(known, key=lambda each: (each.owner != NO_OWNER, each.claim), default=None)
    return None if first is None else first.owner


def may_take(places: Iterable[RoutePlace], owner: str) -> bool:
    """Whether a principal may register a route id.

    Args:
        places: What is known of the id: its registration and its suspended sessions.
        owner: The principal, as `owner_text` makes it.
    """
    return _first_owner(places) in (None, owner)


def inherited(places: Iterable[RoutePlace], owner: str) -> int:
    """Return since when a principal that registers a route id has had it, 0 for from now on.

    Args:
        places: What is known of the id: its registration and its suspended sessions.
        owner: The principal, as `owner_text` makes it.
    """
    return min((each.claim[0] for each in places if each.owner == owner != NO_OWNER), default=0)


def standing(places: Sequence[RoutePlace]) -> RoutePlace:
    """Return the one that stays, of the places of one route id: the newest of the first owner.

    A place with an unknown owner is counted as one of the first owner.
    """
    owner = _first_owner(places)
    return max(each for each in places if owner is None or each.owner in (None, owner))


def suspended_place(route: RouteAdd) -> RoutePlace:
    """Return the place of a suspended session that a peer broker tells of."""
    owner, since = route.owned()
    return RoutePlace(route.timestamp, route.broker_id, owner, since)


class SuspendedPlaces:
    """The suspended sessions of peer brokers, by home broker.

    They follow what their home brokers tell as routes do: in a round a home broker tells all of
    its own anew.

    Attributes:
        count: How many there are.
    """

    def __init__(self) -> None:
        self._homes: dict[bytes, dict[bytes, RoutePlace]] = {}
        # Of home brokers in a round: those that were not told in it yet.
        self._untold: dict[bytes, dict[bytes, None]] = {}
        self.count = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return self.count

    def add(self, route_id: bytes, place: RoutePlace) -> bool:
        """Add one, or replace that of its home broker; return whether there was none."""
        home = self._homes.setdefault(place.broker_id, {})
        new = route_id not in home
        home[route_id] = place
        self.count += new
        if place.broker_id in self._untold:
            self._untold[place.broker_id].pop(route_id, None)
        return new

    def remove(self, route_id: bytes, broker_id: bytes) -> bool:
        """Remove that of a home broker; return whether it was there."""
        home = self._homes.get(broker_id)
        if home is None or home.pop(route_id, None) is None:
            return False
        if broker_id in self._untold:
            self._untold[broker_id].pop(route_id, None)
        self.count -= 1
        if not home:
            del self._homes[broker_id]
        return True

    def of(self, route_id: bytes) -> list[RoutePlace]:
        """Return those of a route id."""
        found = (home.get(route_id) for home in self._homes.values())
        return [each for each in found if each is not None]

    def has(self, route_id: bytes, broker_id: bytes) -> bool:
        """Whether a home broker has told of one."""
        return route_id in self._homes.get(broker_id, ())

    def ids(self) -> list[bytes]:
        """Return the route ids of all of them."""
        return [route_id for home in self._homes.values() for route_id in home]

    def begin_round(self, broker_id: bytes) -> None:
        """Begin a round of a home broker, which tells all its own anew; an earlier one ends."""
        self._untold[broker_id] = dict.fromkeys(self._homes.get(broker_id, ()))

    def sweep(self, broker_id: bytes, limit: int) -> int:
        """Remove those that a home broker has not told in its round; without one, none.

        Returns:
            How many were removed; fewer than the limit: there are no more, and the round has ended.
        """
        removed = self._remove(broker_id, self._untold.get(broker_id, {}), limit)
        if removed < limit:
            self._untold.pop(broker_id, None)
        return removed

    def drop(self, broker_id: bytes, limit: int) -> int:
        """Remove those of a home broker; return how many: fewer than the limit, there are none."""
        removed = self._remove(broker_id, self._homes.get(broker_id, {}), limit)
        if removed < limit:
            self._untold.pop(broker_id, None)
        return removed

    def _remove(self, broker_id: bytes, ids: Iterable[bytes], limit: int) -> int:
        some = list(islice(ids, limit))
        for route_id in some:
            self.remove(route_id, broker_id)
        return len(some)


def zone_ids(
    registered: Collection[bytes], suspended: Iterable[bytes], elsewhere: SuspendedPlaces
) -> list[bytes]:
    """Return all route ids of a zone, each once.

    Args:
        registered: Those of its registrations.
        suspended: Those of the suspended sessions of this broker.
        elsewhere: The suspended sessions of peer brokers.
    """
    kept = dict.fromkeys((*suspended, *elsewhere.ids()))
    return [*registered, *(each for each in kept if each not in registered)]
