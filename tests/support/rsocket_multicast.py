"""Requests to several destinations, seen by the peers of a broker."""

from __future__ import annotations

from tests.support.rsocket_peer import Peer, World


async def three(w: World) -> tuple[Peer, Peer, Peer, Peer]:
    """Return a requester and three destinations of one service."""
    requester = await w.requester()
    return requester, await w.destination(), await w.destination(), await w.destination()


async def got(peer: Peer) -> bytes:
    """Return the one frame that a peer has got."""
    (frame,) = await peer.received()
    return frame
