"""A Java broker as a peer broker, played frame by frame; what it says was said by a real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.actors.cluster import Cluster, PeerRefused
from onward.protocol import LinkDown, NotDelivered
from onward.protocol.rsocket import Frame
from onward.transports.rsocket import PeerDialler, PeerOptions
from tests.support.peer_brokers import HandMade
from tests.support.rsocket_peer import *
from tests.support.transports import eventually
from tests.transports.rsocket.test_cluster_sentences import clustered, routing

INSIDE = "127.0.0.1"
THEIRS = UUID(int=0xB)
ROUTE = UUID("71bb741e-8c03-4c6d-9e13-0137496b3ff4")
JOIN, HANDSHAKE = "cluster.route-join", "cluster.broker-info"
REJECTED, INVALID, REJECTED_SETUP = 0x202, 0x204, 0x003

INFO = bytes.fromhex(
    "0000000110000000000000000000000000000000000b000001a221f73863a1957463703a2f2f3132372e302e302e31"
    "3a3439343735a2157463703a2f2f3132372e302e302e313a3530383939"
)
MIMES = bytes.fromhex(
    "000000000500000100000000"
    "4e2000015f90276d6573736167652f782e72736f636b65742e636f6d706f736974652d6d657461646174612e763021"
) + (BROKER_FRAME)
CONTROL = b"\x00\x00\xab" + MIMES + bytes(3) + INFO
"""The SETUP of the connection for the cluster. It has metadata, which are empty."""
PROXY_METADATA = composite((BROKER_FRAME, INFO))
PROXY = b"\x00\x00\xd0" + MIMES + len(PROXY_METADATA).to_bytes(3) + PROXY_METADATA
"""The SETUP of the connection for forwarded requests."""


def route_join(service: str = "sj", route_id: UUID = ROUTE, later: int = 0) -> bytes:
    """Return a ROUTE_JOIN, with the tags in the order of a real one."""
    head = bytes.fromhex("0000 0001 0800") + THEIRS.bytes + route_id.bytes
    name = bytes((len(service),)) + service.encode()
    moment = (int(time.time() * 1000) + later).to_bytes(8)
    return head + moment + name + lists_of_tags({2: f"Id{{{route_id}}}", 1: service})


class JavaPeer:
    """The two connections of a Java broker that has dialled.

    Attributes:
        control: That of the cluster.
        proxy: That of forwarded requests.
    """

    def __init__(self, control: Peer, proxy: Peer) -> None:
        self.control = control
        self.proxy = proxy
        self._stream = 1

    async def tell(self, route: str, data: bytes) -> list[bytes]:
        """Send a request of the cluster, and return what comes."""
        self._stream += 2
        return await self.control.ask(request(RR, self._stream, routing(route), data))

    async def join(self, data: bytes) -> None:
        """Tell of a route, which comes back."""
        assert (await self.tell(JOIN, data))[-1] == payload(self._stream, data, N | C)


async def java(w: World) -> JavaPeer:
    control = w.connect(INSIDE)
    assert await control.ask(CONTROL) == []
    (answer,) = await control.ask(request(RR, 1, routing(HANDSHAKE), INFO))
    assert answer[9:] == told(w)
    proxy = w.connect(INSIDE)
    assert await proxy.ask(PROXY) == []
    return JavaPeer(control, proxy)


def cluster_of(w: World) -> Cluster:
    found = w.listener._shared.peers
    assert isinstance(found, Cluster)
    return found


def told(w: World) -> bytes:
    """Return the BROKER_INFO that a Java broker gets: the addresses as it writes them."""
    info = cluster_of(w).info
    place = b"\x07tcp://own:1"[1:]
    size = len(place)
    lists = b"\xa1" + bytes((0x80 | size,)) + place + b"\xa2" + bytes((size,)) + place
    head = bytes.fromhex("0000 0001 1000") + info.broker_id
    return head + info.timestamp.to_bytes(8) + lists


@in_world(settles=False)
async def test_both_connections_are_one_peer_link(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    (row,) = cluster_of(w).peers()
    assert (row.broker_id, row.state, row.java) == (str(THEIRS), "up", True)
    assert row.uri == "rsocket+tcp://127.0.0.1:50899?proxy=49475"
    # It asks again, a second after a SETUP of this side.
    assert (await peer.tell(HANDSHAKE, INFO))[0][9:] == told(w)


@in_world(settles=False)
async def test_requests_of_this_broker_are_pinned_to_its_routes(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    await peer.join(route_join())
    requester = await w.requester()
    for mime in (BROKER_FRAME, FORWARDING):
        asked = composite((mime, address("sj", mime=mime)))
        stream = 1 if mime == BROKER_FRAME else 3
        assert await requester.ask(request(RR, stream, asked, b"data")) == []
        (got,) = await peer.proxy.received()
        pinned = address({1: "sj", 2: f"Id{{{ROUTE}}}"})
        assert got == request(RR, stream + 1, composite((BROKER_FRAME, pinned)), b"data")
        assert await peer.proxy.ask(payload(stream + 1, b"answer", N | C)) == []
        assert await requester.received() == [payload(stream, b"answer", N | C)]


@in_world(settles=False)
async def test_a_lone_address_and_fragments(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    await peer.join(route_join())
    requester = w.connect()
    assert await requester.ask(setup(mime=FORWARDING)) == []
    asked = address("sj", mime=FORWARDING)
    first = request(STREAM, 1, asked, b"one", n=5, flags=F)
    assert await requester.ask(first, payload(1, b"two", N)) == []
    got = await peer.proxy.received()
    pinned = composite((BROKER_FRAME, address({1: "sj", 2: f"Id{{{ROUTE}}}"})))
    frames = [Frame.of(each, 3, len(each), 2, int.from_bytes(each[7:9])) for each in got]
    assert b"".join(bytes(each.metadata or b"") for each in frames) == pinned
    assert b"".join(bytes(each.data or b"") for each in frames) == b"onetwo"


@in_world(settles=False)
async def test_a_multicast_is_one_unicast_copy_for_each_of_its_routes(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    for number in (1, 2):
        await peer.join(route_join(route_id=UUID(int=number)))
    requester = await w.requester()
    assert await requester.ask(request(FNF, 1, asked_for("sj", MULTICAST), b"x")) == []
    wanted = [
        composite((BROKER_FRAME, address({1: "sj", 2: f"Id{{{UUID(int=number)}}}"})))
        for number in (1, 2)
    ]
    got = await peer.proxy.received()
    assert got == [request(FNF, 2 * at, each, b"x") for at, each in enumerate(wanted, 1)]


@in_world(settles=False)
async def test_own_routes_are_told_first_all_and_then_each(w: World) -> None:
    await clustered(w)
    early = await w.destination("early")
    peer = await java(w)
    (first,) = await peer.control.received()
    assert routing(JOIN) in first
    assert b"\x05early" in first
    assert b"Id{00000000-0000-0000-0000-000000000001}" in first
    assert await peer.control.ask(payload(2, first[-60:], N | C)) == []
    late = await w.destination("late")
    (second,) = await peer.control.received()
    assert b"\x04late" in second
    # One that leaves is not told: it would not understand.
    late.die()
    early.die()
    assert await peer.control.received() == []


@in_world(settles=False)
async def test_own_routes_are_told_a_few_at_a_time(w: World) -> None:
    await clustered(w)
    most = cluster_of(w).options.java_joins
    for number in range(most + 2):
        await w.destination(f"s{number}")
    peer = await java(w)
    got = await peer.control.received()
    assert len(got) == most
    (row,) = cluster_of(w).peers()
    assert row.unsent == most + 2
    (more,) = await peer.control.ask(payload(2, b"", N | C))
    assert f"s{most}".encode() in more
    # An error, and no answer at all, hold up no other.
    (last,) = await peer.control.ask(error(4, 0x201, b"No connection for broker"))
    assert f"s{most + 1}".encode() in last
    await asyncio.sleep(6)
    (row,) = cluster_of(w).peers()
    assert (row.state, row.unsent) == ("up", 0)


@in_world(settles=False)
async def test_its_requests_go_to_own_routes_only_and_never_wait(w: World) -> None:
    await clustered(w)
    destination = await w.destination("sa")
    peer = await java(w)
    await peer.join(route_join())
    asked = request(RR, 1, asked_for("sa"), b"data")
    assert await peer.proxy.ask(asked) == []
    assert await destination.received() == [request(RR, 2, asked_for("sa"), b"data")]
    assert await destination.ask(payload(2, b"answer", N | C)) == []
    assert await peer.proxy.received() == [payload(1, b"answer", N | C)]
    # Its own route, and one that nobody has: not sent back, and not waited for.
    for stream, service in ((3, "sj"), (5, "nobody")):
        got = await peer.proxy.ask(request(RR, stream, asked_for(service)))
        assert [each[:2] for each in errors(got)] == [(stream, REJECTED)]
    # A request without an ADDRESS is none here.
    got = await peer.proxy.ask(request(RR, 7, routing(JOIN), route_join()))
    assert [each[:2] for each in errors(got)] == [(7, INVALID)]


@pytest.mark.parametrize("spelling", ["Id{%s}", "%s", ""])
@in_world(settles=False)
async def test_a_route_is_told_and_found_by_the_spelling_of_the_java_broker(
    w: World, spelling: str
) -> None:
    await clustered(w)
    peer = await java(w)
    tags: dict[int | str, str] = {2: spelling % ROUTE if spelling else ""}
    wanted = await w.destination("a", tags, route_id=ROUTE)
    (told_of,) = await peer.control.received()
    assert told_of.count(f"Id{{{ROUTE}}}".encode()) == told_of.count(str(ROUTE).encode()) == 1
    other = await w.destination("a")
    pinned = composite((BROKER_FRAME, address({1: "a", 2: f"Id{{{ROUTE}}}"})))
    for stream in (3, 5, 7):
        assert await peer.proxy.ask(request(FNF, stream, pinned)) == []
        assert await wanted.received() == [request(FNF, stream - 1, pinned)]
    assert await other.received() == []


@in_world(settles=False)
async def test_workers_of_this_node_reach_its_routes(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    await peer.join(route_join())
    asking = asyncio.ensure_future(w.node.request("32#service=sj", b"data"))
    (got,) = await peer.proxy.received()
    pinned = address({2: f"Id{{{ROUTE}}}"}, origin=w.broker.broker_id.bytes)
    assert got == request(RR, 2, composite((BROKER_FRAME, pinned)), b"data")
    await peer.proxy.ask(payload(2, b"answer", N | C))
    assert (await asking).payload == b"answer"


@pytest.mark.parametrize("which", ["control", "proxy"])
@in_world(settles=False)
async def test_its_routes_go_with_either_connection(w: World, which: str) -> None:
    await clustered(w)
    peer = await java(w)
    await peer.join(route_join())
    assert w.services() == ["sj"]
    lost, other = (peer.control, peer.proxy) if which == "control" else (peer.proxy, peer.control)
    lost.die()
    assert errors(await other.received())
    assert other.closed
    await asyncio.sleep(0.1)
    assert w.services() == []
    (row,) = cluster_of(w).peers()
    assert (row.state, row.reason, row.routes) == ("suspended", "by the peer", 0)
    # It comes back, and what it tells from then on counts.
    again = await java(w)
    await again.join(route_join(later=5))
    assert w.services() == ["sj"]


@in_world(settles=False)
async def test_a_destination_that_has_moved_here_does_not_come_back(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    joined = route_join("sa", later=-1000)
    await peer.join(joined)
    moved = await w.destination("sa", route_id=ROUTE)
    moved.die()
    await w.loop.idle()
    assert w.services() == []
    # What it said before the move may come after it.
    await peer.join(joined)
    assert w.services() == []


@in_world(settles=False)
async def test_a_second_pair_is_refused(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    again = w.connect(INSIDE)
    (refused,) = errors(await again.ask(CONTROL))
    assert refused[1:] == (REJECTED_SETUP, "there is another link between the two brokers")
    assert not peer.control.closed


@in_world(settles=False)
async def test_a_proxy_connection_needs_the_other_one(w: World) -> None:
    await clustered(w)
    proxy = w.connect(INSIDE)
    (refused,) = errors(await proxy.ask(PROXY))
    assert refused[1] == REJECTED_SETUP
    control = w.connect(INSIDE)
    assert await control.ask(CONTROL) == []
    second = w.connect(INSIDE)
    assert errors(await second.ask(CONTROL))[0][1] == REJECTED_SETUP
    # It has not introduced itself.
    proxy = w.connect(INSIDE)
    assert errors(await proxy.ask(PROXY))[0][1] == REJECTED_SETUP


@in_world(settles=False)
async def test_joins_that_come_before_the_second_connection_wait(w: World) -> None:
    await clustered(w)
    control = w.connect(INSIDE)
    data = route_join()
    frames = request(RR, 1, routing(HANDSHAKE), INFO), request(RR, 3, routing(JOIN), data)
    assert len(await control.ask(CONTROL, *frames)) == 1
    proxy = w.connect(INSIDE)
    assert await proxy.ask(PROXY) == []
    assert await control.received() == [payload(3, data, N | C)]
    assert w.services() == ["sj"]


@in_world(settles=False)
async def test_too_many_of_them_end_the_connection(w: World) -> None:
    await clustered(w)
    control = w.connect(INSIDE)
    frames = [request(RR, 2 * at + 1, routing(JOIN), route_join()) for at in range(1025)]
    assert "requests before it" in errors(await control.ask(CONTROL, *frames))[-1][2]


@in_world(settles=False)
async def test_a_connection_without_the_other_ends_in_a_while(w: World) -> None:
    await clustered(w)
    control = w.connect(INSIDE)
    assert await control.ask(CONTROL) == []
    await asyncio.sleep(w.options.connection.setup_timeout + 1)
    assert "not there in time" in errors(await control.received())[0][2]
    assert not w.listener._shared.java


@in_world(settles=False)
async def test_outside_this_machine_it_needs_a_permission(w: World) -> None:
    await clustered(w)
    control = w.connect("10.0.0.9")
    assert errors(await control.ask(CONTROL))[0][:2] == (0, REJECTED_SETUP)


@in_world(settles=False)
async def test_without_a_cluster_it_is_refused(w: World) -> None:
    for hello in (CONTROL, PROXY):
        peer = w.connect(INSIDE)
        (refused,) = errors(await peer.ask(hello))
        assert refused[1:] == (REJECTED_SETUP, "this broker has no cluster")


@in_world(settles=False)
async def test_a_route_of_another_broker_is_not_believed(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    other = route_join().replace(THEIRS.bytes, UUID(int=0xC).bytes)
    await peer.join(other)
    await peer.join(route_join(later=10_000_000_000))
    assert w.services() == []
    (row,) = cluster_of(w).peers()
    assert sorted(row.refused.values()) == [1, 1]


@in_world(settles=False)
async def test_a_bad_route_ends_the_link(w: World) -> None:
    await clustered(w)
    peer = await java(w)
    got = await peer.tell(JOIN, b"nonsense")
    assert "ROUTE_JOIN" in errors(got)[-1][2]
    assert peer.control.closed
    assert peer.proxy.closed
    (row,) = cluster_of(w).peers()
    assert row.state == "paused"


@pytest.mark.parametrize("data", [b"nonsense", INFO.replace(THEIRS.bytes, bytes(16))])
@in_world(settles=False)
async def test_a_bad_introduction_ends_it(w: World, data: bytes) -> None:
    await clustered(w)
    control = w.connect(INSIDE)
    got = await control.ask(CONTROL, request(RR, 1, routing(HANDSHAKE), data))
    assert "handshake of brokers" in errors(got)[-1][2]


@in_world(settles=False)
async def test_what_it_says_of_others_is_not_passed_on(w: World) -> None:
    dials = await clustered(w, "*")
    peer = await java(w)
    other = INFO.replace(THEIRS.bytes, UUID(int=0xC).bytes)
    (answer,) = await peer.tell("cluster.remote-broker-info", other)
    assert answer[9:] == other
    await asyncio.sleep(5)
    assert dials.uris == []
    assert len(cluster_of(w).peers()) == 1
    # Nor is it told of others, as it would dial them whether it knows them or not.
    assert await peer.control.received() == []


# --- this broker dials --------------------------------------------------------------------------


class JavaServer:
    """A Java broker that listens, at one port for both connections, played frame by frame.

    Attributes:
        uri: The URI of a seed for it.
        opened: The connections, in order: what came by each, and the way to answer.
    """

    def __init__(self) -> None:
        self.uri = ""
        self.opened: list[tuple[asyncio.Queue[bytes], asyncio.StreamWriter]] = []

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncGenerator[JavaServer]:
        made = cls()
        async with await asyncio.start_server(made._on_connected, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            made.uri = f"rsocket+tcp://127.0.0.1:{port}?proxy={port}"
            yield made
            for _, writer in made.opened:
                writer.close()

    async def _on_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.opened.append((frames, writer))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readexactly(3)
                frame = head + await reader.readexactly(int.from_bytes(head))
                if kind_of(frame) != KEEPALIVE:
                    frames.put_nowait(frame)
        frames.put_nowait(b"")

    async def next(self, at: int) -> bytes:
        """Return the next frame of a connection; empty at its end."""
        await eventually(lambda: len(self.opened) > at)
        async with asyncio.timeout(30):
            return await self.opened[at][0].get()

    def send(self, at: int, frame: bytes) -> None:
        self.opened[at][1].write(frame)


@asynccontextmanager
async def dialling(
    server: JavaServer, **options: Any
) -> AsyncGenerator[tuple[PeerDialler, HandMade]]:
    async with Node("broker") as node:
        broker = await Broker.attach(node)
        yield PeerDialler(broker, options=PeerOptions(**options)), HandMade(broker.broker_id)


async def test_it_is_dialled_at_both_ports() -> None:
    async with JavaServer.running() as server, dialling(server) as (dialler, peers):
        connecting = asyncio.ensure_future(dialler.connect(server.uri, peers))
        hello = await server.next(0)
        told = bytes.fromhex("0000 0001 1000") + peers.info.broker_id
        assert composite((BROKER_FRAME, told + hello[-8:])) in hello
        hello = await server.next(1)
        assert told in hello
        asked = await server.next(1)
        assert asked[9:].startswith(len(routing(HANDSHAKE)).to_bytes(3) + routing(HANDSHAKE))
        server.send(1, payload(1, INFO, N | C))
        link = await connecting
        assert peers.links == [link]
        assert (link.java, link.dialled, link.info.broker_id) == (True, True, THEIRS.bytes)
        # A second later it asks for the same.
        server.send(1, request(RR, 2, routing(HANDSHAKE), INFO))
        assert told in await server.next(1)
        answer = asyncio.ensure_future(link.request("cluster.route-join", b"route"))
        assert (await server.next(1)).endswith(routing("cluster.route-join") + b"route")
        server.send(1, payload(3, b"route", N | C))
        assert await answer == b"route"
        assert link.in_flight == 0
        assert not link.busy
        with pytest.raises(NotDelivered):
            link.subscribe("onward.cluster.routes", b"", 1, cast(Any, None))
        link.close("test", "it is over")
        for at in (0, 1):
            assert errors([await server.next(at)])
            assert await server.next(at) == b""
        assert peers.lost == [(link, "test")]


async def test_a_refusal_ends_both() -> None:
    async with JavaServer.running() as server, dialling(server) as (dialler, peers):
        connecting = asyncio.ensure_future(dialler.connect(server.uri, peers))
        await server.next(1)
        server.send(1, error(0, REJECTED_SETUP, b"Duplicate connection from Onward"))
        with pytest.raises(PeerRefused, match="Duplicate"):
            await connecting
        while await server.next(0):
            pass
        assert peers.lost == []


async def test_the_cluster_may_refuse_it() -> None:
    async with JavaServer.running() as server, dialling(server) as (dialler, peers):
        peers.refuses["connected"] = "there is another link between the two brokers"
        connecting = asyncio.ensure_future(dialler.connect(server.uri, peers))
        await server.next(1)
        server.send(1, payload(1, INFO, N | C))
        with pytest.raises(PeerRefused, match="another link"):
            await connecting
        while await server.next(0):
            pass


async def test_one_that_does_not_answer_is_given_up() -> None:
    async with (
        JavaServer.running() as server,
        dialling(server, connect_timeout=0.2) as (dialler, peers),
    ):
        with pytest.raises(LinkDown, match=r"no answer within 0\.2 s"):
            await dialler.connect(server.uri, peers)
        while await server.next(0):
            pass
