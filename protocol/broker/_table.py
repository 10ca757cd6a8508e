"""The routing table: route ids to routes, found by tags, changed by timestamps.

Section Routing Table: "Updates to the routing table will only be applied if the table
entry's timestamp is older than the updates' timestamp." A removal leaves a tombstone, so
that a late ROUTE_ADD cannot bring a route back. Tombstones are bounded in time and number.

Routes that are *expected* are in the index and in no answer, until they are added.

An update concerns the entry of its home broker and no other; see `_homes.py`.

The table reads no clock: `now` is an argument, in milliseconds since the Unix epoch like
the timestamps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final, TypeVar

from ._answers import MAX_CACHED_MATCHES, MAX_CACHED_QUERIES, CachedAnswer
from ._entry import Entry, Expected, RouteKind, RouteKinds, TargetEntry, Update
from ._homes import HomeEntries, newest
from ._index import TagIndexStatistics
from ._places import TagPlaces
from ._query import Query
from ._reader import QueryReader
from ._snapshot_format import SnapshotRoute
from ._tags import Tag, TagList

__all__ = [
    "MAX_TOMBSTONES",
    "TOMBSTONE_LIFETIME",
    "RoutingTable",
    "RoutingTableStatistics",
]

TOMBSTONE_LIFETIME: Final = 600_000
"""Time for which a removal is remembered, in milliseconds, by default. It has to be longer than a
ROUTE_ADD may be under way between brokers."""

MAX_TOMBSTONES: Final = 100_000
"""Most removals that are remembered, by default; at the limit the oldest is forgotten."""

Target = TypeVar("Target")


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
        hidden: Number of entries that another home broker's entry hides.
    """

    routes: int
    tombstones: int
    applied: int
    stale: int
    tombstones_expired: int
    tombstones_evicted: int
    index: TagIndexStatistics
    expected: int = 0
    hidden: int = 0


