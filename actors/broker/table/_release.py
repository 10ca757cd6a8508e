"""The release of waiting messages, in batches, to destinations that have joined.

Thousands of messages may wait for one destination. All at once they would exceed the limit of a
service or the backlog of a connection. So they are sent in batches, the first one at once, while
the destination is not busy. Messages that arrive meanwhile do not wait behind them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from ....protocol import Address
from ....protocol.broker import Entry, Query, RoutingTable
from ._remote import AnyRoute
from ._selector import Ask
from ._waiting import Waiter, Waiters

__all__ = ["Releases", "ZoneReleases"]

BATCH: Final = 256
"""Most messages in a batch."""
BATCH_SIZE: Final = 256 * 1024
"""Bytes after which a batch ends; it has one message at least."""
SLICE: Final = 64
"""Most queries that are looked up before the loop does other things."""
PAUSE: Final = 0.01
"""Seconds between two batches, for the destination to take the first."""
PAUSE_BUSY: Final = 0.05
"""Seconds after which busy destinations are checked again."""


class Releases:
    """The destinations that have joined and still have waiting messages.

    There are at most as many as there are routes, and at most as many queries as messages.

    Args:
        waiters: The waiting messages.
        table: The routing table.
        send: Sends a message to its destination.
        later: Calls a function after a number of seconds.

    Attributes:
        waiting: The waiting messages by number, for reading only.
    """

    def __init__(
        self,
        waiters: Waiters,
        table: RoutingTable[AnyRoute],
        send: Callable[[Waiter], None],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._waiters = waiters
        self.waiting: Final = waiters.waiting
        self._table = table
        self._send = send
        self._later = later
        self._joined: dict[Entry[AnyRoute], None] = {}
        # Of queries with waiting messages, for which there may be a destination again.
        self._queries: deque[Query] = deque()
        self._due = False

    def begin(self, entry: Entry[AnyRoute]) -> None:
        """Send the messages that wait for a destination that has just joined."""
        if self.waiting and self._more(entry):
            self._joined[entry] = None
            self._again(PAUSE)

    def begin_all(self) -> None:
        """Send what waits, as many destinations may have come back at once.

        The queries are looked up in slices.
        """
        idle = not self._queries
        self._queries = deque(self._waiters.queries())
        if idle and self._queries:
            self._later(0.0, self._look_up)

    def _look_up(self) -> None:
        for _ in range(min(SLICE, len(self._queries))):
            entry = self._table.pick(self._queries.popleft(), 0)
            if entry is not None:
                self.begin(entry)
        if self._queries:
            self._later(0.0, self._look_up)

    def _again(self, seconds: float) -> None:
        if not self._due:
            self._due = True
            self._later(seconds, self._go_on)

    def _go_on(self) -> None:
        """Send a batch to the first destination that can take one."""
        self._due = False
        pause = PAUSE_BUSY
        for entry in list(self._joined):
            route: AnyRoute = entry.target
            if self._table.get(entry.route_id) is not entry:
                del self._joined[entry]
            elif not route.full:
                del self._joined[entry]
                before = len(self._waiters)
                if self._more(entry):
                    self._joined[entry] = None  # behind the others
                if len(self._waiters) < before:
                    pause = PAUSE
                    break
        if self._joined:
            self._again(pause)

    def _more(self, entry: Entry[AnyRoute]) -> bool:
        """Send a batch of a destination's messages; return whether more wait."""
        route: AnyRoute = entry.target
        satisfied = self._waiters.satisfied(entry.tags)
        sent: Counter[Address | None] = Counter()
        count = size = passed = 0
        for waiter in satisfied:
            if count == BATCH or size >= BATCH_SIZE or route.full:
                return True
            if sent[waiter.origin] >= route.room_for(waiter.origin):
                passed += 1
            elif self._waiters.withdraw(waiter.number) is not None:
                count += 1
                size += waiter.size
                sent[waiter.origin] += 1
                self._send(waiter)
        return passed > 0


class ZoneReleases:
    """The release of waiting messages that another zone may have a destination for.

    Groups say less than routes: so all queries with waiting messages are looked up, in slices, soon
    after groups or a route filter have changed.

    Args:
        waiters: The waiting messages.
        takes: Whether another zone may have a destination for a query.
        send: Sends a message to its destination.
        later: Calls a function after a number of seconds.
    """

    def __init__(
        self,
        waiters: Waiters,
        takes: Callable[[Ask], bool],
        send: Callable[[Waiter], None],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._waiters = waiters
        self._takes = takes
        self._send = send
        self._later = later
        self._queries: deque[Query] = deque()
        self._due = False
        self._changed = False

    def begin(self) -> None:
        """Send what can be sent, as another zone has told something new."""
        if len(self._waiters):
            self._changed = True
            self._again()

    def _again(self) -> None:
        if not self._due:
            self._due = True
            self._later(PAUSE, self._go_on)

    def _go_on(self) -> None:
        """Look a slice of the queries up, and send a batch of messages of each."""
        self._due = False
        if not self._queries and self._changed:
            self._changed = False
            self._queries.extend(self._waiters.queries())
        for _ in range(min(SLICE, len(self._queries))):
            query = self._queries.popleft()
            waiting = self._waiters.with_query(query)
            if not waiting or not self._takes(waiting[0].ask):
                continue
            for waiter in waiting[:BATCH]:
                if self._waiters.withdraw(waiter.number) is not None:
                    self._send(waiter)
            if len(waiting) > BATCH:
                self._queries.append(query)
        if self._queries or self._changed:
            self._again()
