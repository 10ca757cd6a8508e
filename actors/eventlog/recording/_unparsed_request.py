"""The accounts of unparsed and of sampled requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol import read_tracing
from ....protocol.broker import shard_hash
from ....protocol.eventlog import Flag, LogMark, Outcome, with_log_mark
from ...broker._exchange import RELAYED
from ...broker._instrument import RequestCounting
from ._hops import MAX_FIELD, codes_of

if TYPE_CHECKING:
    from ...broker._exchange import Exchange
    from ...broker.table._route import BrokerRoute
    from ...broker.table._selector import Ask
    from ._flows import FlowCell
    from ._request_counters import RequestCounters

__all__ = ["Sampled", "UnparsedRequest"]

_FORWARD: Final = int(Outcome.FORWARD)
_DELIVER: Final = int(Outcome.DELIVER)
_CANCELED: Final = int(Outcome.CANCELED)


_NONE: Final[dict[BrokerRoute | None, FlowCell]] = {}


class UnparsedRequest(RequestCounting):
    """The account of a request with incomplete or invalid metadata.

    It is counted as received when it ends, as its query is not known before.
    """

    __slots__ = ("_tally",)

    def __init__(self, tally: RequestCounters) -> None:
        self.done = _NONE
        self._tally: Final = tally

    def forward(self, exchange: Exchange) -> None:
        """Raise an error: an unparsed request is never forwarded."""
        raise AssertionError("an unparsed request was forwarded")

    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Raise an error: an unparsed request is never forwarded."""
        raise AssertionError("an unparsed request was forwarded")

    def withdrawn(self, size: int) -> None:
        """Count a request that was received and cancelled."""
        self._tally.came.add(size)
        self._tally.finish(None, _CANCELED, size)

    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count that the request was received, and how it ended."""
        self._tally.came.add(exchange.size)
        self._tally.finish(None, outcome, exchange.size)


class Sampled(RequestCounting):
    """The account of a request with recorded hops: one at its end, one for each copy."""

    __slots__ = ("_flags", "_hash", "_size", "_tally", "_trace")

    def __init__(
        self, tally: RequestCounters, ask: Ask, exchange: Exchange, trace: int, flags: int
    ) -> None:
        self.done = _NONE
        self._tally: Final = tally
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
        self._tally.forward(exchange)

    def copy(self, exchange: Exchange, route: BrokerRoute | None) -> None:
        """Count and record that a copy of the request was forwarded."""
        self._tally.copy(exchange, route)
        self._record(exchange, route, _FORWARD, 1, self._flags | Flag.MULTICAST)

    def end(self, exchange: Exchange, route: BrokerRoute | None, outcome: int) -> None:
        """Count and record how the request ended."""
        self._tally.end(exchange, route, outcome)
        self._record(exchange, route, _DELIVER if outcome == RELAYED else outcome, 0, self._flags)

    def mark(self, trace: str | None) -> str | None:
        """Return a tracing text with the mark after the broker's hop, the first."""
        mark = LogMark(self._trace, 1, self._tally.log.recorder.weight)
        return with_log_mark((read_tracing(trace) or {}) if trace else {}, mark) or trace

    def _record(
        self, exchange: Exchange, route: BrokerRoute | None, outcome: int, hop: int, flags: int
    ) -> None:
        tally = self._tally
        recorder = tally.log.recorder
        took = int((recorder.now() - exchange.began) * 1e6)
        if not 0 <= took <= MAX_FIELD:
            took = MAX_FIELD if took > 0 else 0
        key = (tally, route)
        recorder.hop(
            self._trace,
            self._hash,
            codes_of(tally.kind, outcome, hop, flags),
            recorder.naming.known.get(key) or self._learn(key),
            took,
            self._size,
            recorder.weight,
        )

    @staticmethod
    def _learn(key: tuple[RequestCounters, BrokerRoute | None]) -> bytes:
        """Return the packed ends of a hop between an origin and a destination, or none."""
        tally, route = key
        learn = tally.log.recorder.naming.learn
        if route is None:
            return learn(key, tally.origin, "", None, tally.asked)
        service = route.destination.service
        return learn(key, tally.origin, service, route.route_id, tally.asked)
