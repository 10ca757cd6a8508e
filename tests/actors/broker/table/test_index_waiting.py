"""Requests that wait for a destination to come: for how long, in which order, and how many."""

from __future__ import annotations

import asyncio
import threading

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.actors.broker.table._waiting import SLICE
from onward.protocol import NoRoute, NotDelivered, UnknownAddressType
from tests.support.compiled import interpreted
from tests.support.rsocket_answers import counts
from tests.support.rsocket_peer import (
    CHANNEL,
    FNF,
    RR,
    STREAM,
    C,
    F,
    N,
    World,
    asked_for,
    cancel,
    error,
    errors,
    in_world,
    payload,
    push,
    request,
    restamped,
    stream_of,
)
from tests.support.transports import eventually
from tests.support.workers import Echo, Failing, Gate, Recorder, start_worker

ASKED = asked_for("a")
REJECTED = 0x202


@in_world()
async def test_waiting_requests_are_released_in_order_by_the_join(w: World) -> None:
    first, second = await w.requester(), await w.requester()
    first.send(request(RR, 1, ASKED, b"1"))
    second.send(request(RR, 1, ASKED, b"2"))
    other = asked_for("b")
    first.send(request(RR, 3, other, b"x"))
    second.send(request(STREAM, 3, ASKED, b"3", n=5))
    first.send(request(FNF, 5, ASKED, b"4"), push(ASKED))
    await w.loop.idle()
    statistics = w.broker.statistics()
    assert (statistics.waiting, statistics.waited) == (6, 6)
    destination = w.register()
    got = await destination.received()
    assert [raw[-1:] for raw in got[:4]] == [b"1", b"2", b"3", b"4"]
    assert got[4] == push(ASKED)
    assert w.broker.statistics().waiting == 1
    assert w.row().outstanding == 3
    await destination.ask(*(payload(stream, b"", C) for stream in (2, 4, 6)))
    assert [stream_of(raw) for raw in await first.received()] == [1]
    assert [stream_of(raw) for raw in await second.received()] == [1, 3]
    await first.ask(cancel(3))
    await w.settled()
    assert w.broker.statistics().waited == 6


@interpreted
@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=5)))
async def test_who_waits_again_does_so_no_longer_than_at_first(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"1"))
    await asyncio.sleep(3)

    def gone_again(*_: object) -> None:
        return None

    # As if the first one to be released made the destination leave.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(w.broker.index, "choose", gone_again)
        (await w.destination()).die()
        await w.loop.idle()
    assert w.broker.statistics().oldest_wait == pytest.approx(3, abs=0.01)
    await asyncio.sleep(2.1)
    assert [code for _, code, _ in errors(await requester.received())] == [REJECTED]


@in_world()
async def test_default_tags_release_as_well(w: World) -> None:
    requester, route_id = await w.requester(), w.new_id()
    wanted = asked_for({2: str(route_id), 6: "eu"})
    await requester.ask(request(RR, 1, wanted))
    await w.destination("a", route_id=route_id)
    assert w.broker.statistics().waiting == 1
    peer = w.register("a", {6: "eu"}, route_id=route_id)
    assert await peer.received() == [request(RR, 2, wanted)]
    requester.die()


@in_world()
async def test_a_request_that_has_waited_too_long(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, asked_for({1: "a", 6: "eu"})))
    await asyncio.sleep(2)
    await requester.ask(request(RR, 3, ASKED), request(FNF, 5, ASKED), push(ASKED))
    await asyncio.sleep(2.9)
    assert await requester.received() == []
    await asyncio.sleep(0.2)
    assert errors(await requester.received()) == [(1, REJECTED, "no route: service=a region=eu")]
    await asyncio.sleep(2)
    assert errors(await requester.received()) == [(3, REJECTED, "no route: service=a")]
    statistics = w.broker.statistics()
    assert (statistics.waiting, statistics.waited, statistics.rejected) == (0, 4, 4)
    assert w.node.dead_letters.by_reason == {"no route": 4}


