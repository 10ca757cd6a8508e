"""TCP alone: type-1 addresses, reconnecting, limits, broken peers. Real sockets throughout."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from onward.actors import Mailbox, Node, NodeLimits
from onward.protocol import (
    AddressError,
    DeliveryError,
    LinkDown,
    LinkLost,
    MailboxFull,
    Message,
    PayloadTooBig,
    address,
    route,
)
from onward.protocol.ockam import HEARTBEAT, PREAMBLE, WireConnection, encode_message
from onward.transports import Backoff, LinkState, LinkStatistics, TcpListener, TcpTransport
from onward.transports._options import parse_uri
from onward.transports._stream_dialled import DialledLink
from tests.support.transports import Echo, Recorder, Stuck, eventually
from tests.support.virtual import virtual_time

Nodes: TypeAlias = tuple[Node, Node, Node]
FAST = Backoff(first=0.001, longest=0.001)


async def listening(node: Node, *expose: str, port: int = 0, **options: Any) -> TcpListener:
    listener = await node.listen(f"tcp://127.0.0.1:{port}", expose=expose, **options)
    return cast(TcpListener, listener)


def peer_of(listener: TcpListener) -> str:
    return listener.uri.removeprefix("tcp://")


def tcp_of(node: Node) -> TcpTransport:
    return cast(TcpTransport, node.transport("tcp://"))


def link_of(node: Node) -> LinkStatistics:
    (link,) = tcp_of(node).statistics()
    return link


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


class Peer:
    """The other end of a socket, driven by the test byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.wire = WireConnection()

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def greeted(self) -> Peer:
        self.write(PREAMBLE)
        assert await self.reader.readexactly(1) == PREAMBLE
        self.wire.receive_data(PREAMBLE)
        self.wire.data_to_send()
        return self

    def send(self, message: Message) -> None:
        self.wire.send(message)
        self.write(self.wire.data_to_send())

    async def receive(self) -> Message:
        async with asyncio.timeout(5):
            size = await self.reader.readexactly(4)
            body = await self.reader.readexactly(int.from_bytes(size))
        (message,) = self.wire.receive_data(size + body)
        return message

    async def closed(self) -> None:
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass


