"""The record of a broker's requests, each received once and ended once.

Each request has an *account* for its counts: the `RequestCounters` shared by requests with equal
origin, kind and query, or a `Sampled`, which also records hops. An account counts that the request
was forwarded, that a copy was forwarded, and how it ended. Accounts are made anew in each window,
and unused ones are forgotten. A request in progress keeps its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.broker import RoutingType, TagList
from ....protocol.eventlog import Asked, EventName, Flag, Kind, sampled
from ....protocol.rsocket import FrameType
from ...broker._instrument import OriginInstrument, RequestCounting, RequestInstrument
from ..storage._dictionary import MAX_ASKED, size_of, size_of_tags
from ._accounts import RequestCounters, Sampled, UnparsedRequest
from ._destinations import DestinationLog
from ._rate_limit import RateLimit

if TYPE_CHECKING:
    from ....protocol.broker import Entry
    from ...broker._exchange import Exchange
    from ...broker.table._remote import AnyRoute
    from ...broker.table._selector import Ask, Selector
    from ._recorder import Recorder

__all__ = ["UNREGISTERED", "OriginLog", "RequestLog"]

KINDS: Final = {
    int(FrameType.REQUEST_RESPONSE): int(Kind.RESPONSE),
    int(FrameType.REQUEST_FNF): int(Kind.FIRE_AND_FORGET),
    int(FrameType.REQUEST_STREAM): int(Kind.STREAM),
    int(FrameType.REQUEST_CHANNEL): int(Kind.CHANNEL),
    int(FrameType.METADATA_PUSH): int(Kind.PUSH),
    0: int(Kind.MESSAGE),
}
"""The kind of a request by its frame type; 0 stands for messages of workers."""


class OriginLog(OriginInstrument):
    """The record of requests from the connections of one service.

    Args:
        log: The broker's record.
        name: The service.
    """

    __slots__ = ("_counters", "_foreign", "_log", "_recorder", "_rests", "_unread", "name")

    def __init__(self, log: RequestLog, name: str) -> None:
        self._log: Final = log
        self._recorder: Final = log.recorder
        self._foreign: Final = log.foreign
        self.name: Final = name
        # By frame type: see `KINDS`.
        self._counters: tuple[dict[Selector, RequestCounters], ...] = tuple(
            {} for _ in range(1 + max(KINDS))
        )
        self._rests: dict[int, RequestCounters] = {}
        self._unread: dict[int, UnparsedRequest] = {}

    def settle(self) -> None:
        """Settle all counters."""
        for by_selector in self._counters:
            for counters in by_selector.values():
                counters.settle()
        for counters in self._rests.values():
            counters.settle()

    def forget(self) -> None:
        """Release the counters, which must be settled."""
        for by_selector in self._counters:
            by_selector.clear()
        self._rests.clear()
        self._unread.clear()

    def received(self, exchange: Exchange, kind: int, ask: Ask, trace: int | None) -> None:
        """Count a request, set its account, and decide whether it is sampled.

        Args:
            exchange: The request.
            kind: The frame type.
            ask: Its query.
            trace: The trace id in the request, if it has one.
        """
        try:
            counters = self._counters[kind][ask.selector]
        except KeyError:
            counters = self._counters_of(kind, ask)
        if trace is not None:
            chosen = sampled(trace, self._recorder.threshold)
            # Chosen requests beyond the limit are drawn like those without an id.
            if chosen and not self._foreign.take():
                self._recorder.left_out["trace ids"] += 1
            else:
                counters.counted_from += 1
                counters.bytes += exchange.size
                exchange.log = (
                    Sampled(counters, ask, exchange, trace, Flag.FOREIGN) if chosen else counters
                )
                return
        # One decrement counts and samples: this runs for each request.
        counters.bytes += exchange.size
        counters.left = left = counters.left - 1
        exchange.log = counters if left else self._sample(counters, ask, exchange)

    def _sample(self, counters: RequestCounters, ask: Ask, exchange: Exchange) -> RequestCounting:
        """Return the account of a sampled request, and draw the next sample."""
        counters.settle()
        recorder = self._recorder
        counters.left = counters.counted_from = recorder.gap()
        return Sampled(counters, ask, exchange, recorder.trace_id(), 0)

    def relayed(self, exchange: Exchange, kind: int) -> None:
        """Count a request that a peer broker has forwarded, and set its account."""
        counters = self._rest(kind)
        counters.came.add(exchange.size)
        exchange.log = counters

    def unread(self, exchange: Exchange, kind: int) -> None:
        """Set the account of a request until its query is known."""
        exchange.log = self._unread_of(kind)

    def withdrawn(self, kind: int, size: int) -> None:
        """Count a request that was cancelled before it was parsed."""
        self._unread_of(kind).withdrawn(size)

    def _unread_of(self, kind: int) -> UnparsedRequest:
        account = self._unread.get(kind)
        if account is None:
            account = self._unread[kind] = UnparsedRequest(self._rest(kind))
        return account

    def _rest(self, kind: int) -> RequestCounters:
        """Return the counters of requests with no known query, or too large a one."""
        counters = self._rests.get(kind)
        if counters is None:
            counters = self._rests[kind] = RequestCounters(self._log, self.name, KINDS[kind], None)
            self._log.know(self)
        return counters

    def message(self, ask: Ask, size: int) -> RequestCounters:
        """Count a worker's message to an address of type 32, and return its counters."""
        counters = self._counters[0].get(ask.selector)
        if counters is None:
            counters = self._counters_of(0, ask)
        counters.came.add(size)
        return counters

    def _counters_of(self, kind: int, ask: Ask) -> RequestCounters:
        selector = ask.selector
        asked = self._log.asked(selector)
        if asked is None:
            return self._rest(kind)
        self._log.keeps_too_much()
        made = self._counters[kind][selector] = RequestCounters(
            self._log, self.name, KINDS[kind], asked
        )
        self._log.know(self)
        return made


