"""Own routes that another zone may have as well: which of the two connections is closed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...protocol import OnwardError
from ...protocol.broker import RouteAdd, RouteRemove
from ...protocol.cluster import (
    OWNER_SALT_SIZE,
    OWNERS,
    OWNERS_ROUTE,
    PLACES_ROUTE,
    AskLater,
    ClusterFrameError,
    DuplicateRequest,
    DuplicateSearch,
    Earlier,
    RoutePlace,
)
from ..broker import Broker
from ._options import ClusterOptions

if TYPE_CHECKING:
    from ._gateways import GatewayWorker
    from ._link_workers import LinkWorkers
    from ._peer_connection import PeerConnection

__all__ = ["DuplicateRoutes"]


class DuplicateRoutes:
    """The search for own routes in other zones, and its requests.

    A zone is asked over one link at a time. While a gateway drains there are two links: what is
    left unanswered over one of them is asked for over the other.

    Its methods are called on the node's loop.

    Args:
        broker: The broker.
        links: The other ends of the links.
        options: The options of the cluster.
        later: Calls a function after a number of seconds.
        run: Runs a coroutine as a task.
        clock: Returns the time of the node's clock, in seconds.

    Attributes:
        search: What is to be asked for.
    """

    def __init__(
        self,
        broker: Broker,
        links: LinkWorkers,
        options: ClusterOptions,
        later: Callable[[float, Callable[[], None]], object],
        run: Callable[[Coroutine[Any, Any, None]], None],
        clock: Callable[[], float],
    ) -> None:
        self.search = DuplicateSearch(options.limits)
        self._broker = broker
        self._index = broker.index
        self._links = links
        self._options = options
        self._later = later
        self._run = run
        self._clock = clock
        # Gateways with a new filter, and the own routes that are still to be looked up in it.
        self._unnamed: dict[GatewayWorker, Iterator[bytes]] = {}
        # Those of them of which another filter has come meanwhile.
        self._renewed: dict[GatewayWorker, None] = {}

    def taken(self, route_id: bytes, owner: str) -> bool:
        """Whether a route id is known to be another principal's in another zone.

        If so, the zone is asked whether it has it still. It is not if the zone is lost: of a lost
        broker of the own zone no ids are kept, either.
        """
        now = self._clock()
        if not self.search.is_taken(route_id, owner, now):
            return False
        gateways = self._gateways_of(self.search.taken_in(route_id))
        if gateways and self.search.ask_again(route_id, now):
            for gateway in gateways:
                self.ask(gateway)
        return bool(gateways)

    def _gateways_of(self, zone: str) -> list[GatewayWorker]:
        """Return the brokers of a zone that groups are known by, a lost one while they are held."""
        return [each for each in self._links.gateways.values() if each.info.zone == zone]

    def _linked(self, zone: str, besides: GatewayWorker) -> list[GatewayWorker]:
        """Return the brokers of a zone that there are links with, besides one of them."""
        return [
            each
            for each in self._gateways_of(zone)
            if each is not besides and each.connection is not None
        ]

    def on_connected(self, gateway: GatewayWorker, zone: str) -> None:
        """Forget what was to be asked, if a zone's only link is new: all is looked up anew.

        Args:
            gateway: The broker that the new link is with.
            zone: Its zone.
        """
        if not self._linked(zone, gateway):
            self.search.forget(zone)

    def on_left(self, zone: str) -> None:
        """Forget what was to be asked, if no broker of a zone is left."""
        if not self._gateways_of(zone):
            self.search.forget(zone)

    def on_own_change(self, change: RouteAdd | RouteRemove) -> None:
        """Look an own route up in the filters of other zones, as it has joined."""
        if isinstance(change, RouteRemove):
            return
        for gateway in self._links.gateways.values():
            if gateway.filter.may_have(change.route_id):
                self._suspect(gateway, (change.route_id,))

    def on_ids(self, gateway: GatewayWorker, ids: Iterable[bytes]) -> None:
        """Receive the ids of routes that have joined another zone."""
        own = [each for each in ids if self._place_of(each) is not None]
        if own:
            self._suspect(gateway, own)

    def on_filter(self, gateway: GatewayWorker) -> None:
        """Look all own routes up in the new filter of another zone, in slices.

        What comes while those of an earlier one are looked up is looked up after them, once.
        """
        if gateway in self._unnamed:
            self._renewed[gateway] = None
            return
        idle = not self._unnamed
        self._unnamed[gateway] = iter(self._own_ids())
        if idle:
            self._look_up()

    def _own_ids(self) -> list[bytes]:
        ids = [entry.route_id for entry in self._index.own_entries()]
        if self._broker.authorization is not None:
            ids += self._index.suspended
        return ids

    def _look_up(self) -> None:
        gateway, ids = next(iter(self._unnamed.items()))
        some = list(islice(ids, self._options.load_slice))
        found = [each for each in some if gateway.filter.may_have(each)]
        if found:
            self._suspect(gateway, found)
        if len(some) < self._options.load_slice:
            del self._unnamed[gateway]
            if gateway in self._renewed:
                del self._renewed[gateway]
                self._unnamed[gateway] = iter(self._own_ids())
        if self._unnamed:
            self._later(0.0, self._look_up)

    def _place_of(self, route_id: bytes) -> RoutePlace | None:
        """Return where a connection of this broker is registered, its session suspended or not."""
        index = self._index
        if index.own_route(route_id) is None and route_id not in index.suspended:
            return None
        return index.own_place(route_id)

    def _suspect(self, gateway: GatewayWorker, ids: Iterable[bytes]) -> None:
        self.search.suspect(gateway.info.zone, ids, now=self._clock())
        self.ask(gateway)

    def ask(self, gateway: GatewayWorker) -> None:
        """Ask a zone for what is to be asked for, if there is a link and no request under way.

        Args:
            gateway: The broker that is asked; without a link another one of its zone.
        """
        zone = gateway.info.zone
        if gateway.connection is None:
            gateway = next(iter(self._linked(zone, gateway)), gateway)
        connection = gateway.connection
        if connection is None:
            return
        # Without rules there is nothing to compare, and another version does not tell.
        owned = self._broker.authorization is not None and gateway.info.owners == OWNERS
        salt = secrets.token_bytes(OWNER_SALT_SIZE) if owned else b""
        request = self.search.next(zone, salt, now=self._clock())
        if request is not None:
            route = OWNERS_ROUTE if owned else PLACES_ROUTE
            self._run(self._request(gateway, connection, route, request))

    def _ask_others(self, gateway: GatewayWorker) -> None:
        """Ask the zone of a broker that has not answered, by another one."""
        for each in self._linked(gateway.info.zone, gateway):
            self.ask(each)

    def _ask_next(self, gateway: GatewayWorker) -> None:
        """Ask the zone of a broker that has not answered, by that one only without another."""
        self._ask_others(gateway)
        self.ask(gateway)

    def _ask_again(self, gateway: GatewayWorker, connection: object, what: AskLater) -> None:
        """Ask a zone once more, unless its only link is a new one: all is looked up anew then."""
        zone = gateway.info.zone
        if connection is gateway.connection or self._linked(zone, gateway):
            self.search.suspect(zone, (what.route_id,), what.times, now=self._clock())
            self.ask(gateway)

    async def _request(
        self,
        gateway: GatewayWorker,
        connection: PeerConnection,
        route: str,
        request: DuplicateRequest,
    ) -> None:
        answer: bytes | None = None
        with suppress(OnwardError, TimeoutError):
            async with asyncio.timeout(self._options.connect_timeout):
                answer = await connection.request(route, request.data)
        if connection is not gateway.connection:
            self.search.failed(request)
            self.ask(gateway)
            return
        if answer is None:
            self.search.failed(request)
            self._later(self._options.connect_timeout, partial(self._ask_next, gateway))
            return
        try:
            clock = int(time.time() * 1000)
            found = self.search.answered(request, answer, self._place_of, clock, self._clock())
        except ClusterFrameError as error:
            gateway.fault(error)
            self._ask_others(gateway)
            return
        for each in found:
            if isinstance(each, Earlier):
                self._index.owned_before(each.route_id, each.since)
            elif isinstance(each, AskLater):
                self._later(each.after, partial(self._ask_again, gateway, connection, each))
            else:
                at, foreign = each.place.timestamp, each.foreign
                self._index.beaten_elsewhere(each.route_id, at, foreign=foreign)
        self.ask(gateway)
