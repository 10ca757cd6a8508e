"""The cluster as one link that it has dialled, and the drain of its broker, know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.broker import BrokerInfo, format_id
from ..broker import DrainPart, Handlers

if TYPE_CHECKING:
    from ._cluster import Cluster
    from ._peer_connection import PeerConnection

__all__ = ["ClusterDrain", "DialledPeer"]


class DialledPeer:
    """The cluster as the transport of one link that it has dialled knows it."""

    __slots__ = ("_cluster", "_uri")

    def __init__(self, cluster: Cluster, uri: str) -> None:
        self._cluster = cluster
        self._uri = uri

    @property
    def info(self) -> BrokerInfo:
        """The BROKER_INFO of this broker."""
        return self._cluster.info

    def greet(self, info: BrokerInfo) -> None:
        """Refuse: the other side has not dialled."""
        raise AssertionError(f"unexpected greeting of {format_id(info.broker_id)}")

    def on_connected(self, connection: PeerConnection) -> Handlers:
        """Use the link."""
        return self._cluster.use(connection, self._uri)

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        """Remove the link."""
        self._cluster.on_lost(connection, reason)


class ClusterDrain(DrainPart):
    """The cluster as a part of a drain: peer brokers are told, and links stay to the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def connections_left(self) -> int:
        """None that a drain has to wait for."""
        return 0

    def on_drain(self, *, draining: bool) -> None:
        """Announce it to the peer brokers."""
        self._cluster.drain(draining=draining)

    async def stop_accepting(self) -> None:
        """Keep the links."""

    def begin_to_drain(self, random: Callable[[], float]) -> None:
        """Keep the links."""

    def drain_to(self, progress: float) -> None:
        """Keep the links."""

    def cut(self) -> None:
        """Keep the links: they end when the node stops."""
