"""What a broker refuses, seen by the peer that asked."""

from __future__ import annotations

from tests.support.rsocket_peer import Peer, errors


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
