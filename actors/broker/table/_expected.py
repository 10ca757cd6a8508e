"""Expected destinations: known from an earlier table, and not registered yet.

They are in the table's index, so a destination that registers with its earlier tags needs no new
index entry. Requests for it wait as long as the limit permits. An expected destination gets no
requests.
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
"""Most destinations forgotten at a time: a few milliseconds of the loop's time."""


class Expectations:
    """The expected destinations of a table, their timeout and their counters.

    Args:
        table: The table that indexes them.
        own: The id of this broker, where they are expected.
        max_routes: See `BrokerOptions.max_routes`.
        seconds: See `BrokerOptions.expected_seconds`.
        later: Calls a function after a number of seconds.

    Attributes:
        joined: Expected destinations that have registered.
        forgotten: Expected destinations that did not register in time, or made room for others.
    """

    def __init__(
        self,
        table: RoutingTable[Any],
        own: bytes,
        max_routes: int,
        seconds: float,
        later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._table = table
        self._own = own
        self._max_routes = max_routes
        self._seconds = seconds
        self._later = later
        self._timer: Timer | None = None
        self._since = 0.0
        self._late = 0
        self.joined = 0
        self.forgotten = 0

    def expect(self, routes: Iterable[SnapshotRoute]) -> int:
        """Expect destinations, and restart the time for all expected ones.

        Returns:
            How many destinations are newly expected.

        Raises:
            LimitReached: There are more than the table may have; those before are expected.
            SnapshotError: The source of the routes is damaged; those before are expected.
        """
        table, added = self._table, 0
        self._since = time.time()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._later(self._seconds, self._give_up)
        for route in routes:
            if self._used() >= self._max_routes:
                raise LimitReached("routes, there and expected", self._max_routes)
            added += table.expect(route, home=self._own)
        return added

    def _used(self) -> int:
        return self._table.count_of(self._own) + self._table.expecting

    def waits(self, query: Query) -> bool:
        """Whether a destination that carries the tags is expected at this broker.

        Those of a peer broker that is away are not: it may never be back, and what waits for it is
        refused in time to be asked elsewhere.
        """
        table = self._table
        return table.expecting > 0 and table.expects(table.at(query, self._own))

    def coming(self, route_id: bytes) -> bool:
        """Make room for a destination that is about to join.

        Returns:
            Whether it is expected; if so, call `came` when it has joined.
        """
        table = self._table
        if not table.expecting or route_id in table:
            return False
        if table.is_expected(route_id):
            return True
        if self._used() >= self._max_routes:
            self.forgotten += table.forget_expected(1)
        return False

    def came(self) -> None:
        """Count an expected destination that has joined."""
        self.joined += 1

    def _give_up(self) -> None:
        """Forget all expected destinations, a slice at a time.

        Those with a suspended session stay: the session has a time of its own.
        """
        self._timer = None
        forgotten = self._table.forget_expected(SLICE)
        self.forgotten += forgotten
        self._late += forgotten
        if forgotten == SLICE:
            self._timer = self._later(0.0, self._give_up)
            return
        if self._late:
            text = "%d expected destinations have not registered in time and are forgotten"
            _logger.warning(text, self._late, extra={"event": "route.expected_forgotten"})
            self._late = 0

    def rows(self) -> Iterator[RouteStatistics]:
        """Yield the expected destinations as rows of the broker's table."""
        return map(self.row, self._table.expected())

    def row(self, expected: Expected) -> RouteStatistics:
        """Return an expected destination as a row of the broker's table."""
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
