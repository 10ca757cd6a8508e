"""The loading of a peer broker's routes into the table, in slices that leave the loop free."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from ...protocol.broker import RouteRemove
from ...protocol.cluster import (
    CaughtUp,
    ClusterFrameError,
    Element,
    RoundBegan,
    RoundEnded,
    RouteAdded,
    RouteRefused,
    RouteRemoved,
    RouteSubscription,
    SubscribeAgain,
    SubscriptionEvent,
)
from ..broker import PeerRoutes
from ..runtime._full_passes import put_off_full_passes
from ._peer_table import PeerTable

__all__ = ["RouteLoader"]

MAX_LACKING: Final = 1000
"""Most routes that are known to be lacking, as there was no room for them. What is lacking is read
anew once there is room for all that are known."""

TOO_FAR_AHEAD: Final = "timestamp too far ahead"
"""The reason for a refused route: the clock of its home broker is wrong, or that of this one."""


class RouteLoader:
    """The elements of a peer broker that wait, and what they do to the table.

    An element is read when those before it have been loaded, and its credit is given back when it
    has been loaded itself. So what waits is bounded by the credit: elements as they came, and the
    events of one.

    Args:
        index: The table.
        peer: The routes of the peer broker.
        subscription: The subscription to them.
        most: Most elements that may wait: the credit.
        refused: Routes that were not loaded, by reason.

    Attributes:
        lacking: The ids of routes that were refused as there was no room, and are told still; at
            most `MAX_LACKING`.
    """

    def __init__(
        self,
        index: PeerTable,
        peer: PeerRoutes,
        subscription: RouteSubscription,
        most: int,
        refused: Counter[str],
    ) -> None:
        self._index = index
        self._peer = peer
        self._subscription = subscription
        self._most = most
        self._elements: deque[bytes] = deque()
        self._events: deque[SubscriptionEvent] = deque()
        self._in_round = False
        self._refused = refused
        self.lacking: set[bytes] = set()

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return not self._elements and not self._events

    def put(self, data: bytes) -> None:
        """Add an element.

        Raises:
            ClusterFrameError: There was no credit for it.
        """
        if len(self._elements) >= self._most:
            raise ClusterFrameError("more elements than were requested")
        self._elements.append(data)

    def drop(self) -> None:
        """Drop the elements that were not read, as their stream has ended.

        The events of the one that was read stay: the subscription counts them as loaded.
        """
        self._elements.clear()

    def load(
        self, limit: int, now: float, clock: int
    ) -> tuple[int, tuple[CaughtUp | SubscribeAgain, ...]]:
        """Load a slice.

        Args:
            limit: Most routes in it.
            now: The time, in seconds of the node's clock.
            clock: The time, in milliseconds since the Unix epoch.

        Returns:
            The number of elements that are loaded with it, and what they say of the subscription.

        Raises:
            ClusterFrameError: An element cannot be read, or may not come; nothing of it is loaded.
        """
        if not self._events and self._elements:
            element = Element.parse(self._elements.popleft())
            self._events.extend(self._subscription.receive(element, now, clock))
            if not self._events:
                return 1, ()
        if self._in_round:
            put_off_full_passes()
        told: list[CaughtUp | SubscribeAgain] = []
        while self._events and limit > 0:
            event = self._events[0]
            if isinstance(event, RoundEnded):
                swept = self._index.sweep_peer(self._peer, limit)
                limit -= swept
                if limit <= 0:
                    break  # there may be more
                self._in_round = False
            else:
                limit -= 1
                if isinstance(event, CaughtUp | SubscribeAgain):
                    told.append(event)
                else:
                    self._apply(event)
            self._events.popleft()
        return (0 if self._events else 1), tuple(told)

    def _apply(self, event: SubscriptionEvent) -> None:
        index, peer = self._index, self._peer
        if isinstance(event, RouteAdded):
            reason = index.add_remote(peer, event.route)
            if reason:
                self._refused[reason] += 1
                if len(self.lacking) < MAX_LACKING and not index.room_for(peer):
                    self.lacking.add(event.route.route_id)
            elif self.lacking:
                self.lacking.discard(event.route.route_id)
        elif isinstance(event, RouteRemoved):
            index.remove_remote(peer, event.route)
            self.lacking.discard(event.route.route_id)
        elif isinstance(event, RouteRefused):
            self._refused[TOO_FAR_AHEAD] += 1
            route = event.route
            index.remove_remote(peer, RouteRemove(route.broker_id, route.route_id, route.timestamp))
        elif isinstance(event, RoundBegan):
            index.begin_round(peer)
            self.lacking.clear()
            self._in_round = True
