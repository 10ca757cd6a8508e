"""Workers that ask peers by tags: how requests and answers cross over."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from onward.protocol import (
    InDoubt,
    LinkLost,
    MailboxFull,
    Message,
    NoRoute,
    NotDelivered,
    PayloadTooBig,
    RequestTimeout,
)
from onward.protocol.rsocket import ConnectionLimits
from onward.transports.rsocket import DestinationError, FlowOptions, GatheringOptions, LinkOptions
from tests.support.rsocket_peer import *
from tests.support.workers import Echo


async def started(w: World, work: Coroutine[Any, Any, Message]) -> asyncio.Task[Message]:
    task = asyncio.ensure_future(work)
    await w.loop.idle()
    return task


@in_world()
async def test_a_worker_asks_a_peer(w: World) -> None:
    destination = await w.destination()
    task = await started(w, w.node.request("32#service=a", b"hello"))
    assert await destination.received() == [request(RR, 2, w.asks("a"), b"hello")]
    await destination.ask(payload(2, b"hi", N | C, b"metadata"))
    answer = await task
    assert answer.payload == b"hi"
    assert w.row().requests == 1


@in_world()
async def test_a_worker_tells_a_peer(w: World) -> None:
    destination = await w.destination()
    w.node.send("32#service=a", b"hello")
    assert await destination.received() == [request(FNF, 2, w.asks("a"), b"hello")]


@pytest.mark.parametrize(
    "answer",
    [[payload(2, b"", C)], [payload(2, b"", N)], [payload(2, b"", N | F), payload(2, b"", N | C)]],
)
@in_world()
async def test_an_empty_answer_of_a_peer(w: World, answer: list[bytes]) -> None:
    destination = await w.destination()
    task = await started(w, w.node.request("32#service=a", b""))
    await destination.ask(*answer)
    assert (await task).payload == b""


@in_world(options=LinkOptions(gathering=GatheringOptions(max_answer=10)))
async def test_an_answer_of_a_peer_in_fragments(w: World) -> None:
    destination = await w.destination()
    first = await started(w, w.node.request("32#service=a", b""))
    second = await started(w, w.node.request("32#service=a", b""))
    await destination.received()
    await destination.ask(payload(2, b"12345", N | F), payload(4, b"123456", N | F))
    await destination.ask(payload(2, b"67890", N))
    assert (await first).payload == b"1234567890"
    assert await destination.ask(payload(4, b"78901", N | F)) == [cancel(4)]
    with pytest.raises(PayloadTooBig):
        await second


@pytest.mark.parametrize(("code", "text"), [(0x201, "APPLICATION_ERROR: no"), (0x301, "0x301: no")])
@in_world()
async def test_a_peer_answers_with_an_error(w: World, code: int, text: str) -> None:
    destination = await w.destination()
    task = await started(w, w.node.request("32#service=a", b""))
    await destination.ask(error(2, code, b"no"))
    with pytest.raises(DestinationError) as raised:
        await task
    assert str(raised.value) == text
    assert (raised.value.code, raised.value.text) == (code, "no")


@in_world()
async def test_the_error_of_a_peer_for_one_who_does_not_wait(w: World) -> None:
    destination = await w.destination()
    await w.node.start(Echo, address="echo")
    w.node.send("32#service=a", b"", return_route="echo")
    await w.loop.idle()
    await destination.ask(error(2, 0x301, b"no"))
    assert w.node.dead_letters.by_reason == {"destination error": 1}


@in_world()
async def test_a_peer_is_lost_with_a_workers_request_in_hand(w: World) -> None:
    destination = await w.destination()
    task = await started(w, w.node.request("32#service=a", b""))
    destination.die()
    with pytest.raises(LinkLost):
        await task
    assert issubclass(LinkLost, InDoubt)


@in_world()
async def test_a_peer_breaks_the_protocol_with_a_workers_request_in_hand(w: World) -> None:
    destination = await w.destination()
    task = await started(w, w.node.request("32#service=a", b""))
    destination.send(b"\x00\x00\x01!")
    await w.loop.idle()
    assert destination.closed
    with pytest.raises(LinkLost):
        await task


@in_world()
async def test_a_peer_leaves_with_a_workers_request_on_its_way(w: World) -> None:
    destination = await w.destination()
    task = asyncio.ensure_future(w.node.request("32#service=a", b""))
    await asyncio.sleep(0)
    destination.send(b"\x00\x00\x01!")
    with pytest.raises(NotDelivered):
        await task


@in_world()
async def test_nobody_carries_the_tags(w: World) -> None:
    with pytest.raises(NoRoute, match="service=a region=eu"):
        await w.node.request("32#region=eu service=a", b"")
    assert w.loop.time() == pytest.approx(1005, abs=0.01)
    assert w.broker.statistics().rejected == 1


@in_world()
async def test_answered_requests_leave_nothing_behind(w: World) -> None:
    destination = await w.destination()
    for number in range(20):
        task = await started(w, w.node.request("32#service=a", b""))
        await destination.ask(payload(2 + 2 * number, b"", C))
        await task
    assert len(destination.link.worker.local._asked or ()) <= 2


@in_world(options=LinkOptions(connection=ConnectionLimits(max_streams=100)))
async def test_requests_given_up_are_cancelled_in_time(w: World) -> None:
    destination = await w.destination()
    first = await started(w, w.node.request("32#service=a", b"patient", timeout=1000))
    for _ in range(200):
        with pytest.raises(RequestTimeout):
            await w.node.request("32#service=a", b"", timeout=0.1)
    got = await destination.received()
    assert sum(kind_of(raw) == RR for raw in got) == 201
    assert destination.streams < 5
    await destination.ask(payload(2, b"at last", N | C))
    assert (await first).payload == b"at last"
    destination.die()


@in_world()
async def test_nothing_is_kept_of_the_answer_to_a_request_given_up(w: World) -> None:
    destination = await w.destination()
    task = await started(w, w.node.request("32#service=a", b"", timeout=1))
    await destination.ask(payload(2, b"12345", N | F))
    gathered = destination.link.session.gathered
    assert gathered.count() > 0
    with pytest.raises(RequestTimeout):
        await task
    w.node.send("32#service=a", b"")
    assert cancel(2) in await destination.received()
    assert gathered.count() == 0


@in_world(options=LinkOptions(flow=FlowOptions(high_water=1000)))
async def test_a_worker_and_a_peer_that_does_not_read(w: World) -> None:
    destination = await w.destination()
    destination.stop_reading()
    w.node.send("32#service=a", bytes(2000))
    await w.loop.idle()
    with pytest.raises(MailboxFull):
        await w.node.request("32#service=a", b"")
    destination.read_on()
    w.node.send("32#service=a", b"x")
    assert len(await destination.received()) == 2


@in_world(options=LinkOptions(connection=ConnectionLimits(max_streams=1)))
async def test_a_peer_takes_no_more_requests_of_workers(w: World) -> None:
    destination = await w.destination()
    task = await started(w, w.node.request("32#service=a", b""))
    with pytest.raises(NotDelivered, match="1 live streams"):
        await w.node.request("32#service=a", b"")
    await destination.ask(payload(2, b"", C))
    await task


@in_world()
async def test_a_request_of_a_worker_that_fits_in_no_frame(w: World) -> None:
    destination = await w.destination()
    with pytest.raises(NotDelivered, match="over the limit"):
        await w.node.request("32#service=a", bytes(2**24 - 1))
    assert await destination.received() == []


@in_world()
async def test_a_worker_asks_a_worker_by_tags(w: World) -> None:
    await w.node.start(Echo, address="worker")
    w.broker.register("worker", service="local", tags={"region": "eu"})
    assert (await w.node.request("32#service=local region=eu", b"x")).payload == b"x"
    assert w.row("local").requests == 1


@in_world()
async def test_a_connection_that_has_not_said_anything_takes_no_requests(w: World) -> None:
    silent = w.connect()
    with pytest.raises(NotDelivered):
        await w.node.request(silent.link.worker.address, b"")
    assert await silent.received() == []
