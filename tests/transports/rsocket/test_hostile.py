"""Peers and workers that do what they should not."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.protocol import Address, NodeStopped, NotDelivered
from onward.transports.rsocket import FlowOptions, GatheringOptions, LinkOptions, RSocketListener
from onward.transports.streams._endpoint import TcpEndpoint
from tests.support.compiled import interpreted
from tests.support.rsocket_answers import three
from tests.support.rsocket_peer import *
from tests.support.workers import Recorder

ASKED = asked_for("a")
OURS = ("onward.transports.rsocket", "onward.protocol.rsocket", "onward.actors.broker")
TIGHT = LinkOptions(flow=FlowOptions(high_water=1000, stall_timeout=10))


def turned_away(w: World) -> bool:
    """Connect one more, and say whether it is closed at once."""
    port = int(w.listener.uri.rpartition(":")[2])
    return Peer(w.loop.servers[port], None).closed


# --- forged answers -------------------------------------------------------------------------


@in_world()
async def test_the_way_back_to_a_stream_cannot_be_guessed(w: World) -> None:
    first, second = Recorder(), Recorder()
    await w.node.start(lambda: first, address="first")
    await w.node.start(lambda: second, address="second")
    for name in ("first", "second"):
        w.broker.register(name, service=name)
    requester = await w.requester()
    await requester.ask(request(RR, 1, asked_for("first")), request(RR, 3, asked_for("second")))
    connection, own = first.messages[0].return_route
    other = second.messages[0].return_route[1]
    for guess in (b"stream/3", b"stream/1", b"3", own.value[:-1], own.value + b"3"):
        w.node.send([connection, Address(0, guess)], b"forged")
    assert await requester.received() == []
    assert w.node.dead_letters.by_reason == {"no such worker": 5}
    assert len(own.value) >= 16
    assert own != other
    second.reply(second.messages[0], b"second")
    first.reply(first.messages[0], b"first")
    assert elements(await requester.received()) == [b"second", b"first"]


@in_world()
async def test_a_way_back_leads_to_one_stream_once(w: World) -> None:
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="worker")
    w.broker.register("worker", service="a")
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED))
    recorder.reply(recorder.messages[0], b"answer")
    assert elements(await requester.received()) == [b"answer"]
    await requester.ask(request(RR, 1, ASKED))  # the same stream id again
    recorder.reply(recorder.messages[0], b"late")
    assert elements(await requester.received()) == []
    assert w.node.dead_letters.total == 1
    recorder.reply(recorder.messages[1], b"answer")
    await w.settled_after(requester)
    assert requester.link.worker.local.waiting == 0


@in_world()
async def test_a_requester_is_not_asked(w: World) -> None:
    requester = await w.requester()
    connection = requester.link.worker.address
    with pytest.raises(NotDelivered, match="no destination"):
        await w.node.request(connection, b"?")
    w.node.send(connection, b"?")
    assert await requester.received() == []
    assert w.node.dead_letters.total == 2


# --- metadata pushes ------------------------------------------------------------------------


@in_world(options=TIGHT)
async def test_pushes_to_a_destination_that_does_not_read_are_dropped(w: World) -> None:
    requester, slow = await w.pair()
    slow.stop_reading()
    await requester.ask(request(RR, 1, ASKED, bytes(2000)))
    assert slow.link.write_paused
    waiting = len(slow.transport.waiting)
    for _ in range(64):
        await requester.ask(push(ASKED))
    assert len(slow.transport.waiting) == waiting
    assert w.node.dead_letters.by_reason == {"does not keep up": 64}
    assert requester.transport.reading
    slow.read_on()
    assert len(await slow.received()) == 1
    await requester.ask(push(ASKED))
    assert await slow.ask(payload(2, b"", N | C)) == [push(ASKED)]


@in_world(options=TIGHT)
async def test_pushes_in_one_piece_do_not_fill_a_destination(w: World) -> None:
    requester, slow = await w.pair()
    slow.stop_reading()
    await requester.ask(*[push(ASKED)] * 100)
    assert len(slow.transport.waiting) < 1000 + 2 * len(push(ASKED))
    assert not slow.closed
    assert w.row().outstanding == 0
    slow.read_on()


# --- destinations that do not keep up -------------------------------------------------------


@in_world(options=TIGHT)
async def test_a_slow_destination_does_not_stop_requests_to_others(w: World) -> None:
    requester, slow = await w.pair("slow")
    fast = await w.destination("fast")
    slow.stop_reading()
    for stream in (1, 3, 5):
        await requester.ask(request(RR, stream, asked_for("slow"), bytes(8000)))
    assert requester.transport.reading
    assert await requester.ask(request(RR, 7, asked_for("fast"))) == []
    assert await fast.ask(payload(2, b"fast", N | C)) == [request(RR, 2, asked_for("fast"))]
    assert elements(await requester.received()) == [b"fast"]
    slow.read_on()
    assert await slow.ask(payload(2, b"slow", N | C)) == [
        request(RR, 2, asked_for("slow"), bytes(8000))
    ]
    assert elements(await requester.received()) == [b"slow"]


@in_world(options=TIGHT)
async def test_a_request_to_a_destination_that_does_not_keep_up_is_rejected(w: World) -> None:
    requester, slow = await w.pair()
    slow.stop_reading()
    await requester.ask(request(RR, 1, ASKED, bytes(8000)))
    got = errors(await requester.ask(request(RR, 3, ASKED)))
    assert got == [(3, 0x202, "not delivered: the destination (does not keep up)")]
    assert w.row().outstanding == 1
    slow.read_on()
    assert len(await slow.received()) == 1
    await slow.ask(payload(2, b"", N | C))


@in_world(options=TIGHT)
async def test_a_destination_that_was_just_given_much_gets_a_little_more(w: World) -> None:
    requester, slow = await w.pair()
    slow.stop_reading()
    for stream in (1, 3):  # both above `high_water`, and below four times as much
        assert await requester.ask(request(RR, stream, ASKED, bytes(1500))) == []
    assert await requester.ask(request(RR, 5, ASKED, bytes(1500))) == []
    got = errors(await requester.ask(request(RR, 7, ASKED, bytes(1500))))
    assert got == [(7, 0x202, "not delivered: the destination (does not keep up)")]
    slow.read_on()
    assert len(await slow.received()) == 3
    for stream in (2, 4, 6):
        await slow.ask(payload(stream, b"", N | C))


@in_world(options=TIGHT)
async def test_another_destination_is_chosen_while_one_does_not_keep_up(w: World) -> None:
    requester, slow = await w.pair("s")
    other = await w.destination("s")
    slow.stop_reading()
    await requester.ask(*(request(RR, n, asked_for("s"), bytes(2000)) for n in (1, 3)))
    assert len(await other.received()) == 1
    for stream in (5, 7, 9):
        await requester.ask(request(RR, stream, asked_for("s")))
    assert len(await other.received()) == 3
    assert await requester.received() == []
    slow.read_on()
    for one in (slow, other):
        one.die()


# --- frames that are never finished ---------------------------------------------------------

UNFINISHED = frame(1, RR, 0, bytes(1000))[:-1]


@in_world(options=LinkOptions(frame_timeout=30))
async def test_a_frame_has_a_time_to_be_finished_in(w: World) -> None:
    peer, other = await w.requester(), await w.requester()
    for byte in range(29):
        peer.send(UNFINISHED[byte : byte + 1])
        await other.ask(*[frame(0, KEEPALIVE, 0, bytes(8))[:-1], b"\x00"])
        await asyncio.sleep(1)
    assert not peer.closed
    await asyncio.sleep(1.1)
    assert errors(await peer.received()) == [(0, 0x101, "a frame was not finished in time")]
    assert peer.closed
    assert not other.closed
    assert w.listener.statistics().closed == {"unfinished frame": 1}


@in_world(options=LinkOptions(frame_timeout=30))
async def test_each_frame_has_its_own_time(w: World) -> None:
    peer = await w.requester()
    alive = frame(0, KEEPALIVE, 0, bytes(8))
    peer.send(alive[:5])
    for _ in range(5):
        await asyncio.sleep(20)
        peer.send(alive[5:] + alive[:5])
    assert not peer.closed
    await asyncio.sleep(30.1)
    assert peer.closed


@in_world(options=replace(TIGHT, flow=replace(TIGHT.flow, stall_timeout=100), frame_timeout=5))
async def test_time_in_which_it_is_not_read_does_not_count_for_a_frame(w: World) -> None:
    peer = await w.requester()
    peer.stop_reading()
    wrong = request(RR, 1, None)
    for stream in range(1, 101, 2):
        peer.send(restamped(wrong, stream))
    peer.send(wrong[:5])
    await w.loop.idle()
    assert not peer.transport.reading
    await asyncio.sleep(12)
    assert not peer.closed
    peer.read_on()
    await asyncio.sleep(5.1)
    assert peer.closed


@in_world(options=LinkOptions(max_unfinished=2500))
async def test_unfinished_frames_of_a_listener_have_a_limit(w: World) -> None:
    peers = [await w.requester() for _ in range(3)]
    for peer in peers[:2]:
        assert await peer.ask(UNFINISHED) == []
    got = errors(await peers[2].ask(UNFINISHED))
    assert got == [(0, 0x101, "too many frames are unfinished")]
    assert [peer.closed for peer in peers] == [False, False, True]
    # Those that are gone do not count, nor frames that are finished.
    peers[0].die()
    await peers[1].ask(b"\x00")
    for peer in [await w.requester() for _ in range(2)]:
        assert await peer.ask(UNFINISHED) == []
    assert w.listener.statistics().closed == {"unfinished frames": 1, "by the peer": 1}


# --- what is logged -------------------------------------------------------------------------


@in_memory
async def test_what_a_peer_says_is_logged_as_one_short_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with world() as w:
        await (await w.requester()).ask(error(0, 0x101, b"CRITICAL all is lost\n" * 10_000))
        await (await w.requester()).ask(push(composite((b"x" * 100, b"\n\n"))))
    said = [record.getMessage() for record in caplog.records if "rsocket" in record.name]
    assert any("all is lost" in text for text in said)
    for text in said:
        assert len(text) < 300
        assert "\n" not in text


@in_world(options=LinkOptions(max_connections=1))
async def test_warnings_of_a_kind_are_counted_after_the_first(
    w: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = await w.requester()
    assert len(await first.ask(request(RR, 1, None))) == 1
    for _ in range(50):
        assert turned_away(w)
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 1
    assert "1 connection already" in warned[0]
    first.send(frame(0, KEEPALIVE, 0, bytes(8)))
    await asyncio.sleep(61)
    assert turned_away(w)
    assert "(and 49 like it since the last such line)" in caplog.records[-1].getMessage()
    assert w.listener.statistics().turned_away == 51


# --- an end that is put off -----------------------------------------------------------------


@interpreted
@in_world()
async def test_a_connection_that_does_not_go_is_cut(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    requester, destination = await w.pair()
    monkeypatch.setattr(destination.transport, "close", lambda: None)
    monkeypatch.setattr(destination.link, "_close_when_flushed", lambda: None)
    start = w.loop.time()
    await w.listener.close()
    assert w.loop.time() - start == pytest.approx(3, abs=0.1)
    await w.loop.idle()
    assert requester.closed
    assert destination.closed
    assert not w.node.has(w.listener.address)


@in_memory
async def test_a_node_that_stops_while_it_begins_to_listen_leaves_no_socket() -> None:
    node = Node()
    await node.__aenter__()
    broker = await Broker.attach(node)
    loop = cast(MemoryLoop, node.loop)
    endpoint = TcpEndpoint("127.0.0.1", 0)
    listener = RSocketListener(node, broker, LinkOptions(), "rsocket+tcp", endpoint)
    opening = asyncio.ensure_future(listener.open())
    create, made, go_on = loop.create_server, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **options: Any) -> Any:
        assert options["start_serving"] is False
        server = await create(*args, **options)
        made.set()
        await go_on.wait()
        return server

    setattr(loop, "create_server", slowly)  # noqa: B010 - mypy knows it as a method
    await made.wait()
    await node.__aexit__(None, None, None)
    go_on.set()
    with pytest.raises(NodeStopped):
        await opening
    assert loop.servers == {}


# --- nothing is left for the cycle collector ------------------------------------------------


@pytest.mark.parametrize("what", ["refused", "answered", "cancelled", "connections"])
@in_world()
async def test_what_is_over_is_free_without_the_cycle_collector(w: World, what: str) -> None:
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="worker")
    w.broker.register("worker", service="a")
    requester = await w.requester()

    async def once(stream: int) -> None:
        if what == "refused":
            await requester.ask(request(RR, stream, None))
        elif what == "connections":
            w.peers.pop() if len(w.peers) > 1 else None
            peer = await w.destination("b")
            peer.eof()
            await w.loop.idle()
        else:
            await requester.ask(request(RR, stream, ASKED))
            if what == "cancelled":
                await requester.ask(cancel(stream))
            else:
                recorder.reply(recorder.messages[-1], b"")
                await requester.received()
            recorder.messages.clear()
            recorder.payloads.clear()

    assert set(await _left(once)) <= {"ConnectionWorker", "RouteWorker"}


@pytest.mark.parametrize("kind", [RR, FNF, STREAM, CHANNEL])
@in_world()
async def test_a_multicast_is_free_without_the_cycle_collector(w: World, kind: int) -> None:
    asked = asked_for("a", MULTICAST)
    requester, *destinations = await three(w)

    async def once(stream: int) -> None:
        credit = 2 if kind in (STREAM, CHANNEL) else None
        flags = C if kind == CHANNEL else 0
        await requester.ask(request(kind, stream, asked, flags=flags, n=credit))
        for destination in destinations:
            await destination.received()
            if kind != FNF:
                # In a stream, the element of the third waits for credit.
                await destination.ask(payload(stream + 1, b"element", N | C))
        if credit is not None:
            await requester.ask(request_n(stream, 1))
        await requester.received()

    assert not await _left(once)
    assert w.broker.index.multicast_rules.held == 0


async def _left(once: Callable[[int], Awaitable[object]]) -> Counter[str]:
    """Return the classes of the objects that only the cycle collector finds, after 50 requests."""
    for stream in range(1, 11, 2):
        await once(stream)
    gc.collect()
    gc.disable()
    try:
        for stream in range(11, 111, 2):
            await once(stream)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        # A worker and what runs it, which have no part in the connection, are not looked at.
        ours = [each for each in gc.garbage if type(each).__module__.startswith(OURS)]
        return Counter(type(each).__name__ for each in ours)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@in_world(options=LinkOptions(gathering=GatheringOptions(max_gather=1000, max_request=5000)))
async def test_how_much_of_a_request_is_gathered_for_a_worker(w: World) -> None:
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="worker")
    w.broker.register("worker", service="a")
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"start", flags=F))
    for _ in range(4):
        await requester.ask(payload(1, bytes(1000), N | F))
    await requester.ask(payload(1, b"end", N))
    assert recorder.payloads == [b"start" + bytes(4000) + b"end"]
    recorder.reply(recorder.messages[0], b"answer")
    await requester.received()
    await requester.ask(request(RR, 3, ASKED, b"start", flags=F))
    for _ in range(4):
        await requester.ask(payload(3, bytes(1000), N | F))
    ((stream, code, text),) = errors(await requester.ask(payload(3, bytes(1000), N | F)))
    assert (stream, code) == (3, 0x204)
    assert "over the limit of 5000 bytes" in text
    assert len(recorder.payloads) == 1