@in_world()
async def test_time_runs_for_those_that_wait_after_others_have_gone(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED))
    await requester.ask(cancel(1))
    await asyncio.sleep(4)
    await requester.ask(request(RR, 3, ASKED))
    await asyncio.sleep(4.9)
    assert await requester.received() == []
    await asyncio.sleep(0.2)
    assert len(errors(await requester.received())) == 1


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=None, max_wait=60.0)))
async def test_no_request_waits_longer_than_any_may(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED, b"12345678"))
    await asyncio.sleep(59)
    assert await requester.received() == []
    statistics = w.broker.statistics()
    assert statistics.waiting_bytes > 8
    assert statistics.oldest_wait == pytest.approx(59, abs=0.1)
    await asyncio.sleep(2)
    assert len(errors(await requester.received())) == 1
    assert w.broker.statistics().waiting_bytes == 0


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=0)))
async def test_what_happens_is_told_to_those_who_watch(w: World) -> None:
    identity = w.new_id()
    with w.broker.events.subscribe() as events:
        first = await w.destination(tags={6: "eu"}, route_id=identity)
        second = await w.destination("b", route_id=identity)
        await (await w.requester()).ask(request(RR, 1, ASKED))
        requester = await w.requester()
        await w.node.start(Failing, address="worker")
        w.broker.register("worker", service="c")
        await requester.ask(request(RR, 1, asked_for("c"), b"!"))
        second.die()
        await w.loop.idle()
        got = [await anext(events) for _ in range(7)]
    assert first.closed
    assert [(event.kind, event.service) for event in got] == [
        ("joined", "a"),
        ("replaced", "a"),
        ("joined", "b"),
        ("rejected", ""),
        ("joined", "c"),
        ("lost", "c"),
        ("left", "b"),
    ]
    assert (got[0].route_id, dict(got[0].tags)["region"]) == (identity, "eu")
    assert got[0].peer
    assert got[1].reason == "another connection has taken over its route id"
    assert (got[3].query, got[3].reason) == ("service=a", "no route: service=a")
    assert (got[5].peer, got[5].reason) == ("local", "worker failed")
    await w.settled_after(requester)


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=0)))
async def test_nobody_needs_to_wait(w: World) -> None:
    requester = await w.requester()
    got = errors(await requester.ask(request(RR, 1, ASKED), request(FNF, 3, ASKED)))
    assert got == [(1, REJECTED, "no route: service=a")]
    with pytest.raises(NoRoute):
        await w.node.request("32#service=a", b"")
    assert w.broker.statistics().waited == 0


@in_world(BrokerOptions(waiting=WaitingOptions(max_messages=2)))
async def test_how_many_may_wait(w: World) -> None:
    requester = await w.requester()
    got = await requester.ask(*(request(RR, stream, ASKED) for stream in (1, 3, 5)))
    assert errors(got) == [(5, REJECTED, "no route: service=a")]
    await requester.ask(cancel(1))
    assert await requester.ask(request(RR, 7, ASKED)) == []
    requester.die()


@in_world(BrokerOptions(waiting=WaitingOptions(max_bytes=1000)))
async def test_how_many_bytes_may_wait(w: World) -> None:
    requester = await w.requester()
    assert await requester.ask(request(RR, 1, ASKED, bytes(500))) == []
    got = await requester.ask(request(RR, 3, ASKED, bytes(500)))
    assert [(stream, code) for stream, code, _ in errors(got)] == [(3, REJECTED)]
    assert await requester.ask(cancel(1), request(RR, 5, ASKED, bytes(500))) == []
    with pytest.raises(NoRoute):
        await w.node.request("32#service=a", bytes(500))
    destination = w.register()
    assert len(await destination.received()) == 1
    assert await requester.ask(request(RR, 7, asked_for("b"), bytes(500))) == []
    requester.die()


@pytest.mark.parametrize(
    "end", [cancel(1), error(1, 0x201), b"", b"\x00\x00\x06" + bytes(4) + b"\x80\x00"]
)
@in_world()
async def test_the_requester_goes_while_its_request_waits(w: World, end: bytes) -> None:
    requester = await w.requester()
    await requester.ask(request(CHANNEL, 1, ASKED, n=1))
    assert w.broker.statistics().waiting == 1
    if end:
        await requester.ask(end)
    else:
        requester.die()
    await w.loop.idle()
    assert w.broker.statistics().waiting == 0
    destination = await w.destination()
    assert await destination.received() == []


