"""The links between zones, at both ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import OnwardError
from ...protocol.broker import WellKnownKey, format_id
from ...protocol.cluster import (
    FILTER_ROUTE,
    GROUPS_ROUTE,
    ClusterFrameError,
    Element,
    PeerInfo,
    PresenceState,
    ZoneFilter,
)
from .._log import shown
from ..broker import TagIndexWorker
from ._feeds import Feeds, RouteStream
from ._options import ClusterOptions
from ._peer_table import GroupTable
from ._peer_worker import BAD_FRAME, NEARER, REPLACED, RETRY, PeerWorker
from ._statistics import PeerStatistics, ZoneStatistics, stranger

if TYPE_CHECKING:
    from ._duplicate_routes import DuplicateRoutes
    from ._peer_connection import ElementStream, PeerConnection

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

    Attributes:
        filter: The filter of its zone's route ids.
        duplicates: The search for own routes in its zone.
        uri: The URI by which the link was dialled.
        spare: Whether a link to a better broker of the zone has replaced its link, which stays
            until it is idle.
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
        self.duplicates: DuplicateRoutes | None = None
        self.uri = ""
        self.spare = False
        self.routes.most = 2 * options.limits.max_groups
        self._filters: _FilterReceiver | None = None
        self._new_filter()
        self._learn(info)

    def _new_filter(self) -> None:
        self.filter = ZoneFilter(self.info.broker_id, self._options.limits)
        self.routes.may_have = self.filter.may_have

    def connected(self, connection: PeerConnection, info: PeerInfo) -> RouteStream:
        """Use a link; see `PeerWorker.connected`."""
        self.spare = False
        self._end_filters()
        if self.duplicates is not None:
            self.duplicates.on_connected(self, info.zone)
        before = self.info.zone
        if info.zone != before:  # it was started anew
            self.info = replace(self.info, zone=info.zone)
            if self.duplicates is not None:
                self.duplicates.on_left(before)
        stream = super().connected(connection, info)
        self._request_filters()
        return stream

    def lost(self, reason: str, *, replaced: bool) -> None:
        """Receive the loss of the link; see `PeerWorker.lost`."""
        self._end_filters()
        super().lost(reason, replaced=replaced)

    def _end_filters(self) -> None:
        receiver, self._filters = self._filters, None
        if receiver is not None:
            self.filter.lost()
            if receiver.stream is not None:
                receiver.stream.cancel()

    def _request_filters(self) -> None:
        connection = self.connection
        if connection is None or self._filters is not None:
            return
        receiver = self._filters = _FilterReceiver(self)
        try:
            receiver.stream = connection.subscribe(FILTER_ROUTE, b"", self._options.ahead, receiver)
        except OnwardError:
            self._filters = None  # the link is closed, which it tells next

    def on_filter(self, receiver: _FilterReceiver, data: bytes) -> None:
        """Read an element of the stream of filters."""
        if receiver is not self._filters:
            return
        try:
            news = self.filter.receive(Element.parse(data), self._feeds.clock())
        except ClusterFrameError as error:
            self.fault(error)
            return
        if receiver.stream is not None:
            receiver.stream.request_n(1)
        duplicates = self.duplicates
        if duplicates is not None and news.ids:
            duplicates.on_ids(self, news.ids)
        if duplicates is not None and news.unnamed:
            duplicates.on_filter(self)
        if news.ids or news.unnamed:
            self._index.filter_changed()

    def on_filters_ended(self, receiver: _FilterReceiver) -> None:
        """Ask for another stream in a while."""
        if receiver is self._filters:
            receiver.stream = None
            self._end_filters()
            self.after(RETRY, self._request_filters)

    def tell(self, info: PeerInfo) -> None:
        """Keep what it has told of itself; see `PeerWorker.tell`.

        It is of one zone as long as the link lasts.
        """
        if info.zone != self.info.zone:
            return
        super().tell(info)
        self._learn(self.info)
        self.routes.draining = self.info.draining or self.spare

    def _learn(self, info: PeerInfo) -> None:
        self.routes.zone = info.zone
        self.routes.without = _NAMES_ONE.union(info.without)

    def statistics(self) -> PeerStatistics:
        """Return the figures of the other broker at this moment."""
        routes = self.routes
        return replace(
            super().statistics(), routes=routes.told, groups=routes.count, folded=routes.folded
        )

    def zone_statistics(self) -> ZoneStatistics:
        """Return the figures of its zone at this moment."""
        routes, came = self.routes, self.filter.statistics().received_at
        age = None if came is None else self._feeds.clock() - came
        return ZoneStatistics(
            routes.zone, self.label, routes.count, routes.told, routes.folded, age
        )

    def replaced(self) -> None:
        """Prefer another broker of the zone from now on, and close the link when it is idle."""
        self.spare = self.routes.draining = True
        if self.connection is not None:
            self._close_idle(self.connection)

    def used_again(self) -> None:
        """Keep the link that was replaced, as the better one is lost, or drains."""
        self.spare = False
        self.routes.draining = self.info.draining

    def _close_idle(self, connection: PeerConnection) -> None:
        if connection is not self.connection or not self.spare:
            return
        if connection.in_flight:
            self.after(1.0, partial(self._close_idle, connection))
        else:
            connection.close(REPLACED, NEARER)


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


class _FilterReceiver:
    """The receiver of one stream of a zone's filters."""

    __slots__ = ("_worker", "stream")

    def __init__(self, worker: GatewayWorker) -> None:
        self._worker = worker
        self.stream: ElementStream | None = None

    def element(self, data: bytes) -> None:
        """Receive an element."""
        self._worker.on_filter(self, data)

    def ended(self, text: str) -> None:
        """Receive the end of the stream."""
        del text
        self._worker.on_filters_ended(self)

    def broken(self) -> None:
        """Receive the end of a stream on which more came than was requested."""
        self._worker.fault(ClusterFrameError("more elements than were requested"))
