"""The drain of a listener's connections, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.broker import BrokerOptions, DrainOptions, WaitingOptions
from onward.protocol import LinkLost, NodeStopped
from onward.transports.rsocket import LeaseOptions, LinkOptions
from tests.support.rsocket_peer import *
from tests.support.workers import Recorder

ASKED = asked_for("a")
REJECTED, CANCELED = 0x202, 0x203
CLOSE = (0, 0x102, "the broker drains")
TIMES = DrainOptions(grace=5, spread=20, timeout=60)
WAITING = BrokerOptions(waiting=WaitingOptions(no_route_timeout=None))


def half() -> float:
    return 0.5


def drain(w: World, options: DrainOptions = TIMES) -> asyncio.Task[bool]:
    """Drain: requesters begin to end 10 s after the start, destinations 20 s."""
    return asyncio.create_task(w.broker.drain(options, random=half))


@in_world()
async def test_connections_are_accepted_during_the_grace(w: World) -> None:
    requester = await w.requester()
    draining = drain(w)
    await asyncio.sleep(4.9)
    destination = await w.destination()
    await requester.ask(request(RR, 1, ASKED))
    await destination.ask(payload(2, b"x", N | C))
    assert elements(await requester.received()) == [b"x"]
    assert w.broker.draining
    assert (w.broker.statistics().draining, w.broker.statistics().connections_left) == (True, 2)
    await asyncio.sleep(0.2)
    assert not w.loop.servers
    assert errors(await requester.received()) == []
    with pytest.raises(NodeStopped):
        await w.node.listen("rsocket+tcp://127.0.0.1:0", broker=w.broker)
    assert await draining
    assert requester.closed
    assert destination.closed
    assert w.listener.statistics().closed == {"drained": 2}


@in_world()
async def test_it_is_undone_during_the_grace(w: World) -> None:
    requester, destination = await w.pair()
    with w.broker.events.subscribe() as events:
        draining = drain(w)
        await asyncio.sleep(4)
        assert w.broker.undo_drain()
        assert not w.broker.undo_drain()
        assert not await draining
        assert [(await anext(events)).kind for _ in range(2)] == ["draining", "serving"]
    assert not w.broker.draining
    await asyncio.sleep(30)
    await requester.ask(request(RR, 1, ASKED))
    await destination.ask(payload(2, b"x", N | C))
    assert elements(await requester.received()) == [b"x"]


@in_world()
async def test_a_connection_without_streams_is_told_and_closes(w: World) -> None:
    requester = await w.requester()
    draining = drain(w)
    await asyncio.sleep(9.9)
    assert errors(await requester.received()) == []
    await asyncio.sleep(0.2)
    assert errors(await requester.received()) == [CLOSE]
    # What it has sent before it has read the ERROR is answered.
    assert errors(await requester.ask(request(RR, 1, ASKED))) == [
        (1, REJECTED, "the broker drains")
    ]
    assert not requester.closed
    requester.eof()
    await w.loop.idle()
    assert requester.closed
    assert await draining


@in_world(options=LinkOptions(drain_timeout=3))
async def test_a_told_connection_is_closed_at_last(w: World) -> None:
    requester = await w.requester()
    draining = drain(w)
    await asyncio.sleep(12.9)
    assert not requester.closed
    await asyncio.sleep(0.2)
    assert requester.closed
    assert await draining


@in_world()
async def test_streams_run_to_their_end_and_new_requests_are_rejected(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, n=5))
    draining = drain(w)
    await asyncio.sleep(15)
    got = await requester.ask(request(RR, 3, ASKED))
    assert errors(got) == [(3, REJECTED, "the broker drains")]
    assert w.listener.statistics().refused == 1
    await destination.ask(payload(2, b"x", N))
    assert elements(await requester.received()) == [b"x"]
    await destination.ask(payload(2, b"y", N | C))
    await asyncio.sleep(0.1)
    got = await requester.received()
    assert elements(got) == [b"y"]
    assert errors(got) == [CLOSE]
    requester.eof()
    await asyncio.sleep(5)
    assert errors(await destination.received()) == [CLOSE]
    destination.eof()
    assert await draining


@in_world()
async def test_a_request_without_an_answer_is_routed(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, n=5))
    draining = drain(w)
    await asyncio.sleep(15)
    assert await requester.ask(request(FNF, 3, ASKED)) == []
    assert FNF in [kind_of(raw) for raw in await destination.received()]
    await destination.ask(payload(2, b"", C))
    assert await draining


@in_world()
async def test_another_destination_is_chosen(w: World) -> None:
    requester, one, other = await w.requester(), await w.destination(), await w.destination()
    one.link.begin_to_end()
    await requester.ask(*(request(FNF, number, ASKED) for number in (1, 3, 5)))
    assert [kind_of(raw) for raw in await other.received()] == [FNF] * 3
    assert await one.received() == []
    other.link.begin_to_end()
    await requester.ask(*(request(FNF, number, ASKED) for number in (7, 9)))
    # Neither is preferred.
    assert len(await one.received()) == len(await other.received()) == 1


@in_world(WAITING)
async def test_at_the_timeout_what_waits_is_rejected_and_what_is_open_canceled(w: World) -> None:
    requester, destination = await w.pair()
    w.broker.register(await w.node.start(Recorder), service="silent")
    await requester.ask(
        request(STREAM, 1, ASKED, n=5),
        request(RR, 3, asked_for("nobody")),
        request(RR, 5, asked_for("silent")),
    )
    asking = asyncio.create_task(w.node.request("32#service=a", b"", timeout=100))
    await destination.received()
    draining = drain(w)
    await asyncio.sleep(59.9)
    assert await requester.received() == []
    await asyncio.sleep(0.2)
    got = errors(await requester.received())
    assert got == [
        (3, REJECTED, "no route: service=nobody (the broker drains)"),
        (1, CANCELED, "the broker drains"),
        (5, CANCELED, "the broker drains"),
        CLOSE,
    ]
    assert await draining
    assert requester.closed
    assert destination.closed
    with pytest.raises(LinkLost):
        await asking


@in_world(WAITING)
async def test_no_request_waits_once_the_sockets_are_closed(w: World) -> None:
    requester = await w.requester()
    draining = drain(w)
    await asyncio.sleep(6)
    got = errors(await requester.ask(request(RR, 1, ASKED)))
    assert [code for _, code, _ in got] == [REJECTED]
    assert await draining


@in_world(options=LinkOptions(lease=LeaseOptions(requests=3, interval=2)))
async def test_clients_get_no_further_lease(w: World) -> None:
    requester = w.connect()
    await requester.ask(setup(flags=0x040))
    draining = drain(w)
    await asyncio.sleep(4.9)
    assert [kind_of(raw) for raw in await requester.received()] == [LEASE] * 2
    await asyncio.sleep(5)
    assert await requester.received() == []
    assert await draining


@in_world()
async def test_a_connection_without_setup_ends(w: World) -> None:
    silent = w.connect()
    draining = drain(w, DrainOptions(grace=0, spread=0, timeout=60))
    await w.loop.idle()
    assert silent.closed
    assert await draining


@in_world()
async def test_watchers_do_not_hold_it_up(w: World) -> None:
    watcher = await w.requester()
    await watcher.ask(request(STREAM, 1, asked_for("onward.management"), b"watch", n=100))
    draining = drain(w)
    await asyncio.sleep(25.2)
    got = await watcher.received()
    assert b'"draining"' in b"".join(elements(got))
    assert errors(got) == [CLOSE]
    assert await draining


@in_world()
async def test_the_node_stops_while_it_drains(w: World) -> None:
    requester, _ = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, n=5))
    draining = drain(w)
    await asyncio.sleep(15)
    await w.node.stop()
    assert not await draining
