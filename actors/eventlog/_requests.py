"""What a broker records of requests: each is received once and ends once.

A request keeps the *account* it is counted on: a `Tally` of what all count that come from one
service and ask for the same, or a `Sampled`, which has a tally and writes hops as well. Who routes
the request tells the account of three things: that it was handed over, that it was handed over
as one of several copies, and how it ended. Tallies are made anew in each window, so what
nobody asks for any more is forgotten; a request in hand keeps its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from ...protocol import read_tracing
from ...protocol.broker import RoutingType, TagList, shard_hash
from ...protocol.eventlog import (
    Asked,
    EventName,
    Flag,
    Kind,
    LogMark,
    Outcome,
    sampled,
    with_log_mark,
)
from ...protocol.rsocket import FrameType
from ..broker._exchange import RELAYED
from ._texts import MAX_ASKED, size_of, size_of_tags

if TYPE_CHECKING:
    from ...protocol.broker import Entry
    from ..broker._exchange import Exchange
    from ..broker._route import BrokerRoute
    from ..broker._selector import Ask, Selector
    from ._flows import Cell
    from ._recorder import Recorder

__all__ = ["UNREGISTERED", "Account", "OriginLog", "RequestLog"]

UNREGISTERED: Final = "(unregistered)"
"""The origin of requests of connections that are no destinations."""

MAX_ORIGINS: Final = 4096
"""Services that are told apart as origins in one window; further ones share one without a name."""

MAX_SOURCES: Final = 65_536
"""Workers that are remembered as sources of messages in one window; then all are looked up anew."""

MAX_KEPT: Final = 16_384
"""Ways of asking, and destinations of each, that counters are kept for at hand, for all origins
and kinds together; then they are all looked up anew."""

MAX_ASKED_BYTES: Final = 8 * 1024 * 1024
"""Bytes of tag sets that are told apart in one window; what asks for others is counted without."""

_RECEIVED: Final = int(Outcome.RECEIVED)
_FORWARD: Final = int(Outcome.FORWARD)
_DELIVER: Final = int(Outcome.DELIVER)
_CANCELED: Final = int(Outcome.CANCELED)
_MESSAGE: Final = int(Kind.MESSAGE)
_MAX: Final = (1 << 32) - 1
KINDS: Final = {
    int(FrameType.REQUEST_RESPONSE): int(Kind.RESPONSE),
    int(FrameType.REQUEST_FNF): int(Kind.FIRE_AND_FORGET),
    int(FrameType.REQUEST_STREAM): int(Kind.STREAM),
    int(FrameType.REQUEST_CHANNEL): int(Kind.CHANNEL),
    int(FrameType.METADATA_PUSH): int(Kind.PUSH),
    0: _MESSAGE,
}
"""What requests are called by their frame type; 0 is none, and stands for messages of workers."""


class Account(ABC):
    """What one request is counted on."""

    __slots__ = ()

    @abstractmethod
    def forward(self, exchange: Exchange) -> None:
        """Count that the request was handed over to the route that it has."""

    @abstractmethod
    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Count that a copy of it was handed over."""

    @abstractmethod
    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count how it ended. Called once for each request."""

    def mark(self, trace: str | None) -> str | None:
        """Return the tracing text for a worker that is handed the request, given the present one.

        Marked if hops of the request are recorded. What goes by connections of RSocket is not:
        nothing can be added to their frames.
        """
        return trace


class _Leg:
    """The cells of one way of asking and one destination."""

    __slots__ = ("_others", "delivered", "done", "forwarded")

    def __init__(self, tally: Tally, route: BrokerRoute | None) -> None:
        self.forwarded: Final = tally.cell(_FORWARD, route)
        self.delivered: Final = tally.cell(_DELIVER, route)
        # Both at once.
        self.done: Final = tally.log.recorder.flows.pair(self.forwarded, self.delivered)
        self._others: dict[int, Cell] = {}

    def other(self, tally: Tally, route: BrokerRoute | None, outcome: int) -> Cell:
        """Return the cell of an outcome that is not the usual one."""
        cell = self._others.get(outcome)
        if cell is None:
            cell = self._others[outcome] = tally.cell(outcome, route)
        return cell


class Tally(Account):
    """The counters of all requests of one kind and origin that ask for the same.

    Attributes:
        origin: Who asks.
        kind: See `Kind`.
        asked: What for; `None` if that could not be read.
        came: The cell of those that were read.
        left: Requests until the next sample. Those that were read since the last are counted by
            how far it has gone down: see `settle`.
        counted_from: What `left` was when they were counted last, and one more for each since
            that was not drawn.
        bytes: Their bytes.
        legs: The cells of each destination.
    """

    __slots__ = (
        "_done",
        "_generation",
        "_number",
        "asked",
        "bytes",
        "came",
        "counted_from",
        "kind",
        "left",
        "legs",
        "log",
        "origin",
    )

    def __init__(self, log: RequestLog, origin: str, kind: int, asked: Asked | None) -> None:
        self.log: Final = log
        self.origin: Final = origin
        self.kind: Final = kind
        self.asked: Final = asked
        self.came: Final = self.cell(_RECEIVED, None)
        self.left = self.counted_from = log.recorder.gap()
        self.bytes = 0
        # What a connection took and delivered: handed over, and ended so.
        self._done: dict[BrokerRoute | None, Cell] = {}
        self.legs: dict[BrokerRoute | None, _Leg] = {}
        self._generation = 0
        self._number = 0

    def cell(self, outcome: int, route: BrokerRoute | None) -> Cell:
        """Return the cell of an outcome at a destination."""
        flows = self.log.recorder.flows
        if route is None:
            return flows.cell(self.kind, outcome, origin=self.origin, asked=self.asked)
        return flows.cell(
            self.kind,
            outcome,
            origin=self.origin,
            dest=route.destination.service,
            route=route.route_id,
            asked=self.asked,
        )

    def leg(self, route: BrokerRoute | None) -> _Leg:
        """Return the cells of a destination."""
        legs = self.legs
        leg = legs.get(route)
        if leg is None:
            if self.log.keeps_too_much():
                legs.clear()
                self._done.clear()
            leg = legs[route] = _Leg(self, route)
        return leg

    def settle(self) -> None:
        """Write down how many requests were read since the last time."""
        frames = self.counted_from - self.left
        if frames:
            self.came.add(self.bytes, frames)
            self.counted_from = self.left
            self.bytes = 0

    def sample(self, ask: Ask, exchange: Exchange) -> Account:
        """Return the account of a request that is sampled, and count to the next."""
        self.settle()
        recorder = self.log.recorder
        self.left = self.counted_from = recorder.gap()
        return _Sampled(self, ask, exchange, recorder.trace_id(), 0)

    def forward(self, exchange: Exchange) -> None:
        """Count that the request was handed over to the route that it has."""
        self.hand(exchange.route, exchange.size)

    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Count that a copy of it was handed over."""
        self.hand(route, exchange.size)

    def hand(self, route: BrokerRoute | None, size: int) -> None:
        """Count that something was handed over to a route."""
        self.leg(route).forwarded.add(size)

    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count how a request ended, and that it was handed over, if that has not been counted."""
        if outcome != RELAYED:
            if exchange.relayed:
                self.hand(route, exchange.size)
            self.finish(route, outcome, exchange.size)
            return
        try:
            cell = self._done[route]
        except KeyError:
            if len(self._done) > len(self.legs):
                self._done.clear()
            cell = self._done[route] = self.leg(route).done
        # As `Cell.add` does: most requests end here.
        if cell.frames:
            cell.frames += 1
            cell.bytes += exchange.size
        else:
            cell.add(exchange.size)

    def finish(self, route: BrokerRoute | None, outcome: int, size: int) -> None:
        """Count an end."""
        leg = self.leg(route)
        cell = leg.delivered if outcome == _DELIVER else leg.other(self, route, outcome)
        cell.add(size)

    def number(self) -> int:
        """Return the number of the tag set in this segment."""
        recorder = self.log.recorder
        if self._generation != recorder.generation:
            self._generation = recorder.generation
            self._number = recorder.tagset(self.asked)
        return self._number


class _Unread(Account):
    """The account of a request whose metadata are not whole, or cannot be read.

    It is received and ended at once: before, it is not known what it asks for.
    """

    __slots__ = ("_tally",)

    def __init__(self, tally: Tally) -> None:
        self._tally: Final = tally

    def forward(self, exchange: Exchange) -> None:
        """Do not come here: what cannot be read is handed to nobody."""
        raise AssertionError("a request that was not read was handed over")

    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Do not come here either."""
        raise AssertionError("a request that was not read was handed over")

    def withdrawn(self, size: int) -> None:
        """Count that one came and was cancelled."""
        self._tally.came.add(size)
        self._tally.finish(None, _CANCELED, size)

    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count that it came, and how it ended."""
        self._tally.came.add(exchange.size)
        self._tally.finish(None, outcome, exchange.size)


class _Sampled(Account):
    """The account of a request whose hops are recorded: one when it ends, one for each copy."""

    __slots__ = ("_flags", "_hash", "_size", "_tally", "_trace")

    def __init__(self, tally: Tally, ask: Ask, exchange: Exchange, trace: int, flags: int) -> None:
        self._tally: Final = tally
        self._size: Final = min(exchange.size, _MAX)
        self._trace: Final = trace
        self._hash = ask.shard
        self._flags = flags
        if ask.sticky:
            self._hash = shard_hash(ask.sticky)
            self._flags |= Flag.STICKY
        elif ask.shard:
            self._flags |= Flag.SHARD

    def forward(self, exchange: Exchange) -> None:
        """Count that the request was handed over to the route that it has."""
        self._tally.forward(exchange)

    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Count that a copy of it was handed over, and record it."""
        self._tally.copy(exchange, route)
        self._record(exchange, route, _FORWARD, 1, self._flags | Flag.MULTICAST)

    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count how the request ended, and record it."""
        self._tally.end(exchange, route, outcome)
        self._record(exchange, route, _DELIVER if outcome == RELAYED else outcome, 0, self._flags)

    def mark(self, trace: str | None) -> str | None:
        """Mark it: the broker's hop is the first, whenever it is recorded."""
        mark = LogMark(self._trace, 1, self._tally.log.recorder.weight)
        return with_log_mark((read_tracing(trace) or {}) if trace else {}, mark) or trace

    def _record(
        self, exchange: Exchange, route: BrokerRoute | None, outcome: int, hop: int, flags: int
    ) -> None:
        tally = self._tally
        recorder = tally.log.recorder
        took = int((recorder.now() - exchange.began) * 1e6)
        recorder.hop(
            self._trace,
            self._hash,
            tally.kind,
            outcome,
            hop,
            flags,
            recorder.name(tally.origin),
            0 if route is None else recorder.name(route.destination.service),
            0 if route is None else recorder.route(route.route_id),
            tally.number(),
            max(0, min(took, _MAX)),
            self._size,
            recorder.weight,
        )


