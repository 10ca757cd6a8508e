"""Where a request would go, and why nowhere else: for people who look for a mistake.

Nothing is sent and nobody's turn is used up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from ....protocol.broker import Entry, Query, RoutingTable, format_tag
from ._route import BrokerRoute, RouteStatistics
from ._selector import Ask

if TYPE_CHECKING:
    from ._index import TagIndexWorker

__all__ = ["Mismatch", "Resolution", "explain"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A destination that does not carry all tags asked for.

    Attributes:
        route: The destination.
        missing: Tags asked for of which it does not even have the key, as people write them.
        different: Tags it has instead of those asked for, as people write them.
    """

    route: RouteStatistics
    missing: tuple[str, ...]
    different: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resolution:
    """Where a request would go at one moment.

    Attributes:
        query: What is asked for, as the value of an address of type 32.
        routing: `unicast`, `multicast` or `shard`.
        method: What chooses among several; empty for a multicast, which does not choose.
        next: Who would be chosen; `None` if nobody, or all, if chance decides, or if the first
            use of a sticky key does.
        sticky: Whether that is because its sticky key went there before.
        first_use: Whether its sticky key has been nowhere, or only where nobody is any more, and
            the method is to choose when it is used. Until then others may have their turns.
        matching: Destinations that carry the tags, as far as there is room.
        others: Destinations that do not, the nearest first, as far as there is room.
        matches: How many carry the tags.
        routes: How many destinations there are.
        expected: Whether one that carries the tags is expected and has not come yet. Nothing goes
            to it before it has.
        wait: How long the request would wait if nobody carries the tags, in seconds.
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


def explain(index: TagIndexWorker, ask: Ask, limit: int) -> Resolution:
    """Say where a request would go.

    Args:
        index: Who would resolve it.
        ask: What it asks for.
        limit: Most destinations of each kind that are named.
    """
    query = ask.query
    candidates = index.candidates(ask)
    stuck = index.choice.stuck(ask, candidates) is not None
    # With one candidate there is nothing to choose.
    first_use = bool(ask.sticky) and not stuck and len(candidates) > 1
    chosen = None if first_use else index.preview(ask)
    return Resolution(
        query=ask.text,
        routing=ask.routing.name.lower(),
        method=ask.selector.method,
        next=None if chosen is None else chosen.destination.route_id,
        sticky=stuck,
        first_use=first_use,
        matching=tuple(entry.target.row() for entry in candidates[:limit]),
        others=_others(index.table, query, limit),
        matches=len(candidates),
        routes=len(index.table),
        expected=index.expectations.waits(query),
        wait=index.patience(ask),
    )


def _others(table: RoutingTable[BrokerRoute], query: Query, limit: int) -> tuple[Mismatch, ...]:
    """Return those that lack something, who lack least first."""
    near: dict[bytes, Entry[BrokerRoute]] = {}
    for entry in islice(_near(table, query, limit), 10 * limit):
        if not query.issubset(entry.tags):
            near[entry.route_id] = entry
    found = sorted(near.values(), key=lambda entry: len(query.difference(entry.tags)))
    return tuple(_mismatch(entry, query) for entry in found[:limit])


def _near(
    table: RoutingTable[BrokerRoute], query: Query, limit: int
) -> Iterator[Entry[BrokerRoute]]:
    """Yield destinations that carry one of the tags, the rarest first, and then any."""
    ones = [frozenset((tag,)) for tag in query]
    for one in sorted(ones, key=table.count):
        for turn in range(min(table.count(one), limit)):
            entry = table.pick(one, turn)
            if entry is not None:
                yield entry
    yield from table


def _mismatch(entry: Entry[BrokerRoute], query: Query) -> Mismatch:
    lacking = sorted(query.difference(entry.tags), key=format_tag)
    asked = {key for key, _ in lacking}
    present = {key for key, _ in entry.tags}
    return Mismatch(
        entry.target.row(),
        tuple(format_tag(tag) for tag in lacking if tag[0] not in present),
        tuple(format_tag(tag) for tag in sorted(entry.tags, key=format_tag) if tag[0] in asked),
    )
