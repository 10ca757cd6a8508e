"""Routes that are in two zones: which of the two connections has to end.

A destination has one connection in the whole cluster, and the newer one wins. Within a zone the
routing table shows that. Between zones ids are all that is known, and of a filter not even those
for certain. So each broker looks its *own* routes up in what other zones tell: an id that has
joined there, a filter that may have ids that were not named, and its own routes that join. What it
finds it asks that zone for, many at a time. If the other route has the larger timestamp, or the
larger broker id if both are alike, the own connection is closed. The other zone does the same, so
one of the two is closed, and never both. A timestamp that is too far ahead counts for nothing, as
in a stream of routes: one bad clock must not own a route for ever.

With rules a route id belongs to its principal. Of two routes that are known to be of different
principals the one of the principal that has had the id for the shorter time is closed, and its id
is remembered for a while, so that it is refused when that principal tries it again. That time is
not the timestamp: an owner that connects anew, moves within its zone or resumes a session has had
the id before. An owner that moves to another zone takes its time along: that zone has to ask for it
first. So an own route that has a newer one of its owner there, with a later time, is not closed at
once: the zone is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ..broker import NO_OWNER, bounded_since
from ._errors import ClusterFrameError
from ._limits import ClusterLimits
from ._ownership import RoutePlace, is_foreign, standing
from ._places import (
    MAX_PLACES,
    OwnedPlace,
    parse_owned_places,
    parse_places,
    salted_owner,
)

__all__ = [
    "AskLater",
    "Beaten",
    "DuplicateRequest",
    "DuplicateSearch",
    "DuplicateSearchStatistics",
    "Earlier",
]

ASK_AGAIN: Final = 1.0
"""Time after which a zone is asked again for a route id that was refused for it, in seconds."""

MOST_ASKED: Final = 4
"""Times that a zone is asked for a route that its owner has there later, a second apart. Then the
own route is closed, and since when its owner has had it is lost."""


_ANOTHER: Final = "another"
"""Any other owner than one that is compared: a text that `owner_text` does not make."""


@dataclass(frozen=True, slots=True)
class Beaten:
    """An own route of which another zone has the registration that stays.

    Attributes:
        route_id: Its id. Its connection has to be closed.
        place: The other registration. What registers the route here later has to be newer.
        foreign: Whether the other one belongs to another principal, which has had the id first.
    """

    route_id: bytes
    place: RoutePlace
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Earlier:
    """An own route that stays, and that its owner has in another zone since an earlier time.

    Attributes:
        route_id: Its id.
        since: That time, in milliseconds since the Unix epoch.
    """

    route_id: bytes
    since: int


@dataclass(frozen=True, slots=True)
class AskLater:
    """An own route that is not closed yet, as its owner has it in another zone since a later time.

    That zone has not been told the earlier time yet. It asks for it as this broker does, and then
    answers with it.

    Attributes:
        route_id: Its id, for `suspect`.
        times: How often the zone was asked for it, likewise.
        after: Time until then, in seconds.
    """

    route_id: bytes
    times: int
    after: float = ASK_AGAIN


@dataclass(frozen=True, slots=True)
class DuplicateSearchStatistics:
    """The search for routes in two zones at one moment.

    Attributes:
        waiting: Number of ids that are to be asked for, those asked for included.
        asked: Number of ids that were asked for since the start.
        beaten: Number of own routes that were beaten.
        dropped: Number of ids that were not asked for, because of `duplicate_ids`.
        overdue: Number of ids that the zone has not answered for within `duplicate_hold`.
        oldest: Time for which the oldest of those waiting has been asked for, in seconds.
        refused: Number of registrations with a timestamp that was too far ahead, by `max_ahead`.
        foreign: Number of own routes that belonged to another principal, of those `beaten`.
        taken: Number of ids that are remembered as such.
        forgotten: Number of those that were forgotten before their time, because of `taken_ids`.
    """

    waiting: int
    asked: int
    beaten: int
    dropped: int
    refused: int
    foreign: int = 0
    taken: int = 0
    forgotten: int = 0
    overdue: int = 0
    oldest: float = 0.0


class _Ask(NamedTuple):
    """A question about an id.

    Attributes:
        times: How often it was asked before without an end.
        found: The time at which it was found, in seconds.
    """

    times: int
    found: float


@dataclass(frozen=True, slots=True, eq=False)
class DuplicateRequest:
    """A request for a zone, from `DuplicateSearch.next` to its end.

    There may be links with several brokers of a zone, and the zone is asked over one of them at a
    time. So an end is that of the request, not of the zone.

    Attributes:
        zone: The zone.
        salt: Its salt; empty if it does not ask for owners.
    """

    zone: str
    salt: bytes
    _ids: dict[bytes, _Ask]

    @property
    def data(self) -> bytes:
        """The data of the request: the salt, and the ids that are asked for."""
        return b"".join((self.salt, *self._ids))


class _Taken(NamedTuple):
    """A route id of a principal of another zone, as that zone has told it last.

    Attributes:
        zone: The zone.
        salts: The salts of its answer.
        owner: The owner with them.
        at: When it was told, in seconds.
        hold: For how long it is remembered from then on, in seconds.
    """

    zone: str
    salts: bytes
    owner: bytes
    at: float
    hold: float

    @property
    def until(self) -> float:
        """Until when it is remembered, in seconds."""
        return self.at + self.hold


class DuplicateSearch:
    """The own routes of a broker that other zones may have as well.

    Args:
        limits: `duplicate_ids`, `duplicate_hold`, `taken_ids`, `taken_hold`, `longest_taken_hold`
            and `max_ahead` are used.
    """

    def __init__(self, limits: ClusterLimits | None = None) -> None:
        limits = limits or ClusterLimits()
        self._most = limits.duplicate_ids
        self._hold = limits.duplicate_hold
        self._ahead = int(limits.max_ahead * 1000)
        # By zone: the ids, by when they were found.
        self._waiting: dict[str, dict[bytes, _Ask]] = {}
        self._under_way: dict[str, DuplicateRequest] = {}
        # By when they were told last, and those of one hold by when they are forgotten.
        self._taken: dict[bytes, _Taken] = {}
        self._taken_by_hold: dict[float, dict[bytes, _Taken]] = {}
        self._most_taken = limits.taken_ids
        self._taken_hold = limits.taken_hold
        self._longest_hold = max(limits.taken_hold, limits.longest_taken_hold)
        self._asked = self._beaten = self._dropped = self._refused = 0
        self._foreign = self._forgotten = self._overdue = 0

    def suspect(self, zone: str, ids: Iterable[bytes], times: int = 0, *, now: float = 0.0) -> None:
        """Prepare to ask a zone for ids of own routes that it may have.

        Args:
            zone: The zone.
            ids: The ids.
            times: How often it was asked for them already; see `AskLater`.
            now: The time, in seconds.
        """
        waiting, new = self._waiting.setdefault(zone, {}), _Ask(times, now)
        for route_id in ids:
            known = waiting.get(route_id, new)
            waiting[route_id] = _Ask(max(times, known.times), known.found)
        self._drop_oldest(waiting)

    def _drop_oldest(self, waiting: dict[bytes, _Ask]) -> None:
        while len(waiting) > self._most:
            del waiting[next(iter(waiting))]
            self._dropped += 1

    def next(self, zone: str, salt: bytes = b"", now: float = 0.0) -> DuplicateRequest | None:
        """Return a request for a zone; `None` if there is none, or one is under way.

        `answered` or `failed` has to be called at its end, however it ends: until then the zone is
        asked for nothing else.

        Args:
            zone: The zone.
            salt: A random one of 16 bytes, to ask for the owners as well, by `OWNERS_ROUTE`.
            now: The time, in seconds.
        """
        waiting = self._waiting.get(zone, {})
        while waiting and now >= next(iter(waiting.values())).found + self._hold:
            del waiting[next(iter(waiting))]
            self._overdue += 1
        if not waiting or zone in self._under_way:
            return None
        ids = {route_id: waiting.pop(route_id) for route_id in tuple(waiting)[:MAX_PLACES]}
        request = self._under_way[zone] = DuplicateRequest(zone, salt, ids)
        self._asked += len(ids)
        return request

    def answered(
        self,
        request: DuplicateRequest,
        data: bytes,
        own: Callable[[bytes], RoutePlace | None],
        clock: int,
        now: float = 0.0,
    ) -> list[Beaten | Earlier | AskLater]:
        """Receive the answer to a request; return the own routes that it has a meaning for.

        It has none if the request was forgotten meanwhile.

        Args:
            request: The request.
            data: The answer.
            own: Gives the place of an own route by its id, if it is there still.
            clock: The time, in milliseconds since the Unix epoch.
            now: The time of the clock that `is_taken` gets, in seconds.

        Raises:
            ClusterFrameError: It is no answer to the request, which counts as failed.
        """
        zone, ids = request.zone, request._ids
        if self._under_way.get(zone) is not request:
            return []
        try:
            salts, answers = _read(data, len(ids), request.salt)
        except ClusterFrameError:
            self.failed(request)
            raise
        del self._under_way[zone]
        found: list[Beaten | Earlier | AskLater] = []
        for (route_id, ask), answer in zip(ids.items(), answers, strict=True):
            mine = own(route_id)
            if mine is None:
                self._compare_taken(zone, route_id, answer, salts, now)
            each = None if mine is None else _meaning(route_id, mine, answer, salts, ask.times)
            if answer is None or each is None:
                continue
            if answer.place.timestamp > clock + self._ahead:
                self._refused += 1
                continue
            found.append(each)
            if isinstance(each, Beaten):
                self._beaten += 1
                self._foreign += each.foreign
                if each.foreign:
                    self._take(zone, route_id, answer, salts, now)
        return found

    def _compare_taken(
        self, zone: str, route_id: bytes, answer: OwnedPlace | None, salts: bytes, now: float
    ) -> None:
        """Remember for longer that an id is taken, or forget it, as its zone says.

        So a principal that is refused again and again stays refused, and one that registers an id
        which is free again is refused once.
        """
        known = self._taken.get(route_id)
        if known is None or known.zone != zone:
            return
        if answer is None:
            self._forget(route_id)
        else:
            self._take(zone, route_id, answer, salts, now)

    def _take(
        self, zone: str, route_id: bytes, answer: OwnedPlace, salts: bytes, now: float
    ) -> None:
        """Remember an id as taken, each time for twice as long as the time before."""
        if answer.owner is None:
            return
        hold = self._taken_hold
        if route_id in self._taken:
            hold = min(2 * self._forget(route_id).hold, self._longest_hold)
        self._forget_taken(now)
        while len(self._taken) >= self._most_taken:
            self._forget(next(iter(self._taken)))
            self._forgotten += 1
        taken = self._taken[route_id] = _Taken(zone, salts, answer.owner, now, hold)
        self._taken_by_hold.setdefault(hold, {})[route_id] = taken

    def _forget(self, route_id: bytes) -> _Taken:
        """Forget that an id is taken; return what was known of it."""
        taken = self._taken.pop(route_id)
        alike = self._taken_by_hold[taken.hold]
        del alike[route_id]
        if not alike:
            del self._taken_by_hold[taken.hold]
        return taken

    def _forget_taken(self, now: float) -> None:
        """Forget ids the time of which has been over for as long as they were refused.

        Until then the next time of one is longer.
        """
        for alike in tuple(self._taken_by_hold.values()):
            # Those of one hold are in the order in which they are forgotten; holds double.
            while alike and now >= (first := next(iter(alike.values()))).until + first.hold:
                self._forget(next(iter(alike)))

    def is_taken(self, route_id: bytes, owner: str, now: float) -> bool:
        """Whether a route id is remembered as one of another principal in another zone.

        Args:
            route_id: The id.
            owner: The principal that asks for it, as `owner_text` makes it.
            now: The time, in seconds.
        """
        self._forget_taken(now)
        taken = self._taken.get(route_id)
        if taken is None or now >= taken.until:
            return False
        return salted_owner(owner, taken.salts) != taken.owner

    def ask_again(self, route_id: bytes, now: float) -> str:
        """Prepare to ask whether an id is still taken that was refused to a principal.

        Returns:
            The zone to ask; empty if it has told that within a second.
        """
        taken = self._taken.get(route_id)
        if taken is None or now < taken.at + ASK_AGAIN:
            return ""
        self.suspect(taken.zone, (route_id,), now=now)
        return taken.zone

    def taken_in(self, route_id: bytes) -> str:
        """Return the zone that has told that an id is taken; empty if none is remembered."""
        taken = self._taken.get(route_id)
        return "" if taken is None else taken.zone

    def failed(self, request: DuplicateRequest) -> None:
        """Receive the failure of a request: its ids are asked for again, and before the others.

        It means nothing if the request was forgotten meanwhile.
        """
        zone = request.zone
        if self._under_way.get(zone) is not request:
            return
        del self._under_way[zone]
        ids, later = dict(request._ids), self._waiting.get(zone, {})
        for route_id, ask in ids.items():
            again = later.pop(route_id, ask)
            ids[route_id] = _Ask(max(ask.times, again.times), ask.found)
        waiting = self._waiting[zone] = {**ids, **later}
        self._drop_oldest(waiting)

    def forget(self, zone: str) -> None:
        """Forget what was to be asked: the zone is lost, or its filter comes by its only link.

        The request that is under way is forgotten as well, and its end means nothing.
        """
        self._waiting.pop(zone, None)
        self._under_way.pop(zone, None)

    def statistics(self, now: float = 0.0) -> DuplicateSearchStatistics:
        """Return the figures of the search at this moment.

        Args:
            now: The time, in seconds.
        """
        asked = [*self._waiting.values(), *(each._ids for each in self._under_way.values())]
        found = min((next(iter(ids.values())).found for ids in asked if ids), default=now)
        return DuplicateSearchStatistics(
            waiting=sum(map(len, asked)),
            asked=self._asked,
            beaten=self._beaten,
            dropped=self._dropped,
            refused=self._refused,
            foreign=self._foreign,
            taken=len(self._taken),
            forgotten=self._forgotten,
            overdue=self._overdue,
            oldest=max(0.0, now - found),
        )


def _read(data: bytes, count: int, salt: bytes) -> tuple[bytes, list[OwnedPlace | None]]:
    """Read the answer to a request; return both salts, if it had one, and the places."""
    if salt:
        other, owned = parse_owned_places(data, count)
        return salt + other, owned
    places = parse_places(data, count)
    return b"", [None if each is None else OwnedPlace(each, None) for each in places]


def _meaning(
    route_id: bytes, mine: RoutePlace, answer: OwnedPlace | None, salts: bytes, times: int
) -> Beaten | Earlier | AskLater | None:
    """Return what an answer means for an own route; `None` if it means nothing."""
    if answer is None:
        return None
    place = answer.place
    other = replace(place, owner=_named(answer.owner, mine.owner, salts))
    foreign = is_foreign(mine, other)
    known = not foreign and None not in (mine.owner, other.owner)
    if standing((mine, other)) is mine:
        since = bounded_since(place.claim[0], mine.timestamp)
        return Earlier(route_id, since) if known and since < mine.claim[0] else None
    lacks = bounded_since(mine.claim[0], place.timestamp) < place.claim[0]
    if known and lacks and times + 1 < MOST_ASKED:
        return AskLater(route_id, times + 1)
    return Beaten(route_id, place, foreign=foreign)


def _named(owner: bytes | None, mine: str | None, salts: bytes) -> str | None:
    """Return a salted owner as the rule of owners compares it with that of an own route."""
    if owner is None:
        return None
    names = (each for each in (mine, NO_OWNER) if each is not None)
    return next((each for each in names if salted_owner(each, salts) == owner), _ANOTHER)
