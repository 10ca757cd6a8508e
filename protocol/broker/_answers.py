"""The answers of the tag index that are kept.

A query's answer can only change when a route that carries all of the query's tags comes or goes,
and every such route carries, in particular, the rarest of them. So an answer is filed under that
one tag, its *watch*. A change of the table looks at the answers filed under the tags of the route
that changed, and drops those with a query that the route matches: exactly the ones that are no
longer valid. Routes that share no watched tag with a query never touch its answer, and there is no
version to compare on a look-up.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyroaring import BitMap

from .._closed import close_class
from ._tags import Tag, TagList

if TYPE_CHECKING:
    from ._query import Query

__all__ = [
    "MAX_CACHED_MATCHES",
    "MAX_CACHED_QUERIES",
    "MAX_CACHED_TAGS",
    "CachedAnswer",
    "KeptAnswers",
    "Matches",
]

MAX_CACHED_QUERIES: Final = 4096
"""Most answers that are kept, by default; at the limit the oldest is dropped."""

MAX_CACHED_MATCHES: Final = 4_000_000
"""Most routes that the kept answers name, all together, by default. A route in an answer
takes at most two bytes, and eight more once its candidates have been asked for."""

MAX_CACHED_TAGS: Final = 16
"""An answer to a query of more tags is not kept."""

Matches: TypeAlias = BitMap
"""Dense numbers of routes. The receiver must not change it."""


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
        several: Whether another destination may take a request instead of a busy one: there are
            several, or the owner knows of more elsewhere.
    """

    __slots__ = ("candidates", "matches", "mixed", "near", "query", "several", "watch", "weight")

    def __init__(self, query: Query, matches: Matches, watch: Tag) -> None:
        self.query: Final = query
        self.matches: Final = matches
        self.weight: Final = len(matches)
        self.several = self.weight > 1
        self.watch: Final = watch
        self.candidates: tuple[Any, ...] | None = None
        self.near: tuple[Any, ...] = ()
        self.mixed = False


class KeptAnswers:
    """The kept answers, and those that a change of the table makes invalid.

    Attributes:
        by_query: The answers, the oldest first.
        watched: The answers by their watch.
        matches: Number of routes in the answers, all together.
        invalidated: Number of answers that a change of the table dropped.
        evicted: Number of answers that a limit dropped.

    Args:
        max_queries: See `MAX_CACHED_QUERIES`; 0 keeps no answers.
        max_matches: See `MAX_CACHED_MATCHES`.
    """

    __slots__ = (
        "_max_matches",
        "_max_queries",
        "by_query",
        "evicted",
        "invalidated",
        "matches",
        "watched",
    )

    def __init__(self, max_queries: int, max_matches: int) -> None:
        self._max_queries = max_queries
        self._max_matches = max_matches
        self.by_query: Final[OrderedDict[Query, CachedAnswer]] = OrderedDict()
        self.watched: Final[dict[Tag, set[CachedAnswer]]] = {}
        self.matches = 0
        self.invalidated = 0
        self.evicted = 0

    def keep(self, answer: CachedAnswer) -> None:
        """Keep an answer, if it is within the limits."""
        weight = answer.weight
        if (
            len(answer.query) > MAX_CACHED_TAGS
            or weight > self._max_matches
            or not self._max_queries
        ):
            return
        answers = self.by_query
        while len(answers) >= self._max_queries or self.matches + weight > self._max_matches:
            _, oldest = answers.popitem(last=False)
            self._forget(oldest)
            self.evicted += 1
        answers[answer.query] = answer
        self.matches += weight
        watching = self.watched.get(answer.watch)
        if watching is None:
            self.watched[answer.watch] = {answer}
        else:
            watching.add(answer)

    def _forget(self, answer: CachedAnswer) -> None:
        """Undo what `keep` did, but for the entry in the table of answers."""
        self.matches -= answer.weight
        watching = self.watched[answer.watch]
        watching.discard(answer)
        if not watching:
            del self.watched[answer.watch]

    def changed(self, carried: TagList) -> None:
        """Drop the answers to every query that a route with these tags matches."""
        watched = self.watched
        watching = [each for tag in carried if tag in watched for each in watched[tag]]
        if not watching:
            return
        found = frozenset(carried)
        for answer in watching:
            if answer.query <= found:
                self.drop(answer)

    def drop(self, answer: CachedAnswer) -> None:
        """Drop an answer that is no longer valid."""
        del self.by_query[answer.query]
        self._forget(answer)
        self.invalidated += 1


close_class(CachedAnswer)
