"""What the worker of a peer broker does with its routes: in the table, or among the groups."""

from __future__ import annotations

from typing import Protocol

from ...protocol.broker import RouteAdd, RouteRemove
from ..broker import PeerRoutes, TagIndexWorker

__all__ = ["GroupTable", "PeerTable"]


class PeerTable(Protocol):
    """The table of what peer brokers tell; a tag index is the one of their routes."""

    def peer_joined(self, peer: PeerRoutes) -> None:
        """Add a peer broker, which has told nothing yet."""

    def peer_left(self, peer: PeerRoutes) -> None:
        """Remove a peer broker; nothing of what it has told is left."""

    def room_for(self, peer: PeerRoutes) -> int:
        """Return how much more it may tell; 0 if what it tells is refused for lack of room."""
        ...

    def most_of(self, peer: PeerRoutes) -> int:
        """Return how much it may tell if no other has told anything."""
        ...

    def add_remote(self, peer: PeerRoutes, route: RouteAdd) -> str:
        """Add what it has told, or replace it; return why that is refused, or an empty text."""
        ...

    def remove_remote(self, peer: PeerRoutes, route: RouteRemove) -> bool:
        """Remove what it has told; return whether it was there."""
        ...

    def suspend_peer(self, peer: PeerRoutes) -> None:
        """Hide all that it has told."""

    def reveal_peer(self, peer: PeerRoutes) -> None:
        """Show it again."""

    def begin_round(self, peer: PeerRoutes) -> None:
        """Begin a round, in which it tells all anew."""

    def sweep_peer(self, peer: PeerRoutes, limit: int) -> int:
        """Remove what it has not told in its round; return how many were removed."""
        ...

    def drop_peer(self, peer: PeerRoutes, limit: int) -> int:
        """Remove what it has told; return how many were removed."""
        ...


class GroupTable:
    """The groups of other zones, as a `PeerTable`.

    Args:
        index: The tag index.
    """

    def __init__(self, index: TagIndexWorker) -> None:
        self._index = index
        self._zones = index.zones

    def peer_joined(self, peer: PeerRoutes) -> None:
        """Add a broker of another zone, without groups yet."""
        self._index.gateway_joined(peer)

    def peer_left(self, peer: PeerRoutes) -> None:
        """Remove a broker of another zone."""
        self._index.gateway_left(peer)

    def room_for(self, peer: PeerRoutes) -> int:
        """Return how many more groups it may tell."""
        return self._zones.room_for(peer)

    def most_of(self, peer: PeerRoutes) -> int:
        """Return how many groups it may tell if no other has told any."""
        return self._zones.most_of(peer)

    def add_remote(self, peer: PeerRoutes, route: RouteAdd) -> str:
        """Add a group, or replace it."""
        return self._index.add_group(peer, route)

    def remove_remote(self, peer: PeerRoutes, route: RouteRemove) -> bool:
        """Remove a group."""
        return self._zones.remove(peer, route)

    def suspend_peer(self, peer: PeerRoutes) -> None:
        """Hide its groups."""
        self._index.suspend_gateway(peer)

    def reveal_peer(self, peer: PeerRoutes) -> None:
        """Show its groups again."""
        self._index.reveal_gateway(peer)

    def begin_round(self, peer: PeerRoutes) -> None:
        """Begin a round."""
        self._zones.table.begin_round(peer.broker_id)

    def sweep_peer(self, peer: PeerRoutes, limit: int) -> int:
        """Remove groups that it has not told in its round."""
        return self._zones.sweep(peer, limit)

    def drop_peer(self, peer: PeerRoutes, limit: int) -> int:
        """Remove its groups."""
        return self._zones.drop(peer, limit)
