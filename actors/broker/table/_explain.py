"""An explanation of where a request would go, and why not elsewhere, for diagnosis.

Nothing is sent, and no turn of a method is used up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from ....protocol.broker import Entry, Query, RoutingTable, TagSet, format_tag
from ._remote import AnyRoute
from ._route import RouteStatistics
from ._selector import Ask

if TYPE_CHECKING:
    from ._index import TagIndexWorker

__all__ = ["Mismatch", "Resolution", "ZoneMatch", "explain"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A destination that does not carry all tags of a query.

    Attributes:
        route: The destination.
        missing: Tags of the query without an equal key at the destination, in text form.
        different: The destination's tags with another value than in the query, in text form.
    """

    route: RouteStatistics
    missing: tuple[str, ...]
    different: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ZoneMatch:
    """Another zone that may have destinations that carry the tags.

    Attributes:
        zone: Its name.
        broker: The broker of it that requests go to: its name, or its id.
        routes: How many there are, as far as that is known.
    """

    zone: str
    broker: str
    routes: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """The destinations that a request would have at one moment.

    Attributes:
        query: The query, as the value of an address of type 32.
        routing: `unicast`, `multicast` or `shard`.
        method: The method that chooses among several destinations; empty for a multicast.
        next: The destination that would be chosen; `None` if there is none, if all are chosen, if
            the choice is random, or on the first use of a sticky key.
        sticky: Whether `next` is the destination that the sticky key used before.
        first_use: Whether the sticky key has no destination, or only one that has left. The method
            then chooses when the key is used.
        matching: Destinations that carry the tags, up to the limit.
        others: Destinations that do not, those that lack the fewest tags first, up to the limit.
        matches: How many destinations carry the tags.
        routes: How many destinations there are; with a view, how many of them are here.
        expected: Whether a destination that carries the tags is expected. It gets nothing before it
            registers.
        wait: How long the request would wait without a destination, in seconds.
        zones: The other zones that may have one, up to the limit. Only a multicast goes there while
            a destination of the own zone can take it.
    """

    query: str
    routing: str
    method: str
    next: UUID | None
    sticky: bool
    first_use: bool
    matching: tuple[RouteStatistics, ...]
    others: tuple[Mismatch, ...]
    matches: int
    routes: int
    expected: bool = False
    wait: float = 0.0
    zones: tuple[ZoneMatch, ...] = ()


def explain(
    index: TagIndexWorker,
    ask: Ask,
    limit: int,
    view: Callable[[TagSet], bool] | None = None,
) -> Resolution:
    """Return where a request would go.

    Args:
        index: The tag index that would resolve it.
        ask: The query.
        limit: Most destinations of each kind in the result.
        view: Whether a destination with some tags is shown; by default each is.
    """
    query = ask.query
    candidates = index.candidates(ask)
    stuck = index.choice.stuck(ask, candidates) is not None
    # With one candidate there is nothing to choose.
    first_use = bool(ask.sticky) and not stuck and len(candidates) > 1
    chosen = None if first_use else index.preview(ask)
    others = _others(index.table, query, limit, view)
    return Resolution(
        query=ask.text,
        routing=ask.routing.name.lower(),
        method=ask.selector.method,
        next=None if chosen is None else UUID(bytes=chosen.route_id),
        sticky=stuck,
        first_use=first_use,
        matching=tuple(entry.target.row() for entry in candidates[:limit]),
        others=others,
        matches=len(candidates),
        routes=len(index.table) if view is None else len(candidates) + len(others),
        expected=index.expectations.waits(query),
        wait=index.patience(ask),
        zones=tuple(
            ZoneMatch(peer.zone, peer.label, count)
            for peer, count in index.zones.divide(ask, view)[:limit]
        ),
    )


def _others(
    table: RoutingTable[AnyRoute],
    query: Query,
    limit: int,
    view: Callable[[TagSet], bool] | None,
) -> tuple[Mismatch, ...]:
    """Return destinations that lack a tag, those that lack the fewest first."""
    near: dict[bytes, Entry[AnyRoute]] = {}
    for entry in islice(_near(table, query, limit), 10 * limit):
        if not query.issubset(entry.tags) and (view is None or view(frozenset(entry.tags))):
            near[entry.route_id] = entry
    found = sorted(near.values(), key=lambda entry: len(query.difference(entry.tags)))
    return tuple(_mismatch(entry, query) for entry in found[:limit])


def _near(table: RoutingTable[AnyRoute], query: Query, limit: int) -> Iterator[Entry[AnyRoute]]:
    """Yield destinations that carry one of the tags, rarest tag first, and then all others."""
    ones = [frozenset((tag,)) for tag in query]
    for one in sorted(ones, key=table.count):
        for turn in range(min(table.count(one), limit)):
            entry = table.pick(one, turn)
            if entry is not None:
                yield entry
    yield from table


def _mismatch(entry: Entry[AnyRoute], query: Query) -> Mismatch:
    lacking = sorted(query.difference(entry.tags), key=format_tag)
    asked = {key for key, _ in lacking}
    present = {key for key, _ in entry.tags}
    return Mismatch(
        entry.target.row(),
        tuple(format_tag(tag) for tag in lacking if tag[0] not in present),
        tuple(format_tag(tag) for tag in sorted(entry.tags, key=format_tag) if tag[0] in asked),
    )
