"""Destinations that were there before: known of when the broker starts, and not there yet.

They are in the table's index, so that whoever comes back with the tags it had costs the index
nothing, and requests for it wait as long as any may: it was there, so it will come. Nothing is
ever sent to a destination that is only expected.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from uuid import UUID

from ....protocol.broker import Expected, Query, RoutingTable, SnapshotRoute
from ..._errors import LimitReached
from ...runtime._timer import Timer
from ._route import RouteStatistics, readable

__all__ = ["Expectations"]

_logger = logging.getLogger("onward.actors.broker")

SLICE: Final = 500
"""Most destinations that are forgotten in one go: a few milliseconds of the loop's time."""


class Expectations:
    """What a table expects, for how long, and what came of it.

    Args:
        table: Where they are indexed.
        max_routes: See `BrokerOptions.max_routes`.
        seconds: See `BrokerOptions.expected_seconds`.
        later: Calls a function after so many seconds.

    Attributes:
        joined: How many have come.
        forgotten: How many did not come in time, or made room for others.
    """

    def __init__(
        self,
        table: RoutingTable[Any],
        max_routes: int,
        seconds: float,
        later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._table = table
        self._max_routes = max_routes
        self._seconds = seconds
        self._later = later
        self._timer: Timer | None = None
        self._since = 0.0
        self._late = 0
        self.joined = 0
        self.forgotten = 0

    def expect(self, routes: Iterable[SnapshotRoute]) -> int:
        """Expect destinations, from now on; all that are expected have their time again.

        Returns:
            How many are expected that were not, and are not there.

        Raises:
            LimitReached: There are more than may be in the table; those before are expected.
            SnapshotError: What the routes are read from is damaged; those before are expected.
        """
        table, added = self._table, 0
        self._since = time.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._later(self._seconds, self._give_up)
        for route in routes:
            if len(table) + table.expecting >= self._max_routes:
                raise LimitReached("routes, there and expected", self._max_routes)
            added += table.expect(route)
        return added

    def waits(self, query: Query) -> bool:
        """Say whether one that carries the tags is expected."""
        return self._table.expecting > 0 and self._table.expects(query)

    def coming(self, route_id: bytes) -> bool:
        """Make room for a destination that is about to join.

        Returns:
            Whether it is expected: tell `came` when it has joined.
        """
        table = self._table
        if not table.expecting or route_id in table:
            return False
        if table.is_expected(route_id):
            return True
        if len(table) + table.expecting >= self._max_routes:
            self.forgotten += table.forget_expected(1)
        return False

    def came(self) -> None:
        """Count one that was expected, and has joined."""
        self.joined += 1

    def _give_up(self) -> None:
        """Forget all, a slice at a time: others want the loop as well."""
        self._timer = None
        left = self._table.expecting
        if not left:
            return
        if left > SLICE:
            self._timer = self._later(0.0, self._give_up)
        forgotten = self._table.forget_expected(SLICE)
        self.forgotten += forgotten
        self._late += forgotten
        if left <= SLICE:
            text = "%d destinations that were expected have not come in time and are forgotten"
            _logger.warning(text, self._late)
            self._late = 0

    def rows(self) -> Iterator[RouteStatistics]:
        """Yield what is expected as rows of the broker's table."""
        return map(self.row, self._table.expected())

    def row(self, expected: Expected) -> RouteStatistics:
        """Return one of them as a row of the broker's table."""
        return RouteStatistics(
            UUID(bytes=expected.route_id),
            expected.service_name,
            readable(expected.tags),
            peer="-",
            outstanding=0,
            requests=0,
            since=self._since,
            latency=0.0,
            weight=expected.weight,
            busy=False,
            expected=True,
        )
