"""What peers of a broker have got: a frame, an error, or how many requests."""

from __future__ import annotations

from tests.support.rsocket_peer import Peer, World, errors, restamped


async def three(w: World) -> tuple[Peer, Peer, Peer, Peer]:
    """Return a requester and three destinations of one service."""
    requester = await w.requester()
    return requester, await w.destination(), await w.destination(), await w.destination()


async def got(peer: Peer) -> bytes:
    """Return the one frame that a peer has got."""
    (frame,) = await peer.received()
    return frame


async def refused(peer: Peer, *frames: bytes) -> tuple[int, str]:
    """Send frames that end the connection; return what the broker says."""
    ((stream, code, text),) = errors(await peer.ask(*frames))
    assert stream == 0
    assert peer.closed
    return code, text


async def answered(peer: Peer, *frames: bytes) -> tuple[int, str]:
    """Send a request on stream 1 that is answered with an error."""
    ((stream, code, text),) = errors(await peer.ask(*frames))
    assert stream == 1
    assert not peer.closed
    return code, text


async def counts(peers: list[Peer]) -> list[int]:
    """How many requests each has got since it was looked at last."""
    return [len(await peer.received()) for peer in peers]


async def relay(to: Peer, sender: Peer, stream_id: int, *frames: bytes) -> None:
    """Send frames in one piece and check that they arrive with another stream id only."""
    sender.send(*frames)
    assert await to.received() == [restamped(each, stream_id) for each in frames]
