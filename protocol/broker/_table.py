"""The routing table: route ids to routes, found by tags, changed by timestamps.

Section Routing Table: "Updates to the routing table will only be applied if the table
entry's timestamp is older than the updates' timestamp." A removal leaves a tombstone, so
that a late ROUTE_ADD cannot bring a route back. Tombstones are bounded in time and number.

Routes that are *expected* are in the index and in no answer, until they are added.

The table reads no clock: `now` is an argument, in milliseconds since the Unix epoch like
the timestamps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final, Generic, TypeVar

from ._index import MAX_CACHED_MATCHES, MAX_CACHED_QUERIES, TagIndex, TagIndexStatistics
from ._query import Query
from ._reader import QueryReader
from ._snapshot_format import SnapshotRoute
from ._tags import Tag, TagList, normal_form, with_default_tags

__all__ = [
    "MAX_TOMBSTONES",
    "TOMBSTONE_LIFETIME",
    "Entry",
    "Expected",
    "RoutingTable",
    "RoutingTableStatistics",
    "Update",
]

TOMBSTONE_LIFETIME: Final = 600_000
"""Time for which a removal is remembered, in milliseconds, by default. It has to be longer than a
ROUTE_ADD may be under way between brokers."""

MAX_TOMBSTONES: Final = 100_000
"""Most removals that are remembered, by default; at the limit the oldest is forgotten."""

Target = TypeVar("Target")


@dataclass(frozen=True, slots=True, eq=False)
class Entry(Generic[Target]):
    """One registration of a route. Two registrations are never equal.

    Attributes:
        route_id: 16 bytes.
        broker_id: 16 bytes: the broker the destination is connected to.
        service_name: The route's name.
        tags: Its tags in normal form, the default tags included.
        timestamp: Time of the registration, in milliseconds since the Unix epoch.
        target: Whatever the table's owner reaches the destination by.
        number: Its dense number, which another route may get once this one is gone.
    """

    route_id: bytes
    broker_id: bytes
    service_name: str
    tags: TagList
    timestamp: int
    target: Target
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """A route that is known of and not there yet: nothing is routed to it.

    Attributes:
        route_id: 16 bytes.
        broker_id: 16 bytes: the broker it was connected to.
        service_name: The route's name.
        tags: Its tags in normal form, the default tags included.
        timestamp: Time of the registration, in milliseconds since the Unix epoch.
        weight: Its share of the requests where a method goes by weight.
        number: Its dense number, which it keeps when it comes.
    """

    route_id: bytes
    broker_id: bytes
    service_name: str
    tags: TagList
    timestamp: int
    weight: float
    number: int


@dataclass(frozen=True, slots=True)
class Update(Generic[Target]):
    """The result of an update.

    Attributes:
        applied: Whether it changed the table; if not, it was not newer than what the
            table knows.
        entry: The route's entry now; `None` if it has none.
        previous: The entry that an applied update replaced or removed, if there was one.
    """

    applied: bool
    entry: Entry[Target] | None
    previous: Entry[Target] | None


@dataclass(frozen=True, slots=True)
class RoutingTableStatistics:
    """A routing table at one moment.

    Attributes:
        routes: Number of routes.
        tombstones: Number of removals that are remembered.
        applied: Number of updates applied since the start.
        stale: Number of updates that were not newer and not applied.
        tombstones_expired: Number of removals forgotten because of their age.
        tombstones_evicted: Number of removals forgotten because of their number.
        index: The tag index.
        expected: Number of routes that are expected and not registered.
    """

    routes: int
    tombstones: int
    applied: int
    stale: int
    tombstones_expired: int
    tombstones_evicted: int
    index: TagIndexStatistics
    expected: int = 0


class RoutingTable(Generic[Target]):
    """Routes by id and by tags.

    Not safe for use by several threads at once.

    Attributes:
        queries: Reads and remembers raw queries, for `candidates` and `pick`.
        answers: The kept answers by query, for reading only. Their `candidates`, once made, are
            those of `candidates`.

    Args:
        tombstone_lifetime: See `TOMBSTONE_LIFETIME`, in milliseconds.
        max_tombstones: See `MAX_TOMBSTONES`.
        max_cached_queries: See `MAX_CACHED_QUERIES`.
        max_cached_matches: See `MAX_CACHED_MATCHES`.
    """

    def __init__(
        self,
        *,
        tombstone_lifetime: int = TOMBSTONE_LIFETIME,
        max_tombstones: int = MAX_TOMBSTONES,
        max_cached_queries: int = MAX_CACHED_QUERIES,
        max_cached_matches: int = MAX_CACHED_MATCHES,
    ) -> None:
        self.queries: Final = QueryReader(max_cached_queries)
        self._index = TagIndex(
            max_cached_queries=max_cached_queries, max_cached_matches=max_cached_matches
        )
        self.answers: Final = self._index.answers
        self._lifetime = tombstone_lifetime
        self._max_tombstones = max_tombstones
        self._routes: dict[bytes, Entry[Target]] = {}
        self._entries: list[Entry[Target] | None] = []
        # Indexed, and hidden; in the order they were expected.
        self._expected: dict[bytes, Expected] = {}
        # The same of routes that `forget_expected` keeps.
        self._lasting: dict[bytes, Expected] = {}
        # Route id to (timestamp of the removal, when to forget it), oldest removal first.
        self._tombstones: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._applied = 0
        self._stale = 0
        self._expired = 0
        self._evicted = 0

    # --- updates ----------------------------------------------------------------------------

    def next_timestamp(self, route_id: bytes, now: int) -> int:
        """Return a timestamp that is newer than all the table knows of a route.

        For the updates a broker itself makes. A client that connects again within the
        same millisecond, or after the clock was set back, must still replace its route.
        """
        return max(now, self._known_timestamp(route_id) + 1)

    def add(
        self,
        route_id: bytes,
        broker_id: bytes,
        service_name: str,
        tags: TagList,
        timestamp: int,
        target: Target,
        *,
        now: int,
    ) -> Update[Target]:
        """Add a route or replace it, if the timestamp is newer than what the table knows.

        Args:
            route_id: 16 bytes.
            broker_id: 16 bytes.
            service_name: The route's name.
            tags: The tags it came with; ServiceName and RouteId are added if absent.
            timestamp: Of the update, in milliseconds since the Unix epoch.
            target: Whatever the destination is reached by.
            now: The time, in milliseconds since the Unix epoch.
        """
        self.expire(now)
        previous = self._routes.get(route_id)
        if timestamp <= self._known_timestamp(route_id):
            # Emitting ROUTE_ADD Frames: "Frames will be ignored if the information in the routing
            # table has a newer timestamp than the ROUTE_ADD frame."
            self._stale += 1
            return Update(applied=False, entry=previous, previous=None)
        # Default Tags: "These tags will be automatically added so that each tag can be routed to
        # via ServiceName or RouteId."
        tags = with_default_tags(tags, service_name, route_id)
        if previous is None:
            number = self._place(route_id, tags)
        else:
            # Routing Table: "The route table MUST not allow duplicate Route Id entries."
            number = previous.number
            self._index.replace(number, tags)
        entry = Entry(
            route_id,
            broker_id,
            service_name,
            self._index.tags(number),
            timestamp,
            target,
            number,
        )
        self._routes[route_id] = entry
        self._entries[number] = entry
        self._tombstones.pop(route_id, None)
        self._applied += 1
        return Update(applied=True, entry=entry, previous=previous)

    def _place(self, route_id: bytes, tags: TagList) -> int:
        """Return the number of a new route, which is in the index from then on."""
        expected = self._pop_expected(route_id) if self._expected or self._lasting else None
        if expected is None:
            return self._add_to_index(tags)
        number = expected.number
        if frozenset(normal_form(tags)) != frozenset(expected.tags):
            self._index.replace(number, tags)
        self._index.reveal(number)
        return number

    def _add_to_index(self, tags: TagList) -> int:
        """Index a new route, and return its number, for which there is a place then."""
        number = self._index.add(tags)
        missing = number + 1 - len(self._entries)
        if missing > 0:
            self._entries.extend([None] * missing)
        return number

    def remove(self, route_id: bytes, timestamp: int, *, now: int) -> Update[Target]:
        """Remove a route if the timestamp is newer than what the table knows of it.

        The removal of a route the table does not have is remembered just as well: its
        ROUTE_ADD may come later.
        """
        self.expire(now)
        previous = self._routes.get(route_id)
        if timestamp <= self._known_timestamp(route_id):
            # Emitting ROUTE_REMOVE Frames: "Brokers that receive this frame MUST remove the
            # indicated front from their Route table if ROUTE_REMOVE frame's timestamp is newer than
            # the route table's timestamp."
            self._stale += 1
            return Update(applied=False, entry=previous, previous=None)
        if previous is not None:
            self._index.remove(previous.number)
            self._entries[previous.number] = None
            del self._routes[route_id]
        self._bury(route_id, timestamp, now)
        self._applied += 1
        return Update(applied=True, entry=None, previous=previous)

    def discard(self, entry: Entry[Target], *, now: int) -> bool:
        """Remove this registration and no other, as when its connection has closed.

        Returns:
            Whether it was still in the table. One that was replaced is not, and what
            replaced it stays.
        """
        if self._routes.get(entry.route_id) is not entry:
            return False
        return self.remove(
            entry.route_id, self.next_timestamp(entry.route_id, now), now=now
        ).applied

    # --- routes that are expected -------------------------------------------------------------

    def expect(self, route: SnapshotRoute, *, lasting: bool = False) -> bool:
        """Index a route before it is registered, to save the work at registration.

        Queries do not find it until then, whatever its tags; `expects` does.

        Args:
            route: The route. A registration with an older timestamp is accepted all the same.
            lasting: Whether only `forget` removes it, and not `forget_expected`.

        Returns:
            False if the route is registered or expected already; nothing is changed then.
        """
        route_id = route.route_id
        if route_id in self._routes or self.is_expected(route_id):
            return False
        number = self._add_to_index(with_default_tags(route.tags, route.service, route_id))
        self._index.hide(number)
        (self._lasting if lasting else self._expected)[route_id] = Expected(
            route_id,
            route.broker_id,
            route.service,
            self._index.tags(number),
            route.timestamp,
            route.weight,
            number,
        )
        return True

    def expects(self, query: Query) -> bool:
        """Whether a route that carries all tags of a query is expected."""
        return self._index.hides(query)

    def expected(self) -> Iterator[Expected]:
        """Iterate over the expected routes, the longest expected first, then the lasting ones."""
        return chain(self._expected.values(), self._lasting.values())

    @property
    def expecting(self) -> int:
        """Number of routes that are expected."""
        return len(self._expected) + len(self._lasting)

    def is_expected(self, route_id: bytes) -> bool:
        """Whether a route is expected."""
        return route_id in self._expected or route_id in self._lasting

    def forget_expected(self, limit: int) -> int:
        """Remove expected routes that are not lasting, the longest expected first.

        Args:
            limit: Most that are forgotten now; each takes as long as the removal of a route.

        Returns:
            How many were.
        """
        forgotten = list(islice(self._expected.values(), limit))
        for each in forgotten:
            del self._expected[each.route_id]
            self._index.remove(each.number)
        return len(forgotten)

    def forget(self, route_id: bytes) -> bool:
        """Remove one expected route; return False if it is not expected."""
        expected = self._pop_expected(route_id)
        if expected is None:
            return False
        self._index.remove(expected.number)
        return True

    def _pop_expected(self, route_id: bytes) -> Expected | None:
        return self._expected.pop(route_id, None) or self._lasting.pop(route_id, None)

    def expire(self, now: int) -> int:
        """Remove expired tombstones, and return their number.

        Every update does this; call it now and then where updates are rare.
        """
        tombstones = self._tombstones
        before = len(tombstones)
        while tombstones:
            _, until = next(iter(tombstones.values()))
            if until > now:
                break
            tombstones.popitem(last=False)
        self._expired += before - len(tombstones)
        return before - len(tombstones)

    def _known_timestamp(self, route_id: bytes) -> int:
        """Return the newest timestamp known of a route, living or dead; -1 if none is."""
        entry = self._routes.get(route_id)
        if entry is not None:
            return entry.timestamp
        tombstone = self._tombstones.get(route_id)
        return -1 if tombstone is None else tombstone[0]

    def _bury(self, route_id: bytes, timestamp: int, now: int) -> None:
        tombstones = self._tombstones
        tombstones[route_id] = (timestamp, now + self._lifetime)
        tombstones.move_to_end(route_id)
        if len(tombstones) > self._max_tombstones:
            tombstones.popitem(last=False)
            self._evicted += 1

    # --- look-up ----------------------------------------------------------------------------

    def isolate(self, tags: Iterable[Tag]) -> None:
        """Isolate queries with one of these tags; see `TagIndex.isolate`."""
        self._index.isolate(tags)

    def candidates(self, query: Query) -> tuple[Entry[Target], ...]:
        """Return the routes that carry all tags of a query; repeated, at the cost of one look-up.

        Their order stays as long as the tuple does. After a change that matters to the
        query the tuple is made anew, in time proportional to its length: where thousands
        of routes match and come and go all the time, `pick` is the better choice.
        """
        answer = self.answers.get(query)
        if answer is not None and answer.candidates is not None:
            return answer.candidates
        answer = self._index.answer(query)
        entries = self._entries
        made: tuple[Any, ...] = tuple([entries[number] for number in answer.matches])
        answer.candidates = made
        return made

    def count(self, query: Query) -> int:
        """Return how many routes carry all tags of a query."""
        return self._index.answer(query).weight

    def pick(self, query: Query, turn: int) -> Entry[Target] | None:
        """Return one of the routes that carry all tags of a query; `None` if there is none.

        Args:
            query: What to look for.
            turn: Any number from 0 on. Turns that follow one another take the candidates
                in their order, round and round.
        """
        matches = self._index.resolve(query)
        return self._entries[matches[turn % len(matches)]] if matches else None

    def get(self, route_id: bytes) -> Entry[Target] | None:
        """Return a route's entry; `None` if the table has none."""
        return self._routes.get(route_id)

    def __contains__(self, route_id: bytes) -> bool:
        return route_id in self._routes

    def __iter__(self) -> Iterator[Entry[Target]]:
        return iter(self._routes.values())

    def __len__(self) -> int:
        return len(self._routes)

    def statistics(self) -> RoutingTableStatistics:
        """Return the table's figures at this moment."""
        return RoutingTableStatistics(
            routes=len(self._routes),
            tombstones=len(self._tombstones),
            applied=self._applied,
            stale=self._stale,
            tombstones_expired=self._expired,
            tombstones_evicted=self._evicted,
            index=self._index.statistics(),
            expected=self.expecting,
        )
