"""The links between zones, at both ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol.broker import WellKnownKey, format_id
from ...protocol.cluster import GROUPS_ROUTE, ClusterFrameError, PeerInfo, PresenceState
from .._log import shown
from ..broker import TagIndexWorker
from ._feeds import Feeds, RouteStream
from ._options import ClusterOptions
from ._peer_table import GroupTable
from ._peer_worker import BAD_FRAME, PeerWorker
from ._statistics import PeerStatistics, stranger

if TYPE_CHECKING:
    from ._peer_connection import PeerConnection

__all__ = ["GatewayWorker", "ZoneCaller"]

_logger = logging.getLogger("onward.actors.cluster")

_NAMES_ONE: Final = frozenset({int(WellKnownKey.ROUTE_ID), int(WellKnownKey.INSTANCE_NAME)})
"""The keys that no group has."""


class GatewayWorker(PeerWorker):
    """A broker of another zone that this one has dialled, to send requests to its zone.

    It is followed as a peer broker is, by the groups of its zone.

    Args:
        info: What it has told of itself.
        index: The tag index.
        feeds: The streams of own routes, for their clock.
        options: The options of the cluster.
        on_fault: See `PeerWorker`.
        on_dropped: See `PeerWorker`.
    """

    stream_route: ClassVar[str] = GROUPS_ROUTE

    def __init__(
        self,
        info: PeerInfo,
        index: TagIndexWorker,
        feeds: Feeds,
        options: ClusterOptions,
        on_fault: Callable[[bytes], object],
        on_dropped: Callable[[], object],
    ) -> None:
        super().__init__(info, index, feeds, options, on_fault, on_dropped, table=GroupTable(index))
        self._learn(info)

    def tell(self, info: PeerInfo) -> None:
        """Keep what it has told of itself; see `PeerWorker.tell`."""
        super().tell(info)
        self._learn(self.info)

    def _learn(self, info: PeerInfo) -> None:
        self.routes.zone = info.zone
        self.routes.without = _NAMES_ONE.union(info.without)

    def statistics(self) -> PeerStatistics:
        """Return the figures of the other broker at this moment."""
        routes = self.routes
        return replace(super().statistics(), routes=routes.told, groups=routes.count)

    def replaced(self) -> None:
        """Prefer another broker of the zone from now on, and close the link when it is idle."""
        self.routes.draining = True
        self._close_idle()

    def _close_idle(self) -> None:
        connection = self.connection
        if connection is None:
            return
        if connection.in_flight:
            self.after(1.0, self._close_idle)
        else:
            connection.close("replaced", "another broker of the zone is nearer")


class ZoneCaller:
    """A broker of another zone that has dialled this one, to send requests to this zone.

    Args:
        info: What it has told of itself.
        connection: The link.
        stream: The stream of the groups of this zone to it.
        on_fault: Called with its id when it has broken the protocol, before the link is closed.

    Attributes:
        info: What it has told of itself last.
        connection: As given; `None` once it has ended.
        stream: As given.
    """

    def __init__(
        self,
        info: PeerInfo,
        connection: PeerConnection,
        stream: RouteStream,
        on_fault: Callable[[bytes], object],
    ) -> None:
        self.info = info
        self.connection: PeerConnection | None = connection
        self.stream = stream
        self._since = time.time()
        self._on_fault = on_fault

    @property
    def label(self) -> str:
        """A name for people: the one that it has told, or its id."""
        return shown(self.info.name) or format_id(self.info.broker_id)

    def statistics(self) -> PeerStatistics:
        """Return the figures of the other broker at this moment."""
        info, connection, feed = self.info, self.connection, self.stream.statistics()
        row = stranger(info.cluster_uri, "", info=info)
        if connection is None:
            return row
        return replace(
            row,
            peer=connection.peer,
            state=str(PresenceState.UP),
            draining=info.draining,
            round_trip=connection.round_trip,
            unsent=0 if feed is None else feed.behind,
            in_flight=connection.in_flight,
            since=self._since,
            role=str(connection.role),
        )

    def tell(self, info: PeerInfo) -> None:
        """Keep what it has told of itself, if it is not older than what is known."""
        if info.timestamp >= self.info.timestamp or info.instance != self.info.instance:
            self.info = info

    def fault(self, error: ClusterFrameError) -> None:
        """Close the link, as the other broker has broken the protocol."""
        connection = self.connection
        if connection is not None:
            _logger.warning(
                "%s: %s",
                self.label,
                error,
                extra={
                    "event": "peer.fault",
                    "peer": format_id(self.info.broker_id),
                    "reason": error.reason,
                },
            )
            self._on_fault(self.info.broker_id)
            connection.close(BAD_FRAME, str(error))
