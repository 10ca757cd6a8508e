"""The tag index: which routes carry all of these tags.

A query is the AND of the postings of its tags (`_postings.py`), from the smallest on. Answers are
kept until a change of the table makes them invalid (`_answers.py`).

A route may be indexed before it is there (*hidden*): it has its number and its place in the
postings, and answers leave it out. To reveal it is to take one number out of one bitmap. All routes
of a tag are hidden, or revealed, by one operation on two bitmaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from pyroaring import BitMap

from ._answers import MAX_CACHED_MATCHES, MAX_CACHED_QUERIES, CachedAnswer, KeptAnswers, Matches
from ._keys import WellKnownKey
from ._places import IndexedRoute, TagPlaces, tags_of
from ._postings import HOME_KEY, Posting, Postings
from ._tags import Tag, TagList, normal_form

if TYPE_CHECKING:
    from ._query import Query

__all__ = ["MAX_ISOLATING", "TagIndex", "TagIndexStatistics"]

MAX_ISOLATING: Final = 10_000
"""Most tags by which queries are isolated; then the oldest isolates none, until it is asked for."""

_SIZE: Final = attrgetter("size")
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_NEVER: Final[Tag] = (int(WellKnownKey.NO_TAG), None)
# No route carries it in normal form: what is filed under it stays right for ever.


@dataclass(frozen=True, slots=True)
class TagIndexStatistics:
    """A tag index at one moment.

    Attributes:
        routes: Number of routes in the index, hidden ones included.
        tags: Number of different tags they carry. A RouteId that another route carries as well
            counts twice.
        numbers: Number of dense numbers, those without a route included: at most twice the peak of
            `routes`.
        cached_queries: Number of answers that are kept.
        cached_matches: Number of routes in kept answers, all together.
        computed: Number of answers computed since the start.
        invalidated: Number of kept answers that a change of the table dropped.
        evicted: Number of kept answers that a limit dropped.
        hidden: Number of routes that are hidden.
    """

    routes: int
    tags: int
    numbers: int
    cached_queries: int
    cached_matches: int
    computed: int
    invalidated: int
    evicted: int
    hidden: int = 0


class _Bare:
    """A route that has nothing but its tags."""

    __slots__ = ("kind", "rest", "route_id")

    def __init__(self, tags: TagList, route_id: bytes) -> None:
        self.kind: Final = TagPlaces(tags)
        self.rest: Final = None
        self.route_id: Final = route_id


class TagIndex(Postings):
    """Routes by their tags.

    Not safe for use by several threads at once.

    Attributes:
        answers: The kept answers, for reading only.
        ids: The numbers of the routes that were added with an id, for reading only.

    Args:
        max_cached_queries: See `MAX_CACHED_QUERIES`; 0 keeps no answers.
        max_cached_matches: See `MAX_CACHED_MATCHES`.
    """

    def __init__(
        self,
        *,
        max_cached_queries: int = MAX_CACHED_QUERIES,
        max_cached_matches: int = MAX_CACHED_MATCHES,
    ) -> None:
        super().__init__(KeptAnswers(max_cached_queries, max_cached_matches))
        self.answers: Final = self._kept.by_query
        self._routes = 0
        self._hidden: BitMap = BitMap()
        self._isolating: dict[Tag, None] = {}
        self._computed = 0

    # --- routes -----------------------------------------------------------------------------

    def add(self, tags: Iterable[Tag], route_id: bytes = b"") -> int:
        """Index a route and return its number.

        Args:
            tags: Any tags; their normal form is indexed.
            route_id: See `IndexedRoute`.
        """
        return self.add_route(_Bare(self.known(normal_form(tags)), route_id))

    def add_route(self, route: IndexedRoute) -> int:
        """Index a route and return its number.

        Args:
            route: The route, which is kept as it is. Its tags are as `known` returns them.
        """
        kind, rest, route_id = route.kind, route.rest, route.route_id
        dropped = self.dropped
        self._routes += 1
        if (kind.dropped != dropped and not self._find_places(kind, whole=rest is None)) or (
            rest is not None
            and rest.dropped != dropped
            and not self._find_places(rest, whole=False)
        ):
            return self._add_first(route)
        # Each of its tags has a posting; this is the usual way in a table with many routes.
        service = kind.service
        if service is not None and not service.free and service.next < service.end:
            number = service.next
            service.next = number + 1
        else:
            number = self._take_number(service)
        self.routes[number] = route
        self.ids[route_id] = number
        for posting in kind.postings:
            posting.numbers.add(number)
            posting.size += 1
        if rest is not None:
            for posting in rest.postings:
                posting.numbers.add(number)
                posting.size += 1
        self._named += 1
        if self._watched:
            self._kept.changed(self._carried(number))
        return number

    def _add_first(self, route: IndexedRoute) -> int:
        """Index a route with tags of which some have no posting yet."""
        tags, route_id = tags_of(route), route.route_id
        number = self._take_number(self._service_of(tags))
        self.routes[number] = route
        if route_id:
            self.ids[route_id] = number
        self._link(number, tags, route_id)
        if self._watched:
            self._kept.changed(self._carried(number))
        return number

    def replace(self, number: int, tags: Iterable[Tag]) -> None:
        """Give a route other tags, and none of those it had.

        Raises:
            KeyError: There is no such route.
        """
        route_id = self._route_at(number).route_id
        self.replace_route(number, _Bare(self.known(normal_form(tags)), route_id))

    def replace_route(self, number: int, route: IndexedRoute) -> None:
        """Put a route with the same id into the place of another one.

        Raises:
            KeyError: There is no such route.
        """
        tags = tags_of(route)
        if self._indexed(number) != tags:
            self._unlink(number)
            self._link(number, tags, route.route_id)
        self.routes[number] = route
        if self._watched:
            self._kept.changed(self._carried(number))

    def remove(self, number: int) -> None:
        """Remove a route; its number will be used again.

        Raises:
            KeyError: There is no such route.
        """
        route = self._route_at(number)
        self._unlink(number)
        self._hidden.discard(number)
        if route.route_id:
            del self.ids[route.route_id]
        self.routes[number] = None
        self._routes -= 1
        service = self._service_of(tags_of(route))
        if service is None or service.spare >= service.size:
            self._free.append(number)
        elif service.free is None:
            service.free = [number]
        else:
            service.free.append(number)

    def came(self, number: int) -> None:
        """Make a route the last one of `ids`."""
        route_id = self._route_at(number).route_id
        del self.ids[route_id]
        self.ids[route_id] = number

    def hide(self, number: int) -> None:
        """Leave a route out of all answers, until it is revealed.

        Raises:
            KeyError: There is no such route.
        """
        carried = self._carried(number)
        self._hidden.add(number)
        self._kept.changed(carried)

    def reveal(self, number: int) -> None:
        """Include a hidden route in answers; its place in the postings stays.

        Raises:
            KeyError: There is no such route.
        """
        carried = self._carried(number)
        self._hidden.discard(number)
        self._kept.changed(carried)

    def hide_all(self, tag: Tag) -> None:
        """Leave the routes that carry a tag out of all answers, until they are revealed."""
        numbers = self.numbers_of(tag)
        self._hidden |= numbers
        self._changed_all(numbers)

    def reveal_all(self, tag: Tag) -> None:
        """Include the routes that carry a tag in answers."""
        numbers = self.numbers_of(tag)
        self._hidden -= numbers
        self._changed_all(numbers)

    def hides(self, query: Query) -> bool:
        """Whether a hidden route carries all tags of a query. The answer is not cached."""
        return bool(self._hidden and self._matching(query)[0] & self._hidden)

    def tags(self, number: int) -> TagList:
        """Return a route's tags in normal form.

        Raises:
            KeyError: There is no such route.
        """
        return tuple([tag for tag in self._carried(number) if tag[0] != HOME_KEY])

    # --- queries ----------------------------------------------------------------------------

    def isolate(self, tags: Iterable[Tag]) -> None:
        """Isolate queries with one of these tags, which their requesters are forced to ask for.

        Such a query is answered in steps that depend on the routes with that tag only, so that the
        time of an answer does not tell which other tags there are. At most `MAX_ISOLATING` tags
        isolate.
        """
        isolating = self._isolating
        for tag in tags:
            if tag not in isolating:
                if len(isolating) >= MAX_ISOLATING:
                    del isolating[next(iter(isolating))]
                isolating[tag] = None

    def resolve(self, query: Query) -> Matches:
        """Return the numbers of the routes that carry all tags of a query.

        The result is a snapshot and must not be changed. A query without tags, which
        every route would match, is answered with no routes.
        """
        return self.answer(query).matches

    def answer(self, query: Query) -> CachedAnswer:
        """Return the answer to a query, and keep it if it is within the limits."""
        answer = self.answers.get(query)
        if answer is None:
            answer = self._compute(query)
            self._kept.keep(answer)
        return answer

    def _compute(self, query: Query) -> CachedAnswer:
        self._computed += 1
        matches, watch = self._matching(query)
        if self._hidden:
            matches = matches - self._hidden
        return CachedAnswer(query, matches, watch)

    def _matching(self, query: Query) -> tuple[Matches, Tag]:
        """Return the routes with all tags of a query, hidden ones too, and the tag to watch."""
        isolating = self._isolating
        if isolating:
            for tag in query:
                if tag in isolating:
                    return self._isolated(query, tag)
        postings = self._postings
        found: list[Posting] = []
        single: tuple[int, Tag] | None = None
        for tag in query:
            posting = self._posting_of(tag) if tag[0] == _ROUTE_ID else postings.get(tag)
            if posting is None:
                # Creating list of Routable Destinations: "All tags must have a valid index. If a
                # tag does not contain an index, then there are no routable destinations available
                # for the provided tags".
                return BitMap(), tag
            if isinstance(posting, int):
                single = (posting, tag)
            else:
                found.append(posting)
        if single is not None:
            return self._single(query, *single)
        if not found:
            return BitMap(), _NEVER
        found.sort(key=_SIZE)
        rarest = found[0]
        if len(found) == 1:
            return rarest.numbers.copy(), rarest.tag
        # Creating list of Routable Destinations: "to combine the found tag indexes to determine
        # a valid index of routable destinations".
        matches = rarest.numbers & found[1].numbers
        for posting in found[2:]:
            # Creating list of Routable Destinations: "If the index is empty, there are no valid
            # routable destinations."
            if not matches:
                break
            # In place: this bitmap is no posting, and another would have to be allocated.
            matches &= posting.numbers
        return matches, rarest.tag

    def _isolated(self, query: Query, by: Tag) -> tuple[Matches, Tag]:
        """Return the routes of a query, in the same steps for each tag that others may have."""
        matches = self.numbers_of(by).copy()
        for tag in query:
            posting = self._postings.get(tag)
            # Made also where it is not needed, as that is a step too.
            numbers = BitMap((posting,) if isinstance(posting, int) else ())
            if isinstance(posting, Posting):
                numbers = posting.numbers
            if tag[0] == _ROUTE_ID:
                matches = (matches & numbers) | (matches & BitMap(self._own_number(tag)))
            else:
                matches &= numbers
        return matches, by

    def _single(self, query: Query, number: int, watch: Tag) -> tuple[Matches, Tag]:
        # Creating list of Routable Destinations: "Only tags provided in the ADDRESS are
        # considered."
        matches = BitMap((number,)) if query.issubset(self._carried(number)) else BitMap()
        return matches, watch

    def _changed_all(self, numbers: Matches) -> None:
        """Drop the answers to every query that one of these routes may match."""
        for tag in tuple(self._watched):
            if self.numbers_of(tag).intersect(numbers):
                for answer in tuple(self._watched[tag]):
                    self._kept.drop(answer)

    # --- the whole --------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._routes

    def statistics(self) -> TagIndexStatistics:
        """Return the index's figures at this moment."""
        return TagIndexStatistics(
            routes=len(self),
            tags=len(self._postings) - self._homes + self._named,
            numbers=len(self.routes),
            cached_queries=len(self.answers),
            cached_matches=self._kept.matches,
            computed=self._computed,
            invalidated=self._kept.invalidated,
            evicted=self._kept.evicted,
            hidden=len(self._hidden),
        )