class RoutingTable(HomeEntries[Target]):
    """Routes by id and by tags.

    Not safe for use by several threads at once.

    Attributes:
        queries: Reads and remembers raw queries, for `candidates` and `pick`.
        kind_of_text: Returns what a route has in common with others; see `RouteKinds.of_text`.
        answers: The kept answers by query, for reading only. Their `candidates` and `near`, once
            made, are those of `answer`.

    Args:
        tombstone_lifetime: See `TOMBSTONE_LIFETIME`, in milliseconds.
        max_tombstones: See `MAX_TOMBSTONES`.
        max_cached_queries: See `MAX_CACHED_QUERIES`.
        max_cached_matches: See `MAX_CACHED_MATCHES`.
        near: The home broker with the routes that `answer` prefers; `None` prefers none. If there
            are others among the candidates, the answer is `mixed`.
        best: Which of the entries of several home brokers for a route id hides the others; by
            default the newest.
    """

    def __init__(
        self,
        *,
        tombstone_lifetime: int = TOMBSTONE_LIFETIME,
        max_tombstones: int = MAX_TOMBSTONES,
        max_cached_queries: int = MAX_CACHED_QUERIES,
        max_cached_matches: int = MAX_CACHED_MATCHES,
        near: bytes | None = None,
        best: Callable[[Sequence[Entry[Target]]], Entry[Target]] = newest,
    ) -> None:
        super().__init__(max_cached_queries, max_cached_matches, best)
        self.queries: Final = QueryReader(max_cached_queries)
        self.answers: Final = self._index.answers
        self._kinds = RouteKinds(self._index)
        self.kind_of_text: Final = self._kinds.of_text
        self._lifetime = tombstone_lifetime
        self._max_tombstones = max_tombstones
        self._own = self._near = near
        self._elsewhere = False
        # Indexed, and hidden; in the order they were expected.
        self._expected: dict[bytes, Expected] = {}
        # The same of routes that `forget_expected` keeps.
        self._lasting: dict[bytes, Expected] = {}
        # Route id to (timestamp of the removal, when to forget it, home broker), oldest first.
        self._tombstones: OrderedDict[bytes, tuple[int, int, bytes]] = OrderedDict()
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
        entry, tombstone = self.get(route_id), self._tombstones.get(route_id)
        known = -1 if entry is None else entry.timestamp
        if tombstone is not None:
            known = max(known, tombstone[0])
        for each in self._hidden.get(route_id, ()):
            known = max(known, each.timestamp)
        return max(now, known + 1)

    def kind_of(
        self, broker_id: bytes, service_name: str, tags: TagList, route_id: bytes
    ) -> RouteKind:
        """Return what a route has in common with others; see `RouteKinds.of`."""
        return self._kinds.of(broker_id, service_name, tags, route_id)

    def kind_of_service(self, broker_id: bytes, service_name: str) -> RouteKind:
        """Return a new kind for entries with tags in two parts; see `RouteKinds.of_service`."""
        return self._kinds.of_service(broker_id, service_name)

    def rest_of(self, tags: TagList) -> TagPlaces:
        """Return the other part of the tags of such an entry; see `RouteKinds.rest_of`."""
        return self._kinds.rest_of(tags)

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
            broker_id: 16 bytes: its home broker.
            service_name: The route's name.
            tags: The tags it came with; ServiceName and RouteId are added if absent.
            timestamp: Of the update, in milliseconds since the Unix epoch.
            target: Whatever the destination is reached by.
            now: The time, in milliseconds since the Unix epoch.
        """
        kind = self._kinds.of(broker_id, service_name, tags, route_id)
        return self.put(TargetEntry(route_id, kind, timestamp, target), now=now)

    def put_new(self, entry: Entry[Target]) -> bool:
        """Add an entry as `put` does, if the table knows nothing of its route.

        Returns:
            False if it does: then nothing has changed.
        """
        route_id, broker_id = entry.route_id, entry.kind.broker_id
        if route_id in self.ids or (self._tombstones and route_id in self._tombstones):
            return False
        # As `_place` does, without the call: this runs for each route of a cluster.
        home = self._homes.get(broker_id) or self._new_home(broker_id)
        number = self._index.add_route(entry)
        if home.suspended:
            self._index.hide(number)
        home.routes += 1
        self._routes += 1
        self._applied += 1
        return True

    def put(self, entry: Entry[Target], *, now: int) -> Update[Target]:
        """Add an entry, or replace that of its home broker; see `add`.

        The first time that its home broker tells a route in a round, its timestamp may be older:
        what was told before does not count any more.
        """
        if self._tombstones:
            self.expire(now)
        route_id, kind, timestamp = entry.route_id, entry.kind, entry.timestamp
        broker_id = kind.broker_id
        home = self._homes.get(broker_id) or self._new_home(broker_id)
        there = mine = self.get(route_id) if route_id in self.ids else None
        if there is not None and there.kind.broker_id != broker_id:
            mine = self._hidden_of(route_id, broker_id)
        if mine is not None:
            known = mine.timestamp
            first = home.tell(route_id, self.number_of(mine))
            if first and (timestamp != known or mine.kind is not kind):
                known = -1
        else:
            known = self._removed_at(route_id, broker_id) if self._tombstones else -1
        if timestamp <= known:
            # Emitting ROUTE_ADD Frames: "Frames will be ignored if the information in the routing
            # table has a newer timestamp than the ROUTE_ADD frame."
            self._stale += 1
            return Update(applied=False, entry=there, previous=None)
        self._applied += 1
        if known >= 0 and mine is None:
            del self._tombstones[route_id]
        if there is None:
            self._place(entry, self._number_for(entry))
            return Update(True, entry, None)
        # Routing Table: "The route table MUST not allow duplicate Route Id entries."
        if mine is there:
            self._replace(there, entry)
        elif mine is None:
            self._hide(entry)
        else:
            self._hidden[route_id].remove(mine)
            self._hidden[route_id].append(entry)
            entry.set_shown(shown=False)
        other = self.elect(route_id)
        return Update(True, self.get(route_id), mine, other)

    def _number_for(self, entry: Entry[Target]) -> int:
        """Return the number of a new route, which is in the index from then on."""
        index, route_id = self._index, entry.route_id
        expected = self._pop_expected(route_id) if self._expected or self._lasting else None
        if expected is None:
            return index.add_route(entry)
        number = self.ids[route_id]
        index.replace_route(number, entry)
        index.reveal(number)
        index.came(number)
        return number

    # --- removals -------------------------------------------------------------------------------

    def remove(
        self,
        route_id: bytes,
        timestamp: int,
        *,
        broker_id: bytes,
        now: int,
        remember: bool = True,
    ) -> Update[Target]:
        """Remove the entry of a home broker if the timestamp is newer than what the table knows.

        The removal of an entry that the table does not have is remembered just as well: its
        ROUTE_ADD may come later.

        Args:
            route_id: 16 bytes.
            timestamp: Of the update, in milliseconds since the Unix epoch.
            broker_id: 16 bytes: the home broker.
            now: The time, in milliseconds since the Unix epoch.
            remember: Whether a tombstone is needed. Updates that come in order need none.
        """
        self.expire(now)
        mine = self.entry_of(route_id, broker_id)
        known = self._removed_at(route_id, broker_id) if mine is None else mine.timestamp
        if timestamp <= known:
            # Emitting ROUTE_REMOVE Frames: "Brokers that receive this frame MUST remove the
            # indicated front from their Route table if ROUTE_REMOVE frame's timestamp is newer than
            # the route table's timestamp."
            self._stale += 1
            return Update(applied=False, entry=self.get(route_id), previous=None)
        self._applied += 1
        if remember:
            self._bury(route_id, timestamp, now, broker_id)
        if mine is None:
            return Update(True, self.get(route_id), None)
        return self._take_out(mine)

    def discard(self, entry: Entry[Target], *, now: int) -> bool:
        """Remove this registration and no other, as when its connection has closed.

        Returns:
            Whether it was still in the table. One that was replaced is not, and what
            replaced it stays.
        """
        route_id, broker_id = entry.route_id, entry.kind.broker_id
        if self.entry_of(route_id, broker_id) is not entry:
            return False
        return self.remove(
            route_id, self.next_timestamp(route_id, now), broker_id=broker_id, now=now
        ).applied

    # --- routes that are expected -------------------------------------------------------------

    def expect(
        self, route: SnapshotRoute, *, home: bytes | None = None, lasting: bool = False
    ) -> bool:
        """Index a route before it is registered, to save the work at registration.

        Queries do not find it until then, whatever its tags; `expects` does.

        Args:
            route: The route. A registration with an older timestamp is accepted all the same.
            home: The broker it is expected at; by default the one it was connected to.
            lasting: Whether only `forget` removes it, and not `forget_expected`.

        Returns:
            False if the route is registered or expected already; nothing is changed then.
        """
        route_id = route.route_id
        if route_id in self.ids:
            return False
        kind = self._kinds.of(home or route.broker_id, route.service, route.tags, route_id)
        expected = Expected(route_id, route.broker_id, kind, route.timestamp, route.weight)
        self._index.hide(self._index.add_route(expected))
        (self._lasting if lasting else self._expected)[route_id] = expected
        return True

    def expects(self, query: Query) -> bool:
        """Whether a route that carries all tags of a query is expected, or suspended."""
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
            self._index.remove(self.ids[each.route_id])
        return len(forgotten)

    def forget(self, route_id: bytes) -> bool:
        """Remove one expected route; return False if it is not expected."""
        expected = self._pop_expected(route_id)
        if expected is None:
            return False
        self._index.remove(self.ids[route_id])
        return True

    def _pop_expected(self, route_id: bytes) -> Expected | None:
        return self._expected.pop(route_id, None) or self._lasting.pop(route_id, None)

    def expire(self, now: int) -> int:
        """Remove expired tombstones, and return their number.

        Every update does this; call it now and then where updates are rare.
        """
        tombstones = self._tombstones
        if not tombstones:
            return 0
        before = len(tombstones)
        while tombstones:
            _, until, _ = next(iter(tombstones.values()))
            if until > now:
                break
            tombstones.popitem(last=False)
        self._expired += before - len(tombstones)
        return before - len(tombstones)

    def last_change(self, route_id: bytes) -> int:
        """Return the latest timestamp known for a route, of any home broker; -1 if none is.

        That of a removal is known for as long as its tombstone is kept.
        """
        there, tombstone = self.get(route_id), self._tombstones.get(route_id)
        return max(
            -1 if there is None else there.timestamp, -1 if tombstone is None else tombstone[0]
        )

    def _removed_at(self, route_id: bytes, broker_id: bytes) -> int:
        """Return the timestamp of a home broker's removal of a route; -1 if none is remembered."""
        tombstone = self._tombstones.get(route_id)
        return tombstone[0] if tombstone is not None and tombstone[2] == broker_id else -1

    def _bury(self, route_id: bytes, timestamp: int, now: int, broker_id: bytes) -> None:
        tombstones = self._tombstones
        tombstones[route_id] = (timestamp, now + self._lifetime, broker_id)
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
        if answer is None or answer.candidates is None:
            answer = self.answer(query)
        found: tuple[Entry[Target], ...] | None = answer.candidates
        if found is None:
            raise AssertionError("an answer without its candidates")
        return found

    def answer(self, query: Query) -> CachedAnswer:
        """Return the answer to a query, with its candidates, and with those to prefer.

        The candidates of the home broker that is preferred are the first of all, and `near` has no
        others; without any, or with no others besides, it is the same tuple as `candidates`.
        """
        answer = self._index.answer(query)
        if answer.candidates is None:
            entries = self._entries
            made: tuple[Any, ...] = tuple([entries[number] for number in answer.matches])
            near = made
            if self._own is not None and self._homes.keys() != {self._own}:
                answer.mixed = any(each.kind.broker_id != self._own for each in made)
            if self._near is not None and len(self._homes) > 1:
                own = [each for each in made if each.kind.broker_id == self._near]
                if own and len(own) < len(made):
                    near = tuple(own)
                    others = [each for each in made if each.kind.broker_id != self._near]
                    made = (*near, *others)
            answer.candidates, answer.near = made, near
            answer.several = answer.weight > 1 or self._elsewhere
        return answer

    def prefer(self, broker_id: bytes | None) -> None:
        """Prefer the routes of a home broker from now on; `None` prefers none."""
        self._near = broker_id
        for answer in self.answers.values():
            answer.candidates, answer.near = None, ()

    def know_elsewhere(self, *, elsewhere: bool) -> None:
        """Set whether there may be destinations that this table does not have."""
        self._elsewhere = elsewhere
        for answer in self.answers.values():
            answer.candidates, answer.near = None, ()

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
        return self._entries[matches[turn % len(matches)]] if matches else None  # type: ignore[return-value]

    def __contains__(self, route_id: bytes) -> bool:
        return self.get(route_id) is not None

    def __iter__(self) -> Iterator[Entry[Target]]:
        found = map(self._entries.__getitem__, self.ids.values())
        return (entry for entry in found if isinstance(entry, Entry))

    def __len__(self) -> int:
        return self._routes

    def statistics(self) -> RoutingTableStatistics:
        """Return the table's figures at this moment."""
        return RoutingTableStatistics(
            routes=self._routes,
            tombstones=len(self._tombstones),
            applied=self._applied,
            stale=self._stale,
            tombstones_expired=self._expired,
            tombstones_evicted=self._evicted,
            index=self._index.statistics(),
            expected=self.expecting,
            hidden=sum(map(len, self._hidden.values())),
        )
