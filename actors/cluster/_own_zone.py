"""The zone of a broker, as it tells brokers of other zones of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Final

from ...protocol.broker import RouteKind
from ...protocol.cluster import RouteGroups, RouteLog
from ..runtime._timer import Timer
from ._feeds import Feeds
from ._options import ClusterOptions

__all__ = ["OwnZone"]


class OwnZone:
    """The groups of a zone, which all destinations of it are counted in.

    It is a `ZoneFollower`. Its methods are called on the node's loop.

    Args:
        broker_id: The id of this broker.
        instance: When it was started, in milliseconds since the Unix epoch.
        options: The options of the cluster.
        clock: Returns the time of the node's clock, in seconds.
        later: Calls a function after a number of seconds.

    Attributes:
        groups: The groups.
        feeds: The streams of them to brokers of other zones.
    """

    def __init__(
        self,
        broker_id: bytes,
        instance: int,
        options: ClusterOptions,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        log = RouteLog(broker_id, instance, options.limits)
        self.groups: Final = RouteGroups(options.zone, log, without=options.group_keys)
        self.feeds: Final = Feeds(log, clock)
        self._clock = clock
        self._later = later
        self._slice = options.load_slice
        self._timer: Timer | None = None

    def joined(self, kind: RouteKind, route_id: bytes) -> None:
        """Count a destination that has joined a broker of the zone."""
        del route_id
        self.groups.joined(kind.service_name, kind.common)
        if self._timer is None:
            self._arm()

    def left(self, kind: RouteKind, route_id: bytes) -> None:
        """Count a destination out that has left."""
        del route_id
        self.groups.left(kind.service_name, kind.common)
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        at = self.groups.get_timer()
        if at < inf:
            self._timer = self._later(max(0.0, at - self._clock()), self._tell)

    def _tell(self) -> None:
        """Write what has changed into the log, in slices."""
        self._timer = None
        # A loop's timer may be early by less than the resolution of its clock.
        now = max(self._clock(), self.groups.get_timer())
        if self.groups.due(now, int(time.time() * 1000), limit=self._slice):
            self.feeds.wake()
        self._arm()