UNREGISTERED: Final = "(unregistered)"
"""The origin of requests of connections that are no destinations."""

MAX_KEPT: Final = 16_384
"""Most cached origins, and counters of queries and their destinations, together; then the cache is
cleared."""

MAX_ASKED_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of tag sets in one window; requests for further ones are counted without tags."""


class RequestLog(RequestInstrument):
    """The record of a broker: requests, messages of workers, and changes of destinations.

    Args:
        recorder: The recorder.
        node: The node's name, for the names of workers.

    Attributes:
        recorder: As given.
        kept: Cached origins, counters and destinations.
        defaults: The default methods, which the log does not name.
        destinations: The record of destinations.
        foreign: The limit for trace ids of requesters.
    """

    __slots__ = (
        "_asked",
        "_asked_bytes",
        "_node",
        "_origins",
        "_sources",
        "_used",
        "destinations",
        "foreign",
        "kept",
        "recorder",
    )

    def __init__(self, recorder: Recorder, node: str) -> None:
        self.recorder: Final = recorder
        self.destinations: Final = DestinationLog(recorder)
        limit = recorder.options.max_foreign_per_second
        self.foreign: Final = RateLimit(limit, limit, recorder.now)
        self._node: Final = node
        self._origins: dict[str, OriginLog] = {}
        self._sources: dict[object, OriginLog] = {}
        self.defaults: dict[RoutingType, str] = {}
        self._used: dict[OriginLog, None] = {}
        self._asked: dict[Asked, Asked] = {}
        self._asked_bytes = 0
        self.kept = 0
        recorder.flows.before_window.append(self._settle)
        recorder.flows.on_window.append(self._end_window)

    def origin(self, service: str) -> OriginLog:
        """Return the counters for the connections of a service."""
        name = service or UNREGISTERED
        found = self._origins.get(name)
        if found is None:
            self.keeps_too_much()
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
        self.recorder.left_out["names"] += 1
        return None

    def keeps_too_much(self) -> bool:
        """Count a cached object; at the limit clear the cache and return True."""
        self.kept += 1
        if self.kept <= MAX_KEPT:
            return False
        self._settle()
        self._release()
        self.kept = 1
        return True

    def know(self, origin: OriginLog) -> None:
        """Add an origin that has counters."""
        self._used[origin] = None

    def _settle(self) -> None:
        for each in self._used:
            each.settle()

    def _release(self) -> None:
        self._origins.clear()
        self._sources.clear()
        for each in self._used:
            each.forget()
        self._used.clear()
        self.kept = 0

    def _end_window(self) -> None:
        self._release()
        self._asked.clear()
        self._asked_bytes = 0

    # --- messages of workers --------------------------------------------------------------

    def message(
        self, ask: Ask, source: object, size: int, routes: tuple[AnyRoute, ...], outcome: int
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
            found = self.origin(self._node if source is None else f"{self._node}/{source}")
            origin = self._sources[source] = found
        counters = origin.message(ask, size)
        for route in routes:
            counters.hand(route, size)
        counters.finish(routes[0] if len(routes) == 1 else None, outcome, size)

    # --- destinations ---------------------------------------------------------------------

    def joined(self, entry: Entry[AnyRoute], *, replaced: bool) -> None:
        """Record that a destination has joined or replaced another."""
        name = EventName.RETAG if replaced else EventName.UP
        self._about(name, entry, "")

    def left(self, entry: Entry[AnyRoute], reason: str = "") -> None:
        """Record that a destination has left."""
        self._about(EventName.DOWN, entry, reason)

    def _about(self, name: EventName, entry: Entry[AnyRoute], reason: str) -> None:
        self.destinations.add(name, entry.route_id, entry.service_name, entry.tags, reason)

    def rejected(self, ask: Ask, reason: str) -> None:
        """Record a request that no destination could take."""
        self.recorder.reject(_tags_of(ask.selector), reason)


def _tags_of(selector: Selector) -> TagList:
    return tuple(sorted(selector.query, key=lambda tag: (str(tag[0]), tag[1] or "")))
