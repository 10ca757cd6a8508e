"""The entries of a routing table, by home broker.

The *home broker* of a route is the one that its destination is connected to. If several have an
entry for a route id, one of them is in the index: unless the table is told otherwise the one with
the largest timestamp, of equal ones that of the largest broker id. It hides the others, which are
kept beside it. A home broker out of reach is
*suspended*: its routes keep their places, and no answer has them. A home broker tells all its
routes anew in a *round*: what it has not told by the end is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, Generic, TypeVar

from ._answers import MAX_CACHED_MATCHES, MAX_CACHED_QUERIES, Matches
from ._entry import Entry, Expected, Update, home_tag
from ._index import TagIndex
from ._query import Query
from ._tags import Tag

__all__ = ["Home", "HomeEntries"]

Target = TypeVar("Target")

_RANK: Final = attrgetter("rank")


def newest(entries: Sequence[Entry[Target]]) -> Entry[Target]:
    """Return the newest of some entries of a route id."""
    return max(entries, key=_RANK)


class Home:
    """The state of a home broker in the table.

    Attributes:
        tag: The tag by which the index finds its routes.
        one: The query for that tag.
        routes: Its entries that are not hidden by others.
        hidden: The route ids of its entries that are.
        suspended: Whether it is suspended.
        untold: The routes that it has not told yet in this round; `None` without a round.
        untold_ids: The same of its hidden entries.
    """

    __slots__ = ("hidden", "one", "routes", "suspended", "tag", "untold", "untold_ids")

    def __init__(self, tag: Tag) -> None:
        self.tag: Final = tag
        self.one: Final[Query] = frozenset((tag,))
        self.routes = 0
        self.hidden: dict[bytes, None] = {}
        self.suspended = False
        self.untold: Matches | None = None
        self.untold_ids: dict[bytes, None] = {}

    def tell(self, route_id: bytes, number: int) -> bool:
        """Count a route as told; return whether it is the first time in a round."""
        if self.untold is None:
            return False
        if number < 0:
            return self.untold_ids.pop(route_id, self) is None
        first = number in self.untold
        self.untold.discard(number)
        return first


class HomeEntries(Generic[Target]):
    """The entries of all home brokers, and the index of those that are not hidden.

    Attributes:
        ids: The numbers of all routes by id, the expected ones included, for reading only.

    Args:
        max_cached_queries: See `MAX_CACHED_QUERIES`.
        max_cached_matches: See `MAX_CACHED_MATCHES`.
        best: Which of the entries of several home brokers for a route id hides the others.
    """

    def __init__(
        self,
        max_cached_queries: int = MAX_CACHED_QUERIES,
        max_cached_matches: int = MAX_CACHED_MATCHES,
        best: Callable[[Sequence[Entry[Target]]], Entry[Target]] = newest,
    ) -> None:
        self._best = best
        self._index = TagIndex(
            max_cached_queries=max_cached_queries, max_cached_matches=max_cached_matches
        )
        self.ids: Final = self._index.ids
        # By number, the expected routes included.
        self._entries: list[Entry[Target] | Expected | None] = self._index.routes
        self._routes: int = 0
        self._homes: dict[bytes, Home] = {}
        # By route id, the entries that another one hides; nearly always there is none.
        self._hidden: dict[bytes, list[Entry[Target]]] = {}

    def get(self, route_id: bytes) -> Entry[Target] | None:
        """Return a route's entry; `None` if the table has none."""
        number = self.ids.get(route_id)
        found = None if number is None else self._entries[number]
        return None if isinstance(found, Expected) else found

    def number_of(self, entry: Entry[Target]) -> int:
        """Return the dense number of an entry, which another route may get once it is gone.

        It is -1 while another entry has its place, and once it is gone. Entries do not keep it:
        there are many.
        """
        number = self.ids.get(entry.route_id, -1)
        return number if number >= 0 and self._entries[number] is entry else -1

    # --- for the table --------------------------------------------------------------------------

    def _new_home(self, broker_id: bytes) -> Home:
        home = self._homes[broker_id] = Home(home_tag(broker_id))
        return home

    def _place(self, entry: Entry[Target], number: int) -> None:
        """Count an entry of a route that the table did not have, and which is in the index."""
        home = self._homes[entry.kind.broker_id]
        if home.suspended:
            self._index.hide(number)
        entry.set_shown(shown=True)
        self._routes += 1
        home.routes += 1

    def _replace(self, old: Entry[Target], new: Entry[Target]) -> None:
        """Put an entry into the place of another one."""
        number = self.number_of(old)
        old.set_shown(shown=False)
        new.set_shown(shown=True)
        before, after = self._homes[old.kind.broker_id], self._homes[new.kind.broker_id]
        self._index.replace_route(number, new)
        before.routes -= 1
        after.routes += 1
        if before.suspended and not after.suspended:
            self._index.reveal(number)
        elif after.suspended and not before.suspended:
            self._index.hide(number)

    def _hidden_of(self, route_id: bytes, broker_id: bytes) -> Entry[Target] | None:
        """Return the hidden entry that a home broker has for a route id, if it has one."""
        for each in self._hidden.get(route_id, ()):
            if each.kind.broker_id == broker_id:
                return each
        return None

    def _hide(self, entry: Entry[Target]) -> None:
        """Keep an entry that is not in the index."""
        entry.set_shown(shown=False)
        self._hidden.setdefault(entry.route_id, []).append(entry)
        self._homes[entry.kind.broker_id].hidden[entry.route_id] = None

    def _unhide(self, entry: Entry[Target]) -> None:
        """Undo `_hide`."""
        route_id = entry.route_id
        home = self._homes[entry.kind.broker_id]
        del home.hidden[route_id]
        home.untold_ids.pop(route_id, None)
        others = self._hidden[route_id]
        others.remove(entry)
        if not others:
            del self._hidden[route_id]

    def elect(self, route_id: bytes) -> Entry[Target] | None:
        """Hide all entries of a route id but the best, as what `best` goes by has changed.

        Returns:
            The one that was shown before; `None` if it is still, or there is none.
        """
        others = self._hidden.get(route_id)
        there = self.get(route_id)
        if there is None or others is None:
            return None
        best = self._best((there, *others))
        if best is there:
            return None
        home = self._homes[there.kind.broker_id]
        if home.untold is not None and self.ids[route_id] in home.untold:
            home.untold.discard(self.ids[route_id])
            home.untold_ids[route_id] = None
        self._show(best, there)
        self._hide(there)
        return there

    def renew(self, entry: Entry[Target]) -> Update[Target]:
        """Put an entry in the place of that of its home broker, as what `best` goes by has changed.

        The timestamp is the same one, and so are the tags.

        Raises:
            KeyError: Its home broker has none.
        """
        mine = self.entry_of(entry.route_id, entry.kind.broker_id)
        if mine is None:
            raise KeyError(entry.route_id)
        if self.number_of(mine) >= 0:
            self._replace(mine, entry)
        else:
            others = self._hidden[entry.route_id]
            others[others.index(mine)] = entry
            entry.set_shown(shown=False)
        other = self.elect(entry.route_id)
        return Update(True, self.get(entry.route_id), mine, other)

    def _show(self, entry: Entry[Target], other: Entry[Target]) -> None:
        """Put a hidden entry into the place of the one that hides it."""
        home = self._homes[entry.kind.broker_id]
        untold = entry.route_id in home.untold_ids
        self._unhide(entry)
        self._replace(other, entry)
        if untold and home.untold is not None:
            home.untold.add(self.ids[entry.route_id])

    def entry_of(self, route_id: bytes, broker_id: bytes) -> Entry[Target] | None:
        """Return the entry that a home broker has for a route id, hidden or not."""
        entry = self.get(route_id)
        if entry is not None and entry.kind.broker_id != broker_id:
            return self._hidden_of(route_id, broker_id)
        return entry

    def entries_of(self, route_id: bytes) -> list[Entry[Target]]:
        """Return the entries of all home brokers for a route id, the one in the index first."""
        entry = self.get(route_id)
        return [] if entry is None else [entry, *self._hidden.get(route_id, ())]

    def _take_out(self, entry: Entry[Target]) -> Update[Target]:
        """Remove an entry; the best of those that are left is shown.

        A hidden one may have been what `best` went by: then another one is shown from now on.
        """
        route_id, number = entry.route_id, self.number_of(entry)
        if number < 0:
            self._unhide(entry)
            other = self.elect(route_id)
            return Update(True, self.get(route_id), entry, other)
        home = self._homes[entry.kind.broker_id]
        home.tell(route_id, number)
        others = self._hidden.get(route_id)
        if others is None:
            self._index.remove(number)
            entry.set_shown(shown=False)
            self._routes -= 1
            home.routes -= 1
            return Update(True, None, entry)
        best = self._best(tuple(others))
        self._show(best, entry)
        return Update(True, best, entry, best)

    # --- home brokers ---------------------------------------------------------------------------

    def suspend(self, broker_id: bytes) -> None:
        """Leave the routes of a home broker out of all answers, until it is revealed.

        That takes one operation on bitmaps, however many they are.
        """
        home = self._homes.get(broker_id) or self._new_home(broker_id)
        if not home.suspended:
            home.suspended = True
            self._index.hide_all(home.tag)

    def reveal(self, broker_id: bytes) -> None:
        """Include the routes of a home broker in answers again."""
        home = self._homes.get(broker_id)
        if home is not None and home.suspended:
            home.suspended = False
            self._index.reveal_all(home.tag)

    def is_suspended(self, broker_id: bytes) -> bool:
        """Whether a home broker is suspended."""
        home = self._homes.get(broker_id)
        return home is not None and home.suspended

    def begin_round(self, broker_id: bytes) -> None:
        """Begin a round of a home broker, which tells all its routes anew; an earlier one ends."""
        home = self._homes.get(broker_id) or self._new_home(broker_id)
        home.untold = self._index.numbers_of(home.tag).copy()
        home.untold_ids = dict(home.hidden)

    def sweep(self, broker_id: bytes, limit: int) -> list[Update[Target]]:
        """Remove entries that a home broker has not told in its round; without one, none.

        Args:
            broker_id: The home broker. The round ends once all are removed.
            limit: Most entries that are removed now.

        Returns:
            The removals; fewer than the limit: there are no more.
        """
        home = self._homes.get(broker_id)
        if home is None or home.untold is None:
            return []
        return self._sweep(home, home.untold, home.untold_ids, broker_id, limit)

    def drop(self, broker_id: bytes, limit: int) -> list[Update[Target]]:
        """Remove entries of a home broker that is gone; the last time, forget the broker.

        Args:
            broker_id: The home broker.
            limit: Most entries that are removed now.

        Returns:
            The removals; fewer than the limit: there are no more.
        """
        home = self._homes.get(broker_id)
        if home is None:
            return []
        removed = self._sweep(home, self._index.numbers_of(home.tag), home.hidden, broker_id, limit)
        if len(removed) < limit:
            del self._homes[broker_id]
        return removed

    def _sweep(
        self, home: Home, numbers: Matches, ids: dict[bytes, None], broker_id: bytes, limit: int
    ) -> list[Update[Target]]:
        """Remove entries by their numbers, and hidden ones by their ids."""
        there = (self._entries[number] for number in numbers)
        entries = list(islice((entry for entry in there if isinstance(entry, Entry)), limit))
        hidden = (each for route_id in ids for each in self._hidden[route_id])
        own = (each for each in hidden if each.kind.broker_id == broker_id)
        entries.extend(islice(own, limit - len(entries)))
        removed = [self._take_out(entry) for entry in entries]
        if len(removed) < limit:
            home.untold = None
        return removed

    def of(self, broker_id: bytes) -> list[Entry[Target]]:
        """Return the routes of a home broker, suspended or not, without hidden entries."""
        home = self._homes.get(broker_id)
        if home is None:
            return []
        entries = self._entries
        found = [entries[number] for number in self._index.numbers_of(home.tag)]
        return [entry for entry in found if isinstance(entry, Entry)]

    def count_of(self, broker_id: bytes) -> int:
        """Return how many routes a home broker has, suspended or not, without hidden entries."""
        home = self._homes.get(broker_id)
        return 0 if home is None else home.routes

    def hidden_of(self, broker_id: bytes) -> int:
        """Return how many entries of a home broker are hidden by those of others."""
        home = self._homes.get(broker_id)
        return 0 if home is None else len(home.hidden)

    def at(self, query: Query, broker_id: bytes) -> Query:
        """Return the query for those routes that a home broker has."""
        home = self._homes.get(broker_id)
        # One that has no routes is not kept for the question: it may have gone for good.
        return query | (frozenset((home_tag(broker_id),)) if home is None else home.one)
