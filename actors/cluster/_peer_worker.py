"""The worker of one peer broker: its link, its presence, and the copy of its routes."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import OnwardError
from ...protocol.broker import format_id
from ...protocol.cluster import (
    ROUTES_ROUTE,
    ClusterFrameError,
    PeerInfo,
    Presence,
    PresenceAction,
    PresenceActions,
    RouteSubscription,
    SubscribeAgain,
)
from .._log import shown
from .._worker import Worker
from ..broker import BrokerEvent, EventKind, PeerRoutes, TagIndexWorker
from ..runtime._timer import Timer
from ._feeds import Feeds, RouteStream
from ._java_peer import JavaRoutes
from ._loader import RouteLoader
from ._options import ClusterOptions
from ._peer_table import PeerTable
from ._statistics import PeerStatistics

if TYPE_CHECKING:
    from ._peer_connection import ElementStream, PeerConnection

__all__ = ["BAD_FRAME", "NEARER", "REPLACED", "STOPPED", "PeerWorker"]

_logger = logging.getLogger("onward.actors.cluster")

RETRY: Final = 1.0
"""Seconds after which a stream of routes that the peer broker has ended is asked for again."""

READ_ANEW: Final = 300.0
"""Least seconds after which all routes are asked for again, as there is room for those that were
refused: it costs as much as a link that is new."""

ENOUGH: Final = 10
"""If one in so many places of a table is free, that is room enough, if more were refused."""

STOPPED: Final = "stopped"
"""The reason for which links are closed when this broker stops."""

REPLACED: Final = "replaced"
"""The reason for which a link to a zone is closed, once there is one to a better broker of it."""

NEARER: Final = "another broker of the zone is nearer"
"""The same as a text for the other broker."""

BAD_FRAME: Final = "bad frame"
"""The reason for which a link is closed on which the other broker has broken the protocol."""


class PeerWorker(Worker):
    """One peer broker, from its first link until its routes have been removed.

    Its methods are called on the node's loop: by the cluster, and by the link with the elements of
    the peer broker's routes.

    Args:
        info: What the peer broker has told of itself.
        index: The tag index.
        feeds: The streams of own routes.
        options: The options of the cluster.
        on_fault: Called with the id of the peer broker when it has broken the protocol, before the
            link is closed.
        on_dropped: Called when its routes have been removed.
        table: The table of what it tells; by default the tag index.

    Attributes:
        info: What the peer broker has told of itself last.
        presence: Whether its routes are used.
        routes: Its routes in the table.
        connection: The link; `None` without one.
        stream: The stream of own routes to it; `None` without a link.
        losses: The links lost since the start.
    """

    has_flows: ClassVar[bool] = False
    stream_route: ClassVar[str] = ROUTES_ROUTE

    def __init__(
        self,
        info: PeerInfo,
        index: TagIndexWorker,
        feeds: Feeds,
        options: ClusterOptions,
        on_fault: Callable[[bytes], object],
        on_dropped: Callable[[], object],
        table: PeerTable | None = None,
    ) -> None:
        super().__init__()
        self.info = info
        self._index = index
        self._table: PeerTable = index if table is None else table
        self._feeds = feeds
        self._options = options
        self._on_fault = on_fault
        self._on_dropped = on_dropped
        now = feeds.clock()
        self.presence = Presence(options.limits, now)
        self.routes = PeerRoutes(info.broker_id, info.name)
        self.connection: PeerConnection | None = None
        self.stream: RouteStream | None = None
        self.losses = 0
        self._refused: Counter[str] = Counter()
        self._subscription = RouteSubscription(info.broker_id, options.limits)
        self._loader = self._new_loader()
        self._read_at = now
        self._receiver: _Receiver | None = None
        self._java: JavaRoutes | None = None
        self._dropping = False
        self._working = False
        self._timer: Timer | None = None
        self._retry: Timer | None = None
        self._table.peer_joined(self.routes)

    def _new_loader(self) -> RouteLoader:
        return RouteLoader(
            self._table, self.routes, self._subscription, self._options.ahead, self._refused
        )

    @property
    def id_text(self) -> str:
        """The id of the peer broker, as text."""
        return format_id(self.info.broker_id)

    @property
    def label(self) -> str:
        """A name for people: the one that it has told, or its id."""
        return shown(self.info.name) or self.id_text

    @property
    def over(self) -> bool:
        """Whether there is no link, and none of its routes is kept."""
        return (
            self.connection is None
            and self.presence.wake_at is None
            and not self._dropping
            and not self.routes.count
        )

    # --- the link -----------------------------------------------------------------------------

    def connected(self, connection: PeerConnection, info: PeerInfo) -> RouteStream:
        """Use a link, in place of the one before if there is one; return the stream of own routes.

        Args:
            connection: The link.
            info: What the peer broker has told of itself.
        """
        before = self.connection
        self.tell(info)
        self.connection = connection
        self.stream = RouteStream(self._feeds, info.max_batch)
        self.routes.connected(connection.address, connection.peer, lambda: connection.busy)
        self.routes.java = connection.java
        self._act(self.presence.linked_up(self._feeds.clock()))
        self._unsubscribe()
        if before is None:
            _logger.info(
                "the link to %s is up",
                self.label,
                extra={"event": "peer.connected", "peer": self.id_text},
            )
            self._emit("peer-up")
        if connection.java:
            self._exchange_java(connection)
        else:
            self._subscribe()
        return self.stream

    def retire(self) -> None:
        """Leave the table, as there is nothing of it left."""
        self._table.peer_left(self.routes)
        self.stop()

    def lost(self, reason: str, *, replaced: bool) -> None:
        """Receive the loss of the link: the routes are hidden at once.

        Args:
            reason: The reason.
            replaced: Whether the peer broker keeps another link, which is about to be known here.
        """
        reason = shown(reason)
        self.connection = self.stream = None
        if not replaced:
            self.losses += 1
        self._unsubscribe()
        actions = self.presence.lost(self._feeds.clock(), reason, replaced=replaced)
        self.routes.disconnected()
        if self._java is not None:
            # What it says of its routes, it says once: they would stay for ever.
            self._java.end()
            self._java = None
            actions = (*actions, PresenceAction.DROP)
        if reason in (STOPPED, REPLACED) or replaced or self.info.draining:
            _logger.info(
                "the link to %s has ended: %s",
                self.label,
                reason,
                extra={"event": "peer.ended", "peer": self.id_text, "reason": reason},
            )
        else:
            _logger.warning(
                "the link to %s is lost: %s",
                self.label,
                reason,
                extra={"event": "peer.lost", "peer": self.id_text, "reason": reason},
            )
        self._emit("peer-lost", reason)
        self._act(actions)

    def tell(self, info: PeerInfo) -> None:
        """Keep what the peer broker has told of itself, if it is not older than what is known.

        After a restart it is not, even if its clock was set back.
        """
        if info.timestamp >= self.info.timestamp or info.instance != self.info.instance:
            self.info = info
            self.routes.name = info.name
            self.routes.draining = info.draining

    def fault(self, error: ClusterFrameError) -> None:
        """Close the link, as the peer broker has broken the protocol, and remove its routes."""
        connection = self.connection
        if connection is None:
            return
        _logger.warning(
            "%s: %s: no link for %g s",
            self.label,
            error,
            self._options.limits.pause,
            extra={"event": "peer.fault", "peer": self.id_text, "reason": error.reason},
        )
        actions = self.presence.wrong(self._feeds.clock(), error.reason)
        self._act(actions)
        self._on_fault(self.info.broker_id)
        connection.close(BAD_FRAME, str(error))

    # --- a Java broker ------------------------------------------------------------------------

    def _exchange_java(self, connection: PeerConnection) -> None:
        """Announce all own routes; of its routes those are known that join from now on."""
        self._java = JavaRoutes(connection, self._index, self.routes, self._options, self._refused)
        self._act(self.presence.caught_up(self._feeds.clock()))
        self._java.begin()

    def on_java_route(self, connection: PeerConnection, data: bytes) -> None:
        """Add a route that a Java broker tells of; ignore it if the link is none any more.

        Raises:
            ClusterFrameError: It is none.
        """
        if connection is not self.connection or self._java is None:
            return
        limit = self._options.load_slice
        if self._dropping:  # those of an earlier link, before the first of this one
            while self._table.drop_peer(self.routes, limit) >= limit:
                pass
            self._dropping = False
            self._dropped()
        self._java.joined(data, int(time.time() * 1000))

    # --- the copy of its routes ---------------------------------------------------------------

    def _subscribe(self) -> None:
        """Ask for the routes that are missing here."""
        self._retry = None
        connection = self.connection
        if connection is None or self._receiver is not None:
            return
        data = self._subscription.request(self._feeds.clock())
        receiver = self._receiver = _Receiver(self)
        try:
            receiver.stream = connection.subscribe(
                self.stream_route, data, self._options.ahead, receiver
            )
        except OnwardError:
            # The link is closed, which it tells next.
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        """End the stream, if there is one; what was read of it is loaded still."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        self._subscription.lost(self._feeds.clock())
        self._loader.drop()
        stream, receiver.stream = receiver.stream, None
        if stream is not None:
            stream.cancel()

    def on_element(self, receiver: _Receiver, data: bytes) -> None:
        """Keep an element until it is loaded."""
        if receiver is not self._receiver:
            return
        try:
            self._loader.put(data)
        except ClusterFrameError as error:
            self.fault(error)
        else:
            self._work()

    def on_broken(self, receiver: _Receiver) -> None:
        """Close the link, on which elements came without credit."""
        if receiver is self._receiver:
            self.fault(ClusterFrameError("more elements than were requested"))

    def on_ended(self, receiver: _Receiver, text: str) -> None:
        """Ask for another stream in a while, if the link is there."""
        if receiver is not self._receiver:
            return
        receiver.stream = None
        self._unsubscribe()
        if self.connection is not None:
            _logger.info(
                "%s has ended the stream of its routes: %s",
                self.label,
                shown(text) or "completed",
                extra={"event": "peer.stream_ended", "peer": self.id_text, "reason": shown(text)},
            )
            self._retry = self.after(RETRY, self._subscribe)

    def _work(self) -> None:
        """Schedule a slice of work in a turn of its own."""
        if not self._working:
            self._working = True
            self.after(0, self._slice)

    def _slice(self) -> None:
        self._working = False
        limit = self._options.load_slice
        if self._dropping:
            self._dropping = self._table.drop_peer(self.routes, limit) >= limit
            if not self._dropping:
                self._dropped()
        elif not self._loader.idle:
            self._load(limit)
        if self._dropping or not self._loader.idle:
            self._work()

    def _load(self, limit: int) -> None:
        now, clock = self._feeds.clock(), int(time.time() * 1000)
        receiver = self._receiver
        try:
            loaded, told = self._loader.load(limit, now, clock)
        except ClusterFrameError as error:
            self.fault(error)
            return
        except Exception:
            # What was half loaded is removed with the rest, and read anew after the pause.
            _logger.exception(
                "a route of %s cannot be loaded", self.label, extra={"event": "peer.failed"}
            )
            if self.connection is None:
                self._drop()
            else:
                self.fault(ClusterFrameError("a route that cannot be loaded"))
            return
        for each in told:
            if isinstance(each, SubscribeAgain):
                _logger.warning(
                    "the routes of %s are read anew: %s",
                    self.label,
                    each.reason,
                    extra={"event": "peer.again", "peer": self.id_text, "reason": each.reason},
                )
                self._unsubscribe()
                self._subscribe()
            elif self.connection is not None:
                self._act(self.presence.caught_up(now))
        if loaded and receiver is self._receiver and receiver is not None and receiver.stream:
            receiver.stream.request_n(loaded)
            self._read_refused(now)

    def _read_refused(self, now: float) -> None:
        """Ask for all routes again if some were refused, and there is room for them now."""
        table, lacking = self._table, len(self._loader.lacking)
        if not lacking or now < self._read_at + READ_ANEW:
            return
        enough = max(1, table.most_of(self.routes) // ENOUGH)
        if table.room_for(self.routes) < min(lacking, enough):
            return
        _logger.info(
            "the routes of %s are read anew: there is room for more of them",
            self.label,
            extra={"event": "peer.again", "peer": self.id_text, "reason": "room"},
        )
        self._read_at = now
        self._unsubscribe()
        self._subscription.forget()
        self._subscribe()

    # --- presence -----------------------------------------------------------------------------

    def _act(self, actions: PresenceActions) -> None:
        """Perform the actions that the presence of the peer broker requests."""
        for action in actions:
            if action is PresenceAction.SUSPEND:
                self._table.suspend_peer(self.routes)
            elif action is PresenceAction.REVEAL:
                self._table.reveal_peer(self.routes)
            else:
                self._drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = self.presence.wake_at
        if wake_at is not None:
            self._timer = self.after(max(0.0, wake_at - self._feeds.clock()), self._tick)

    def _tick(self) -> None:
        # A loop's timer may be early by less than the resolution of its clock.
        now = max(self._feeds.clock(), self.presence.wake_at or 0.0)
        self._act(self.presence.tick(now))

    def _drop(self) -> None:
        """Remove its routes in slices; what is loaded from now on begins with nothing."""
        self._unsubscribe()
        self._subscription = RouteSubscription(self.info.broker_id, self._options.limits)
        self._loader = self._new_loader()
        self._dropping = True
        self._work()

    def _dropped(self) -> None:
        """See that its routes are removed; what comes from now on may have to be hidden as well."""
        if self.presence.hidden:
            self._table.suspend_peer(self.routes)
        else:
            self._table.reveal_peer(self.routes)
        self._on_dropped()

    def _emit(self, kind: EventKind, reason: str = "") -> None:
        events = self._index.events
        if events.watched:
            events.emit(BrokerEvent(kind, time.time(), peer=self.label, reason=reason))

    # --- inspection ---------------------------------------------------------------------------

    def _unsent(self) -> int:
        if self._java is not None:
            return self._java.unanswered
        feed = None if self.stream is None else self.stream.statistics()
        return 0 if feed is None else feed.behind

    def statistics(self) -> PeerStatistics:
        """Return the figures of the peer broker at this moment."""
        now = self._feeds.clock()
        connection, presence = self.connection, self.presence
        subscription = self._subscription.statistics()
        return PeerStatistics(
            broker_id=self.id_text,
            name=self.info.name,
            uri=self.info.cluster_uri,
            peer="" if connection is None else connection.peer,
            state=str(presence.state),
            draining=self.info.draining,
            instance=self.info.instance,
            dialled=connection is not None and connection.dialled,
            round_trip=0.0 if connection is None else connection.round_trip,
            routes=self.routes.count,
            sequence=subscription.position.sequence,
            behind=self._subscription.lag(now),
            unsent=self._unsent(),
            in_flight=0 if connection is None else connection.in_flight,
            since=time.time() - (now - presence.since),
            reason=presence.cause,
            losses=self.losses,
            java=self.routes.java,
            refused=dict(self._refused),
            zone=self.info.zone,
            role="" if connection is None else str(connection.role),
            suspended=self.routes.kept,
        )


class _Receiver:
    """The receiver of one stream of a peer broker's routes."""

    __slots__ = ("_worker", "stream")

    def __init__(self, worker: PeerWorker) -> None:
        self._worker = worker
        self.stream: ElementStream | None = None

    def element(self, data: bytes) -> None:
        """Receive an element."""
        self._worker.on_element(self, data)

    def ended(self, text: str) -> None:
        """Receive the end of the stream."""
        self._worker.on_ended(self, text)

    def broken(self) -> None:
        """Receive the end of a stream on which more came than was requested."""
        self._worker.on_broken(self)
