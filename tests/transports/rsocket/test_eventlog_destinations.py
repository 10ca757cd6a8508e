"""What the event log says of connections and destinations: that they come, change and go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from onward.actors.eventlog.recording._flow_sampler import FlowSampler
from onward.protocol.eventlog import EventName, Kind
from tests.actors.eventlog.recorded import NEVER, OPTIONS, recorded_world
from tests.support.rsocket_peer import *
from tests.support.workers import Echo

ASKED = asked_for("a")
CONNECTION_CLOSE, CONNECTION_ERROR = 0x102, 0x101


@in_memory
async def test_requests_of_a_connection_that_lives_shortly_are_not_messages_as_well() -> None:
    async with recorded_world(NEVER) as (w, log):
        log.recorder.links = FlowSampler(log.recorder, w.node)
        await w.node.start(Echo, address="echo")
        w.broker.register("echo", service="a")
        destination = await w.destination("b")
        log.recorder.flows.end_window(0, 10_000)
        requester = await w.requester()
        await requester.ask(request(RR, 1, asked_for("b"), b"ping"))
        await destination.ask(payload(2, b"pong", N | C))
        await requester.ask(request(RR, 3, ASKED, b"ping"))
        requester.die()
        destination.die()
        await w.settled()
        log.recorder.flows.end_window(0, 10_000)
        mine = requester.link.worker.address, destination.link.worker.address
    flows = log.flows()
    assert sum(flows.values()) > 0
    assert not [key for key in flows if any(key.dest == f"edge/{each}" for each in mine)]
    # The one message there was is the request to the worker, which its stand-in handled as well.
    messages = {key.dest for key in flows if key.kind == Kind.MESSAGE}
    assert "edge" not in messages


@in_memory
async def test_a_connection_that_changes_its_tags_without_end_is_told_of_with_the_last() -> None:
    limited = replace(OPTIONS, max_event_bytes_per_second=1000, max_event_burst=1)
    async with recorded_world(limited) as (w, log):
        route_id = w.new_id()
        await w.destination("b")
        peer = await w.destination("a", {"turn": "0"}, route_id=route_id)
        for turn in range(1, 50):
            raw = route_setup(route_id, "a", {"turn": str(turn)})
            await peer.ask(push(composite((BROKER_FRAME, raw))))
        await asyncio.sleep(1)
        log.recorder.tick()
        assert log.recorder.statistics().left_out["changes"] == 49
    told = [event for event in log.events() if event.node == "a"]
    assert [(event.name, dict(event.tags)["turn"]) for event in told] == [
        (EventName.UP, "49"),
        (EventName.DOWN, "49"),
    ]
    assert any("faster than 1000 bytes a second" in event.reason for event in log.events())


async def lost(w: World) -> None:
    (await w.destination("a")).die()


async def ended(w: World) -> None:
    (await w.destination("a")).eof()


async def closing(w: World) -> None:
    peer = await w.destination("a")
    await peer.ask(error(0, CONNECTION_CLOSE, b"a rolling restart"))
    peer.die()


async def failed(w: World) -> None:
    await (await w.destination("a")).ask(error(0, CONNECTION_ERROR, b"secret"))


async def broken(w: World) -> None:
    await (await w.destination("a")).ask(b"\0\0\2ab")


async def silent(w: World) -> None:
    await w.destination("a")
    await asyncio.sleep(200)


async def anew(w: World) -> None:
    raw = route_setup(w.new_id(), "b")
    await (await w.destination("a")).ask(push(composite((BROKER_FRAME, raw))))


async def withdrawn(w: World) -> None:
    await w.node.start(Echo, address="echo")
    w.broker.register("echo", service="a").withdraw()


async def worker_stopped(w: World) -> None:
    await w.node.start(Echo, address="echo")
    w.broker.register("echo", service="a")
    await w.node.stop_worker("echo")


async def at_the_end(w: World) -> None:
    await w.destination("a")


async def worker_at_the_end(w: World) -> None:
    await w.node.start(Echo, address="echo")
    w.broker.register("echo", service="a")


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (lost, "its connection was lost"),
        (ended, "its connection was lost"),
        (closing, "its connection ends"),
        (failed, "its connection was closed: error of the peer"),
        (broken, "its connection was closed: broken frame"),
        (silent, "its connection was closed: silent"),
        (anew, "it registered anew"),
        (withdrawn, "withdrawn"),
        (worker_stopped, "its worker stopped"),
        (at_the_end, "the broker stops"),
        (worker_at_the_end, "its worker stopped"),
    ],
)
@in_memory
async def test_why_a_destination_has_left_is_told_in_fixed_words(
    happens: Callable[[World], Awaitable[None]], reason: str
) -> None:
    async with recorded_world() as (w, log):
        await happens(w)
        await w.loop.idle()
    told = [event for event in log.events() if event.node == "a" and event.name != EventName.UP]
    assert [(event.name, event.reason) for event in told] == [(EventName.DOWN, reason)]
