"""Routes that are in two zones: which of the two connections has to end.

A destination has one connection in the whole cluster, and the newer one wins. Within a zone the
routing table shows that. Between zones ids are all that is known, and of a filter not even those
for certain. So each broker looks its *own* routes up in what other zones tell: an id that has
joined there, a filter that may have ids that were not named, and its own routes that join. What it
finds it asks that zone for, many at a time: the request is ids of 16 bytes, and the answer for each
the timestamp (8 bytes) and the home broker (16 bytes), or zeros. If the other route has the larger
timestamp, or the larger broker id if both are alike, the own connection is closed. The other zone
does the same, so one of the two is closed, and never both. A timestamp that is too far ahead counts
for nothing, as in a stream of routes: one bad clock must not own a route for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from .._words import counted
from ..broker import ID_SIZE
from ._errors import ClusterFrameError
from ._limits import ClusterLimits

__all__ = [
    "MAX_PLACES",
    "PLACES_ROUTE",
    "Beaten",
    "DuplicateSearch",
    "DuplicateSearchStatistics",
    "RoutePlace",
    "answer_places",
    "parse_places",
]

PLACES_ROUTE: Final = "onward.cluster.routes-of"
"""The route by which a broker asks another zone whether it has routes, and where."""

MAX_PLACES: Final = 1024
"""Most route ids of one request."""

_PLACE: Final = Struct(">Q16s")


@dataclass(frozen=True, slots=True, order=True)
class RoutePlace:
    """A registration of a route; of two with one route id the larger one wins.

    Attributes:
        timestamp: When it was made, in milliseconds since the Unix epoch, by the home broker.
        broker_id: 16 bytes: the home broker.
    """

    timestamp: int
    broker_id: bytes


def answer_places(data: bytes, place_of: Callable[[bytes], RoutePlace | None]) -> bytes:
    """Answer a request for the places of routes.

    Args:
        data: The request.
        place_of: Gives the place of a route by its id, if this zone has it.

    Raises:
        ClusterFrameError: It is none, or has more than `MAX_PLACES` ids.
    """
    if len(data) % ID_SIZE or not 0 < len(data) <= MAX_PLACES * ID_SIZE:
        raise ClusterFrameError(f"{counted(len(data), 'byte')} for the ids of routes")
    parts: list[bytes] = []
    for at in range(0, len(data), ID_SIZE):
        place = place_of(data[at : at + ID_SIZE])
        parts.append(_PLACE.pack(place.timestamp, place.broker_id) if place else bytes(_PLACE.size))
    return b"".join(parts)


def parse_places(data: bytes, count: int) -> list[RoutePlace | None]:
    """Read the answer to a request for the places of so many routes.

    Raises:
        ClusterFrameError: It is none.
    """
    if len(data) != count * _PLACE.size:
        size, routes = counted(len(data), "byte"), counted(count, "route")
        raise ClusterFrameError(f"{size} for the places of {routes}")
    return [RoutePlace(*found) if found[0] else None for found in _PLACE.iter_unpack(data)]


@dataclass(frozen=True, slots=True)
class Beaten:
    """An own route of which another zone has the newer registration.

    Attributes:
        route_id: Its id. Its connection has to be closed.
        place: The other registration. What registers the route here later has to be newer.
    """

    route_id: bytes
    place: RoutePlace


@dataclass(frozen=True, slots=True)
class DuplicateSearchStatistics:
    """The search for routes in two zones at one moment.

    Attributes:
        waiting: Number of ids that are to be asked for, those asked for included.
        asked: Number of ids that were asked for since the start.
        beaten: Number of own routes that were beaten.
        dropped: Number of ids that were not asked for, because of `duplicate_ids`.
        refused: Number of registrations with a timestamp that was too far ahead, by `max_ahead`.
    """

    waiting: int
    asked: int
    beaten: int
    dropped: int
    refused: int


class DuplicateSearch:
    """The own routes of a broker that other zones may have as well.

    Args:
        limits: `duplicate_ids` and `max_ahead` are used.
    """

    def __init__(self, limits: ClusterLimits | None = None) -> None:
        limits = limits or ClusterLimits()
        self._most = limits.duplicate_ids
        self._ahead = int(limits.max_ahead * 1000)
        self._waiting: dict[str, dict[bytes, None]] = {}
        self._under_way: dict[str, tuple[bytes, ...]] = {}
        self._asked = self._beaten = self._dropped = self._refused = 0

    def suspect(self, zone: str, ids: Iterable[bytes]) -> None:
        """Prepare to ask a zone for ids of own routes that it may have."""
        waiting = self._waiting.setdefault(zone, {})
        waiting.update(dict.fromkeys(ids))
        while len(waiting) > self._most:
            del waiting[next(iter(waiting))]
            self._dropped += 1

    def next(self, zone: str) -> bytes | None:
        """Return a request for a zone; `None` if there is none, or one is under way.

        `answered` or `failed` has to be called at its end.
        """
        waiting = self._waiting.get(zone)
        if not waiting or zone in self._under_way:
            return None
        ids = tuple(waiting)[:MAX_PLACES]
        for route_id in ids:
            del waiting[route_id]
        self._under_way[zone] = ids
        self._asked += len(ids)
        return b"".join(ids)

    def answered(
        self, zone: str, data: bytes, own: Callable[[bytes], RoutePlace | None], clock: int
    ) -> list[Beaten]:
        """Receive the answer to a request; return the own routes that are beaten.

        Args:
            zone: The zone that was asked.
            data: The answer.
            own: Gives the place of an own route by its id, if it is there still.
            clock: The time, in milliseconds since the Unix epoch.

        Raises:
            ClusterFrameError: It is no answer to the request, which counts as failed.
        """
        ids = self._under_way.pop(zone, ())
        found: list[Beaten] = []
        for route_id, place in zip(ids, parse_places(data, len(ids)), strict=True):
            mine = own(route_id)
            if place is None or mine is None or not mine < place:
                continue
            if place.timestamp > clock + self._ahead:
                self._refused += 1
            else:
                found.append(Beaten(route_id, place))
        self._beaten += len(found)
        return found

    def failed(self, zone: str) -> None:
        """Receive the failure of a request: its ids are asked for again."""
        self.suspect(zone, self._under_way.pop(zone, ()))

    def forget(self, zone: str) -> None:
        """Forget what was to be asked: with another link to the zone, its whole filter comes."""
        self._waiting.pop(zone, None)
        self._under_way.pop(zone, None)

    def statistics(self) -> DuplicateSearchStatistics:
        """Return the figures of the search at this moment."""
        waiting = sum(map(len, self._waiting.values())) + sum(map(len, self._under_way.values()))
        return DuplicateSearchStatistics(
            waiting=waiting,
            asked=self._asked,
            beaten=self._beaten,
            dropped=self._dropped,
            refused=self._refused,
        )
