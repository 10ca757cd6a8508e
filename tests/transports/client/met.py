"""A client, and a peer at the other end of its connection that does what a test tells it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from onward.protocol.rsocket import Frame, FrameType, Reassembler, Stream
from onward.transports.client import Client, ClientOptions, connect
from onward.transports.client._link import ClientLink

from .peers import QUICK, Peer, Peers, peers

RR, FNF = FrameType.REQUEST_RESPONSE, FrameType.REQUEST_FNF
STREAM, CHANNEL = FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL


@asynccontextmanager
async def met(
    options: ClientOptions = QUICK, **arguments: Any
) -> AsyncGenerator[tuple[Client, Peer, Peers]]:
    """A client, and what it is connected to."""
    async with peers() as made, connect(made.uri, options=options, **arguments) as client:
        yield client, await made.next(), made


def link_of(client: Client) -> ClientLink:
    assert client._pool is not None
    link = client._pool.keepers[0].link
    assert link is not None
    return link


async def asked(peer: Peer, kind: int = RR) -> Stream:
    """Return the stream of the next request."""
    frame = await peer.next()
    assert isinstance(frame, Frame)
    assert frame.type == kind
    return frame.stream


def answer(peer: Peer, stream: Stream, data: bytes, **more: Any) -> None:
    peer.core.send_payload(stream, data, **more)
    peer.flush()


async def next_payload(peer: Peer) -> tuple[int, bytes]:
    """Return what kind of frame comes next, and its data, put together."""
    payload = Reassembler(10_000_000)
    while True:
        frame = await peer.next()
        assert isinstance(frame, Frame)
        if frame.type == FrameType.ERROR:
            return frame.type, frame.error_text.encode()
        if frame.type != FrameType.PAYLOAD:
            return frame.type, b""
        if payload.add(frame):
            return frame.type, payload.data


def request_of(peer: Peer, kind: int, data: bytes = b"", **more: Any) -> Stream:
    stream = peer.core.open(kind)
    peer.core.send_request(stream, data, **more)
    peer.flush()
    return stream
