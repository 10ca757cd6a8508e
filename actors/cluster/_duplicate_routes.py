"""Own routes that another zone may have as well: which of the two connections is closed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
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
    DuplicateSearch,
    Earlier,
    RoutePlace,
)
from ..broker import Broker
from ._options import ClusterOptions

if TYPE_CHECKING:
    from ._gateways import GatewayWorker
    from ._link_workers import LinkWorkers

__all__ = ["DuplicateRoutes"]


class DuplicateRoutes:
    """The search for own routes in other zones, and its requests.

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
        self._unnamed: deque[tuple[GatewayWorker, list[bytes]]] = deque()

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

    def on_retired(self, gateway: GatewayWorker) -> None:
        """Forget what was to be asked, if no broker of a zone is left."""
        if not self._gateways_of(gateway.info.zone):
            self.search.forget(gateway.info.zone)

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
        """Look all own routes up in the new filter of another zone, in slices."""
        ids = [entry.route_id for entry in self._index.own_entries()]
        if self._broker.authorization is not None:
            ids += self._index.suspended
        idle = not self._unnamed
        self._unnamed.append((gateway, ids))
        if idle:
            self._look_up()

    def _look_up(self) -> None:
        gateway, ids = self._unnamed[0]
        limit = self._options.load_slice
        some, ids[:] = ids[:limit], ids[limit:]
        found = [each for each in some if gateway.filter.may_have(each)]
        if found:
            self._suspect(gateway, found)
        if not ids:
            self._unnamed.popleft()
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
        """Ask a zone for what is to be asked for, if there is a link and no request under way."""
        if gateway.connection is None:
            return
        # Without rules there is nothing to compare, and another version does not tell.
        owned = self._broker.authorization is not None and gateway.info.owners == OWNERS
        salt = secrets.token_bytes(OWNER_SALT_SIZE) if owned else b""
        data = self.search.next(gateway.info.zone, salt, now=self._clock())
        if data is not None:
            route = OWNERS_ROUTE if owned else PLACES_ROUTE
            self._run(self._request(gateway, route, data))

    def _ask_again(self, gateway: GatewayWorker, connection: object, what: AskLater) -> None:
        """Ask a zone once more, unless it has another link: with that all is looked up anew."""
        if connection is gateway.connection:
            now = self._clock()
            self.search.suspect(gateway.info.zone, (what.route_id,), what.times, now=now)
            self.ask(gateway)

    async def _request(self, gateway: GatewayWorker, route: str, data: bytes) -> None:
        zone, connection = gateway.info.zone, gateway.connection
        try:
            if connection is None:
                raise TimeoutError
            async with asyncio.timeout(self._options.connect_timeout):
                answer = await connection.request(route, data)
        except (OnwardError, TimeoutError):
            if connection is gateway.connection:
                self.search.failed(zone)
                self._later(self._options.connect_timeout, lambda: self.ask(gateway))
            return
        if connection is not gateway.connection:
            return  # with another link all is looked up anew
        try:
            clock = int(time.time() * 1000)
            found = self.search.answered(zone, answer, self._place_of, clock, self._clock())
        except ClusterFrameError as error:
            gateway.fault(error)
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
