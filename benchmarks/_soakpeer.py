"""A peer of a soak: an RSocket connection of raw frames over TCP, Unix socket or WebSocket."""

from __future__ import annotations

import asyncio
import struct
from abc import abstractmethod
from enum import IntEnum
from typing import Final, TypeVar, cast

from _soakws import WebSocket
from _wire import (
    ERROR,
    KEEPALIVE,
    KEEPALIVE_RESPOND,
    METADATA_PUSH,
    SELDOM,
    TYPE,
    frame,
    frames_of,
    setup_frame,
)

__all__ = ["CREDIT", "MARK", "Fate", "Peer", "dial", "open_to"]

CREDIT: Final = 8
"""Elements of credit that either end of a stream or a channel grants at a time."""
MARK: Final = struct.Struct(">IH")
"""The end of each element of a stream or a channel: the destination's process id, and the element's
number among those that it has sent, from 1."""


class Fate(IntEnum):
    """The treatment of a request by a destination; the first byte of its data."""

    ANSWER = ord("a")
    ANSWER_LATE = ord("l")
    FAIL = ord("f")
    FORGET = ord("n")
    COUNT = ord("q")
    """Of a request without an answer while no peer leaves: count it separately."""


class Peer(asyncio.Protocol):
    """A connection to the broker.

    Args:
        name: The service name it registers.
        lease: Whether it leases its requests.

    Attributes:
        ready: Done when the broker has registered the route; fails if it closes before.
        lost: Whether the connection is closed.
    """

    transport: asyncio.Transport

    def __init__(self, name: str, *, lease: bool = False) -> None:
        self.name = name
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = False
        self._lease = lease
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.send(setup_frame(self.name, lease=self._lease))
        self._keep_alive()

    def _keep_alive(self) -> None:
        self.send(frame(0, KEEPALIVE_RESPOND, bytes(8)))
        loop = asyncio.get_running_loop()
        self._next_keepalive = loop.call_later(SELDOM / 1000, self._keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._next_keepalive.cancel()
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("the broker closed the connection"))

    def send(self, data: bytes) -> None:
        """Write frames, unless the connection is closed."""
        if not self.lost:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        end = 0
        for type_and_flags, stream_id, start, end in frames_of(data):
            kind = type_and_flags & TYPE
            if stream_id:
                self.on_frame(kind, type_and_flags, stream_id, data[start:end])
            elif kind == KEEPALIVE and not self.ready.done():
                self.ready.set_result(None)
            elif kind == METADATA_PUSH & TYPE:
                self.on_push(data[start:end])
            elif kind == ERROR:
                self.on_refused(data[start + 4 : end].decode(errors="replace"))
        self._rest = data[end:]

    @abstractmethod
    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        """Handle a frame of a stream."""

    def on_push(self, body: bytes) -> None:
        """Handle a metadata push."""
        raise AssertionError(f"a metadata push for {self.name}")

    def on_refused(self, text: str) -> None:
        """Handle an error of the whole connection."""
        raise AssertionError(f"the broker ended a connection: {text}")


_Peer = TypeVar("_Peer", bound=Peer)


async def dial(uri: str, peer: _Peer) -> _Peer:
    """Connect a peer to a listener of the broker, and wait until it is registered.

    Args:
        uri: `rsocket+tcp://host:port`, `rsocket+ws://host:port` or `rsocket+unix:///path`.
        peer: The protocol of the connection.
    """
    await open_to(uri, peer)
    await peer.ready
    return peer


async def open_to(uri: str, peer: Peer) -> None:
    """Connect a peer to a listener of the broker."""
    scheme, _, where = uri.partition("://")
    loop = asyncio.get_running_loop()
    if scheme == "rsocket+unix":
        await loop.create_unix_connection(lambda: peer, where)
        return
    host, _, port = where.rstrip("/").rpartition(":")
    if scheme == "rsocket+ws":
        await loop.create_connection(lambda: WebSocket(peer, host), host, int(port))
    else:
        await loop.create_connection(lambda: peer, host, int(port))
