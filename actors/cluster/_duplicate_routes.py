"""Own routes that another zone may have as well: which of the two connections is closed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from ...protocol import OnwardError
from ...protocol.broker import RouteAdd, RouteRemove
from ...protocol.cluster import PLACES_ROUTE, ClusterFrameError, DuplicateSearch, RoutePlace
from ..broker import TagIndexWorker
from ._options import ClusterOptions

if TYPE_CHECKING:
    from ._gateways import GatewayWorker
    from ._link_workers import LinkWorkers

__all__ = ["DuplicateRoutes"]


class DuplicateRoutes:
    """The search for own routes in other zones, and its requests.

    Its methods are called on the node's loop.

    Args:
        index: The tag index.
        links: The other ends of the links.
        options: The options of the cluster.
        later: Calls a function after a number of seconds.
        run: Runs a coroutine as a task.

    Attributes:
        search: What is to be asked for.
    """

    def __init__(
        self,
        index: TagIndexWorker,
        links: LinkWorkers,
        options: ClusterOptions,
        later: Callable[[float, Callable[[], None]], object],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.search = DuplicateSearch(options.limits)
        self._index = index
        self._links = links
        self._options = options
        self._later = later
        self._run = run
        # Gateways with a new filter, and the own routes that are still to be looked up in it.
        self._unnamed: deque[tuple[GatewayWorker, list[bytes]]] = deque()

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
        entry = self._index.own_route(route_id)
        return None if entry is None else RoutePlace(entry.timestamp, entry.broker_id)

    def _suspect(self, gateway: GatewayWorker, ids: Iterable[bytes]) -> None:
        self.search.suspect(gateway.info.zone, ids)
        self.ask(gateway)

    def ask(self, gateway: GatewayWorker) -> None:
        """Ask a zone for what is to be asked for, if there is a link and no request under way."""
        if gateway.connection is not None:
            data = self.search.next(gateway.info.zone)
            if data is not None:
                self._run(self._request(gateway, data))

    async def _request(self, gateway: GatewayWorker, data: bytes) -> None:
        zone, connection = gateway.info.zone, gateway.connection
        try:
            if connection is None:
                raise TimeoutError
            async with asyncio.timeout(self._options.connect_timeout):
                answer = await connection.request(PLACES_ROUTE, data)
        except (OnwardError, TimeoutError):
            if connection is gateway.connection:
                self.search.failed(zone)
                self._later(self._options.connect_timeout, lambda: self.ask(gateway))
            return
        if connection is not gateway.connection:
            return  # with another link all is looked up anew
        try:
            clock = int(time.time() * 1000)
            beaten = self.search.answered(zone, answer, self._place_of, clock)
        except ClusterFrameError as error:
            gateway.fault(error)
            return
        for each in beaten:
            self._index.beaten_elsewhere(each.route_id, each.place.timestamp)
        self.ask(gateway)
