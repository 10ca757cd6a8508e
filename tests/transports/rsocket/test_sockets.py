"""The listener on real sockets, with both event loops and with peers that are not ours."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.transports.rsocket import FlowOptions, LinkOptions, RSocketListener
from tests.peers.rsocket_client import Destination, ask, connect
from tests.support.loops import on_both_loops
from tests.support.rsocket_peer import *
from tests.support.transports import eventually
from tests.support.workers import Echo

ASKED = asked_for("a")
URI = "rsocket+tcp://127.0.0.1:0"
REJECTED, CANCELED = 0x202, 0x203


@asynccontextmanager
async def broker(options: LinkOptions | None = None) -> AsyncGenerator[Edge]:
    """Start a node with a broker and a listener; leave no client behind."""
    async with Node("edge") as node:
        made = await Broker.attach(node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=5)))
        listener = await node.listen(URI, broker=made, options=options or LinkOptions())
        assert isinstance(listener, RSocketListener)
        edge = Edge(node, made, listener)
        try:
            yield edge
        finally:
            for client in edge.clients:
                client.reset()
    await asyncio.sleep(0)


class Edge:
    """A node with a broker and a listener, and those who connect to it."""

    def __init__(self, node: Node, made: Broker, listener: RSocketListener) -> None:
        self.node = node
        self.broker = made
        self.listener = listener
        self.port = int(listener.uri.rpartition(":")[2])
        self.clients: list[Client] = []

    async def connect(self, service: str = "") -> Client:
        """Connect a peer that speaks raw frames, as a destination if it has a service."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        wanted = composite((BROKER_FRAME, route_setup(UUID(int=1), service)))
        writer.write(setup(wanted if service else None))
        client = Client(reader, writer)
        self.clients.append(client)
        if service:
            await eventually(lambda: self.served() == 1)
        return client

    def served(self) -> int:
        """How many destinations there are, without the broker itself."""
        return len(self.broker.routes()) - 1

    def connections(self) -> int:
        return self.listener.statistics().connections


