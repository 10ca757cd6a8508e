"""The accounts of requests: shared counters, and those of unparsed and of sampled requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol import read_tracing
from ....protocol.broker import shard_hash
from ....protocol.eventlog import Asked, Flag, LogMark, Outcome, with_log_mark
from ...broker._exchange import RELAYED
from ...broker._instrument import RequestCounting
from ._messages import MAX_FIELD, codes_of

if TYPE_CHECKING:
    from ...broker._exchange import Exchange
    from ...broker.table._remote import AnyRoute
    from ...broker.table._selector import Ask
    from ._flows import FlowCell
    from ._requests import RequestLog

__all__ = ["RequestCounters", "Sampled", "UnparsedRequest"]

_RECEIVED: Final = int(Outcome.RECEIVED)
_FORWARD: Final = int(Outcome.FORWARD)
_DELIVER: Final = int(Outcome.DELIVER)
_CANCELED: Final = int(Outcome.CANCELED)


class _Leg:
    """The cells of one destination within these counters."""

    __slots__ = ("_others", "delivered", "done", "forwarded")

    def __init__(self, counters: RequestCounters, route: AnyRoute | None) -> None:
        self.forwarded: Final = counters.cell(_FORWARD, route)
        self.delivered: Final = counters.cell(_DELIVER, route)
        # A cell that counts in both.
        self.done: Final = counters.log.recorder.flows.pair(self.forwarded, self.delivered)
        self._others: dict[int, FlowCell] = {}

    def other(self, counters: RequestCounters, route: AnyRoute | None, outcome: int) -> FlowCell:
        """Return the cell of an unusual outcome."""
        cell = self._others.get(outcome)
        if cell is None:
            cell = self._others[outcome] = counters.cell(outcome, route)
        return cell


class RequestCounters(RequestCounting):
    """The counters of all requests with equal origin, kind and query.

    Attributes:
        origin: The service of the requester.
        kind: See `Kind`.
        asked: The query; `None` if it could not be read.
        came: The cell of received requests.
        left: Requests until the next sample. Its decrease since the last `settle` is the number
            of received requests.
        counted_from: `left` at the last `settle`, plus one for each later request that was not
            drawn.
        bytes: Bytes of received requests since the last `settle`.
        legs: The cells of each destination.
    """

    __slots__ = (
        "_done",
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
        # Requests that a connection took and delivered, counted in both cells.
        self._done: dict[AnyRoute | None, FlowCell] = {}
        self.done = self._done
        self.legs: dict[AnyRoute | None, _Leg] = {}

    def cell(self, outcome: int, route: AnyRoute | None) -> FlowCell:
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

    def leg(self, route: AnyRoute | None) -> _Leg:
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
        """Add the requests received since the last call to their cell."""
        frames = self.counted_from - self.left
        if frames:
            self.came.add(self.bytes, frames)
            self.counted_from = self.left
            self.bytes = 0

    def forward(self, exchange: Exchange) -> None:
        """Count that the request was forwarded to its destination."""
        self.hand(exchange.route, exchange.size)

    def copy(self, exchange: Exchange, route: AnyRoute | None) -> None:
        """Count that a copy of the request was forwarded."""
        self.hand(route, exchange.size)

    def hand(self, route: AnyRoute | None, size: int) -> None:
        """Count that a request or a copy was forwarded to a destination."""
        self.leg(route).forwarded.add(size)

    def end(self, exchange: Exchange, route: AnyRoute | None, outcome: int) -> None:
        """Count the end of a request, and its forwarding, if that is not counted yet."""
        if outcome != RELAYED:
            if exchange.relayed:
                self.hand(route, exchange.size)
            self.finish(route, outcome, exchange.size)
            return
        cell = self._done.get(route)
        if cell is None:
            if len(self._done) > len(self.legs):
                self._done.clear()
            cell = self._done[route] = self.leg(route).done
        cell.add(exchange.size)

    def finish(self, route: AnyRoute | None, outcome: int, size: int) -> None:
        """Count an end."""
        leg = self.leg(route)
        cell = leg.delivered if outcome == _DELIVER else leg.other(self, route, outcome)
        cell.add(size)


_NONE: Final[dict[AnyRoute | None, FlowCell]] = {}


class UnparsedRequest(RequestCounting):
    """The account of a request with incomplete or invalid metadata.

    It is counted as received when it ends, as its query is not known before.
    """

    __slots__ = ("_counters",)

    def __init__(self, counters: RequestCounters) -> None:
        self.done = _NONE
        self._counters: Final = counters

    def forward(self, exchange: Exchange) -> None:
        """Raise an error: an unparsed request is never forwarded."""
        raise AssertionError("an unparsed request was forwarded")

    def copy(self, exchange: Exchange, route: AnyRoute | None) -> None:
        """Raise an error: an unparsed request is never forwarded."""
        raise AssertionError("an unparsed request was forwarded")

    def withdrawn(self, size: int) -> None:
        """Count a request that was received and cancelled."""
        self._counters.came.add(size)
        self._counters.finish(None, _CANCELED, size)

    def end(self, exchange: Exchange, route: AnyRoute | None, outcome: int) -> None:
        """Count that the request was received, and how it ended."""
        self._counters.came.add(exchange.size)
        self._counters.finish(None, outcome, exchange.size)


class Sampled(RequestCounting):
    """The account of a request with recorded hops: one at its end, one for each copy."""

    __slots__ = ("_counters", "_flags", "_hash", "_size", "_trace")

    def __init__(
        self, counters: RequestCounters, ask: Ask, exchange: Exchange, trace: int, flags: int
    ) -> None:
        self.done = _NONE
        self._counters: Final = counters
        self._size: Final = min(exchange.size, MAX_FIELD)
        self._trace: Final = trace
        self._hash = ask.shard
        self._flags = flags
        if ask.sticky:
            self._hash = shard_hash(ask.sticky)
            self._flags |= Flag.STICKY
        elif ask.shard:
            self._flags |= Flag.SHARD

    def forward(self, exchange: Exchange) -> None:
        """Count that the request was forwarded to its destination."""
        self._counters.forward(exchange)

    def copy(self, exchange: Exchange, route: AnyRoute | None) -> None:
        """Count and record that a copy of the request was forwarded."""
        self._counters.copy(exchange, route)
        self._record(exchange, route, _FORWARD, 1, self._flags | Flag.MULTICAST)

    def end(self, exchange: Exchange, route: AnyRoute | None, outcome: int) -> None:
        """Count and record how the request ended."""
        self._counters.end(exchange, route, outcome)
        self._record(exchange, route, _DELIVER if outcome == RELAYED else outcome, 0, self._flags)

    def mark(self, trace: str | None) -> str | None:
        """Return a tracing text with the mark after the broker's hop, the first."""
        mark = LogMark(self._trace, 1, self._counters.log.recorder.weight)
        return with_log_mark((read_tracing(trace) or {}) if trace else {}, mark) or trace

    def _record(
        self, exchange: Exchange, route: AnyRoute | None, outcome: int, hop: int, flags: int
    ) -> None:
        counters = self._counters
        recorder = counters.log.recorder
        took = int((recorder.now() - exchange.began) * 1e6)
        if not 0 <= took <= MAX_FIELD:
            took = MAX_FIELD if took > 0 else 0
        key = (counters, route)
        recorder.hop(
            self._trace,
            self._hash,
            codes_of(counters.kind, outcome, hop, flags),
            recorder.naming.known.get(key) or self._learn(key),
            took,
            self._size,
            recorder.weight,
        )

    @staticmethod
    def _learn(key: tuple[RequestCounters, AnyRoute | None]) -> bytes:
        """Return the packed ends of a hop between an origin and a destination, or none."""
        counters, route = key
        learn = counters.log.recorder.naming.learn
        if route is None:
            return learn(key, counters.origin, "", None, counters.asked)
        service = route.destination.service
        return learn(key, counters.origin, service, route.route_id, counters.asked)
