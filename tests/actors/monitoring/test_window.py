"""The last five minutes of a node and its broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from onward.actors import Node, ReloadFailed, Reloads
from onward.actors.broker import Broker, BrokerOptions
from onward.actors.monitoring import Monitor, Stage
from onward.actors.monitoring._window import INTERVAL, MAX_POINTS, SPAN
from onward.protocol.eventlog import Outcome
from onward.protocol.metrics import BUCKETS
from onward.protocol.rsocket import FrameType
from tests.actors.monitoring.test_monitor import FIGURES, URI, Listening

RESPONSE = int(FrameType.REQUEST_RESPONSE)


@pytest.fixture
async def broker(node: Node) -> Broker:
    return await Broker.attach(node, BrokerOptions(management=False))


async def kinds(monitor: Monitor) -> list[str]:
    return [each.kind for each in await monitor.window.problems()]


async def test_points_have_rates_and_latency(node: Node, broker: Broker) -> None:
    broker.report(URI, dict, Listening())
    monitor = Monitor(node, broker)
    monitor.start()
    assert monitor.window.points() == ()
    broker.tally.answered += 30
    for _ in range(10):
        broker.tally.end(RESPONSE, Outcome.UNROUTABLE)
    for seconds in (0.0001, 0.0001, 0.02):
        broker.tally.took(RESPONSE, seconds)
    await asyncio.sleep(INTERVAL)
    (point,) = monitor.window.points()
    assert point.rate == pytest.approx(40 / INTERVAL)
    assert point.success == 0.75
    # Interpolated within the buckets: 64 to 128 microseconds, and 16 to 33 milliseconds.
    assert point.p50 == pytest.approx(0.000112)
    assert point.p99 == pytest.approx(0.0323, rel=0.01)
    assert (point.connections, point.waiting) == (1, 0)
    await asyncio.sleep(SPAN * INTERVAL)
    last = monitor.window.points()[-1]
    assert (last.rate, last.success, last.p50, last.p99) == (0.0, None, None, None)
    assert last.lag == BUCKETS[0]
    await monitor.stop()


async def test_five_minutes_are_kept(node: Node, broker: Broker) -> None:
    monitor = Monitor(node, broker)
    monitor.start()
    await asyncio.sleep(3 * MAX_POINTS * INTERVAL)
    assert len(monitor.window.points()) == MAX_POINTS
    await monitor.stop()
    monitor.window.stop()
    await asyncio.sleep(INTERVAL)
    assert len(monitor.window.points()) == MAX_POINTS


async def test_problems_of_counts_pass_with_their_time(node: Node, broker: Broker) -> None:
    figures: dict[str, object] = {
        **FIGURES,
        "closed": {},
        "authentication": {"refused": {}, "banned": 0},
    }
    broker.report(URI, lambda: figures, Listening())
    monitor = Monitor(node, broker)
    monitor.started = True
    monitor.start()
    assert await kinds(monitor) == ["certificate"]
    figures["closed"] = {"too slow": 2, "by the peer": 1}
    figures["authentication"] = {"refused": {"unknown": 1}, "banned": 1}
    assert await kinds(monitor) == ["certificate", "slow-peers", "authentication", "bans"]
    await asyncio.sleep(MAX_POINTS * INTERVAL - 2)
    assert "bans" in await kinds(monitor)
    await asyncio.sleep(60)
    assert await kinds(monitor) == ["certificate"]
    await monitor.stop()


async def test_problems_of_the_state(node: Node, broker: Broker) -> None:
    reloads = Reloads()

    async def prepare() -> Callable[[], object]:
        raise ValueError("no key")

    reloads.add("keys", prepare)
    monitor = Monitor(node, broker, reloads)
    monitor.checks.add(Stage.LIVE, "own", lambda: "out of paper")
    with pytest.raises(ReloadFailed):
        await reloads.reload()
    found = {(each.kind, each.subject): each.text for each in await monitor.window.problems()}
    assert set(found) == {
        ("not-ready", "live: own"),
        ("not-ready", "started: started"),
        ("not-ready", "ready: started"),
        ("not-ready", "ready: listeners"),
        ("reload-failed", ""),
    }
    assert "keys: no key" in found["reload-failed", ""]


async def test_a_node_without_a_broker(node: Node) -> None:
    monitor = Monitor(node)
    monitor.started = True
    monitor.start()
    await asyncio.sleep(INTERVAL)
    (point,) = monitor.window.points()
    assert (point.rate, point.success, point.p50) == (0.0, None, None)
    assert await kinds(monitor) == []
    await monitor.stop()
