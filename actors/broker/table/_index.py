"""The tag index: the worker that resolves tags to destinations.

It holds the routing table and is the node's rule for addresses of type 32. The rule replaces
such an address by the route of the one destination that carries the tags, or by a forwarder if
several do. A request without a destination waits here for a while.

The destinations of peer brokers are in the same table. A request of a client may go to any of them;
one of a peer broker only to those of this broker (`own_candidates`, `choose_own`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ....protocol import TAGS, Address, Message, Route
from ....protocol.broker import RoutingType, SnapshotRoute, TagSet
from ....protocol.security import Principal
from ...runtime._cell import Cell
from .._exchange import MulticastRules, exchange_of
from .._instrument import part_of
from .._multicast import Multicast
from .._options import BrokerOptions
from .._unicast import Unicast
from ._leaving import BROKER_STOPS
from ._remote import own_route as route_of
from ._route import RouteStatistics
from ._services import ServiceStatistics
from ._zone_index import ZoneIndex

__all__ = ["OwnWay", "TagIndexWorker"]

UNICAST: Final = RoutingType.UNICAST
MULTICAST: Final = RoutingType.MULTICAST
SHARD: Final = RoutingType.SHARD

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class OwnWay(NamedTuple):
    """The way of plain messages to a destination of this broker.

    Attributes:
        route: The route.
        principal: The principal of its connection; `None` if it is a worker of this node.
    """

    route: Route
    principal: Principal | None


class TagIndexWorker(ZoneIndex):
    """The worker that holds the routing table and resolves tags to destinations.

    Each class that it derives from adds one part: the table and the choice, what waits, own
    destinations, peer brokers. They are one object, as all of them change the same table, and a
    request must not pay for calls between parts.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Raises:
        ValueError: A method of the options is unknown.

    Attributes:
        cells: The cells of the tag index and of the forwarders to one destination and to several,
            for the express path.
        multicast_rules: The limits and counters for merging the responses to multicasts.
        epoch: How often the rules of the broker have been replaced: what connections remember of
            decisions holds for one epoch.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__(options, broker_id)
        self._thread_id = 0
        self._unicast = Address(0, b"")
        self.cells: tuple[Cell, ...] = ()
        self.multicast_rules = MulticastRules(
            window=options.multicast.window,
            max_held=options.multicast.max_held,
            max_total=options.multicast.max_held_total,
            patience=options.multicast.patience,
            fail_on_leave=options.multicast.on_leave == "error",
        )
        self.epoch = 0

    def on_start(self) -> None:
        """Start the forwarders and become the rule for tag queries.

        Raises:
            RuleInUse: The node has a broker, or another rule for tag queries.
        """
        self._thread_id = threading.get_ident()
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.defaults = {
                UNICAST: self._methods.balancer,
                SHARD: self._methods.sharding,
            }
        own, mailbox = self.address.value, self._mailbox
        self._unicast = self.spawn(
            lambda: Unicast(self), address=Address(0, own + b"/unicast"), mailbox=mailbox
        )
        self._multicast = self.spawn(
            lambda: Multicast(self, self.multicast_rules),
            address=Address(0, own + b"/multicast"),
            mailbox=mailbox,
        )
        cells = map(self._cell_of, (self.address, self._unicast, self._multicast))
        self.cells = tuple(cell for cell in cells if cell is not None)
        self.node.add_rule(TAGS, self.resolve, owner=self._placed)

    def on_stop(self) -> None:
        """Remove the rule and refuse the waiting messages."""
        self.node.remove_rule(TAGS, owner=self._placed)
        self.refuse_waiting(BROKER_STOPS)
        instrument = part_of(self.node)
        if instrument is not None:
            for entry in self.own_entries():
                instrument.left(entry, BROKER_STOPS)
            self._left = True
        self.events.end()

    def resolve(self, message: Message) -> Message | None:
        """Replace the tag query in front of a message by a destination or a forwarder.

        Returns:
            The resolved message, or `None` if it waits for a destination.

        Raises:
            AddressError: The query cannot be read.
            NoRoute: No destination carries the tags, and the message cannot wait.
        """
        onward, back, payload, source, context = message
        if threading.get_ident() != self._thread_id:
            # The table belongs to the loop's thread: go through the mailbox, and its limit.
            onward = (self.address, *onward)
            self.node.parts.router.dispatch(_new(Message, (onward, back, payload, source, context)))
            return None
        ask = self._selectors.named(onward[0])
        candidates = self.table.candidates(ask.query)
        elsewhere = not candidates or ask.routing is MULTICAST
        elsewhere = elsewhere and self.zones.takes(ask)
        if not candidates and not elsewhere:
            # Creating list of Routable Destinations: "If the index is empty, there are no valid
            # routable destinations."
            self.wait(message, ask)
            return None
        # A connection's requests all take the same number of hops, so that they stay in order.
        if len(candidates) == 1 and not elsewhere and exchange_of(message) is None:
            route = candidates[0].target
            route.choose(None)
            onward = (*route.way(onward[0]), *onward[1:])
            instruments = self.node.instruments
            if instruments is not None and instruments.broker is not None:
                self.note_message(ask, message, (route,))
        elif ask.routing is MULTICAST:
            # Multicast Routing: "When the multicast route flag is set, a broker must forward a
            # request to all routes in the list of routes."
            onward = (self._multicast, *onward)
        else:
            # Unicast Routing: "a broker will use a list of routes and select one routable
            # destination from the list of routes."
            onward = (self._unicast, *onward)
        return _new(Message, (onward, back, payload, source, context))

    def handle_message(self, message: Message) -> None:
        """Resolve a request of a connection, or a message that was sent on another thread."""
        onward, back, payload, source, context = message
        exchange = exchange_of(message)
        if exchange is None or not exchange.ended:
            self.node.parts.router.dispatch_or_lose(
                _new(Message, (onward[1:], back, payload, source, context))
            )

    def own_ways(self, asked: Address) -> dict[bytes, OwnWay]:
        """Return the ways of plain messages to this broker's destinations that match, by route id.

        Args:
            asked: The query, as an address of type 32.

        Raises:
            AddressError: The query cannot be read.
        """
        found = self.own_candidates(self._selectors.named(asked))
        return {
            entry.route_id: OwnWay(entry.target.way(asked), route_of(entry).destination.principal)
            for entry in found
        }

    def own_values(self, key: str) -> set[str]:
        """Return the values that this broker's destinations have for a key, both in text form."""
        tags = (route_of(entry).destination.tags for entry in self.own_entries())
        return {value for each in tags for name, value in each if name == key}

    # --- inspection -------------------------------------------------------------------------

    def service_statistics(
        self, view: Callable[[TagSet], bool] | None = None
    ) -> Iterator[ServiceStatistics | None]:
        """Yield the figures of the services; see `Services.statistics`."""
        kinds = [kind for peer in self.peers.known.values() for kind in peer.kinds]
        return self.services.statistics(self.own_entries(), view, kinds)

    def asked_by_routing(self) -> dict[RoutingType, list[int]]:
        """Return the requests of connections by routing, and by the number of their interaction."""
        return self._selectors.counts

    def rows(self) -> tuple[RouteStatistics, ...]:
        """Return the rows of the table, those of this broker first, in the order they joined."""
        return tuple(entry.target.row() for entry in self.entries())

    def saved(self) -> Iterator[SnapshotRoute]:
        """Yield the routes of this broker as of the first item, expected destinations included."""
        there, expected = self.own_entries(), tuple(self.table.expected())
        for entry in there:
            yield SnapshotRoute(
                entry.route_id,
                entry.service_name,
                entry.tags,
                entry.broker_id,
                entry.timestamp,
                entry.target.weight,
            )
        for each in expected:
            yield SnapshotRoute(
                each.route_id,
                each.service_name,
                each.tags,
                each.broker_id,
                each.timestamp,
                each.weight,
                expected=True,
            )
