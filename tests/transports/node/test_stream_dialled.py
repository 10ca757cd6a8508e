"""Links that connect: what was kept for them, and what nobody foresaw. Real sockets throughout."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from onward.actors import MailboxOptions, Node, Overflow
from onward.protocol import Address, LinkDown, Message, route
from onward.transports import Backoff, LinkState, LinkStatistics, TcpTransport, WsTransport
from onward.transports.node._stream_link import StreamLink
from onward.transports.streams._endpoint import TcpEndpoint
from tests.support.tcp import FAST, Server
from tests.support.transports import Echo, Recorder, Stuck, eventually

BIG = 100_000
HUGE = 128 * 1024 * 1024


def link_of(node: Node) -> LinkStatistics:
    (link,) = cast(TcpTransport, node.transport("tcp://")).statistics()
    return link


def numbered(number: int) -> bytes:
    return number.to_bytes(4) + bytes(BIG - 4)


def numbers(recorder: Recorder) -> list[int]:
    return [int.from_bytes(each.payload[:4]) for each in recorder.messages]


@pytest.mark.parametrize(("scheme", "type_"), [("tcp", 1), ("ws", 3)])
async def test_more_than_a_socket_takes_is_sent_as_it_takes_it(
    a: Node, b: Node, scheme: str, type_: int
) -> None:
    recorder = await Recorder.on(b, "c")
    listener = await b.listen(f"{scheme}://127.0.0.1:0", expose=["c"])
    transport = cast("TcpTransport | WsTransport", a.transport(f"{scheme}://"))
    transport.options = transport.options_class(
        max_queue_bytes=HUGE, max_pending=1_000_000, mailbox=MailboxOptions(max_bytes=HUGE)
    )
    peer = Address(type_, listener.uri.partition("://")[2].encode())
    for number in range(1000):
        a.send([peer, "c"], numbered(number))
    await eventually(lambda: len(recorder.messages) == 1000)
    assert numbers(recorder) == list(range(1000))
    assert not a.dead_letters.by_reason
    (link,) = transport.statistics()
    assert (link.connects, link.sent, link.queued) == (1, 1000, 0)


async def test_what_waits_for_a_connection_is_bounded_in_bytes(a: Node, b: Node) -> None:
    recorder = await Recorder.on(b, "c")
    listener = await b.listen("tcp://127.0.0.1:0", expose=["c"])
    transport = cast(TcpTransport, a.transport("tcp://"))
    transport.options = transport.options_class(max_queue_bytes=5 * BIG, heartbeat=None)
    peer = Address(1, listener.uri.partition("://")[2].encode())
    for number in range(50):
        a.send([peer, "c"], numbered(number))
    await eventually(lambda: len(recorder.messages) + a.dead_letters.total == 50)
    assert dict(a.dead_letters.by_reason) == {"link down": 46}
    assert numbers(recorder) == [0, 1, 2, 3]


async def kept(a: Node, server: Server, count: int, **options: Any) -> Address:
    """A link that is down, and has messages to send as soon as it is up."""
    connecting = asyncio.create_task(a.connect(server.uri, backoff=FAST, **options))
    await (await server.next()).greeted()
    link = await connecting
    await server.close()
    await eventually(lambda: link_of(a).state is not LinkState.UP)
    await server.open()
    # While the next attempt is under way: the greeting is the test's.
    peer = await server.next()
    for number in range(count):
        a.send([link, "x"], numbered(number))
    await eventually(lambda: link_of(a).queued == count)
    server.peers.put_nowait(peer)
    return link


async def test_what_comes_while_it_is_sent_comes_after_it(a: Node) -> None:
    async with Server() as server:
        link = await kept(a, server, 200)
        peer = await (await server.next()).greeted()
        await eventually(lambda: link_of(a).state is LinkState.UP)
        for number in range(200, 220):
            a.send([link, "x"], numbered(number))
        await asyncio.sleep(0)
        assert link_of(a).queued > 0  # the peer does not read yet
        came = [(await peer.receive()).payload[:4] for _ in range(220)]
        assert [int.from_bytes(each) for each in came] == list(range(220))
        assert (link_of(a).queued, a.dead_letters.total) == (0, 0)


async def test_what_waits_for_its_turn_waits_for_the_peer_too(a: Node) -> None:
    async with Server() as server:
        link = await kept(a, server, 200)
        peer = await (await server.next()).greeted()
        await eventually(lambda: 0 < link_of(a).queued < 200)
        a.send([link, "x"], bytes(12_000_000))  # more than a system keeps
        a.send([link, "x"], b"last")
        sizes = [len((await peer.receive()).payload) for _ in range(202)]
        assert sizes == [BIG] * 200 + [12_000_000, 4]


async def test_what_does_not_fit_into_a_frame_costs_nothing_else(a: Node, b: Node) -> None:
    recorder = await Recorder.on(b, "c")
    listener = await b.listen("tcp://127.0.0.1:0", expose=["c"])
    transport = cast(TcpTransport, a.transport("tcp"))
    transport.options = transport.options_class(max_frame=1000, heartbeat=None)
    peer = Address(1, listener.uri.partition("://")[2].encode())
    for size in (1, 1000, 2):  # the second has no room for its routes
        a.send([peer, "c"], bytes(size))
    await eventually(lambda: len(recorder.messages) == 2)
    assert [len(each.payload) for each in recorder.messages] == [1, 2]
    assert dict(a.dead_letters.by_reason) == {"payload too big": 1}


async def test_what_was_not_sent_when_it_is_lost_is_sent_by_the_next(a: Node) -> None:
    async with Server() as server:
        link = await kept(a, server, 200)
        peer = await (await server.next()).greeted()
        await eventually(lambda: 0 < link_of(a).queued < 200)
        left = link_of(a).queued
        a.send([link, "x"], numbered(200))
        peer.writer.transport.abort()
        again = await (await server.next()).greeted()
        came = [int.from_bytes((await again.receive()).payload[:4]) for _ in range(left + 1)]
        assert came == list(range(200 - left, 201))


async def test_what_was_not_sent_when_it_ends_becomes_dead_letters(a: Node) -> None:
    async with Server() as server:
        transport = cast(TcpTransport, a.transport("tcp://"))
        transport.options = transport.options_class(reconnect=False, heartbeat=None)
        for number in range(200):
            a.send(f"1#127.0.0.1:{server.port} => x", numbered(number))
        peer = await (await server.next()).greeted()
        await eventually(lambda: 0 < link_of(a).queued < 200)
        left = link_of(a).queued
        peer.writer.transport.abort()
        await eventually(lambda: not transport.statistics())
        assert a.dead_letters.by_reason["link down"] >= left


async def test_an_error_nobody_foresaw_ends_the_first_attempt(
    a: Node, b: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await b.listen("tcp://127.0.0.1:0")

    async def begin(*_: object) -> None:
        raise RuntimeError("nobody foresaw it")

    monkeypatch.setattr(TcpEndpoint, "begin", begin)
    with caplog.at_level(logging.ERROR), pytest.raises(LinkDown, match="RuntimeError: nobody"):
        async with asyncio.timeout(5):
            await a.connect(listener.uri)
    assert a.statistics().worker_count == 0
    (record,) = caplog.records
    assert record.exc_info is not None


async def test_an_error_nobody_foresaw_between_two_attempts_ends_the_link(
    a: Node, b: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await b.start(Echo, address="echo")
    listener = await b.listen("tcp://127.0.0.1:0", expose=["echo"])

    def boom() -> float:
        raise RuntimeError("no number")

    link = await a.connect(listener.uri, backoff=Backoff(random=boom))
    with caplog.at_level(logging.ERROR):
        await listener.close()
        await eventually(lambda: not a.has(link))
    assert "RuntimeError: no number" in caplog.text
    assert not cast(TcpTransport, a.transport("tcp://")).statistics()


async def test_a_link_that_holds_goes_on_holding_when_it_is_connected_again(a: Node) -> None:
    gate = Stuck()
    await a.start(lambda: gate, address="gate", mailbox=MailboxOptions(10, Overflow.WAIT))
    first, second = 200, 2000
    async with Server() as server:
        connecting = asyncio.create_task(
            a.connect(server.uri, expose=["gate"], backoff=FAST, arrivals=500)
        )
        peer = await (await server.next()).greeted()
        address = await connecting
        for number in range(first):
            peer.send(Message(route("gate"), (), numbered(number)[:2000]))
        await eventually(lambda: link_of(a).held > 64)
        link = a.parts.table.worker_at(address)
        assert isinstance(link, StreamLink)
        assert link._socket is not None
        link._socket.abort("cut")
        peer = await (await server.next()).greeted()
        for number in range(second):
            peer.send(Message(route("gate"), (), numbered(first + number)[:2000]))
        await eventually(lambda: link_of(a).connects == 2)
        assert link._socket._held
        gate.go_on.set()
        await eventually(lambda: gate.messages and numbers(gate)[-1] == first + second - 1)
        # Of what the first connection brought, some may not have been read when it was cut.
        assert numbers(gate)[-second:] == list(range(first, first + second))
        assert len(gate.messages) == link_of(a).received
        assert not a.dead_letters.total
