"""The zone of a broker, as it tells brokers of other zones of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice
from math import inf
from typing import Final

from ...protocol.broker import RouteKind
from ...protocol.cluster import (
    FILTER_SALT_SIZE,
    ClusterFrameError,
    FilterFeed,
    FilterLog,
    RouteGroups,
    RouteLog,
)
from ..runtime._timer import Timer
from ._feeds import Feeds
from ._options import ClusterOptions

__all__ = ["FilterStream", "OwnZone"]


class OwnZone:
    """The groups of a zone and the filter of its route ids, which all its destinations are in.

    It is a `ZoneFollower`. Its methods are called on the node's loop.

    Args:
        broker_id: The id of this broker.
        instance: When it was started, in milliseconds since the Unix epoch.
        options: The options of the cluster.
        ids: Returns the ids of all routes of the zone.
        clock: Returns the time of the node's clock, in seconds.
        later: Calls a function after a number of seconds.

    Attributes:
        groups: The groups.
        filters: The filters.
        feeds: The streams of groups to brokers of other zones; filters wake by them as well.
    """

    def __init__(
        self,
        broker_id: bytes,
        instance: int,
        options: ClusterOptions,
        ids: Callable[[], list[bytes]],
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        limits = options.limits
        log = RouteLog(broker_id, instance, limits)
        self.groups: Final = RouteGroups(options.zone, log, without=options.group_keys)
        self.filters: Final = FilterLog(
            broker_id, instance, lambda: secrets.token_bytes(FILTER_SALT_SIZE), limits
        )
        self.feeds: Final = Feeds(log, clock)
        self._ids = ids
        self._clock = clock
        self._later = later
        self._slice = options.load_slice
        self._timer: Timer | None = None
        self._filter_timer: Timer | None = None
        self._building: Iterator[bytes] = iter(())
        self._arm_filter()

    def joined(self, kind: RouteKind, route_id: bytes) -> None:
        """Count a destination that has joined a broker of the zone."""
        self.groups.joined(kind.service_name, kind.common)
        self.filters.joined(route_id)
        self._changed()

    def left(self, kind: RouteKind, route_id: bytes) -> None:
        """Count a destination out that has left."""
        del route_id
        self.groups.left(kind.service_name, kind.common)
        self.filters.left()
        self._changed()

    def kept(self, route_id: bytes) -> None:
        """Keep the id of a suspended session in the filter."""
        self.filters.joined(route_id)
        self._changed()

    def kept_no_more(self) -> None:
        """See that the id of a suspended session is free, or registered again."""
        self.filters.left()
        self._changed()

    def _changed(self) -> None:
        if self._timer is None:
            self._arm()
        if self._filter_timer is None:
            self._arm_filter()
        self.feeds.wake()

    def _arm(self) -> None:
        at = self.groups.get_timer()
        if at < inf:
            self._timer = self._later(max(0.0, at - self._clock()), self._write)

    def _write(self) -> None:
        """Write what has changed into the log, in slices."""
        self._timer = None
        # A loop's timer may be early by less than the resolution of its clock.
        now = max(self._clock(), self.groups.get_timer())
        if self.groups.due(now, int(time.time() * 1000), limit=self._slice):
            self.feeds.wake()
        self._arm()

    def _arm_filter(self) -> None:
        at = self.filters.get_timer()
        if at < inf:
            self._filter_timer = self._later(max(0.0, at - self._clock()), self._build)

    def _build(self) -> None:
        """Begin a filter, or add a slice of ids to it."""
        self._filter_timer = None
        filters = self.filters
        if not filters.building:
            ids = self._ids()
            filters.begin(len(ids))
            self._building = iter(ids)
        some = list(islice(self._building, self._slice))
        filters.add(some)
        if len(some) < self._slice:
            filters.finish(self._clock())
            self.feeds.wake()
        self._arm_filter()


class FilterStream:
    """The stream of a zone's filters to one broker of another zone: at most one at a time.

    Args:
        zone: The zone.
        max_batch: Bytes of an element that the other broker prefers; `None`: as many as we do.
    """

    def __init__(self, zone: OwnZone, max_batch: int | None) -> None:
        self._zone = zone
        self._max_batch = max_batch
        self._feed: FilterFeed | None = None

    def requested(self, data: bytes) -> AsyncGenerator[bytes]:
        """Return the elements for a request.

        Raises:
            ClusterFrameError: It has data.
        """
        if data:
            raise ClusterFrameError("a request for a filter has no data")
        return self._elements()

    async def _elements(self) -> AsyncGenerator[bytes]:
        feeds = self._zone.feeds
        feed = self._feed = FilterFeed(self._zone.filters, max_batch=self._max_batch)
        while self._feed is feed:
            element = feed.next(feeds.clock())
            if element is None:
                until = feed.get_timer()
                await feeds.wait(until, wakes=until == inf)
            else:
                yield element
