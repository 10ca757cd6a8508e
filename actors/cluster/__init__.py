"""Brokers that form a cluster: membership, the links between them, and their routes."""

from ._peer_connection import (
    ConnectPeer,
    ElementReceiver,
    ElementStream,
    PeerConnection,
    PeerHandlers,
    PeerRefused,
)

__all__ = [
    "ConnectPeer",
    "ElementReceiver",
    "ElementStream",
    "PeerConnection",
    "PeerHandlers",
    "PeerRefused",
]
