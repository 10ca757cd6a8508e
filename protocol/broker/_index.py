"""The tag index: which routes carry all of these tags.

One posting for each tag that any route carries: the dense numbers of its routes, as a
roaring bitmap. A query is the AND of its postings, from the smallest on. Most tags of a big
table are carried by one route only (every route has a RouteId), and for those the number
itself is the posting, at a tenth of a bitmap's memory. No empty posting is ever kept, and
the numbers of removed routes are used again.

Nearly every query names a service, so the routes of a service get numbers side by side, in
blocks that grow with the service. Its bitmap then has few of the containers, of 65,536 numbers
each, that the table's numbers are spread over, and an AND with it visits no others. Blocks have
room for further routes of their service: a third of the numbers, at most, have no route yet.

Answers are kept. A query's answer can only change when a route that carries all of the
query's tags comes or goes, and every such route carries, in particular, the rarest of
them. So an answer is filed under that one tag, its *watch*. A change of the table looks at
the answers filed under the tags of the route that changed, and drops those with a query that
the route matches: exactly the ones that are no longer valid. Routes that share no watched tag
with a query never touch its answer, and there is no version to compare on a look-up.

A route may be indexed before it is there (*hidden*): it has its number and its place in the
postings, and answers leave it out. To reveal it is to take one number out of one bitmap. All routes
of a tag are hidden, or revealed, by one operation on two bitmaps.

A RouteId that is the route's own needs no posting: it leads to the number by a dictionary of ids.
In a list of tags `OWN_ID` stands for it, so that routes with equal tags share one list.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyroaring import BitMap

from .._errors import AddressError
from ._ids import format_id, parse_id
from ._keys import WellKnownKey
from ._tags import Tag, TagList, normal_form

if TYPE_CHECKING:
    from ._query import Query

__all__ = [
    "HOME_KEY",
    "MAX_CACHED_MATCHES",
    "MAX_CACHED_QUERIES",
    "MAX_CACHED_TAGS",
    "MAX_ISOLATING",
    "OWN_ID",
    "CachedAnswer",
    "Matches",
    "TagIndex",
    "TagIndexStatistics",
]

MAX_CACHED_QUERIES: Final = 4096
"""Most answers that are kept, by default; at the limit the oldest is dropped."""

MAX_CACHED_MATCHES: Final = 4_000_000
"""Most routes that the kept answers name, all together, by default. A route in an answer
takes at most two bytes, and eight more once its candidates have been asked for."""

MAX_CACHED_TAGS: Final = 16
"""An answer to a query of more tags is not kept."""

_MAX_BLOCK: Final = 4096
"""Most numbers in a block: a sixteenth of a container, so that few blocks are in two."""

Matches: TypeAlias = BitMap
"""Dense numbers of routes. The receiver must not change it."""

MAX_ISOLATING: Final = 10_000
"""Most tags by which queries are isolated; then the oldest isolates none, until it is asked for."""

HOME_KEY: Final = -1
"""The key of the tag that says to which broker a route is connected. No wire has it, and `tags`
leaves it out."""

OWN_ID: Final[Tag] = (-2, None)
"""Stands for the RouteId of the route itself among its tags."""

_SIZE: Final = attrgetter("size")
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE: Final = int(WellKnownKey.SERVICE_NAME)
_NEVER: Final[Tag] = (int(WellKnownKey.NO_TAG), None)
# No route carries it in normal form: what is filed under it stays right for ever.


class _Posting:
    """The routes of a tag that more than one route carries, or has carried.

    Attributes:
        tag: The tag.
        numbers: The numbers of the routes.
        size: How many there are. A bitmap has to visit all its containers to count them.
        free: Numbers for further routes of the tag, if it is a service: those of routes that have
            left. With those of the block, there are at most `size`.
        next: The first number of its block that no route has had; the block ends before `end`.
        end: See `next`.
    """

    __slots__ = ("end", "free", "next", "numbers", "size", "tag")

    def __init__(self, tag: Tag, first: int, second: int) -> None:
        self.tag: Final = tag
        self.numbers: Final = BitMap((first, second))
        self.size = 2
        self.free: list[int] | None = None
        self.next = self.end = 0

    @property
    def spare(self) -> int:
        """How many numbers it has for further routes."""
        return self.end - self.next + len(self.free or ())


class CachedAnswer:
    """A kept answer.

    Attributes:
        query: The query.
        matches: The numbers of the routes that carry all tags asked for.
        weight: How many there are.
        candidates: What the index's owner makes of `matches`, and keeps as long; `None`
            until it has.
        near: Those of them that it prefers, likewise: all if it prefers none; empty until then.
        mixed: Whether some of them are of another kind than the owner's usual ones.
        several: Whether there are several.
    """

    __slots__ = ("candidates", "matches", "mixed", "near", "query", "several", "watch", "weight")

    def __init__(self, query: Query, matches: Matches, watch: Tag) -> None:
        self.query: Final = query
        self.matches: Final = matches
        self.weight: Final = len(matches)
        self.several: Final = self.weight > 1
        self.watch: Final = watch
        self.candidates: tuple[Any, ...] | None = None
        self.near: tuple[Any, ...] = ()
        self.mixed = False


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


class TagIndex:
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
        self._max_queries = max_cached_queries
        self._max_matches = max_cached_matches
        self._postings: dict[Tag, int | _Posting] = {}
        self.ids: Final[dict[bytes, int]] = {}
        self._tags: list[TagList | None] = []
        self._names: list[bytes] = []  # by number; empty without an id
        self._named = 0  # routes with `OWN_ID`
        self._unnamed: set[int] = set()  # routes with an id and without `OWN_ID`
        self._homes = 0  # postings of home brokers
        self._free: list[int] = []  # of no service
        self._routes = 0
        self._hidden: BitMap = BitMap()
        self._isolating: dict[Tag, None] = {}
        self.answers: Final[OrderedDict[Query, CachedAnswer]] = OrderedDict()
        self._watched: dict[Tag, set[CachedAnswer]] = {}
        self._cached_matches = 0
        self._computed = 0
        self._invalidated = 0
        self._evicted = 0

    # --- routes -----------------------------------------------------------------------------

    def add(self, tags: Iterable[Tag]) -> int:
        """Index a route and return its number.

        Args:
            tags: Any tags; their normal form is indexed.
        """
        return self.add_known(self.known(normal_form(tags)))

    def add_known(self, tags: TagList, route_id: bytes = b"") -> int:
        """Index a route and return its number.

        Args:
            tags: Tags as `known` returns them, which are kept as they are.
            route_id: What `OWN_ID` stands for, 16 bytes; no other route has it. Empty: the route
                has no id, and `OWN_ID` is not among the tags.
        """
        number = self._take_number(tags)
        self._names[number] = route_id
        if route_id:
            self.ids[route_id] = number
        self._link(number, tags)
        self._routes += 1
        return number

    def known(self, tags: TagList) -> TagList:
        """Return equal tags, made of the objects that the index has already.

        A tag object is kept once then, however many routes carry an equal one.

        Args:
            tags: Tags in normal form; `OWN_ID` may be among them, and one of a home broker.
        """
        found: list[Tag] = []
        for tag in tags:
            posting = self._postings.get(tag)
            if isinstance(posting, _Posting):
                found.append(posting.tag)
            elif posting is None:
                found.append(tag)
            else:
                found.append(next(each for each in self._indexed(posting) if each == tag))
        return tuple(found)

    def replace(self, number: int, tags: Iterable[Tag]) -> None:
        """Give a route other tags, and none of those it had.

        Raises:
            KeyError: There is no such route.
        """
        self.replace_known(number, self.known(normal_form(tags)))

    def replace_known(self, number: int, tags: TagList) -> None:
        """Give a route other tags, as `known` returns them; its id stays.

        Raises:
            KeyError: There is no such route.
        """
        if self._indexed(number) is tags:
            self._changed(self._carried(number))
            return
        self._unlink(number)
        self._link(number, tags)

    def remove(self, number: int) -> None:
        """Remove a route; its number will be used again.

        Raises:
            KeyError: There is no such route.
        """
        tags = self._indexed(number)
        self._unlink(number)
        self._hidden.discard(number)
        if self._names[number]:
            del self.ids[self._names[number]]
        self._tags[number], self._names[number] = None, b""
        self._routes -= 1
        service = self._service_of(tags)
        if service is None or service.spare >= service.size:
            self._free.append(number)
        elif service.free is None:
            service.free = [number]
        else:
            service.free.append(number)

    def came(self, number: int) -> None:
        """Make a route the last one of `ids`."""
        route_id = self._names[number]
        del self.ids[route_id]
        self.ids[route_id] = number

    def hide(self, number: int) -> None:
        """Leave a route out of all answers, until it is revealed.

        Raises:
            KeyError: There is no such route.
        """
        carried = self._carried(number)
        self._hidden.add(number)
        self._changed(carried)

    def reveal(self, number: int) -> None:
        """Include a hidden route in answers; its place in the postings stays.

        Raises:
            KeyError: There is no such route.
        """
        carried = self._carried(number)
        self._hidden.discard(number)
        self._changed(carried)

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

    def numbers_of(self, tag: Tag) -> Matches:
        """Return the numbers of the routes that carry a tag, hidden ones too.

        It is no copy: it has the changes to come as well.
        """
        posting = self._posting_of(tag)
        if posting is None:
            return BitMap()
        return BitMap((posting,)) if isinstance(posting, int) else posting.numbers

    @property
    def hiding(self) -> bool:
        """Whether there are hidden routes."""
        return bool(self._hidden)

    def hides(self, query: Query) -> bool:
        """Whether a hidden route carries all tags of a query. The answer is not cached."""
        return bool(self._hidden and self._matching(query)[0] & self._hidden)

    def tags(self, number: int) -> TagList:
        """Return a route's tags in normal form.

        Raises:
            KeyError: There is no such route.
        """
        return tuple([tag for tag in self._carried(number) if tag[0] != HOME_KEY])

    def _indexed(self, number: int) -> TagList:
        """Return a route's tags as they were added.

        Raises:
            KeyError: There is no such route.
        """
        tags = self._tags[number] if 0 <= number < len(self._tags) else None
        if tags is None:
            raise KeyError(number)
        return tags

    def _carried(self, number: int) -> TagList:
        """Return all tags by which a route is found.

        Raises:
            KeyError: There is no such route.
        """
        tags, route_id = self._indexed(number), self._names[number]
        if not route_id:
            return tags
        own = (_ROUTE_ID, format_id(route_id))
        return tuple([own if tag is OWN_ID else tag for tag in tags])

    def _service_of(self, tags: TagList) -> _Posting | None:
        """Return the posting of the service that tags name, if it has had two routes at once."""
        for tag in tags:
            if tag[0] == _SERVICE:
                posting = self._postings.get(tag)
                return None if isinstance(posting, int) else posting
        return None

    def _take_number(self, tags: TagList) -> int:
        """Return a number for a new route: close to those of its service, if one is free there."""
        service = self._service_of(tags)
        if service is not None:
            if service.free:
                return service.free.pop()
            if service.next < service.end:
                service.next += 1
                return service.next - 1
        if self._free:
            return self._free.pop()
        first = len(self._tags)
        end = first + 1
        if service is not None:
            end = first + max(1, min(service.size // 2, _MAX_BLOCK))
            service.next, service.end = first + 1, end
        self._tags.extend([None] * (end - first))
        self._names.extend([b""] * (end - first))
        return first

    def _link(self, number: int, tags: TagList) -> None:
        postings = self._postings
        unnamed = bool(self._names[number])
        for tag in tags:
            posting = postings.get(tag)
            if isinstance(posting, _Posting):
                posting.numbers.add(number)
                posting.size += 1
            elif tag is OWN_ID:
                self._named += 1
                unnamed = False
            elif posting is None:
                postings[tag] = number
                self._homes += tag[0] == HOME_KEY
            else:
                postings[tag] = _Posting(tag, posting, number)
        self._tags[number] = tags
        if unnamed:
            self._unnamed.add(number)
        if self._watched:
            self._changed(self._carried(number))

    def _unlink(self, number: int) -> None:
        postings = self._postings
        tags = self._indexed(number)
        if self._watched:
            self._changed(self._carried(number))
        if self._unnamed:
            self._unnamed.discard(number)
        for tag in tags:
            if tag is OWN_ID:
                self._named -= 1
                continue
            posting = postings[tag]
            if not isinstance(posting, int):
                posting.numbers.discard(number)
                posting.size -= 1
                if posting.spare > posting.size:
                    if posting.free:
                        self._free.append(posting.free.pop())
                    else:
                        posting.end -= 1
                        self._free.append(posting.end)
                if posting.size:
                    continue
            del postings[tag]
            self._homes -= tag[0] == HOME_KEY

    def _posting_of(self, tag: Tag) -> int | _Posting | None:
        """Return the posting of a tag; for a RouteId one that has the route of that id as well."""
        posting, own = self._postings.get(tag), self._own_number(tag)
        if not own:
            return posting
        if posting is None:
            return own[0]
        # Others claim the id of that route.
        found = _Posting(tag, own[0], own[0])
        found.numbers.update((posting,) if isinstance(posting, int) else posting.numbers)
        found.size = len(found.numbers)
        return found

    def _own_number(self, tag: Tag) -> tuple[int, ...]:
        """Return the number of the route that has a RouteId for its own, or none.

        It takes as many steps either way.
        """
        if tag[0] != _ROUTE_ID or tag[1] is None:
            return ()
        try:
            number = self.ids.get(parse_id(tag[1]), -1)
        except AddressError:
            return ()
        return () if number < 0 or number in self._unnamed else (number,)

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
            self._keep(answer)
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
        found: list[_Posting] = []
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
            if isinstance(posting, _Posting):
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

    def _keep(self, answer: CachedAnswer) -> None:
        weight = answer.weight
        if (
            len(answer.query) > MAX_CACHED_TAGS
            or weight > self._max_matches
            or not self._max_queries
        ):
            return
        answers = self.answers
        while (
            len(answers) >= self._max_queries or self._cached_matches + weight > self._max_matches
        ):
            _, oldest = answers.popitem(last=False)
            self._forget(oldest)
            self._evicted += 1
        answers[answer.query] = answer
        self._cached_matches += weight
        watching = self._watched.get(answer.watch)
        if watching is None:
            self._watched[answer.watch] = {answer}
        else:
            watching.add(answer)

    def _forget(self, answer: CachedAnswer) -> None:
        """Undo what `_keep` did, but for the entry in the table of answers."""
        self._cached_matches -= answer.weight
        watching = self._watched[answer.watch]
        watching.discard(answer)
        if not watching:
            del self._watched[answer.watch]

    def _changed(self, carried: TagList) -> None:
        """Drop the answers to every query that a route with these tags matches."""
        watched = self._watched
        watching = [each for tag in carried if tag in watched for each in watched[tag]]
        if not watching:
            return
        found = frozenset(carried)
        for answer in watching:
            if answer.query <= found:
                self._drop(answer)

    def _changed_all(self, numbers: Matches) -> None:
        """Drop the answers to every query that one of these routes may match."""
        for tag in tuple(self._watched):
            if self.numbers_of(tag).intersect(numbers):
                for answer in tuple(self._watched[tag]):
                    self._drop(answer)

    def _drop(self, answer: CachedAnswer) -> None:
        del self.answers[answer.query]
        self._forget(answer)
        self._invalidated += 1

    # --- the whole --------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._routes

    def statistics(self) -> TagIndexStatistics:
        """Return the index's figures at this moment."""
        return TagIndexStatistics(
            routes=len(self),
            tags=len(self._postings) - self._homes + self._named,
            numbers=len(self._tags),
            cached_queries=len(self.answers),
            cached_matches=self._cached_matches,
            computed=self._computed,
            invalidated=self._invalidated,
            evicted=self._evicted,
            hidden=len(self._hidden),
        )