@in_world()
async def test_a_fire_and_forget_waits_no_longer_than_its_requester_is_there(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(FNF, 1, ASKED, b"last words"))
    requester.eof()
    destination = w.register()
    assert await destination.received() == []
    assert w.broker.statistics().rejected == 1


@in_world()
async def test_fragments_that_come_while_the_request_waits(w: World) -> None:
    requester = await w.requester()
    asked = [request(RR, 1, ASKED, b"1", flags=F), payload(1, b"2", N | F), payload(1, b"3")]
    for each in asked:
        await requester.ask(each)
    destination = w.register()
    assert await destination.received() == [restamped(each, 2) for each in asked]
    await destination.ask(payload(2, b"", C))
    await requester.received()


@in_world()
async def test_a_message_without_a_way_back_has_waited_too_long(w: World) -> None:
    w.node.send("32#service=a", b"x")
    await asyncio.sleep(5.1)
    assert w.node.dead_letters.by_reason == {"no route": 1}


@in_world()
async def test_workers_wait_as_well(w: World) -> None:
    task = asyncio.ensure_future(w.node.request("32#service=a", b"x"))
    await w.loop.idle()
    assert w.broker.statistics().waiting == 1
    await w.node.start(Echo, address="echo")
    w.broker.register("echo", service="a")
    assert (await task).payload == b"x"
    assert w.broker.statistics().waiting == 0


@in_world(BrokerOptions(max_mailbox=2))
async def test_released_requests_that_find_no_room(w: World) -> None:
    requester = await w.requester()
    for stream in (1, 3, 5):  # one by one: no more than two may be on their way to the index
        await requester.ask(request(RR, stream, ASKED))
    gate = Gate()
    await w.node.start(lambda: gate, address="gate")
    w.broker.register("gate", service="a")
    got = errors(await requester.received())
    assert got == [(5, REJECTED, "not delivered: the destination (mailbox full)")]
    assert w.row().outstanding == 2
    requester.die()
    gate.opened.set()


@in_world(BrokerOptions(max_mailbox=2))
async def test_the_forwarder_has_no_room(w: World) -> None:
    peers = [await w.destination() for _ in range(2)]
    for _ in range(2):
        w.node.send("32#service=a", b"x")
    with pytest.raises(NotDelivered):
        w.node.send("32#service=a", b"x")
    assert await counts(peers) == [1, 1]


@in_world()
async def test_the_broker_stops_while_requests_wait(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED))
    task = asyncio.ensure_future(w.node.request("32#service=a", b"x"))
    await w.loop.idle()
    await w.node.stop_worker("broker")
    assert errors(await requester.received()) == [
        (1, REJECTED, "no route: service=a (the broker stops)")
    ]
    with pytest.raises(NoRoute, match="the broker stops"):
        await task
    with pytest.raises(UnknownAddressType):
        w.node.send("32#service=a", b"")
    ((stream, code, _),) = errors(await requester.ask(request(RR, 3, ASKED)))
    assert (stream, code) == (3, REJECTED)


@pytest.mark.real_time
async def test_another_thread_sends_by_tags(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    broker.register("echo", service="a")
    inbox = await start_worker(node, Recorder(), "inbox")

    def send() -> None:
        node.send("32#service=a", b"from a thread", return_route="inbox")

    thread = threading.Thread(target=send)
    thread.start()
    await eventually(lambda: inbox.messages)
    thread.join()
    assert inbox.payloads == [b"from a thread"]


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=5)))
async def test_many_that_have_waited_too_long_are_refused_in_slices(w: World) -> None:
    requester = await w.requester()
    asked = [request(RR, 1 + 2 * at, ASKED) for at in range(1000)]
    assert await requester.ask(*asked) == []
    refused: list[int] = []

    def count(_: object) -> None:
        if not refused:
            refused.append(0)
            w.loop.call_soon(lambda: refused.append(w.broker.statistics().rejected))

    w.node.dead_letters.subscribe(count)
    await asyncio.sleep(6)
    assert refused == [0, SLICE]
    got = await requester.received()
    assert [stream for stream, _, _ in errors(got)] == [1 + 2 * at for at in range(1000)]