@contextlib.asynccontextmanager
async def dialled(listener: TcpListener) -> AsyncGenerator[Peer]:
    """A foreign client of a listener."""
    reader, writer = await asyncio.open_connection(*parse_uri(listener.uri, "tcp"))
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Server:
    """A foreign server: the test gets each connection as a `Peer`."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.port = 0
        self._all: list[Peer] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Server:
        await self.open()
        return self

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._met, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for peer in self._all:
            peer.writer.close()
            with contextlib.suppress(ConnectionError):
                await peer.writer.wait_closed()
        self._all.clear()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def next(self) -> Peer:
        async with asyncio.timeout(5):
            return await self.peers.get()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self._all.append(peer)
        self.peers.put_nowait(peer)

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"


# --- addresses of type 1 ------------------------------------------------------------------


async def test_an_address_of_type_1_connects_and_the_next_one_reuses(nodes: Nodes) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    first = await a.request(f"1#{peer_of(listener)} => echo", b"1")
    second = await a.request(f"1#{peer_of(listener)} => echo", b"2")
    assert (first.payload, second.payload) == (b"1", b"2")
    assert first.return_route == second.return_route
    link = link_of(a)
    assert first.return_route == (link.address, address("echo"))
    assert (link.sent, link.received, link.connects, link.state) == (2, 2, 1, LinkState.UP)
    assert listener.statistics().accepted == 1


async def test_the_specifications_session_begins_with_an_address_of_type_1(nodes: Nodes) -> None:
    a, _, c = nodes
    a1, c1 = await Recorder.on(a, "A1"), await Recorder.on(c, "C1")
    listener = await listening(c, "C1")
    a1.send([f"1#{peer_of(listener)}", "C1"], b"")  # 1: onward [TCP#C, C1], return [A1]
    fourth = await c1.next()
    (link_c,) = listener.statistics().links
    assert fourth.onward_route == route("C1")
    assert fourth.return_route == (link_c.address, address("A1"))
    c1.reply(fourth, b"")
    seventh = await a1.next()
    assert seventh.onward_route == route("A1")
    assert seventh.return_route == (link_of(a).address, address("C1"))


async def test_two_hops_of_type_1_in_one_route(nodes: Nodes) -> None:
    a, b, c = nodes
    await c.start(Echo, address="echo")
    to_c = await listening(c, "echo")
    to_b = await listening(b, f"1#{peer_of(to_c)}")
    answer = await a.request(f"1#{peer_of(to_b)} => 1#{peer_of(to_c)} => echo", b"far")
    assert answer.payload == b"far"
    assert answer.return_route == (link_of(a).address, link_of(b).address, address("echo"))


async def test_a_node_is_no_open_proxy(nodes: Nodes) -> None:
    a, b, c = nodes
    await c.start(Echo, address="echo")
    to_c = await listening(c, "echo")
    to_b = await listening(b, "echo")
    a.send(f"1#{peer_of(to_b)} => 1#{peer_of(to_c)} => echo", b"")
    await eventually(lambda: reasons(b) == {"not exposed": 1})
    assert to_c.statistics().accepted == 0


async def test_messages_sent_while_connecting_all_arrive_in_order(nodes: Nodes) -> None:
    a, _, c = nodes
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "c1")
    for number in range(100):
        a.send(f"1#{peer_of(listener)} => c1", str(number).encode())
    await eventually(lambda: len(recorder.messages) == 100)
    assert [int(each.payload) for each in recorder.messages] == list(range(100))
    assert listener.statistics().accepted == 1


async def test_a_refused_connection_ends_the_request_and_leaves_nothing(nodes: Nodes) -> None:
    a, _, c = nodes
    listener = await listening(c)
    peer = peer_of(listener)
    await listener.close()
    with pytest.raises(LinkDown, match="link down"):
        await a.request(f"1#{peer} => echo", b"")
    a.send(f"1#{peer} => echo", b"")
    await eventually(lambda: reasons(a) == {"link down": 2})
    await eventually(lambda: not tcp_of(a).statistics())
    assert a.statistics().worker_count == 0


async def test_messages_over_the_queue_are_dead_letters_at_once(nodes: Nodes) -> None:
    a, *_ = nodes
    tcp_of(a).options = tcp_of(a).options.__class__(queue=3, reconnect=False)
    async with Server() as server:
        for _ in range(5):
            a.send(f"1#127.0.0.1:{server.port} => x", b"")
        peer = await server.next()
        await eventually(lambda: link_of(a).queued == 3)
        assert reasons(a) == {"link down": 2}
        await peer.greeted()
        assert [(await peer.receive()).payload for _ in range(3)] == [b"", b"", b""]


@pytest.mark.parametrize("value", ["nonsense", "host:port", ":1", "%ff:1"])
def test_an_address_of_type_1_that_is_no_endpoint(value: str) -> None:
    async def main() -> None:
        async with Node() as node:
            with pytest.raises(AddressError):
                node.send(f"1#{value} => x", b"")

    asyncio.run(main())


async def test_links_opened_by_addresses_have_a_limit(nodes: Nodes) -> None:
    a, _, c = nodes
    first, second = await listening(c), await listening(c)
    tcp_of(a).max_dialled = 1
    a.send(f"1#{peer_of(first)} => x", b"")
    with pytest.raises(LinkDown, match="there are 1 links"):
        a.send(f"1#{peer_of(second)} => x", b"")
    with pytest.raises(LinkDown):
        await a.connect(second.uri)


async def test_a_connected_link_serves_addresses_of_type_1_too(nodes: Nodes) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    link = await a.connect(listener.uri)
    answer = await a.request(f"1#{peer_of(listener)} => echo", b"")
    assert answer.return_route[0] == link


async def test_messages_of_other_threads_share_one_link(nodes: Nodes) -> None:
    a, _, c = nodes
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "c1")
    onward = f"1#{peer_of(listener)} => c1"
    await asyncio.gather(*(asyncio.to_thread(a.send, onward, b"") for _ in range(20)))
    await eventually(lambda: len(recorder.messages) == 20)
    assert listener.statistics().accepted == 1


async def test_an_idle_link_is_closed_and_opened_again_when_needed(nodes: Nodes) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    tcp_of(a).options = tcp_of(a).options.__class__(idle_timeout=0.02, reconnect=False)
    first = await a.request(f"1#{peer_of(listener)} => echo", b"")
    await eventually(lambda: not a.has(first.return_route[0]))
    await eventually(lambda: not listener.statistics().links)
    again = await a.request(f"1#{peer_of(listener)} => echo", b"")
    assert again.return_route[0] != first.return_route[0]


async def test_a_link_in_use_is_not_idle(nodes: Nodes) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo", idle_timeout=0.05)
    link = await a.connect(listener.uri, idle_timeout=0.05)
    started = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < started + 0.2:
        await a.request([link, "echo"], b"")
    assert listener.statistics().accepted == 1
    # And one that is not, is: closed by either side, with its reason.
    await eventually(lambda: not listener.statistics().links and not a.has(link))


# --- the life of a connection -------------------------------------------------------------


async def test_a_lost_connection_comes_back_at_the_same_address(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri, backoff=FAST))
        peer = await (await server.next()).greeted()
        link = await connecting
        await server.close()
        await eventually(lambda: link_of(a).failures > 2)
        assert link_of(a).state in {LinkState.WAITING, LinkState.CONNECTING}
        await server.open()
        peer = await (await server.next()).greeted()
        await eventually(lambda: link_of(a).state is LinkState.UP)
        a.send([link, "x"], b"back again")
        assert (await peer.receive()).payload == b"back again"
        statistics = link_of(a)
        assert (statistics.connects, statistics.failures, statistics.address) == (2, 0, link)


async def test_waits_between_attempts_follow_the_back_off(nodes: Nodes) -> None:
    a, *_ = nodes
    drawn: list[int] = []

    def draw() -> float:
        drawn.append(link_of(a).failures)
        return 0.001

    async with Server() as server:
        backoff = Backoff(first=1.0, longest=2.0, random=draw)
        connecting = asyncio.create_task(a.connect(server.uri, backoff=backoff))
        await (await server.next()).greeted()
        await connecting
        await server.close()
        await eventually(lambda: len(drawn) > 3)
    assert drawn[:4] == [0, 1, 2, 3]


async def test_while_a_link_waits_messages_are_kept_until_an_attempt_fails(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        long = Backoff(first=60, longest=60, random=lambda: 1.0)
        connecting = asyncio.create_task(a.connect(server.uri, backoff=long))
        await (await server.next()).greeted()
        link = await connecting
        await server.close()
        await eventually(lambda: link_of(a).state is LinkState.WAITING)
        waiting = asyncio.create_task(a.request([link, "x"], b""))
        await eventually(lambda: link_of(a).queued == 1)
        await a.stop_worker(link)
        with pytest.raises(LinkDown):
            await waiting
        assert reasons(a) == {"link down": 1}


async def test_without_reconnect_a_lost_link_ends(nodes: Nodes) -> None:
    a, _, c = nodes
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck")
    listener = await listening(c, "stuck")
    link = await a.connect(listener.uri, reconnect=False)
    asked = asyncio.create_task(a.request([link, "stuck"], b""))
    await eventually(lambda: listener.statistics().links[0].received)
    await c.stop_worker(listener.statistics().links[0].address)
    with pytest.raises(LinkLost, match="the peer closed the connection"):
        await asked
    await eventually(lambda: not a.has(link))
    stuck.go_on.set()


async def test_a_connect_that_is_given_up_leaves_nothing(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        peer = await server.next()
        connecting.cancel()
        await asyncio.wait([connecting])
        await peer.closed()
        await eventually(lambda: a.statistics().worker_count == 0)


async def test_stopping_a_link_that_is_still_connecting(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        peer = await server.next()
        await a.stop_worker(link_of(a).address)
        with pytest.raises(LinkDown):
            await connecting
        await peer.closed()


async def test_a_server_that_speaks_something_else(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        peer = await server.next()
        peer.write(b"220 mail.example.org ESMTP\r\n")
        with pytest.raises(LinkDown, match="starts with 0x32"):
            await connecting


async def test_a_server_that_says_nothing(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        with pytest.raises(LinkDown, match=r"said nothing for 0\.02 s"):
            await a.connect(server.uri, preamble_timeout=0.02)
        await (await server.next()).closed()


async def test_a_server_that_hangs_up_at_once(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        (await server.next()).writer.close()
        with pytest.raises(LinkDown):
            await connecting


async def test_a_host_that_does_not_answer(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    a, *_ = nodes

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    with pytest.raises(LinkDown, match="no connection in time"):
        await a.connect("tcp://127.0.0.1:1", connect_timeout=0.01)


# --- foreign peers ------------------------------------------------------------------------


async def test_a_foreign_client_is_answered_on_the_wire(nodes: Nodes) -> None:
    _, _, c = nodes
    await c.start(Echo, address="echoer")
    listener = await listening(c, "echoer")
    async with dialled(listener) as peer:
        # Byte by byte: vectors a1, a5 and a2, each as a client would write them.
        a2 = "0000001a 84 81 8200466563686f6572 81 820043617070 46 0568656c6c6f f6"
        for byte in bytes.fromhex("0100000005 84808040f6" + a2):
            peer.write(bytes([byte]))
            await peer.writer.drain()
        assert await peer.reader.readexactly(1) == PREAMBLE
        peer.wire.receive_data(PREAMBLE)
        answer = await peer.receive()
        assert answer == Message(route("app"), route("echoer"), b"\x05hello")
        (link,) = listener.statistics().links
        assert (link.received, link.sent, link.heartbeats) == (1, 1, 1)
        assert (link.bytes_in, link.bytes_out) == (40, 31)
        assert link.peer == "{}:{}".format(*peer.writer.get_extra_info("sockname"))


BROKEN = {
    "another preamble": (b"\x02", "the peer starts with 0x02"),
    "too long a frame": (PREAMBLE + b"\x01\x00\x00\x01", "a frame of 16777217 bytes"),
    "broken CBOR": (PREAMBLE + b"\x00\x00\x00\x01\xff", "malformed message"),
    "text for a payload": (PREAMBLE + bytes.fromhex("00000005848080 60 f6"), "malformed message"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_peer_is_closed_with_a_logged_reason_and_others_go_on(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    a, _, c = nodes
    caplog.set_level(logging.INFO, "onward.transports")
    data, reason = BROKEN[name]
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    link = await a.connect(listener.uri)
    async with dialled(listener) as peer:
        peer.write(data)
        await peer.closed()
        await eventually(lambda: len(listener.statistics().links) == 1)
    (closed,) = listener.statistics().closed
    assert closed.startswith(reason)
    assert any(reason in record.getMessage() for record in caplog.records)
    assert (await a.request([link, "echo"], b"still here")).payload == b"still here"


async def test_peers_fill_no_log(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    a, _, c = nodes
    caplog.set_level(logging.INFO, "onward.transports")
    listener = await listening(c, max_connections=1)
    for data in 10 * (b"\x02",) + 10 * (PREAMBLE,):
        async with dialled(listener) as peer:
            peer.write(data)
            peer.writer.write_eof()
            await peer.closed()
        await eventually(lambda: not listener.statistics().links)
    await a.connect(listener.uri)
    for _ in range(10):
        async with dialled(listener) as peer:
            await peer.closed()
    assert listener.statistics().turned_away == 10
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    assert "turned away" in caplog.records[-1].getMessage()


async def test_what_came_before_the_break_is_delivered(nodes: Nodes) -> None:
    _, _, c = nodes
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "c1")
    body = encode_message(Message(route("c1"), route("x"), b"good"))
    async with dialled(listener) as peer:
        peer.write(PREAMBLE + len(body).to_bytes(4) + body + b"\xff\xff\xff\xff")
        assert (await recorder.next()).payload == b"good"
        await peer.closed()


async def test_a_peer_that_dies_inside_a_frame(nodes: Nodes) -> None:
    _, _, c = nodes
    listener = await listening(c)
    async with dialled(listener) as peer:
        peer.write(PREAMBLE + b"\x00\x00\x10\x00\x84")
        peer.writer.write_eof()
        await peer.closed()
    await eventually(lambda: not listener.statistics().links)
    expected = {"malformed message: the stream ended inside a frame": 1}
    assert listener.statistics().closed == expected


async def test_a_peer_that_resets_the_connection(nodes: Nodes) -> None:
    _, _, c = nodes
    listener = await listening(c)
    async with dialled(listener) as peer:
        await peer.greeted()
        await eventually(lambda: listener.statistics().links[0].state is LinkState.UP)
        sock: socket.socket = peer.writer.get_extra_info("socket")
        linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.writer.transport.abort()
        await eventually(lambda: not listener.statistics().links)


async def test_a_client_that_says_nothing_is_cleaned_up(nodes: Nodes) -> None:
    _, _, c = nodes
    listener = await listening(c, preamble_timeout=0.02)
    async with dialled(listener) as peer:
        assert await peer.reader.readexactly(1) == PREAMBLE
        await peer.closed()
    await eventually(lambda: not listener.statistics().links)
    assert listener.statistics().closed == {"the peer said nothing for 0.02 s": 1}
    assert c.statistics().worker_count == 1


@virtual_time
async def test_a_client_that_goes_silent_is_cleaned_up() -> None:
    async with Node() as node:
        listener = await listening(node)
        async with dialled(listener) as peer:
            await peer.greeted()
            await asyncio.sleep(299)
            assert listener.statistics().links[0].state is LinkState.UP
            await asyncio.sleep(302)
            assert listener.statistics().closed == {"no message for 300 s": 1}
            await peer.reader.read()


@virtual_time
async def test_a_client_that_greets_and_sends_half_a_frame_is_cleaned_up() -> None:
    async with Node() as node:
        listener = await listening(node, max_unfinished=3 << 19)
        async with dialled(listener) as first, dialled(listener) as second:
            for peer in (first, second):
                await peer.greeted()
                peer.write((1 << 24).to_bytes(4) + bytes(1 << 20))
            await eventually(lambda: len(listener.statistics().links) == 1)
            assert listener.statistics().closed == {
                "more than 1572864 bytes of unfinished frames": 1
            }
            await asyncio.sleep(31)
            assert listener.statistics().closed["a frame was not finished within 30 s"] == 1


@virtual_time
async def test_heartbeats_keep_a_link_in_use() -> None:
    async with Node("a") as a, Node("c") as c:
        listener = await listening(c)
        link = await a.connect(listener.uri)
        await asyncio.sleep(1000)
        assert a.has(link)
        (accepted,) = listener.statistics().links
        assert 8 <= accepted.heartbeats <= 17
        assert link_of(a).sent == accepted.heartbeats
        # Without them it is idle, at both ends.
        other = await a.connect(listener.uri, heartbeat=None, reconnect=False)
        await asyncio.sleep(601)
        assert not a.has(other)
        assert a.has(link)


@virtual_time
async def test_a_link_that_waits_for_its_connection_is_not_idle() -> None:
    async with Node("a") as a, Node("c") as c:
        listener = await listening(c)
        link = await a.connect(listener.uri, idle_timeout=10.0)
        await listener.close()
        await asyncio.sleep(1000)
        assert a.has(link)


async def test_one_connection_more_than_allowed_is_turned_away(nodes: Nodes) -> None:
    a, b, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo", max_connections=1)
    link = await a.connect(listener.uri, reconnect=False)
    with pytest.raises(LinkDown):
        await b.connect(listener.uri)
    assert (listener.statistics().accepted, listener.statistics().turned_away) == (1, 1)
    assert (await a.request([link, "echo"], b"")).payload == b""
    await a.stop_worker(link)
    await eventually(lambda: not listener.statistics().links)
    await b.connect(listener.uri)


async def test_a_node_with_no_room_for_a_link_turns_it_away() -> None:
    async with Node("full", limits=NodeLimits(addresses=1)) as full, Node("b") as b:
        listener = await listening(full)
        with pytest.raises(LinkDown):
            await b.connect(listener.uri)
        assert listener.statistics().turned_away == 1


async def test_many_reasons_are_counted_as_others(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, c = nodes
    monkeypatch.setattr("onward.transports._stream_listener.MAX_REASONS", 1)
    listener = await listening(c)
    for number, data in enumerate((b"\x02", b"\x03", b"\x04"), 1):
        async with dialled(listener) as peer:
            peer.write(data)
            await peer.closed()
        await eventually(lambda: not listener.statistics().links)
        assert sum(listener.statistics().closed.values()) == number
    assert sorted(listener.statistics().closed.values()) == [1, 2]
    assert listener.statistics().closed["other"] == 2


# --- slow peers, big messages -------------------------------------------------------------


async def test_a_peer_that_does_not_read_fills_the_mailbox_of_its_link_and_no_more(
    nodes: Nodes,
) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(
            a.connect(server.uri, mailbox=Mailbox(limit=50), high_water=1 << 16)
        )
        peer = await (await server.next()).greeted()
        link = await connecting
        sent = 0
        with pytest.raises(MailboxFull):  # noqa: PT012 - which one is up to the system
            while True:
                a.send([link, "x"], bytes(10_000))
                sent += 1
                await asyncio.sleep(0)
        # A batch up to the mark on top of one up to the mark; the system's buffers are not ours.
        assert link_of(a).pending <= 2 * (1 << 16) + 2 * 10_100
        for _ in range(sent):
            assert len((await peer.receive()).payload) == 10_000
        assert link_of(a).pending == 0


async def test_a_peer_that_does_not_read_for_long_is_closed(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(
            a.connect(
                server.uri,
                high_water=1 << 14,
                write_timeout=0.05,
                reconnect=False,
            )
        )
        await (await server.next()).greeted()
        link = await connecting
        with pytest.raises(DeliveryError):  # noqa: PT012 - as above
            while True:
                a.send([link, "x"], bytes(1 << 16))
                await asyncio.sleep(0)
        await eventually(lambda: not a.has(link))


async def test_messages_lost_with_a_connection_are_counted(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(
            a.connect(server.uri, high_water=1 << 24, write_timeout=60.0, backoff=FAST)
        )
        peer = await (await server.next()).greeted()
        link = await connecting
        for _ in range(100):
            a.send([link, "x"], bytes(100_000), return_route="x")
        await eventually(lambda: link_of(a).pending)
        peer.writer.transport.abort()
        await eventually(lambda: link_of(a).connects == 1 and link_of(a).in_doubt)
        figures = link_of(a)
        assert 1 <= figures.in_doubt <= figures.sent
        assert figures.sent + reasons(a).get("link down", 0) + figures.queued == 100


async def test_too_much_waiting_closes_at_once(nodes: Nodes) -> None:
    a, *_ = nodes
    async with Server() as server:
        connecting = asyncio.create_task(
            a.connect(server.uri, max_pending=1 << 20, reconnect=False)
        )
        await (await server.next()).greeted()
        link = await connecting
        asked = asyncio.create_task(a.request([link, "x"], bytes(15 << 20)))
        with pytest.raises(LinkLost, match="more than 1048576 bytes wait to be written"):
            await asked
        await eventually(lambda: not a.has(link))


async def test_a_message_too_big_for_the_wire_is_the_senders_error(nodes: Nodes) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    link = await a.connect(listener.uri, max_frame=1000)
    with pytest.raises(PayloadTooBig):
        await a.request([link, "echo"], bytes(1000))
    assert link_of(a).sent == 0
    assert (await a.request([link, "echo"], bytes(800))).payload == bytes(800)
    tcp_of(a).options = tcp_of(a).options.__class__(max_frame=1000)
    with pytest.raises(PayloadTooBig):
        a.send(f"1#{peer_of(listener)} => echo", bytes(1001))


async def test_a_message_too_big_that_was_kept_is_the_senders_error_too(nodes: Nodes) -> None:
    a, *_ = nodes
    tcp_of(a).options = tcp_of(a).options.__class__(max_frame=1000)
    async with Server() as server:
        asked = asyncio.create_task(a.request(f"1#127.0.0.1:{server.port} => x", bytes(1000)))
        a.send(f"1#127.0.0.1:{server.port} => x", b"small")
        peer = await (await server.next()).greeted()
        with pytest.raises(PayloadTooBig):
            await asked
        assert (await peer.receive()).payload == b"small"


async def test_a_megabyte_each_way(nodes: Nodes) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    link = await a.connect(listener.uri)
    payload = os.urandom(1 << 20)
    answers = await asyncio.gather(*(a.request([link, "echo"], payload) for _ in range(5)))
    assert all(answer.payload == payload for answer in answers)


async def test_a_full_mailbox_stops_the_reading_of_the_socket(nodes: Nodes) -> None:
    _, _, c = nodes
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=Mailbox(limit=1))
    listener = await listening(c, "stuck")
    async with dialled(listener) as peer:
        await peer.greeted()
        message = Message(route("stuck"), route("x"), bytes(100_000))
        with pytest.raises(TimeoutError):  # noqa: PT012 - as above
            async with asyncio.timeout(0.3):
                while True:
                    peer.send(message)
                    await peer.writer.drain()
        (link,) = listener.statistics().links
        # One read of the socket, and no more.
        assert 1 <= link.held <= 4
        stuck.go_on.set()
        await eventually(lambda: len(stuck.messages) == peer.wire.sent - 1 or stuck.messages)
        await peer.writer.drain()
        await eventually(lambda: len(stuck.messages) == peer.wire.sent)


async def test_a_mailbox_that_stays_full_costs_its_own_messages_only(nodes: Nodes) -> None:
    _, _, c = nodes
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=Mailbox(limit=1))
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "stuck", "c1", stall_timeout=0.02)
    async with dialled(listener) as peer:
        await peer.greeted()
        for _ in range(6):
            peer.send(Message(route("stuck"), route("x"), b""))
        peer.send(Message(route("c1"), route("x"), b"after"))
        assert (await recorder.next()).payload == b"after"
        assert reasons(c)["mailbox full"] >= 1
        stuck.go_on.set()


# --- processes ----------------------------------------------------------------------------

PEER = """
import asyncio
from onward.actors import Node
from tests.support.transports import Echo, Stuck