class Client:
    """A peer on a socket that speaks raw frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._rest = b""
        self._frames: list[bytes] = []

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def next(self) -> bytes:
        """Return the next frame; fail if the connection ends first."""
        async with asyncio.timeout(20):
            while not self._frames:
                data = await self._reader.read(1 << 18)
                assert data, "the broker has closed the connection"
                self._frames, self._rest = split(self._rest + data)
        return self._frames.pop(0)

    async def ended(self) -> None:
        """Wait until the broker has closed the connection."""
        async with asyncio.timeout(20):
            try:
                while await self._reader.read(1 << 18):
                    pass
            except ConnectionError:
                pass  # cut, not closed

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        self.writer.transport.abort()


@on_both_loops
async def test_requests_and_answers() -> None:
    async with broker() as edge:
        destination = await edge.connect("a")
        requester = await edge.connect()
        for number in range(100):
            requester.send(request(RR, 1 + 2 * number, ASKED, b"%d" % number))
        for number in range(100):
            got = await destination.next()
            assert got == request(RR, 2 + 2 * number, ASKED, b"%d" % number)
            destination.send(payload(2 + 2 * number, b"%d" % number, N | C))
        for number in range(100):
            assert await requester.next() == payload(1 + 2 * number, b"%d" % number, N | C)
        assert [row.outstanding for row in edge.broker.routes()] == [0, 0]
        big = request(RR, 999, ASKED, bytes(2**24 - 100))
        requester.send(big)
        assert restamped(await destination.next(), 999) == big
        requester.close()
        assert await destination.next() == cancel(202)
        destination.reset()
        await eventually(lambda: edge.connections() == 0)
        assert edge.served() == 0


@on_both_loops
async def test_latency_is_told_apart_below_a_millisecond() -> None:
    async with broker() as edge:
        destination = await edge.connect("a")
        requester = await edge.connect()
        for number in range(5):
            requester.send(request(RR, 1 + 2 * number, ASKED, b"?"))
            await destination.next()
            destination.send(payload(2 + 2 * number, b"!", N | C))
            await requester.next()
        latency = 1000 * max(row.latency for row in edge.broker.routes())
    # By a clock of whole milliseconds it would be a multiple of one, most often 0.
    assert abs(latency - round(latency)) > 0.000_01


@on_both_loops
async def test_peers_that_do_not_read() -> None:
    options = LinkOptions(
        flow=FlowOptions(high_water=64 * 1024, max_pending=1024 * 1024, stall_timeout=60)
    )
    async with broker(options) as edge:
        destination = await edge.connect("a")
        slow, other = await edge.connect(), await edge.connect()
        # The destination does not read: who goes on sending to it is stopped, until it does.
        slow.send(request(CHANNEL, 1, ASKED, n=1))
        assert await destination.next() == request(CHANNEL, 2, ASKED, n=1)
        destination.send(request_n(2, 1000))
        assert await slow.next() == request_n(1, 1000)
        destination.writer.transport.pause_reading()  # type: ignore[attr-defined]
        count = 400
        for _ in range(count):
            slow.send(payload(1, bytes(100_000)))
        sent = asyncio.ensure_future(slow.writer.drain())
        await eventually(lambda: any(each._blocked_by for each in edge.listener._links))
        destination.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            assert await destination.next() == payload(2, bytes(100_000))
        await sent
        assert not any(each._blocked_by for each in edge.listener._links)
        # A requester does not read a stream without end: it starves, and others do not.
        slow.send(request(STREAM, 10_001, ASKED, n=2**31 - 1))
        other.send(request(STREAM, 1, ASKED, n=2**31 - 1))
        streams = [stream_of(await destination.next()) for _ in range(2)]
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        link = next(each for each in edge.listener._links if 10_001 in each.core.streams)
        paused = asyncio.ensure_future(eventually(lambda: link.write_paused))
        credit = 128
        while credit:
            destination.send(*[payload(streams[0], bytes(20_000))] * credit)
            more = asyncio.ensure_future(destination.next())
            await asyncio.wait({more, paused}, return_when=asyncio.FIRST_COMPLETED)
            credit = int.from_bytes(more.result()[9:13]) if more.done() else 0
            more.cancel()
        await paused
        destination.send(*[payload(streams[1], b"x")] * 64)
        for _ in range(64):
            assert await other.next() == payload(1, b"x")
        # Both are closed while they wait.
        slow.reset()
        other.reset()
        destination.close()
        await eventually(lambda: edge.connections() == 0)


@on_both_loops
async def test_a_blocked_requester_and_a_paused_destination_go_at_once() -> None:
    options = LinkOptions(drain_timeout=0.2, flow=FlowOptions(high_water=1024, stall_timeout=0.2))
    async with broker(options) as edge:
        destination = await edge.connect("a")
        requester = await edge.connect()
        requester.send(request(CHANNEL, 1, ASKED, n=1))
        assert await destination.next() == request(CHANNEL, 2, ASKED, n=1)
        destination.send(request_n(2, 1000))
        assert await requester.next() == request_n(1, 1000)
        destination.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(100):
            requester.send(payload(1, bytes(100_000)))
        # It is closed as too slow; the channel ends once, and the requester is read on.
        first = await requester.next()
        assert int.from_bytes(first[9:13]) == CANCELED
        await eventually(lambda: edge.listener.statistics().closed == {"too slow": 1})
        wrong = request(RR, 1001, None)
        requester.send(wrong)
        assert stream_of(await requester.next()) == 1001
        # A requester that is not read because it does not read itself.
        requester.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(400):
            requester.send(frame(0, KEEPALIVE, 0x80, bytes(60_000)))
        await eventually(lambda: edge.listener.statistics().closed == {"too slow": 2})
        assert edge.connections() == 0


@on_both_loops
async def test_closing_with_connections_alive() -> None:
    async with broker() as edge:
        clients = [await edge.connect("a" * (number == 0)) for number in range(5)]
        await eventually(lambda: edge.connections() == 5)
        clients[1].send(request(RR, 1, ASKED))
        assert kind_of(await clients[0].next()) == RR
        await edge.listener.close()
        for client in clients:
            await client.ended()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", edge.port)
        assert not edge.node.has(edge.listener.address)


@on_both_loops
async def test_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    async with broker() as edge:
        try:
            listener = await edge.node.listen("rsocket+tcp://[::1]:0", broker=edge.broker)
        except OSError:
            pytest.skip("no IPv6 loopback here")
        assert listener.uri.startswith("rsocket+tcp://[::1]:")
        reader, writer = await asyncio.open_connection("::1", int(listener.uri.rpartition(":")[2]))
        edge.clients.append(Client(reader, writer))
        writer.write(setup(composite((BROKER_FRAME, route_setup(UUID(int=1), "a")))))
        await eventually(lambda: edge.served() == 1)
        assert edge.broker.routes()[1].peer.startswith("[::1]:")


async def test_the_package_as_requester_and_as_destination() -> None:
    async with broker() as edge:
        destination = Destination()
        port = edge.port
        async with connect(port, "python", destination), connect(port, "caller") as caller:
            outcome = await ask(caller, "python", "request_response", "hello")
            assert outcome.elements == ["hello from python"]
            outcome = await ask(caller, "python", "request_response", "fail")
            assert (outcome.code, outcome.message) == (0x201, "refused by python")
            # Seven with credit for five at a time.
            outcome = await ask(caller, "python", "request_stream", "7")
            assert outcome.elements == [f"{number} from python" for number in range(1, 8)]
            outcome = await ask(caller, "python", "first_of_stream", "12")
            assert len(outcome.elements) == 12
            async with asyncio.timeout(5):
                await destination.canceled.get()
            outcome = await ask(caller, "python", "request_channel", "a,b,c")
            assert outcome.elements == [f"{text} from python" for text in "abc"]
            await ask(caller, "python", "fire_and_forget", "note")
            async with asyncio.timeout(5):
                while (await destination.received.get()).interaction != "fire_and_forget":
                    pass
            await eventually(lambda: not any(row.outstanding for row in edge.broker.routes()))
        await eventually(lambda: edge.served() == 0)


async def test_the_package_and_a_worker() -> None:
    async with broker() as edge:
        await edge.node.start(Echo, address="echo")
        edge.broker.register("echo", service="echo")
        port = edge.port
        async with connect(port, "python", Destination()), connect(port, "caller") as caller:
            outcome = await ask(caller, "echo", "request_response", "hello")
            assert outcome.elements == ["hello"]
            outcome = await ask(caller, "echo", "request_stream", "1")
            assert outcome.code == REJECTED
            await eventually(lambda: edge.served() == 3)
            answer = await edge.node.request("32#service=onward.management", b"routes")
            assert b'"service":"python"' in answer.payload
