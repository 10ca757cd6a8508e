"""What a broker shows of itself: its table, its reports and its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from ...protocol import TAGS, Address
from ...protocol.broker import SnapshotRoute
from ...protocol.security import Principal
from ..runtime._slices import Slices, whole
from ..security import Authorization
from ._broker_rules import BrokerRules
from ._options import BrokerOptions
from ._reports import Figures, LimitUse, ReportedListener, Reports
from .table._explain import Resolution, explain
from .table._peers import RESERVED_SERVICES
from .table._route import RouteStatistics

__all__ = ["BrokerInspection"]


class BrokerInspection(BrokerRules):
    """A broker that can be looked at; see `Broker`.

    Args:
        options: The limits of the broker.
        authorization: See `BrokerRules`.
        broker_id: See `BrokerRules`.
    """

    def __init__(
        self,
        options: BrokerOptions,
        authorization: Authorization | None,
        broker_id: UUID | None,
    ) -> None:
        super().__init__(options, authorization, broker_id)
        self.events = self.index.events
        self._reports = Reports(options.max_reports)

    def routes(self) -> tuple[RouteStatistics, ...]:
        """Return the rows of the table, in the order the destinations joined."""
        return self.index.rows()

    def expected(self) -> tuple[RouteStatistics, ...]:
        """Return the expected destinations, oldest expectation first."""
        return tuple(self.index.expectations.rows())

    def saved(self) -> Iterator[SnapshotRoute]:
        """Yield the rows of the table for a snapshot, expected destinations marked as such.

        Reserved services of this node are left out: they register by themselves. The rows are
        those at the moment of the first one.
        """
        saved = self.index.saved()
        return (each for each in saved if not each.service.startswith(RESERVED_SERVICES))

    def resolve(
        self, asked: str, *, limit: int = 100, principal: Principal | None = None
    ) -> Resolution:
        """Return where a request would go now, and why not elsewhere; nothing is sent.

        Args:
            asked: The query, as in an address of type 32: `@shard=user service=orders user=42`.
            limit: Most destinations in the result that match, and most that do not.
            principal: The principal that asks: it sees only what it may request, unless it may
                read all. By default the result shows all destinations.

        Raises:
            AddressError: The query cannot be read.
            NotAllowed: The principal may not send such a request.
        """
        ask = self.index.asked(Address(TAGS, asked.encode()))
        view = None if principal is None else self.view_of(principal)
        if principal is not None and view is not None:
            ask = self.permitted(ask, principal)
        return explain(self.index, ask, limit, view)

    def report(
        self, name: str, figures: Figures, listener: ReportedListener | None = None
    ) -> Callable[[], None]:
        """Add a part of the program, such as a listener, to the broker's reports.

        Args:
            name: Its name; a listener's URI.
            figures: Returns its figures by name, as values that JSON can represent. Called on the
                node's loop for each query of the reports. It may be a generator that yields after
                each slice of long work: the loop does other things then.
            listener: The listener, if it is one.

        Returns:
            The function that removes the report.

        Raises:
            LimitReached: There are `max_reports` already.
        """
        return self._reports.add(name, figures, listener)

    def reports(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return name and figures of each report, in the order they were added.

        It looks at each connection, in one turn of the loop.
        """
        return whole(self._reports.read())

    def reports_in_slices(self) -> Slices[tuple[tuple[str, dict[str, Any]], ...]]:
        """Return the same as `reports`, in slices."""
        return self._reports.read()

    def listeners(self) -> tuple[tuple[str, ReportedListener], ...]:
        """Return the URI of each listener, and the listener, in the order they were added."""
        return self._reports.listeners()

    def limits(self) -> Iterator[LimitUse]:
        """Yield the limits of the broker, and how much of each is used."""
        index, options = self.index, self.options
        waiting, multicast = index.waiting(), index.multicast_rules
        routes = index.own_routes + index.table.expecting
        yield LimitUse("max_routes", routes, options.max_routes, index.full)
        peers = index.peers
        # It holds for routes and for suspended sessions, each by themselves.
        told = max(peers.count, len(index.suspended_elsewhere))
        yield LimitUse("max_peer_routes", told, options.max_peer_routes, peers.refused)
        zones = index.zones
        yield LimitUse("max_groups", len(zones), options.max_groups, zones.refused)
        limits, refused = options.waiting, waiting.refused
        yield LimitUse("waiting.max_messages", waiting.messages, limits.max_messages, refused[0])
        yield LimitUse("waiting.max_bytes", waiting.size, limits.max_bytes, refused[1])
        most, exceeded = options.multicast.max_held_total, multicast.exceeded
        yield LimitUse("multicast.max_held_total", multicast.held, most, exceeded)
        yield LimitUse("max_watchers", len(self.events), options.max_watchers, self.events.refused)
        services = index.services
        yield LimitUse("max_services", len(services), options.max_services, services.crowded)
