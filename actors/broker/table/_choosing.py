"""The choice among the destinations in the table, for requests of clients."""

from __future__ import annotations

from collections.abc import Sequence
from random import random
from typing import Final

from ....protocol import Address, Message, Route
from ....protocol.broker import CachedAnswer, Dialect, Entry, RoutingTable, RoutingType, TagSet
from ....protocol.cluster import RoutePlace, standing
from ..._worker import Worker
from .._exchange import DELIVER, Exchange, exchange_of
from .._instrument import part_of
from .._options import BrokerOptions
from ._choice import Candidates, Choice, next_free
from ._methods import Methods
from ._remote import AnyRoute, RemoteKind, RemoteRoute
from ._route import BrokerRoute, told_owner
from ._selector import Ask, Selectors
from ._services import Services
from ._zones import Zones

__all__ = ["ChoosingIndex"]

MULTICAST: Final = RoutingType.MULTICAST


class _Chosen(Exchange):
    """An exchange that only records the chosen route entry."""

    __slots__ = ()

    def __init__(self) -> None:
        self.route = None


class ChoosingIndex(Worker):
    """A routing table, and the choice among the destinations in it.

    Args:
        options: The limits.
        broker_id: The id of this broker, 16 bytes.

    Raises:
        ValueError: A method of the options is unknown.

    Attributes:
        table: The routing table.
        choice: The choice among several destinations, except by plain round robin.
        services: The counts of each service.
        zones: The other zones.
        ruled: Whether the broker has rules, so that its routes have owners.
    """

    def __init__(self, options: BrokerOptions, broker_id: bytes) -> None:
        super().__init__()
        self._options = options
        self._broker_id = broker_id
        self.table: RoutingTable[AnyRoute] = RoutingTable(
            tombstone_lifetime=int(options.tombstone_seconds * 1000),
            near=broker_id,
            best=self.best_of,
        )
        self.ruled = False
        self._answers = self.table.answers
        self._methods = methods = Methods(options.choice)
        self._selectors = Selectors(self.table.queries, methods, options.max_queries)
        self.choice = Choice(options.choice.max_sticky, options.choice.max_placed, self._now)
        self.services = Services(options.max_services)
        self.zones = Zones(options.max_groups, self.services)

    def _now(self) -> float:
        return self.node.loop.time()

    def place_of(self, entry: Entry[AnyRoute]) -> RoutePlace:
        """Return where a route is registered, as the rule of owners compares it.

        Its owner is not known if its home broker has no rules.
        """
        route = entry.target
        owner = route.owner if isinstance(route, RemoteRoute) else None
        if isinstance(route, BrokerRoute) and self.ruled:
            owner = told_owner(route.destination.principal)
        return RoutePlace(entry.timestamp, entry.kind.broker_id, owner, route.owned_since)

    def best_of(self, entries: Sequence[Entry[AnyRoute]]) -> Entry[AnyRoute]:
        """Return the one of several entries of a route id that stays, by the rule of owners."""
        places = [self.place_of(entry) for entry in entries]
        return entries[places.index(standing(places))]

    def ask(self, frame: bytes, dialect: Dialect) -> Ask:
        """Parse an ADDRESS frame into a query; it does not depend on the table.

        Args:
            frame: The whole frame.
            dialect: The dialect of the frame.

        Raises:
            BrokerFrameError: The frame is broken.
        """
        return self._selectors.read(frame, dialect)

    def asked(self, address: Address) -> Ask:
        """Parse an address of type 32 into a query.

        Raises:
            AddressError: The query cannot be read.
        """
        return self._selectors.named(address)

    def narrowed(self, ask: Ask, forced: TagSet) -> Ask:
        """Return a query with the forced tags of its requester; see `Selectors.narrowed`."""
        self.table.isolate(forced)
        return self._selectors.narrowed(ask, forced)

    def candidates(self, ask: Ask) -> Candidates:
        """Return the destinations that carry the tags of a query."""
        return self.table.candidates(ask.query)

    def choose(self, ask: Ask, exchange: Exchange | None) -> Address | None:
        """Choose a destination among those that carry the tags of a query.

        A busy destination is passed over if another is free, except for shard requests and
        sticky keys, which belong to one destination.

        Args:
            ask: The query.
            exchange: The request, if it came in frames.

        Returns:
            The address to send it to, or `None` if there is no destination or the message is
            for several.
        """
        # As `table.answer` does for a kept answer, without the call.
        answer = self._answers.get(ask.query)
        if answer is None or not (candidates := answer.near):
            answer = self.table.answer(ask.query)
            candidates = answer.near
            if not candidates:
                return self._choose_zone(ask, exchange)
        turn = ask.turn
        if turn is not None:
            at = turn(candidates, 0.0, random) if len(candidates) > 1 else 0
        else:
            near = 0
            if ask.everywhere:
                if ask.routing is MULTICAST and self.zones.takes(ask):
                    return None
                near = len(candidates)
                candidates = answer.candidates or ()
            picked = self.choice.pick(ask, candidates, near)
            if picked is None:
                return None
            at = picked
        entry: Entry[AnyRoute] = candidates[at]
        route = entry.target
        if answer.several and route.busy and not ask.everywhere:
            route = self._free(answer, at) or self._free_zone(ask) or route
        if exchange is None:
            return route.choose(None)
        # As `route.choose` does, without the call: this runs for each request. Each class of route
        # has its own lines, so that compiled code knows it.
        exchange.route = route
        if isinstance(route, BrokerRoute):
            route.requests += 1
            route.outstanding += 1
            return route.to
        route.requests += 1
        route.outstanding += 1
        shared: RemoteKind = route.kind.shared
        shared.begun += 1
        return shared.peer.to

    def _free_zone(self, ask: Ask) -> RemoteRoute | None:
        """Return another zone for a request that no destination of the own one can take now."""
        group = self.zones.pick(ask) if self.zones.known else None
        return None if group is None or group.busy else group

    def _choose_zone(self, ask: Ask, exchange: Exchange | None) -> Address | None:
        """Choose another zone for a request that no destination of the own one can take.

        Returns:
            The address to send it to; `None` if no zone can take it, or the message is for several.
        """
        group = None if ask.routing is MULTICAST else self.zones.pick(ask)
        return None if group is None else group.choose(exchange)

    def _free(self, answer: CachedAnswer, at: int) -> AnyRoute | None:
        """Return a candidate that is not busy, in place of one that is; `None` if none is found.

        Args:
            answer: The candidates.
            at: The busy one, of those to prefer. Others are taken if these are all busy.
        """
        near: Candidates = answer.near
        every: Candidates = answer.candidates or ()
        free = next_free(near, at)
        if free is not None:
            return near[free].target
        far = len(every) - len(near)
        if not far:
            return None
        free = next_free(every, len(near) - 1 + int(self.choice.random() * far))
        return None if free is None else every[free].target

    def chosen(self, ask: Ask, message: Message) -> Route | None:
        """Choose a destination for a message in progress; return the way there. See `choose`."""
        exchange = exchange_of(message)
        if exchange is not None:
            to = self.choose(ask, exchange)
            return None if to is None else (to,)
        chosen = _Chosen()
        self.choose(ask, chosen)
        route = chosen.route
        if route is None:
            return None
        route.released()  # the end of a plain message is not known
        instruments = self.node.instruments
        if instruments is not None and instruments.broker is not None:
            self.note_message(ask, message, (route,))
        return route.way(ask.address)

    def preview(self, ask: Ask) -> AnyRoute | None:
        """Return the route entry that `choose` would choose now.

        `None` if there is none, if all are chosen, or if the choice is random.
        """
        answer = self.table.answer(ask.query)
        candidates: Candidates = (answer.candidates or ()) if ask.everywhere else answer.near
        at = self.choice.preview(ask, candidates) if candidates else None
        return None if at is None else candidates[at].target

    def note_message(
        self,
        ask: Ask,
        message: Message,
        routes: tuple[AnyRoute, ...],
        outcome: int = DELIVER,
    ) -> None:
        """Record the outcome of a plain message, which has no exchange."""
        instrument = part_of(self.node)
        if instrument is not None:
            instrument.message(ask, message[3], len(message[2]), routes, outcome)