class OriginLog:
    """Where a connection tells of the requests it has read.

    Args:
        log: The broker's.
        name: The service that the connection is of.
    """

    __slots__ = ("_log", "_recorder", "_rests", "_tallies", "_unread", "name")

    def __init__(self, log: RequestLog, name: str) -> None:
        self._log: Final = log
        self._recorder: Final = log.recorder
        self.name: Final = name
        # By frame type: see `KINDS`.
        self._tallies: tuple[dict[Selector, Tally], ...] = tuple({} for _ in range(1 + max(KINDS)))
        self._rests: dict[int, Tally] = {}
        self._unread: dict[int, _Unread] = {}

    def settle(self) -> None:
        """Have all tallies write down what they have counted."""
        for tallies in self._tallies:
            for tally in tallies.values():
                tally.settle()
        for tally in self._rests.values():
            tally.settle()

    def forget(self) -> None:
        """Let go of the tallies, which have been settled."""
        for tallies in self._tallies:
            tallies.clear()
        self._rests.clear()
        self._unread.clear()

    def received(self, exchange: Exchange, kind: int, ask: Ask, trace: int | None) -> None:
        """Count a request, give it its account, and decide whether it is sampled.

        Args:
            exchange: The request.
            kind: The frame type.
            ask: What it asks for.
            trace: The trace id that came with it, if one did.
        """
        try:
            tally = self._tallies[kind][ask.selector]
        except KeyError:
            tally = self._tally(kind, ask)
        if trace is not None:
            # Not one of those that samples are drawn from.
            tally.counted_from += 1
            tally.bytes += exchange.size
            chosen = sampled(trace, self._recorder.threshold)
            exchange.log = _Sampled(tally, ask, exchange, trace, Flag.FOREIGN) if chosen else tally
            return
        # Counts and tells whether it is a sample, in one: each request comes by here.
        tally.bytes += exchange.size
        tally.left = left = tally.left - 1
        exchange.log = tally if left else tally.sample(ask, exchange)

    def unread(self, exchange: Exchange, kind: int) -> None:
        """Give a request an account as long as it is not known what it asks for."""
        exchange.log = self._unread_of(kind)

    def withdrawn(self, kind: int, size: int) -> None:
        """Count a request that was cancelled before anybody has looked at it."""
        self._unread_of(kind).withdrawn(size)

    def _unread_of(self, kind: int) -> _Unread:
        account = self._unread.get(kind)
        if account is None:
            account = self._unread[kind] = _Unread(self._rest(kind))
        return account

    def _rest(self, kind: int) -> Tally:
        """Return the tally of what is not known to ask for anything, or for too much."""
        tally = self._rests.get(kind)
        if tally is None:
            tally = self._rests[kind] = Tally(self._log, self.name, KINDS[kind], None)
            self._log.know(self)
        return tally

    def message(self, ask: Ask, size: int) -> Tally:
        """Return the tally of a message of a worker, which asks by an address of type 32."""
        tally = self._tallies[0].get(ask.selector)
        if tally is None:
            tally = self._tally(0, ask)
        tally.came.add(size)
        return tally

    def _tally(self, kind: int, ask: Ask) -> Tally:
        selector = ask.selector
        asked = self._log.asked(selector)
        if asked is None:
            return self._rest(kind)
        self._log.keeps_too_much()
        made = self._tallies[kind][selector] = Tally(self._log, self.name, KINDS[kind], asked)
        self._log.know(self)
        return made


