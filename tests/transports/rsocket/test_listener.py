"""The listener: how many it takes, how it stops, and what it is told wrong."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import Any

import pytest

from onward.actors import Node, NodeLimits
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.actors.runtime._slices import whole
from onward.protocol import RSOCKET, Address, LinkDown, UnknownAddressType
from onward.protocol.rsocket import ConnectionLimits
from onward.transports.rsocket import (
    FlowOptions,
    GatheringOptions,
    LinkOptions,
    RSocketListener,
    RSocketListenerStatistics,
)
from tests.support.rsocket_peer import *
from tests.support.websocket_peer import WebSocketPeer
from tests.support.workers import fill

ASKED = asked_for("a")
URI = "rsocket+tcp://127.0.0.1:0"


@in_world(options=LinkOptions(max_connections=2))
async def test_how_many_connections_it_takes(w: World) -> None:
    requester, destination = await w.pair()
    port = int(w.listener.uri.rpartition(":")[2])
    one_more = Peer(w.loop.servers[port], ("10.0.0.9", 1))
    assert one_more.closed
    assert await one_more.ask(setup()) == []
    statistics = w.listener.statistics()
    assert (statistics.connections, statistics.turned_away) == (2, 1)
    destination.die()
    await w.loop.idle()
    assert await (await w.destination()).received() == []
    assert w.listener.statistics().accepted == 3
    requester.die()


@in_world(options=LinkOptions(max_connections=2))
async def test_a_banned_source_is_turned_away_before_a_place_is_made(w: World) -> None:
    # Even one that would take the place of an unused connection.
    pair = await w.pair()
    w.listener._acceptor.admits = lambda source: source != "10.0.0.9"
    port = int(w.listener.uri.rpartition(":")[2])
    assert Peer(w.loop.servers[port], ("10.0.0.9", 1)).closed
    statistics = w.listener.statistics()
    assert (statistics.connections, statistics.turned_away) == (2, 1)
    assert w.listener._acceptor.refused == {"banned": 1}
    for each in pair:
        each.die()
    await w.loop.idle()
    assert not Peer(w.loop.servers[port], ("10.0.0.8", 1)).closed


@in_world()
async def test_its_statistics_do_not_forget(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, None), frame(0, 0x20, I))
    await destination.ask(payload(2, b"", C))
    expected = RSocketListenerStatistics(2, 2, 0, 1, 1, {"unknown_type": 1}, {})
    found = w.listener.statistics()
    assert (
        replace(found, received_bytes=0, sent_bytes=0, received_frames=0, sent_frames=0) == expected
    )
    # The payload is sent to the one as it was read of the other; the request with another origin.
    assert found.received_bytes > found.sent_bytes > 0
    requester.eof()
    destination.die()
    await w.loop.idle()
    expected = replace(expected, connections=0, closed={"by the peer": 2})
    ended = w.listener.statistics()
    assert (
        replace(ended, received_bytes=0, sent_bytes=0, received_frames=0, sent_frames=0) == expected
    )
    assert ended.received_bytes == found.received_bytes


@in_world()
async def test_an_operator_sees_each_connection_and_why_it_has_ended(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED, b"data"))
    rows = list(w.listener.connections())
    by_service = {row["service"]: row for row in rows}
    assert set(by_service) == {"", "a"}
    row = by_service[""]
    assert (row["streams"], row["requests"], row["refused"]) == (1, 1, 0)
    assert row["received_bytes"] > 100
    assert row["route"] is None
    assert by_service["a"]["sent_bytes"] > 50
    assert [each["listener"] for each in rows] == [w.listener.uri] * 2
    assert list(w.listener.closed_connections()) == []
    assert w.listener.close_connection(row["id"], "an operator has closed it")
    assert not w.listener.close_connection(0, "there is none")
    await w.loop.idle()
    assert not w.listener.close_connection(row["id"], "it has gone")
    (ended,) = w.listener.closed_connections()
    assert (ended["id"], ended["reason"], ended["requests"]) == (row["id"], "by an operator", 1)
    assert ended["closed"] >= ended["opened"] == row["opened"]
    destination.die()
    await w.loop.idle()
    assert [each["reason"] for each in w.listener.closed_connections()] == [
        "by the peer",
        "by an operator",
    ]


@in_world()
async def test_the_limits_that_connections_share(w: World) -> None:
    await w.pair()
    found = {use.name: (use.used, use.limit, use.reached) for use in w.listener.limits()}
    assert found["max_connections"] == (2, 10_000, 0)
    assert found["max_unfinished"] == (0, 256 * 1024 * 1024, 0)
    assert w.broker.listeners() == ((w.listener.uri, w.listener),)
    assert w.listener.accepting
    await w.listener.close()
    assert not w.listener.accepting
    assert w.broker.listeners() == ()


@in_world()
async def test_why_connections_ended_is_counted(w: World) -> None:
    await w.connect().ask(b"\x00\x00\x05hello")
    await w.connect().ask(setup(version=(3, 0)))
    await w.connect().ask(setup(b"\xff" * 4))
    await (await w.requester()).ask(frame(0, 0x20))
    await (await w.requester()).ask(frame(0, 0x0B, 0, b"\x00\x00\x01\x01"))
    (await w.requester()).die()
    first = await w.destination(route_id=w.new_id())
    await w.destination(route_id=first.link.session.registration.route_id)  # type: ignore[union-attr]
    silent, _ = w.connect(), w.connect()
    await silent.ask(setup(keepalive=100, lifetime=1000))
    await asyncio.sleep(11)
    await w.listener.close()
    assert w.listener.statistics().closed == {
        "setup refused": 3,
        "broken frame": 1,
        "error of the peer": 1,
        "by the peer": 1,
        "replaced": 1,
        "silent": 1,
        "no setup": 1,
        "stopped": 1,
    }


@in_world()
async def test_the_end_of_a_connection_is_logged_with_its_reason(
    w: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onward.transports.rsocket")
    peer = await w.destination(route_id=w.new_id())
    peer.eof()
    await w.loop.idle()
    record = caplog.records[-1]
    assert record.getMessage().endswith(": closed: by the peer")
    logged = {name: getattr(record, name) for name in ("event", "listener", "reason", "principal")}
    assert logged == {
        "event": "connection.closed",
        "listener": w.listener.uri,
        "reason": "by the peer",
        "principal": None,
    }


@in_world(options=LinkOptions(drain_timeout=3))
async def test_closing_waits_for_what_is_to_be_sent(w: World) -> None:
    requester, destination = await w.pair()
    stuck = await w.requester()
    for peer in (requester, stuck):
        peer.send(request(STREAM, 1, ASKED, n=5))
    await destination.received()
    requester.stop_reading()
    stuck.stop_reading()
    await destination.ask(payload(2, b"x"), payload(4, b"x"))
    closing = asyncio.ensure_future(w.listener.close())
    await asyncio.sleep(1)
    assert not closing.done()
    requester.read_on()
    got = await requester.received()
    assert elements(got) == [b"x"]
    assert errors(got)[-1] == (0, 0x101, "the broker stops")
    start = w.loop.time()
    await closing
    assert w.loop.time() - start == pytest.approx(2, abs=0.1)
    assert stuck.closed


@in_world()
async def test_the_node_stops_with_connections_alive(w: World) -> None:
    requester, destination = await w.pair()
    silent = w.connect()
    await requester.ask(request(RR, 1, ASKED))
    await w.node.stop()
    for peer in (requester, destination, silent):
        assert peer.closed
    assert errors(await requester.received())[-1] == (0, 0x101, "the broker stops")
    assert w.node.statistics().worker_count == 0


@in_world()
async def test_a_connection_made_while_the_node_stops_is_turned_away(w: World) -> None:
    port = int(w.listener.uri.rpartition(":")[2])
    factory = w.loop.servers[port]
    await w.node.stop_worker(w.listener.address)
    late = Peer(factory, None)
    assert late.closed
    assert w.listener.statistics().turned_away == 1


@in_memory
async def test_a_node_at_its_limit_turns_connections_away() -> None:
    async with Node(limits=NodeLimits(addresses=30)) as node:
        broker = await Broker.attach(node)
        listener = await node.listen(URI, broker=broker)
        await fill(node, spare=1)
        loop: Any = node.loop
        peers = [Peer(loop.servers[1], ("::1", port, 0, 0)) for port in (1, 2)]
        assert [peer.closed for peer in peers] == [False, True]
        assert peers[0].link.identity.peer == "[::1]:1"
        await listener.close()


@in_world()
async def test_listeners_of_one_broker_share_its_destinations(w: World) -> None:
    destination = await w.destination()
    other = await w.node.listen(URI, broker=w.broker)
    assert other.uri != w.listener.uri
    assert w.node.has(other.address)
    requester = Peer(w.loop.servers[int(other.uri.rpartition(":")[2])], ("10.0.0.8", 1))
    w.peers.append(requester)
    assert await requester.ask(setup(), request(RR, 1, ASKED)) == []
    await destination.ask(payload(2, b"x", C))
    assert elements(await requester.received()) == [b"x"]
    await other.close()
    assert requester.closed
    assert not destination.closed


@in_world(options=LinkOptions(max_connections=1))
async def test_each_listener_has_options_and_figures_of_its_own(w: World) -> None:
    webs = [
        await w.node.listen(f"rsocket+ws://127.0.0.1:0{path}", broker=w.broker)
        for path in ("/a", "/b")
    ]
    destination = await w.destination()
    for path, web in zip(("/a", "/b"), webs, strict=True):
        assert isinstance(web, RSocketListener)
        peer = WebSocketPeer(web)
        await peer.open(path=path)
        assert await peer.ask(setup(), request(FNF, 1, ASKED)) == []
        assert len(await destination.received()) == 1
        statistics = web.statistics()
        assert (statistics.connections, statistics.requests) == (1, 1)
        peer.transport.lose(None)
    statistics = w.listener.statistics()
    assert (statistics.connections, statistics.requests) == (1, 0)


async def test_what_it_is_told_wrong() -> None:
    async with Node() as node, Node() as other:
        broker = await Broker.attach(node)
        with pytest.raises(ValueError, match="broker="):
            await node.listen(URI)
        for wrong in (None, Broker()):
            with pytest.raises(ValueError, match="broker="):
                await node.listen(URI, broker=wrong)
        with pytest.raises(ValueError, match="of the same node"):
            await other.listen(URI, broker=broker)
        text = (
            r"'colour'; rsocket.tcp takes broker=, options=, tls=, authentication=, peers=, "
            "siblings=, shared=$"
        )
        with pytest.raises(ValueError, match=text):
            await node.listen(URI, broker=broker, colour="blue")
        with pytest.raises(ValueError, match=r"options must be None or LinkOptions, not {"):
            await node.listen(URI, broker=broker, options={"max_answer": 3})
        for uri in ("rsocket+tcp://127.0.0.1", "rsocket+tcp://:1", "rsocket+tcp://h:1/path"):
            with pytest.raises(ValueError, match="host:port"):
                await node.listen(uri, broker=broker)
        with pytest.raises(ValueError, match="port"):
            await node.listen("rsocket+tcp://127.0.0.1:99999", broker=broker)


async def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with Node() as node:
            broker = await Broker.attach(node)
            before = node.statistics().worker_count
            with pytest.raises(OSError, match="address already in use"):
                await node.listen(
                    f"rsocket+tcp://127.0.0.1:{taken.getsockname()[1]}", broker=broker
                )
            assert node.statistics().worker_count == before


async def test_it_only_listens() -> None:
    async with Node() as node:
        with pytest.raises(LinkDown, match="only listens"):
            await node.connect(URI)
        with pytest.raises(UnknownAddressType):
            node.send([Address(RSOCKET, b"127.0.0.1:1")], b"")


@pytest.mark.parametrize(
    ("made", "wrong"),
    [(FlowOptions, {"high_water": 2**27}), (GatheringOptions, {"max_gathered": 1})],
)
def test_options_that_do_not_fit_together(made: type, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        made(**wrong)


def test_whether_leases_are_taken_is_one_option() -> None:
    assert LinkOptions().connection.lease
    options = LinkOptions(ConnectionLimits(max_streams=5), lease=None)
    assert options.connection == ConnectionLimits(max_streams=5, lease=False)
    assert LinkOptions(ConnectionLimits(lease=False)) == LinkOptions()


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0)))
async def test_figures_in_slices_count_each_connection_once(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it ends or comes before its slice, or after it: no count ever falls."""
    monkeypatch.setattr("onward.transports.rsocket._listener.SLICE", 4)
    peers = [await w.requester() for _ in range(10)]
    for peer in peers:
        await peer.ask(request(FNF, 1, asked_for("none")))
    before = w.listener.statistics()
    assert (before.connections, before.requests) == (10, 10)
    slices = w.broker.reports_in_slices()
    next(slices)
    peers[0].die()  # it was counted
    peers[9].die()  # it will be
    await w.loop.idle()
    other = await w.requester()
    await other.ask(request(FNF, 1, asked_for("none")))
    ((uri, found),) = whole(slices)
    assert (uri, found["connections"], found["requests"]) == (w.listener.uri, 10, 10)
    assert found["received_bytes"] == before.received_bytes
    after = w.listener.statistics()
    assert (after.connections, after.requests) == (9, 11)
    assert after.received_bytes > before.received_bytes
