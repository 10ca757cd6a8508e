"""A cluster of which tests decide everything, and brokers that another one is told of by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple, cast
from uuid import UUID

from onward.actors.broker import BrokerOptions, Handlers, Request
from onward.actors.broker.table._remote import PeerRoutes
from onward.actors.cluster import PeerConnection, PeerRefused
from onward.protocol.broker import BrokerInfo, RouteAdd
from onward.transports.rsocket import LinkOptions, PeerDialler
from onward.transports.rsocket._link import Link
from onward.transports.rsocket._peer_session import PeerSession
from tests.support.rsocket_peer import (
    KEEPALIVE,
    MemoryLoop,
    MemoryTransport,
    Peer,
    World,
    kind_of,
    split,
    world,
)

__all__ = ["CLUSTER", "HandMade", "Joint", "info_of", "join", "joint"]

CLUSTER = "onward.cluster.test"
"""The route of the requests of a `HandMade` cluster: it answers what it gets, twice as stream."""


def info_of(broker_id: UUID, timestamp: int = 1_700_000_000_000) -> BrokerInfo:
    return BrokerInfo(broker_id.bytes, timestamp, (("onward", b"1"),))


_LATER = count()
"""Milliseconds by which each route that is told of is newer than the one before."""


class HandMade:
    """The `PeerHandlers` of a test.

    Attributes:
        info: The BROKER_INFO of the broker.
        greeted: The BROKER_INFO frames of SETUPs, in order.
        links: The peer links, in order.
        lost: The reasons of those that have ended.
        refuses: The reason for which the next broker is refused, at SETUP or once it has connected.
    """

    def __init__(self, broker_id: UUID) -> None:
        self.info = info_of(broker_id)
        self.greeted: list[BrokerInfo] = []
        self.links: list[PeerConnection] = []
        self.lost: list[tuple[PeerConnection, str]] = []
        self.refuses: dict[str, str] = {}

    def greet(self, info: BrokerInfo) -> None:
        self.greeted.append(info)
        if "greet" in self.refuses:
            raise PeerRefused(self.refuses["greet"])

    def on_connected(self, connection: PeerConnection) -> Handlers:
        if "connected" in self.refuses:
            raise PeerRefused(self.refuses["connected"])
        self.links.append(connection)
        handlers = Handlers()

        @handlers.response(CLUSTER)
        async def answer(request: Request) -> bytes:
            return b"answer to " + request.data

        @handlers.stream(CLUSTER)
        async def count(request: Request) -> AsyncGenerator[bytes]:
            for number in range(int(request.data)):
                yield b"%d" % number

        return handlers

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        self.lost.append((connection, reason))


# --- in memory ------------------------------------------------------------------------------
class WiredTransport(MemoryTransport):
    """One end of a connection between two protocols of this process.

    Attributes:
        other: The other end.
        sent: The frames that were sent by this end, since `taken`.
    """

    def __init__(self, loop: MemoryLoop, protocol: asyncio.Protocol, name: object) -> None:
        super().__init__(loop, protocol, name)
        self.other: WiredTransport | None = None
        self._sent = bytearray()

    def write(self, data: Any) -> None:
        super().write(data)
        self._pass_on()

    def drain(self, size: int | None = None) -> None:
        super().drain(size)
        self._pass_on()

    def _pass_on(self) -> None:
        chunk, other = bytes(self.delivered), self.other
        self.delivered.clear()
        if chunk and other is not None:
            self._sent += chunk
            other.unread.append(chunk)
            self._loop.call_soon(other.feed)

    def lose(self, error: Exception | None) -> None:
        if not self.lost and self.other is not None:
            self.other.unread.append(None)
            self._loop.call_soon(self.other.feed)
        super().lose(error)

    def taken(self) -> list[bytes]:
        """Return the frames that were sent since the last call, without KEEPALIVE."""
        frames, rest = split(self._sent)
        self._sent = bytearray(rest)
        return [each for each in frames if kind_of(each) != KEEPALIVE]


class Joint(NamedTuple):
    """Two brokers with a link between them.

    Attributes:
        near: The broker that has dialled, with its clients.
        far: The other one.
        link: The connection as the near one has it.
        accepted: The connection as the far one has it.
        there: What the near one has sent.
        back: What the far one has sent.
    """

    near: World
    far: World
    link: Link
    accepted: Link
    there: WiredTransport
    back: WiredTransport

    def tell(
        self, service: str, route_id: UUID, tags: Mapping[int | str, str] | None = None
    ) -> None:
        """Tell the near broker of a route of the far one."""
        index, broker_id = self.near.broker.index, self.far.broker.broker_id.bytes
        peer, link = index.peers.known.get(broker_id), self.link
        if peer is None:
            peer = PeerRoutes(broker_id, "far")
            index.peer_joined(peer)
            peer.connected(link.worker.address, "far", lambda: link.busy)
        now = int(time.time() * 1000) + next(_LATER)
        route = RouteAdd(broker_id, route_id.bytes, now, service, tuple((tags or {}).items()))
        assert not index.add_remote(peer, route)

    async def destination(
        self, service: str = "a", tags: Mapping[int | str, str] | None = None
    ) -> Peer:
        """Connect a destination to the far broker, of which the near one knows."""
        route_id = UUID(int=0xFA00 + len(self.far.peers))
        made = await self.far.destination(service, tags, route_id=route_id)
        self.tell(service, route_id, tags)
        return made


async def join(near: World, far: World) -> Joint:
    """Have one broker dial another, and return both once they have shaken hands."""
    theirs, ours = HandMade(far.broker.broker_id), HandMade(near.broker.broker_id)
    far.listener._shared.peers = theirs
    dialler = PeerDialler(near.broker)
    link = await dialler._link("far", await dialler._setup("far", ours))
    session = PeerSession(link, ours, link.session)
    link.join(session)
    factory = far.loop.servers[int(far.listener.uri.rpartition(":")[2])]
    there = WiredTransport(near.loop, link, ("127.0.0.1", 1))
    accepting = cast(asyncio.Protocol, factory())
    back = WiredTransport(near.loop, accepting, ("127.0.0.1", 2))
    there.other, back.other = back, there
    accepting.connection_made(back)
    link.connection_made(there)
    await session.introduce()
    accepted: object = back._protocol
    assert isinstance(accepted, Link)
    there.taken()
    back.taken()
    return Joint(near, far, link, accepted, there, back)


@asynccontextmanager
async def joint(
    near: World,
    broker_options: BrokerOptions | None = None,
    options: LinkOptions | None = None,
    **more: Any,
) -> AsyncGenerator[Joint]:
    """Start another broker, and have the first one dial it; its requests all end."""
    async with world(broker_options, options, **more) as far:
        made = await join(near, far)
        yield made
        await far.settled()
        assert not made.link.core.streams
        assert not made.accepted.core.streams
        for each in (made.link, made.accepted):
            assert each.retry_room == each.gathering.max_forwarded
