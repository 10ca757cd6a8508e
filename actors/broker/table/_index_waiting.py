"""Messages without a destination: they wait in the tag index for a while, or are refused."""

from __future__ import annotations

import time
from math import inf
from typing import Final

from ....protocol import Address, Message, NoRoute
from ....protocol.broker import RoutingType, format_query
from ....protocol.metrics import DurationHistogram
from ...runtime._timer import Timer
from .._exchange import ALL_BUSY, REQUESTER_GONE, Exchange, exchange_of, outcome_of, requester_of
from .._instrument import part_of
from .._options import BrokerOptions
from ._choosing import ChoosingIndex
from ._events import BrokerEvent, Events
from ._expected import Expectations
from ._leaving import BROKER_DRAINS
from ._release import Releases, ZoneReleases
from ._selector import Ask
from ._waiting import Place, Waiter, Waiters, WaitingQuery, WaitingStatistics

__all__ = ["WaitingIndex"]

MULTICAST: Final = RoutingType.MULTICAST

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class WaitingIndex(ChoosingIndex):
    """A routing table with the messages that wait for a destination.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Attributes:
        events: The events of destinations that join and leave, and of refused requests.
        expectations: The destinations that are expected to register.
        waits: How long messages have waited until they were sent to a destination, or refused.
        rejected: Messages that no destination could take, since the start.
        closing: Whether no connection is accepted any more, so that no message waits.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__(options, broker_id)
        self.events = Events(options.max_watchers, options.max_events)
        self._waiters = Waiters(options.waiting)
        self._releases = Releases(self._waiters, self.table, self._send_on, self.after)
        self._zone_releases = ZoneReleases(
            self._waiters, self.zones.takes, self._send_on, self.after
        )
        self.expectations = Expectations(
            self.table, broker_id, options.max_routes, options.expected_seconds, self.after
        )
        self.waits = DurationHistogram()
        self._timer: Timer | None = None
        self._alarm = inf
        self._multicast = Address(0, b"")  # of the forwarder to several destinations
        self.rejected = 0
        self.closing = False

    def adjust(self, options: BrokerOptions) -> None:
        """Change the times of requests that wait from now on."""
        self._options = options

    def patience(self, ask: Ask) -> float:
        """Return how long a request without a destination waits, in seconds; 0 if not at all."""
        options, asked = self._options.waiting, ask.no_route
        if asked is None and not self.expectations.waits(ask.query):
            asked = options.no_route_timeout
        return options.max_wait if asked is None else min(asked, options.max_wait)

    def wait(self, message: Message, ask: Ask, since: float | None = None) -> None:
        """Store a message until there is a destination or its time is over, or refuse it.

        Args:
            message: The message, with the query in front.
            ask: The query.
            since: When it has begun to wait, in seconds of the loop's clock; `None` for now.
        """
        if self.closing:
            self._refuse(message, ask, BROKER_DRAINS)
            return
        patience = self.patience(ask)
        # Creating list of Routable Destinations: "Reject the route immediately and send an error to
        # the client".
        if patience <= 0:
            self._refuse(message, ask)
            return
        # Creating list of Routable Destinations: "Wait for the route to become available with a
        # timeout. If the timeout expires, send an error to the client".
        self._keep(message, ask, self._now() if since is None else since, patience)

    def _keep(self, message: Message, ask: Ask, since: float, patience: float) -> None:
        exchange = exchange_of(message)
        size = exchange.size if exchange is not None else len(message.payload)
        requester = exchange or requester_of(message)
        source = requester.source if requester is not None else ""
        waiter = self._waiters.add(message, ask, size, since, patience, source)
        if waiter is None:
            self._refuse(message, ask)
            return
        if exchange is not None:
            exchange.wait()
            exchange.withdraw = self._waiters.place(waiter)
        if waiter.until < self._alarm:
            self._set_alarm(waiter.until)

    def _set_alarm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._alarm = at
        self._timer = self.after(max(0.0, at - self.node.loop.time()), self._give_up)

    def _give_up(self) -> None:
        """Refuse the overdue messages and set the alarm for the next."""
        # A loop's timer may be early by less than the resolution of its clock.
        now = max(self.node.loop.time(), self._alarm)
        self._timer, self._alarm = None, inf
        for waiter in self._waiters.overdue(now):
            self.waits.add(now - waiter.since)
            there = self.table.candidates(waiter.ask.query)
            self._refuse(waiter.message, waiter.ask, ALL_BUSY if there else "")
        soonest = self._waiters.deadline()
        if soonest is not None and soonest < self._alarm:
            self._set_alarm(soonest)

    def refuse_waiting(self, reason: str = BROKER_DRAINS) -> None:
        """Refuse all waiting messages."""
        for waiter in self._waiters.clear():
            self._refuse(waiter.message, waiter.ask, reason)

    @staticmethod
    def grew(exchange: Exchange, size: int) -> bool:
        """Count more bytes for a request that may wait; return whether there is room."""
        place = exchange.withdraw
        return not isinstance(place, Place) or place.grow(size)

    def forget(self, origin: Address) -> None:
        """Refuse the waiting requests of a connection that has ended."""
        for waiter in self._waiters.of(origin):
            self._refuse(waiter.message, waiter.ask, REQUESTER_GONE)

    def _send_on(self, waiter: Waiter) -> None:
        """Send a waiting message to a destination that can take it now.

        The choice uses the query of the message as it arrived. If the message has to wait again,
        its deadline stays.
        """
        message, ask = waiter.message, waiter.ask
        way = self.chosen(ask, message)
        onward, back, payload, source, context = message
        rest = onward[1:]
        if way is None and self.is_for_several(ask):
            way, rest = (self._multicast,), onward  # several destinations match by now
        if way is None:  # the destination that joined has left again
            self._keep(message, ask, waiter.since, waiter.until - waiter.since)
            return
        self.waits.add(self._now() - waiter.since)
        self.node.parts.router.dispatch_or_lose(
            _new(Message, ((*way, *rest), back, payload, source, context))
        )

    def is_for_several(self, ask: Ask) -> bool:
        """Whether a request goes to several destinations, or to one or more in another zone."""
        if ask.routing is not MULTICAST:
            return False
        return len(self.candidates(ask)) > 1 or self.zones.takes(ask)

    def _refuse(self, message: Message, ask: Ask, reason: str = "") -> None:
        self.rejected += 1
        error = NoRoute(format_query(ask.query), reason)
        self.services.refused(ask.query, outcome_of(error))
        if self.events.watched:
            self.events.emit(
                BrokerEvent("rejected", time.time(), reason=str(error), query=ask.text)
            )
        exchange = exchange_of(message)
        instrument = part_of(self.node)
        if instrument is not None:
            if reason != REQUESTER_GONE:
                instrument.rejected(ask, reason or error.reason)
            if exchange is None:
                self.note_message(ask, message, (), outcome_of(error))
        if exchange is not None:
            exchange.fail(error)
        self.node.lose(message, error)

    def waiting(self) -> WaitingStatistics:
        """Return the figures of the messages that wait for a destination."""
        return self._waiters.statistics(self.node.loop.time())

    def waiting_by_query(self) -> tuple[WaitingQuery, ...]:
        """Return the messages that wait for a destination, by query."""
        return self._waiters.by_query()
