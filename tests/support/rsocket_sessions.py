"""Sessions that can be resumed, byte by byte: SETUP with a token, RESUME and RESUME_OK by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onward.protocol.rsocket import ResumeLimits
from onward.transports.rsocket import LinkOptions, ResumeOptions
from tests.support.rsocket_peer import LEASE, Peer, World, frame, kind_of, setup, stream_of

__all__ = [
    "RESUME",
    "RESUME_OK",
    "TOKEN",
    "begun",
    "lost",
    "plain",
    "resumable",
    "resume",
    "resume_ok",
    "row",
    "size_of",
]

TOKEN = bytes(range(16))
RESUME, RESUME_OK = 0x0D, 0x0E


def resumable(
    options: LinkOptions | None = None,
    *,
    time: float = 60.0,
    max_kept: int = 1024 * 1024,
    **more: Any,
) -> LinkOptions:
    """Return options with sessions that can be resumed."""
    session = ResumeLimits(time=time, max_kept=max_kept)
    return replace(options or LinkOptions(), resume=ResumeOptions(session=session, **more))


def begun(metadata: bytes | None = None, *, token: bytes = TOKEN, **more: Any) -> bytes:
    """Return a SETUP with a resume token."""
    made = setup(metadata, flags=0x080 | more.pop("flags", 0), **more)
    at = 3 + 6 + 12  # after length, header, version and times
    body = made[3:at] + len(token).to_bytes(2) + token + made[at:]
    return len(body).to_bytes(3) + body


def resume(
    last_received: int = 0,
    first_available: int = 0,
    *,
    token: bytes = TOKEN,
    version: tuple[int, int] = (1, 0),
) -> bytes:
    """Return a RESUME frame."""
    body = b"".join(
        (
            version[0].to_bytes(2),
            version[1].to_bytes(2),
            len(token).to_bytes(2),
            token,
            last_received.to_bytes(8),
            first_available.to_bytes(8),
        )
    )
    return frame(0, RESUME, 0, body)


def resume_ok(position: int = 0) -> bytes:
    """Return a RESUME_OK frame."""
    return frame(0, RESUME_OK, 0, position.to_bytes(8))


def size_of(*frames: bytes) -> int:
    """Return how far frames move a position: their bytes without the lengths before them."""
    return sum(len(raw) - 3 for raw in frames if stream_of(raw))


def plain(frames: list[bytes]) -> list[bytes]:
    """Return frames without LEASE."""
    return [raw for raw in frames if kind_of(raw) != LEASE]


async def lost(peer: Peer) -> None:
    """Lose the socket of a peer, and let the broker notice."""
    peer.die()
    await peer.loop.idle()


def row(w: World, at: int = 0) -> dict[str, Any]:
    """Return the listener's row of a connection."""
    return dict(tuple(w.listener.connections())[at])
