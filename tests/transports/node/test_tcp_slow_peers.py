"""TCP with peers that do not read, and messages that are big: what waits has bounds."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import MailboxOptions, Node
from onward.protocol import DeliveryError, LinkLost, MailboxFull, Message, PayloadTooBig, route
from tests.support.tcp import FAST, Server, dialled, link_of, listening, peer_of, reasons, tcp_of
from tests.support.transports import Echo, Recorder, Stuck, eventually


async def test_a_peer_that_does_not_read_fills_the_mailbox_of_its_link_and_no_more(a: Node) -> None:
    async with Server() as server:
        connecting = asyncio.create_task(
            a.connect(server.uri, mailbox=MailboxOptions(limit=50), high_water=1 << 16)
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


async def test_a_peer_that_does_not_read_for_long_is_closed(a: Node) -> None:
    async with Server() as server:
        connecting = asyncio.create_task(
            a.connect(server.uri, high_water=1 << 14, write_timeout=0.05, reconnect=False)
        )
        await (await server.next()).greeted()
        link = await connecting
        with pytest.raises(DeliveryError):  # noqa: PT012 - as above
            while True:
                a.send([link, "x"], bytes(1 << 16))
                await asyncio.sleep(0)
        await eventually(lambda: not a.has(link))


async def test_messages_lost_with_a_connection_are_counted(a: Node) -> None:
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


async def test_too_much_waiting_closes_at_once(a: Node) -> None:
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


async def test_a_message_too_big_for_the_wire_is_the_senders_error(a: Node, c: Node) -> None:
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


async def test_a_message_too_big_that_was_kept_is_the_senders_error_too(a: Node) -> None:
    tcp_of(a).options = tcp_of(a).options.__class__(max_frame=1000)
    async with Server() as server:
        asked = asyncio.create_task(a.request(f"1#127.0.0.1:{server.port} => x", bytes(1000)))
        a.send(f"1#127.0.0.1:{server.port} => x", b"small")
        peer = await (await server.next()).greeted()
        with pytest.raises(PayloadTooBig):
            await asked
        assert (await peer.receive()).payload == b"small"


async def test_a_full_mailbox_stops_the_reading_of_the_socket(c: Node) -> None:
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
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


async def test_a_mailbox_that_stays_full_costs_its_own_messages_only(c: Node) -> None:
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "stuck", "c1", stall_timeout=0.02)
    async with dialled(listener) as peer:
        await peer.greeted()
        for _ in range(6):
            peer.send(Message(route("stuck"), route("x"), b""))
        peer.send(Message(route("c1"), route("x"), b"after"))
        assert (await recorder.next()).payload == b"after"
        await eventually(lambda: reasons(c).get("mailbox full", 0) >= 1)
        stuck.go_on.set()
