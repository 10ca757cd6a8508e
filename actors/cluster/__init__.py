"""Brokers that form a cluster: membership, the links between them, and their routes."""

from ._cluster import Cluster
from ._options import ClusterOptions
from ._peer_connection import (
    ConnectPeer,
    ElementReceiver,
    ElementStream,
    PeerConnection,
    PeerHandlers,
    PeerRefused,
    ResolveSeed,
)
from ._peer_worker import PeerWorker
from ._statistics import ClusterStatistics, PeerStatistics, ZoneStatistics

__all__ = [
    "Cluster",
    "ClusterOptions",
    "ClusterStatistics",
    "ConnectPeer",
    "ElementReceiver",
    "ElementStream",
    "PeerConnection",
    "PeerHandlers",
    "PeerRefused",
    "PeerStatistics",
    "PeerWorker",
    "ResolveSeed",
    "ZoneStatistics",
]
