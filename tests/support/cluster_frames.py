"""Frames of a peer broker, written by hand, and a broker in a cluster that gets them."""

from __future__ import annotations

import time
from uuid import UUID

from onward.actors.cluster import Cluster, ClusterOptions, PeerConnection, PeerHandlers
from onward.protocol import LinkDown
from onward.protocol.cluster import ElementKind
from tests.support.rsocket_peer import (
    FORWARDING,
    REQUEST_N,
    RR,
    STREAM,
    C,
    N,
    Peer,
    World,
    composite,
    kind_of,
    payload,
    request,
    setup,
)

__all__ = [
    "ANOTHER",
    "HEADER",
    "INSTANCE",
    "NOWHERE",
    "OTHERS",
    "ROUTE",
    "ROUTES",
    "THEIRS",
    "Dials",
    "broker_info",
    "clustered",
    "element",
    "joined",
    "now",
    "route_add",
    "route_remove",
    "routing",
    "told",
]

THEIRS, ANOTHER = UUID(int=0xB), UUID(int=0xC)
ROUTE = UUID(int=0xD)
HEADER = bytes.fromhex("0000 0001")
ROUTES, OTHERS = "onward.cluster.routes", "cluster.remote-broker-info"
LAST = 1
INSTANCE = 1_700_000_000_000
NOWHERE = bytes(16)
"""The position of a subscriber that has nothing."""


def now(later: int = 0) -> bytes:
    return (int(time.time() * 1000) + later).to_bytes(8)


def broker_info(broker_id: UUID, uri: str = "", version: str = "1") -> bytes:
    place = b"\xa2" + bytes((0x80 | len(uri),)) + uri.encode() if uri else b""
    lists = b"\x06onward\x81" + version.encode() + b"\x08instance" + bytes((len(str(INSTANCE)),))
    return HEADER + b"\x10\x00" + broker_id.bytes + now() + place + lists + str(INSTANCE).encode()


def route_add(service: str, route_id: UUID = ROUTE, home: UUID = THEIRS, later: int = 0) -> bytes:
    name = bytes((len(service),)) + service.encode()
    return HEADER + b"\x08\x00" + home.bytes + route_id.bytes + now(later) + name


def route_remove(route_id: UUID = ROUTE, home: UUID = THEIRS, later: int = 1) -> bytes:
    return HEADER + b"\x0c\x00" + home.bytes + route_id.bytes + now(later)


def element(kind: int, sequence: int, *frames: bytes, home: UUID = THEIRS) -> bytes:
    """Return an element of a route stream; a snapshot has one part."""
    head = bytes((kind, LAST if kind == ElementKind.SNAPSHOT else 0))
    parts = b"".join(len(each).to_bytes(3) + each for each in frames)
    return head + home.bytes + INSTANCE.to_bytes(8) + sequence.to_bytes(8) + parts


def routing(route: str) -> bytes:
    tag = bytes((len(route),)) + route.encode()
    return b"\xfe" + len(tag).to_bytes(3) + tag


class Dials:
    """The brokers that are dialled, in vain.

    Attributes:
        uris: Their URIs.
        cluster: The cluster that dials.
    """

    cluster: Cluster

    def __init__(self) -> None:
        self.uris: list[str] = []

    async def connect(self, uri: str, handlers: PeerHandlers) -> PeerConnection:
        self.uris.append(uri)
        raise LinkDown(uri, "nobody is there")


async def clustered(w: World, *allowed: str) -> Dials:
    """Have the broker take part in a cluster."""
    dials, options = Dials(), ClusterOptions(allowed_peers=allowed)
    cluster = await Cluster.attach(
        w.node, w.broker, options, connect=dials.connect, random=lambda: 0.5
    )
    w.listener._shared.peers = cluster
    cluster.join("rsocket+tcp://own:1")
    dials.cluster = cluster
    return dials


async def joined(w: World, broker_id: UUID = THEIRS, uri: str = "") -> tuple[Peer, bytes]:
    """Connect a broker; return it, and the BROKER_INFO that it has got."""
    peer = w.connect("127.0.0.1")
    told = broker_info(broker_id, uri)
    hello = setup(composite((FORWARDING, told)), keepalive=1000, lifetime=5000)
    assert await peer.ask(hello) == []
    # The stream of its routes is asked for at once, and only then.
    answer, asked = await peer.ask(request(RR, 1, routing("cluster.broker-info"), told))
    assert asked == request(STREAM, 2, routing(ROUTES), NOWHERE, n=16)
    assert answer[3:9] == payload(1, b"", N | C)[3:9]
    return peer, answer[9:]


async def told(w: World, peer: Peer, *elements: bytes) -> list[bytes]:
    """Send elements of the peer's routes; return what it is sent, without credit."""
    got = await peer.ask(*(payload(2, each, N) for each in elements))
    await w.loop.idle()
    return [each for each in got if kind_of(each) != REQUEST_N]