class RequestLog:
    """What a broker tells of: requests, messages of workers, destinations that come and go.

    Args:
        recorder: Where it is recorded.
        node: The node's name, for the names of workers that ask.

    Attributes:
        recorder: As given.
        kept: Tallies, and destinations of them, that are kept at hand.
        without_tags: Times that a way of asking was looked up, and is counted without its tags.
        defaults: The methods that choose where a request does not say; the log does not name them.
    """

    __slots__ = (
        "_asked",
        "_asked_bytes",
        "_node",
        "_origins",
        "_sources",
        "_used",
        "defaults",
        "kept",
        "recorder",
        "without_tags",
    )

    def __init__(self, recorder: Recorder, node: str) -> None:
        self.recorder: Final = recorder
        self._node: Final = node
        self._origins: dict[str, OriginLog] = {}
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
        """Return where requests of a service's connections are counted."""
        name = service or UNREGISTERED
        found = self._origins.get(name)
        if found is None:
            if len(self._origins) >= MAX_ORIGINS:
                name = ""
            found = self._origins[name] = OriginLog(self, name)
        return found

    def asked(self, selector: Selector) -> Asked | None:
        """Return a way of asking as the log has it; `None` if it is too long, or one too many.

        Each is there once, whoever asks, so that counters cost no more than the table's rows.
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
        """Note one more thing that is kept; if it is one too many, let go of all, and say so."""
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
        """Note an origin that has tallies."""
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
        """Count a message of a worker of the node that has been sent on, or refused.

        Args:
            ask: What it asks for.
            source: The worker's address; `None` if no worker sent it.
            size: Bytes of its payload.
            routes: Those it was handed to.
            outcome: How it ended for the broker: `DELIVER` once it was handed over.
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
        """Record that a destination has joined, or has taken the place of one."""
        name = EventName.RETAG if replaced else EventName.UP
        self._about(name, entry, "")

    def left(self, entry: Entry[BrokerRoute], reason: str = "") -> None:
        """Record that a destination has left."""
        self._about(EventName.DOWN, entry, reason)

    def _about(self, name: EventName, entry: Entry[BrokerRoute], reason: str) -> None:
        service = entry.target.destination.service
        self.recorder.event(name, entry.route_id, service, entry.tags, reason)

    def rejected(self, ask: Ask, reason: str) -> None:
        """Record that nobody could take a request."""
        self.recorder.reject(_tags_of(ask.selector), reason)


def _tags_of(selector: Selector) -> TagList:
    return tuple(sorted(selector.query, key=lambda tag: (str(tag[0]), tag[1] or "")))
