"""The record of requests that the connections of one service have received."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.eventlog import Flag, Kind, sampled
from ....protocol.rsocket import FrameType
from ...broker._instrument import OriginInstrument, RequestCounting
from ._request_counters import RequestCounters
from ._unparsed_request import Sampled, UnparsedRequest

if TYPE_CHECKING:
    from ...broker._exchange import Exchange
    from ...broker.table._selector import Ask, Selector
    from ._requests import RequestLog

__all__ = ["OriginLog"]

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

    __slots__ = ("_foreign", "_log", "_recorder", "_rests", "_tallies", "_unread", "name")

    def __init__(self, log: RequestLog, name: str) -> None:
        self._log: Final = log
        self._recorder: Final = log.recorder
        self._foreign: Final = log.foreign
        self.name: Final = name
        # By frame type: see `KINDS`.
        self._tallies: tuple[dict[Selector, RequestCounters], ...] = tuple(
            {} for _ in range(1 + max(KINDS))
        )
        self._rests: dict[int, RequestCounters] = {}
        self._unread: dict[int, UnparsedRequest] = {}

    def settle(self) -> None:
        """Settle all counters."""
        for tallies in self._tallies:
            for tally in tallies.values():
                tally.settle()
        for tally in self._rests.values():
            tally.settle()

    def forget(self) -> None:
        """Release the counters, which must be settled."""
        for tallies in self._tallies:
            tallies.clear()
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
            tally = self._tallies[kind][ask.selector]
        except KeyError:
            tally = self._tally(kind, ask)
        if trace is not None:
            chosen = sampled(trace, self._recorder.threshold)
            # Chosen requests beyond the limit are drawn like those without an id.
            if not chosen or self._foreign.take():
                tally.counted_from += 1
                tally.bytes += exchange.size
                exchange.log = (
                    Sampled(tally, ask, exchange, trace, Flag.FOREIGN) if chosen else tally
                )
                return
        # One decrement counts and samples: this runs for each request.
        tally.bytes += exchange.size
        tally.left = left = tally.left - 1
        exchange.log = tally if left else self._sample(tally, ask, exchange)

    def _sample(self, tally: RequestCounters, ask: Ask, exchange: Exchange) -> RequestCounting:
        """Return the account of a sampled request, and draw the next sample."""
        tally.settle()
        recorder = self._recorder
        tally.left = tally.counted_from = recorder.gap()
        return Sampled(tally, ask, exchange, recorder.trace_id(), 0)

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
        tally = self._rests.get(kind)
        if tally is None:
            tally = self._rests[kind] = RequestCounters(self._log, self.name, KINDS[kind], None)
            self._log.know(self)
        return tally

    def message(self, ask: Ask, size: int) -> RequestCounters:
        """Count a worker's message to an address of type 32, and return its counters."""
        tally = self._tallies[0].get(ask.selector)
        if tally is None:
            tally = self._tally(0, ask)
        tally.came.add(size)
        return tally

    def _tally(self, kind: int, ask: Ask) -> RequestCounters:
        selector = ask.selector
        asked = self._log.asked(selector)
        if asked is None:
            return self._rest(kind)
        self._log.keeps_too_much()
        made = self._tallies[kind][selector] = RequestCounters(
            self._log, self.name, KINDS[kind], asked
        )
        self._log.know(self)
        return made
