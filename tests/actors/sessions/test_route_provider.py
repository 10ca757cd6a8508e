from __future__ import annotations

import asyncio
import logging
from asyncio import sleep
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from onward.actors import Node
from onward.actors.routing._given import as_route
from onward.actors.services import RelayClient, StaticRelayService
from onward.actors.sessions import (
    MAX_LEAVE_TIME,
    SessionClient,
    SessionOptions,
    SessionService,
    route_over,
)
from onward.actors.sessions._route_provider import RouteProvider
from onward.actors.testing import Probe
from onward.protocol import LinkDown, Route, RouteLike
from onward.protocol.sessions import LivenessOptions, SessionState
from onward.transports.simulated import SimulatedNetwork
from tests.support.fixtures import Caplog
from tests.support.workers import start_worker

TIMES = LivenessOptions(ping_interval=1, open_timeout=1, retry=0.5, longest_retry=2)
OPTIONS = SessionOptions(liveness=TIMES)


class ReturnRoutes:
    """Numbered ways, and what was done with them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.entered = 0
        self.slow_in = self.slow_out = 0.0
        self.bad_out: Exception | None = None
        self.tasks: list[object] = []

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[RouteLike]:
        self.entered += 1
        number = self.entered
        self.tasks.append(asyncio.current_task())
        try:
            await sleep(self.slow_in)
            yield f"way{number}"
        finally:
            assert asyncio.current_task() is self.tasks[number - 1]
            await sleep(self.slow_out)
            self.log.append(f"left {number}")
            if self.bad_out is not None:
                raise self.bad_out

    def finder(self, node: Node) -> RouteProvider:
        def found(way: Route, epoch: int) -> None:
            self.log.append(f"found {way[0].value.decode()} {epoch}")

        def failed(epoch: int, cause: str) -> None:
            self.log.append(f"failed {epoch}: {cause}")

        return RouteProvider(node, self, found, failed)

    def take(self) -> list[str]:
        log, self.log = self.log, []
        return log


async def test_a_way_is_left_when_another_has_taken_its_place(node: Node) -> None:
    ways = ReturnRoutes()
    finder = ways.finder(node)
    finder.attempt(1)
    await sleep(0.1)
    finder.taken()
    finder.stop()  # it is used: it stays
    finder.attempt(2)
    await sleep(0.1)
    assert ways.take() == ["found way1 1", "found way2 2"]
    finder.attempt(3)  # the second had no answer; the first may still bring some
    await sleep(0.1)
    assert sorted(ways.take()) == ["found way3 3", "left 2"]
    finder.taken()
    await sleep(0.1)
    assert ways.take() == ["left 1"]
    finder.taken()  # nothing is tried
    await finder.close()
    assert ways.take() == ["left 3"]
    await finder.close()


async def test_a_way_that_is_being_made_is_given_up(node: Node) -> None:
    ways = ReturnRoutes()
    ways.slow_in = 10.0
    finder = ways.finder(node)
    finder.attempt(1)
    await sleep(1)
    finder.attempt(2)
    await sleep(1)
    assert ways.take() == ["left 1"]
    finder.taken()  # an answer to an attempt before
    await sleep(1)
    finder.attempt(3)
    await sleep(1)
    finder.stop()
    finder.stop()
    await sleep(1)
    finder.attempt(4)
    await sleep(1)
    await finder.close()
    assert ways.take() == ["left 2", "left 3", "left 4"]


async def test_a_failure_may_be_followed_by_the_next_attempt_at_once(node: Node) -> None:
    tries: list[int] = []
    done = asyncio.Event()

    def way() -> RouteLike:
        raise LinkDown("hub")

    def failed(epoch: int, _: str) -> None:
        tries.append(epoch)
        if epoch < 3:
            finder.attempt(epoch + 1)
        else:
            done.set()

    def found(way: Route, epoch: int) -> None:
        raise AssertionError(f"{way} in {epoch}")

    finder = RouteProvider(node, way, found, failed)
    finder.attempt(1)
    await done.wait()
    await finder.close()
    assert tries == [1, 2, 3]


async def test_a_way_that_is_not_left_in_time_is_cancelled(caplog: Caplog, node: Node) -> None:
    ways = ReturnRoutes()
    ways.slow_out = 1000.0
    finder = ways.finder(node)
    finder.attempt(1)
    await sleep(1)
    began = node.loop.time()
    await finder.close()
    assert node.loop.time() - began == pytest.approx(MAX_LEAVE_TIME)
    ways.slow_out, ways.bad_out = 0.0, OSError("a bug")
    finder.attempt(2)
    await sleep(1)
    await finder.close()
    assert ways.take() == ["found way1 1", "found way2 2", "left 2"]
    assert "could not be left" in caplog.text
    caplog.clear()


async def test_sessions_and_relays_leave_no_connection_behind(network: SimulatedNetwork) -> None:
    here, there = await network.node("here"), await network.node("there")
    await Probe.on(there, "echo", answer=lambda message: message.payload)
    await start_worker(there, SessionService(expose=["echo"]), "sessions")
    listener = await there.listen("sim://there", expose=["sessions", "relays"])
    relays = StaticRelayService(expose_at=[listener.address], api=None)
    await there.start(lambda: relays, address="relays")

    def workers() -> tuple[int, int]:
        return len(here.statistics().workers), len(there.statistics().workers)

    empty = workers()

    uris = ["sim://nowhere", "sim://there"]
    session = await SessionClient.on(
        here, "there", route_over(here, uris, "sessions"), options=OPTIONS
    )
    relay = await RelayClient.on(
        here, route_over(here, "sim://there", ["relays"]), alias="h", api=None, times=TIMES
    )
    counts: set[tuple[int, int]] = set()
    for _ in range(20):
        await session.until_up(60)
        await relay.until_up(60)
        await sleep(5)
        assert (await here.request("there => echo", b"hi")).payload == b"hi"
        counts.add(workers())
        network.partition({"here"}, {"there"})
        await sleep(10)
        network.heal()
    assert len(counts) == 1, counts
    assert session.downs >= 19
    assert relay.downs >= 19
    await session.until_up(60)
    await session.close()
    await relay.close()
    await sleep(100)
    assert workers() == empty


async def test_a_way_over_nothing_that_can_be_reached_is_a_failed_attempt(node: Node) -> None:
    for uris in ((), ["memory://nobody-is-here"]):
        session = await SessionClient.on(node, None, route_over(node, uris, "sessions"))
        assert (await session.until_down()).startswith("link down")
        assert session.state is SessionState.DOWN
        await session.close()
    with pytest.raises(LinkDown):
        async with route_over(node, (), "sessions")():
            pass


async def test_a_way_whose_connection_is_gone_is_left_all_the_same(caplog: Caplog) -> None:
    async with Node() as here, Node() as there:
        await there.listen("memory://leave", expose=["sessions"])
        async with route_over(here, "memory://leave", "sessions")() as way:
            await here.stop_worker(as_route(way)[0])
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