async def main():
    async with Node("peer") as node:
        await node.start(Echo, address="echo")
        await node.start(Stuck, address="stuck")
        listener = await node.listen("tcp://127.0.0.1:0", expose=["echo", "stuck"])
        print(listener.uri, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_peer_process_that_is_killed(nodes: Nodes) -> None:
    a, *_ = nodes
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PEER, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        uri = (await process.stdout.readline()).decode().strip()
        link = await a.connect(uri, backoff=FAST)
        assert (await a.request([link, "echo"], b"hi")).payload == b"hi"
        asked = asyncio.create_task(a.request([link, "stuck"], b""))
        await eventually(lambda: link_of(a).sent == 2)
        process.send_signal(signal.SIGKILL)
        with pytest.raises(LinkLost):
            await asked
        await eventually(lambda: link_of(a).failures > 0)
        with pytest.raises(LinkDown):
            await a.request([link, "echo"], b"anybody?")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_heartbeats_are_swallowed(nodes: Nodes) -> None:
    _, _, c = nodes
    listener = await listening(c)
    async with dialled(listener) as peer:
        await peer.greeted()
        peer.send(HEARTBEAT)
        await eventually(lambda: listener.statistics().links[0].heartbeats == 1)
        assert listener.statistics().links[0].received == 0
        assert reasons(c) == {}


async def test_a_transport_that_stops_closes_all_that_is_its_own(nodes: Nodes) -> None:
    a, _, c = nodes
    listener = await listening(c)
    links = [await a.connect(listener.uri) for _ in range(2)]
    await a.stop_worker(links[0])
    await tcp_of(a).stop()
    assert not tcp_of(a).statistics()
    assert not any(a.has(link) for link in links)
    await tcp_of(c).stop()
    assert not c.has(listener.address)
    await eventually(lambda: not listener.statistics().links)


@pytest.mark.slow
async def test_a_node_that_stops_leaves_no_socket_to_a_peer_that_does_not_read() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    before = open_files()
    async with Node() as node:
        port = listening.getsockname()[1]
        dialled = asyncio.ensure_future(
            node.connect(f"tcp://127.0.0.1:{port}", drain_timeout=0.1, high_water=64 * 1024 * 1024)
        )
        peer, _ = await asyncio.get_running_loop().run_in_executor(None, listening.accept)
        peer.sendall(PREAMBLE)
        link = await dialled
        for _ in range(4):
            node.send((link, "sink"), bytes(4 * 1024 * 1024))
        await asyncio.sleep(0)
    peer.close()
    assert open_files() <= before
    listening.close()


def open_files() -> int:
    """Return how many files this process has open; 0 where the system does not say."""
    listing = Path("/proc/self/fd")
    return len(list(listing.iterdir())) if listing.exists() else 0


async def test_what_has_gone_can_be_asked_to_end_again() -> None:
    async with Node() as a, Node() as c:
        listener = await c.listen("tcp://127.0.0.1:0")
        address = await a.connect(listener.uri, reconnect=False)
        transport = a.transport("tcp://")
        link = cast("DialledLink", a.ref(address)._actor_weakref())
        wire_socket = link._socket
        assert wire_socket is not None
        await transport.stop()
        assert not a.has(address)
        for _ in range(2):
            wire_socket.close("again")
            wire_socket.abort("again")
            wire_socket.hold()
            wire_socket.release()
            link.hold()
            link.release()
        await wire_socket.closed()
