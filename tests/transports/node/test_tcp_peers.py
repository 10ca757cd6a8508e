"""TCP with peers that are not ours: what they are told, and what ends their connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys

import pytest

from onward.actors import Node, NodeLimits
from onward.actors.services import RelayService
from onward.actors.workers import Forwarder
from onward.protocol import LinkDown, Message, route
from onward.protocol.bare import encode_string
from onward.protocol.ockam import HEARTBEAT, PREAMBLE, encode_message
from onward.protocol.services import decode_text
from onward.transports import LinkState
from tests.support.tcp import dialled, link_of, listening, reasons
from tests.support.transports import Echo, Recorder, eventually
from tests.support.virtual import virtual_time


async def test_a_foreign_client_is_answered_on_the_wire(c: Node) -> None:
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
    a: Node, c: Node, caplog: pytest.LogCaptureFixture, name: str
) -> None:
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


async def test_peers_fill_no_log(a: Node, c: Node, caplog: pytest.LogCaptureFixture) -> None:
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


async def test_what_came_before_the_break_is_delivered(c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "c1")
    body = encode_message(Message(route("c1"), route("x"), b"good"))
    async with dialled(listener) as peer:
        peer.write(PREAMBLE + len(body).to_bytes(4) + body + b"\xff\xff\xff\xff")
        assert (await recorder.next()).payload == b"good"
        await peer.closed()


async def test_a_peer_that_dies_inside_a_frame(c: Node) -> None:
    listener = await listening(c)
    async with dialled(listener) as peer:
        peer.write(PREAMBLE + b"\x00\x00\x10\x00\x84")
        peer.writer.write_eof()
        await peer.closed()
    await eventually(lambda: not listener.statistics().links)
    expected = {"malformed message: the stream ended inside a frame": 1}
    assert listener.statistics().closed == expected


async def test_a_peer_that_resets_the_connection(c: Node) -> None:
    listener = await listening(c)
    async with dialled(listener) as peer:
        await peer.greeted()
        await eventually(lambda: listener.statistics().links[0].state is LinkState.UP)
        sock: socket.socket = peer.writer.get_extra_info("socket")
        linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        peer.writer.transport.abort()
        await eventually(lambda: not listener.statistics().links)


async def test_a_client_that_says_nothing_is_cleaned_up(c: Node) -> None:
    listener = await listening(c, preamble_timeout=0.02)
    async with dialled(listener) as peer:
        assert await peer.reader.readexactly(1) == PREAMBLE
        await peer.closed()
    await eventually(lambda: not listener.statistics().links)
    assert listener.statistics().closed == {"the peer said nothing for 0.02 s": 1}
    assert c.statistics().worker_count == 1


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


async def test_one_connection_more_than_allowed_is_turned_away(a: Node, b: Node, c: Node) -> None:
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


async def test_many_reasons_are_counted_as_others(c: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.transports.streams._acceptor.MAX_REASONS", 1)
    listener = await listening(c)
    for number, data in enumerate((b"\x02", b"\x03", b"\x04"), 1):
        async with dialled(listener) as peer:
            peer.write(data)
            await peer.closed()
        await eventually(lambda: not listener.statistics().links)
        assert sum(listener.statistics().closed.values()) == number
    assert sorted(listener.statistics().closed.values()) == [1, 2]
    assert listener.statistics().closed["other"] == 2


async def test_heartbeats_are_swallowed(c: Node) -> None:
    listener = await listening(c)
    async with dialled(listener) as peer:
        await peer.greeted()
        peer.send(HEARTBEAT)
        await eventually(lambda: listener.statistics().links[0].heartbeats == 1)
        assert listener.statistics().links[0].received == 0
        assert reasons(c) == {}


ONE, TOO_MANY = "820041 78".replace(" ", ""), "9841" + "82004178" * 65


@pytest.mark.parametrize(
    "routes",
    [
        "81 820040 80",  # an address with no value
        f"81{ONE} 81820040",
        f"81{ONE} {TOO_MANY}",
        f"{TOO_MANY} 80",
        f"8182005904 01{'61' * 1025} 80",  # an address of 1025 bytes
    ],
)
async def test_a_message_with_a_route_nobody_can_use_is_lost_alone(c: Node, routes: str) -> None:
    listener = await listening(c, "c1")
    recorder = await Recorder.on(c, "c1")
    async with dialled(listener) as peer:
        await peer.greeted()
        body = bytes.fromhex(f"84 {routes} 40f6".replace(" ", ""))
        peer.send(Message(route("c1"), (), b"before"))
        peer.write(len(body).to_bytes(4) + body)
        peer.send(Message(route("c1"), (), b"after"))
        assert [(await recorder.next()).payload for _ in range(2)] == [b"before", b"after"]
    assert reasons(c) == {"unusable route": 1}


@virtual_time
async def test_a_silent_peer_that_has_registered_a_relay_is_kept() -> None:
    # As nodes of the Rust crates do, which send no heartbeats.
    async with Node() as node:
        listener = await listening(node, "forwarding_service")
        service = RelayService(expose_at=[listener.address])
        await node.start(lambda: service, address="forwarding_service")
        async with dialled(listener) as silent, dialled(listener) as idle:
            for peer in (silent, idle):
                await peer.greeted()
            silent.send(
                Message(route("forwarding_service"), route("me"), encode_string("register"))
            )
            name = decode_text((await silent.receive()).payload, "an address")
            await asyncio.sleep(3600)
            assert listener.statistics().closed == {"no message for 300 s": 1}
            await idle.closed()
            node.send([name, "there"], b"after an hour")
            assert (await silent.receive()).payload == b"after an hour"
        await eventually(lambda: not service.relays)


@virtual_time
async def test_silent_peers_that_have_a_channel_between_them_are_kept() -> None:
    async with Node() as node:
        await node.start(Forwarder, address="relay")
        listener = await listening(node, "relay")
        async with dialled(listener) as one, dialled(listener) as two, dialled(listener) as idle:
            for peer in (one, two, idle):
                await peer.greeted()
            await eventually(lambda: len(listener.statistics().links) == 3)
            name = "{}:{}".format(*two.writer.get_extra_info("sockname"))
            [by_two] = [each.address for each in listener.statistics().links if each.peer == name]
            node.expose(listener.address, by_two)
            one.send(Message((*route("relay"), by_two, *route("decryptor")), route("app"), b"1"))
            back = (await two.receive()).return_route
            await asyncio.sleep(3600)
            assert listener.statistics().closed == {"no message for 300 s": 1}
            two.send(Message(back, route("decryptor"), b"2"))
            assert (await one.receive()).payload == b"2"
            two.writer.close()
            # Nothing depends on the other any more.
            await eventually(lambda: len(listener.statistics().links) == 1)
            await asyncio.sleep(700)
            assert not listener.statistics().links
