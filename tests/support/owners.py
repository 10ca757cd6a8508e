"""Two owners of one route id at brokers of a cluster, and the rules that let each have a place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from onward.actors.cluster._duplicate_routes import DuplicateRoutes
from onward.actors.security import Authorization
from onward.protocol.cluster import DuplicateRequest, DuplicateSearch
from onward.protocol.security import Principal, read_rules
from tests.support.clusters import Site

__all__ = ["ANN", "BOB", "REFUSED", "REPLACED", "RULES", "asks_only", "duplicates", "take_rules"]

ANN, BOB = Principal("ann", "token"), Principal("bob", "token")
RULES = """
[[rule]]
names = ["*"]
register = ["service=*"]
"""
REFUSED, REPLACED = "the rules no longer allow it", "replaced by a newer connection"
"""What an owner is told that has lost its place to another one, or to a connection of its own."""

Ask: TypeAlias = Callable[[DuplicateSearch, str, bytes, float], DuplicateRequest | None]


def take_rules(*sites: Site) -> None:
    """Give brokers the rules by which a route id has an owner."""
    for site in sites:
        site.broker.authorization = Authorization(read_rules(RULES))


def duplicates(site: Site) -> DuplicateRoutes:
    """Return the search of a broker for its own routes in other zones."""
    found = site.cluster._duplicates
    assert found is not None
    return found


def asks_only(site: Site) -> Ask:
    """Return how all brokers ask other zones if only one of them does."""
    ask = DuplicateSearch.next

    def next_of(
        search: DuplicateSearch, zone: str, salt: bytes = b"", now: float = 0.0
    ) -> DuplicateRequest | None:
        return ask(search, zone, salt, now) if search is duplicates(site).search else None

    return next_of
