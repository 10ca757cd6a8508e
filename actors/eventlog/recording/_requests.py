"""The record of a broker's requests, each received once and ended once.

Each request has an *account* for its counts: the `RequestCounters` shared by requests with equal
origin, kind and query, or a `Sampled`, which also records hops. An account counts that the request
was forwarded, that a copy was forwarded, and how it ended. Accounts are made anew in each window,
and unused ones are forgotten. A request in progress keeps its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.broker import RoutingType, TagList
from ....protocol.eventlog import Asked, EventName
from ...broker._instrument import RequestInstrument
from ._destinations import DestinationLog
from ._limits import PerSecond
from ._origins import OriginLog
from ._texts import MAX_ASKED, size_of, size_of_tags

if TYPE_CHECKING:
    from ....protocol.broker import Entry
    from ...broker.table._route import BrokerRoute
    from ...broker.table._selector import Ask, Selector
    from ._recorder import Recorder

__all__ = ["UNREGISTERED", "RequestLog"]

UNREGISTERED: Final = "(unregistered)"
"""The origin of requests of connections that are no destinations."""

MAX_ORIGINS: Final = 4096
"""Most services with their own origin in one window; further ones share one without a name."""

MAX_SOURCES: Final = 65_536
"""Most workers in the cache of message sources in one window; then it is cleared."""

MAX_KEPT: Final = 16_384
"""Most cached counters of queries and their destinations, for all origins and kinds together; then
the cache is cleared."""

MAX_ASKED_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of tag sets in one window; requests for further ones are counted without tags."""


class RequestLog(RequestInstrument):
    """The record of a broker: requests, messages of workers, and changes of destinations.

    Args:
        recorder: The recorder.
        node: The node's name, for the names of workers.

    Attributes:
        recorder: As given.
        kept: Cached counters and destinations.
        without_tags: Queries counted without their tags.
        defaults: The default methods, which the log does not name.
        destinations: The record of destinations.
        foreign: The limit for trace ids of requesters.
    """

    __slots__ = (
        "_asked",
        "_asked_bytes",
        "_node",
        "_origins",
        "_others",
        "_sources",
        "_used",
        "destinations",
        "foreign",
        "kept",
        "recorder",
        "without_tags",
    )

    def __init__(self, recorder: Recorder, node: str) -> None:
        self.recorder: Final = recorder
        self.destinations: Final = DestinationLog(recorder)
        self.foreign: Final = PerSecond(recorder.options.max_foreign_per_second, recorder.now)
        self._node: Final = node
        self._origins: dict[str, OriginLog] = {}
        # The origin of all services beyond the limit.
        self._others: Final = OriginLog(self, "")
        self._sources: dict[object, OriginLog] = {}
        self.defaults: dict[RoutingType, str] = {}
        self._used: dict[OriginLog, None] = {}
        self._asked: dict[Asked, Asked] = {}
        self._asked_bytes = 0
        self.kept = 0
        self.without_tags = 0
        recorder.flows.before_window.append(self._settle)
        recorder.flows.on_window.append(self._forget)

    def origin(self, service: str) -> OriginLog:
        """Return the counters for the connections of a service."""
        name = service or UNREGISTERED
        found = self._origins.get(name)
        if found is None:
            if len(self._origins) >= MAX_ORIGINS:
                return self._others
            found = self._origins[name] = OriginLog(self, name)
        return found

    def asked(self, selector: Selector) -> Asked | None:
        """Return a selector's query for the log; `None` if it is too long, or beyond the limit.

        Equal queries share one object, so that counters need no more memory than the table's rows.
        """
        method = selector.method
        if self.defaults.get(selector.routing) == method:
            method = ""
        size = size_of_tags(selector.query) + size_of(method)
        if size <= MAX_ASKED:
            made = Asked(_tags_of(selector), selector.routing, method)
            found = self._asked.get(made)
            if found is not None:
                return found
            if self._asked_bytes + size <= MAX_ASKED_BYTES:
                self._asked_bytes += size
                self._asked[made] = made
                return made
        self.without_tags += 1
        return None

    def keeps_too_much(self) -> bool:
        """Count a cached object; at the limit clear the cache and return True."""
        self.kept += 1
        if self.kept <= MAX_KEPT:
            return False
        for each in self._used:
            each.settle()
            each.forget()
        self._used.clear()
        self.kept = 1
        return True

    def know(self, origin: OriginLog) -> None:
        """Add an origin that has counters."""
        self._used[origin] = None

    def _settle(self) -> None:
        for each in self._used:
            each.settle()

    def _forget(self) -> None:
        self._origins.clear()
        self._sources.clear()
        for each in self._used:
            each.forget()
        self._used.clear()
        self._asked.clear()
        self._asked_bytes = self.kept = 0

    # --- messages of workers --------------------------------------------------------------

    def message(
        self, ask: Ask, source: object, size: int, routes: tuple[BrokerRoute, ...], outcome: int
    ) -> None:
        """Count a message of a worker of the node that was forwarded or refused.

        Args:
            ask: Its query.
            source: The worker's address; `None` if no worker sent it.
            size: Bytes of its payload.
            routes: Its destinations.
            outcome: How it ended for the broker: `DELIVER` once it was forwarded.
        """
        origin = self._sources.get(source)
        if origin is None:
            name = self._node if source is None else f"{self._node}/{source}"
            if len(self._sources) >= MAX_SOURCES:
                self._sources.clear()
            origin = self._sources[source] = self.origin(name)
        tally = origin.message(ask, size)
        for route in routes:
            tally.hand(route, size)
        tally.finish(routes[0] if len(routes) == 1 else None, outcome, size)

    # --- destinations ---------------------------------------------------------------------

    def joined(self, entry: Entry[BrokerRoute], *, replaced: bool) -> None:
        """Record that a destination has joined or replaced another."""
        name = EventName.RETAG if replaced else EventName.UP
        self._about(name, entry, "")

    def left(self, entry: Entry[BrokerRoute], reason: str = "") -> None:
        """Record that a destination has left."""
        self._about(EventName.DOWN, entry, reason)

    def _about(self, name: EventName, entry: Entry[BrokerRoute], reason: str) -> None:
        service = entry.target.destination.service
        self.destinations.add(name, entry.route_id, service, entry.tags, reason)

    def rejected(self, ask: Ask, reason: str) -> None:
        """Record a request that no destination could take."""
        self.recorder.reject(_tags_of(ask.selector), reason)


def _tags_of(selector: Selector) -> TagList:
    return tuple(sorted(selector.query, key=lambda tag: (str(tag[0]), tag[1] or "")))
