"""A group of another zone as an entry of the table.

A zone may have as many groups as there are combinations of tags in it, so that nearly each would be
a kind of its own. So its tags are in two parts: what the groups of a service in the zone have in
common, and the rest, which groups of many services have. It has no list of tags itself.
"""

from __future__ import annotations

from typing import Final

from ....protocol.broker import RouteKind, TagList, TagPlaces, WellKnownKey, format_id
from ._remote import RemoteRoute

__all__ = ["GroupRoute"]

_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)


class GroupRoute(RemoteRoute):
    """A group of a zone, in the table of another zone.

    The groups of a service in a zone have their times and counters in common.

    Args:
        number: Its id in the table.
        kind: The first part of its tags: service and home broker.
        rest: The other part.
        timestamp: When it was told, in milliseconds since the Unix epoch.
        count: The number of its routes.

    Attributes:
        count: As given.
    """

    __slots__ = ("_rest", "count")

    def __init__(
        self, number: bytes, kind: RouteKind, rest: TagPlaces, timestamp: int, count: int
    ) -> None:
        # As its base does, without the call: there are many.
        self.route_id = number  # type: ignore[misc]
        self.kind = kind  # type: ignore[misc]
        self.times = timestamp
        self.outstanding = 0
        self.requests = 0
        self._rest: Final = rest
        self.count: Final = count

    @property
    def rest(self) -> TagPlaces:
        """The other part of its tags."""
        return self._rest

    @property
    def common(self) -> TagList:
        """Its tags without a RouteId of its own."""
        return (*self.kind.common, *self.rest.tags[:-1])

    @property
    def tags(self) -> TagList:
        """Its tags in normal form, the default tags included."""
        return (*self.common, (_ROUTE_ID, format_id(self.route_id)))

    @property
    def weight(self) -> float:
        """The number of its routes."""
        return self.count
