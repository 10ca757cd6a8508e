"""A Java broker as a peer broker: what it is told of own routes, and what it tells of its own.

It tells of a route once, when a destination joins, to the brokers that it has links with at that
moment, and never that one has left. So there is no stream to subscribe to, and nothing to resume:
its routes are known from the start of the link on, and end with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import OnwardError
from ...protocol.broker import BrokerFrameError, RouteAdd, RouteRemove
from ...protocol.cluster import (
    REMOTE_BROKER_INFO_ROUTE,
    ROUTE_JOIN_ROUTE,
    SUSPENDED_SERVICE,
    ClusterFrameError,
    java_route,
    parse_java_route,
)
from ...protocol.rsocket import ErrorCode
from ..broker import ApplicationError, Handlers, PeerRoutes, Request, TagIndexWorker
from ._loader import TOO_FAR_AHEAD
from ._options import ClusterOptions

if TYPE_CHECKING:
    from ._peer_connection import PeerConnection
    from ._peer_worker import PeerWorker

__all__ = ["JavaRoutes", "java_greetings"]

_logger = logging.getLogger("onward.actors.cluster")

MOST_JOINS: Final = 16_384
"""Most requests of a Java broker for the cluster that are served at a time: by default as many as a
connection may have streams, as it tells of no route any more after one that is REJECTED."""

UNWRITABLE: Final = "not to be written for it"
"""The reason for which an own route is not told: it has a tag that the dialect has no place for."""

UNTAKEN: Final = "not taken by it"
"""The reason for which an own route is not known to be told: the Java broker has answered with an
error, or not in time."""


class JavaRoutes:
    """The exchange of routes with a Java broker, by one link.

    Its methods are called on the node's loop.

    Args:
        connection: The link.
        index: The tag index.
        routes: The routes of the Java broker in the table.
        options: The options of the cluster.
        refused: Routes that were not loaded, by reason.
    """

    def __init__(
        self,
        connection: PeerConnection,
        index: TagIndexWorker,
        routes: PeerRoutes,
        options: ClusterOptions,
        refused: Counter[str],
    ) -> None:
        self._connection: PeerConnection | None = connection
        self._index = index
        self._routes = routes
        self._options = options
        self._refused = refused
        # Own routes to be told, by their ids: the last change of each.
        self._untold: dict[bytes, RouteAdd] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._withdraw: Callable[[], None] | None = None

    @property
    def unanswered(self) -> int:
        """The own routes that it has not been told, or has not answered yet."""
        return len(self._untold) + len(self._tasks)

    def begin(self) -> None:
        """Announce all own routes, and those that join from now on."""
        self._withdraw = self._index.own_changes(self._on_own_change)

    def end(self) -> None:
        """Announce nothing any more."""
        self._connection = None
        self._untold.clear()
        if self._withdraw is not None:
            self._withdraw()
            self._withdraw = None
        for task in tuple(self._tasks):
            task.cancel()

    # --- own routes ---------------------------------------------------------------------------

    def _on_own_change(self, change: RouteAdd | RouteRemove) -> None:
        if isinstance(change, RouteRemove) or change.service_name == SUSPENDED_SERVICE:
            # It takes no removals. A request that it sends there is REJECTED.
            self._untold.pop(change.route_id, None)
            return
        # Handling ROUTE_SETUP Frames: "the Broker or Broker cluster MUST close the existing route,
        # and remove it from the table, and replace it with the information from the new
        # ROUTE_SETUP." It does not say that a destination has moved here, and what it says of it
        # later is old.
        self._index.moved_here(self._routes, change)
        self._untold[change.route_id] = change
        if len(self._tasks) < self._options.java_joins:
            task = asyncio.get_running_loop().create_task(self._tell())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        """Announce own routes, one after another, until there are none."""
        while self._untold and self._connection is not None:
            route = self._untold.pop(next(iter(self._untold)))
            try:
                data = java_route(route)
                async with asyncio.timeout(self._options.connect_timeout):
                    await self._connection.request(ROUTE_JOIN_ROUTE, data)
            except BrokerFrameError:
                self._refused[UNWRITABLE] += 1
            except (OnwardError, TimeoutError) as error:
                self._refused[UNTAKEN] += 1
                _logger.warning(
                    "%s has not taken a route: %s",
                    self._routes.label,
                    error or "no answer in time",
                    extra={"event": "peer.untold", "peer": self._routes.label},
                )

    # --- its routes ---------------------------------------------------------------------------

    def joined(self, data: bytes, clock: int) -> None:
        """Add a route of the Java broker.

        Args:
            data: Its ROUTE_JOIN.
            clock: The time, in milliseconds since the Unix epoch.

        Raises:
            ClusterFrameError: It is none.
        """
        route = parse_java_route(data)
        if route.timestamp > clock + self._options.limits.max_ahead * 1000:
            reason = TOO_FAR_AHEAD
        else:
            reason = self._index.add_remote(self._routes, route)
        if reason:
            self._refused[reason] += 1


def java_greetings(worker: PeerWorker, connection: PeerConnection) -> Handlers:
    """Make the handlers of the requests that a Java broker sends for the cluster.

    What it is told in an answer is what it has sent: it has no use for the answer, and sends
    nothing any more after an error.

    Args:
        worker: The worker of the Java broker.
        connection: The link.
    """
    handlers = Handlers(max_handling=MOST_JOINS, max_handling_per_peer=MOST_JOINS)

    @handlers.response(ROUTE_JOIN_ROUTE)
    async def joined(request: Request) -> bytes:
        try:
            worker.on_java_route(connection, request.data)
        except ClusterFrameError as error:
            if worker.connection is connection:
                worker.fault(error)
            raise ApplicationError(ErrorCode.INVALID, str(error)) from None
        return request.data

    @handlers.response(REMOTE_BROKER_INFO_ROUTE)
    async def another(request: Request) -> bytes:
        # Of others it says what it has heard. Their own links say it better.
        return request.data

    # Decorated functions are used by the handlers only.
    del joined, another
    return handlers
