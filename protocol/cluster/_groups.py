"""The routes of a zone in groups: what brokers of other zones are told of them.

A *group* is the routes of a zone that are alike but for the tags that name one destination. Another
zone knows the group, and the number of its routes, so what it is told does not grow with the
clients. Each group is a ROUTE_ADD in a log of its own, which is read as the log of own routes is.

A group is told when its first route joins, when its last one leaves, and when the number has
doubled or halved since it was told. Changes are gathered, as many clients come and go together.

The number of groups is bounded. Beyond, groups of a service are *folded* into one that has none of
their tags, so that requests still find the zone; they are told by themselves when there is room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha1
from math import inf
from typing import Final, TypeAlias

from ..broker import (
    COUNT_KEY,
    BrokerFrameError,
    Dialect,
    Key,
    RouteAdd,
    RouteRemove,
    Tag,
    TagList,
    WellKnownKey,
    null_last,
    serialize_tags,
    with_default_tags,
)
from ._route_log import RouteLog

__all__ = [
    "FOLDED_KEY",
    "GROUPS_ROUTE",
    "RouteGroups",
    "RouteGroupsStatistics",
    "group_id",
]

GROUPS_ROUTE: Final = "onward.cluster.groups"
"""The route by which a broker subscribes to the groups of another zone."""

FOLDED_KEY: Final = "onward.folded"
"""The tag of a group, with the value 1, that has routes with any other tags."""

NAMESPACE: Final = bytes.fromhex("9f0c6f2e5d0b4c538f0e6a4b7c1d2e3f")
"""The name space of the route ids of groups."""

_ALWAYS_WITHOUT: Final[frozenset[Key]] = frozenset(
    {
        int(WellKnownKey.NO_TAG),
        int(WellKnownKey.SERVICE_NAME),
        int(WellKnownKey.ROUTE_ID),
        int(WellKnownKey.INSTANCE_NAME),
        COUNT_KEY,
        FOLDED_KEY,
    }
)

_MAX_REMEMBERED: Final = 1024
"""Lists of tags of which it is remembered to which group they lead; beyond, all are forgotten."""

_Group: TypeAlias = tuple[str, TagList]
"""Service and tags; each tag once, in a fixed order."""


def group_id(zone: str, service: str, tags: TagList) -> bytes:
    """Return the route id of a group: the same at all brokers of a zone.

    It is a UUID of version 5 (RFC 9562). The name is the zone and the service, each as UTF-8 with
    its length in 2 bytes before it, and the tags as a frame has them.

    Args:
        zone: The zone.
        service: The service name.
        tags: Each tag once; numbers before texts, by key and value, one without a value last.

    Raises:
        BrokerFrameError: The tags cannot be written.
    """
    name = bytearray(NAMESPACE)
    for text in (zone, service):
        data = text.encode()
        name += len(data).to_bytes(2) + data
    name += serialize_tags(tags, Dialect.SPECIFICATION)
    made = bytearray(sha1(name, usedforsecurity=False).digest()[:16])
    made[6] = made[6] & 0x0F | 0x50
    made[8] = made[8] & 0x3F | 0x80
    return bytes(made)


@dataclass(slots=True)
class _Count:
    """The routes of a group, and what was told of it.

    Attributes:
        routes: Number of its routes.
        folded: Number of those that belong to groups that are folded into it.
        told: Number that was told; 0 if the group is not known to others.
        told_folded: Whether it was told as one that others are folded into.
        route_id: Its route id, from when it is told for the first time.
    """

    routes: int = 0
    folded: int = 0
    told: int = 0
    told_folded: bool = False
    route_id: bytes = b""

    @property
    def is_old(self) -> bool:
        """Whether what was told has to be told anew."""
        routes, told = self.routes, self.told
        if routes and told:
            return routes >= 2 * told or 2 * routes <= told or self.told_folded != (self.folded > 0)
        return routes != told


@dataclass(frozen=True, slots=True)
class RouteGroupsStatistics:
    """The groups of a zone at one moment.

    Attributes:
        routes: Number of routes in them.
        groups: Number of groups that are told.
        folded: Number of groups that are folded into another one of their service.
        untold: Number of groups that are not told: there is no room, or no frame can hold them.
        changes: Number of changes that were told since the start.
        separate: Number of groups with tags that have a place of their own, by `max_groups`.
        reached: How often a group was folded, or not told, since the start.
    """

    routes: int
    groups: int
    folded: int
    untold: int
    changes: int
    separate: int = 0
    reached: int = 0


class RouteGroups:
    """The groups of the routes of a zone, told by one broker of it.

    Args:
        zone: The zone.
        log: Where they are told: a log with this broker's id that has nothing else. Its limits say
            how many groups there may be (`max_groups`), and for how long changes are gathered
            (`zone_gather`).
        without: Keys of tags that groups do not have, beside RouteId and InstanceName.
    """

    def __init__(self, zone: str, log: RouteLog, *, without: Iterable[Key] = ()) -> None:
        self.zone: Final = zone
        self.log: Final = log
        self._without = _ALWAYS_WITHOUT.union(without)
        # Many routes have the same tags but for those that a caller may leave out.
        self._remembered: dict[TagList, TagList] = {}
        self._groups: dict[_Group, _Count] = {}
        # Groups that have tags and routes and are told by themselves, and those that are folded.
        self._separate = 0
        self._folded: dict[_Group, int] = {}
        # Groups of which something is to be told, in the order that this came up.
        self._changed: dict[_Group, None] = {}
        self._untold: dict[_Group, None] = {}
        self._gather_until: float | None = None
        self._timestamp = 0
        self._routes = self._changes = self._reached = 0

    def tags_of(self, tags: TagList) -> TagList:
        """Return the tags of the group that a route with these tags belongs to."""
        found = self._remembered.get(tags)
        if found is None:
            without = self._without
            kept = {tag for tag in tags if tag[0] not in without}
            found = tuple(sorted(kept, key=_order))
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[tags] = found
        return found

    # --- routes that join and leave ---------------------------------------------------------

    def joined(self, service: str, tags: TagList) -> None:
        """Count a route that is there, wherever in the zone it is.

        Args:
            service: Its service name.
            tags: Its tags. Those that groups never have may be left out.
        """
        group = (service, self.tags_of(tags))
        self._routes += 1
        if group in self._folded:
            self._fold(group, 1)
            return
        count = self._groups.get(group)
        if group[1] and (count is None or not count.routes):
            if self._separate >= self.log.limits.max_groups:
                self._reached += 1
                self._fold(group, 1)
                return
            self._separate += 1
        self._change(group, 1)

    def left(self, service: str, tags: TagList) -> None:
        """Count a route out that had joined with the same service and tags.

        Raises:
            ValueError: There is none in its group. Nothing has changed.
        """
        group = (service, self.tags_of(tags))
        if group in self._folded:
            self._fold(group, -1)
        else:
            count = self._groups.get(group)
            if count is None or count.routes == count.folded:
                raise ValueError("a route leaves a group that it has not joined")
            self._change(group, -1)
            if group[1] and not count.routes:
                self._separate -= 1
        self._routes -= 1

    def _change(self, group: _Group, by: int) -> None:
        count = self._groups.get(group)
        if count is None:
            count = self._groups[group] = _Count()
        count.routes += by
        self._note(group, count)

    def _note(self, group: _Group, count: _Count) -> None:
        if count.is_old:
            self._changed[group] = None
        elif not count.routes:
            # It has come and gone before it was told.
            del self._groups[group]
            self._changed.pop(group, None)
            self._untold.pop(group, None)

    def _fold(self, group: _Group, by: int) -> None:
        """Count routes of a group into the one of its service that has no tags."""
        routes = self._folded.get(group, 0) + by
        if routes:
            self._folded[group] = routes
        else:
            del self._folded[group]
        plain: _Group = (group[0], ())
        count = self._groups.get(plain)
        if count is None:
            count = self._groups[plain] = _Count()
        count.routes += by
        count.folded += by
        self._note(plain, count)

    def _unfold(self) -> None:
        """Count the group that was folded first by itself."""
        group, routes = next(iter(self._folded.items()))
        self._fold(group, -routes)
        self._separate += 1
        self._change(group, routes)

    # --- what is told -------------------------------------------------------------------------

    def get_timer(self) -> float:
        """Return when `due` has to be called; `-inf` is now, `inf` not before a route changes."""
        if not self._changed and not self._has_room():
            return inf
        return -inf if self._gather_until is None else self._gather_until

    def _has_room(self) -> bool:
        return bool(self._folded) and self._separate < self.log.limits.max_groups

    def due(self, now: float, clock: int, *, limit: int = 500) -> int:
        """Write what has changed into the log, once it was gathered.

        Args:
            now: The time, in seconds of the caller's clock.
            clock: The time, in milliseconds since the Unix epoch.
            limit: Groups of which something is told in this turn; `get_timer` says whether more
                are left.

        Returns:
            The number of changes that were written.
        """
        if self.get_timer() == inf:
            return 0
        if self._gather_until is None:
            self._gather_until = now + self.log.limits.zone_gather
        if now < self._gather_until:
            return 0
        for _ in range(limit):
            if self._has_room():
                self._unfold()
        # All frames of a turn are about different groups.
        self._timestamp = max(clock, self._timestamp + 1)
        before = self._changes
        for group in list(self._changed)[:limit]:
            del self._changed[group]
            self._tell(group, self._groups[group])
        if not self._changed and not self._has_room():
            self._gather_until = None
        return self._changes - before

    def _tell(self, group: _Group, count: _Count) -> None:
        log = self.log
        if not count.is_old:
            return
        if not count.routes:
            log.add(RouteRemove(log.home, count.route_id, self._timestamp))
            self._changes += 1
            del self._groups[group]
            self._retry()
            return
        try:
            written = count.told > 0 or len(log) < 2 * log.limits.max_groups
            if written:
                log.add(self._frame(group, count))
        except BrokerFrameError:
            # No frame can hold its tags and those that are added.
            written = False
        if not written:
            self._reached += group not in self._untold
            self._untold[group] = None
            return
        self._untold.pop(group, None)
        count.told, count.told_folded = count.routes, count.folded > 0
        self._changes += 1

    def _retry(self) -> None:
        """Try again with the group that could not be told for longest: there is room for one."""
        if self._untold:
            group = next(iter(self._untold))
            del self._untold[group]
            self._changed[group] = None

    def _frame(self, group: _Group, count: _Count) -> RouteAdd:
        service, tags = group
        count.route_id = count.route_id or group_id(self.zone, service, tags)
        more: TagList = ((int(WellKnownKey.SERVICE_NAME), service), (COUNT_KEY, str(count.routes)))
        if count.folded:
            more += ((FOLDED_KEY, "1"),)
        tags = null_last(with_default_tags((*more, *tags), service, count.route_id))
        return RouteAdd(self.log.home, count.route_id, self._timestamp, service, tags)

    def statistics(self) -> RouteGroupsStatistics:
        """Return the figures of the groups at this moment."""
        return RouteGroupsStatistics(
            routes=self._routes,
            groups=len(self.log),
            folded=len(self._folded),
            untold=len(self._untold),
            changes=self._changes,
            separate=self._separate,
            reached=self._reached,
        )


def _order(tag: Tag) -> tuple[bool, bool, int, str, str]:
    key, value = tag
    if isinstance(key, int):
        return value is None, False, key, "", value or ""
    return value is None, True, 0, key, value or ""
