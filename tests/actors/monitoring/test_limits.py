"""The limits that are shared: what is used of each, and how often each was reached."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from onward.actors import LimitReached, Node
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.actors.monitoring import limit_uses
from onward.protocol import DeliveryError, NotDelivered
from tests.support.transports import eventually
from tests.support.workers import Echo

OPTIONS = BrokerOptions(
    management=False,
    max_routes=2,
    max_services=1,
    max_watchers=1,
    waiting=WaitingOptions(no_route_timeout=60.0, max_messages=2, max_bytes=10),
)


def reached(node: Node, broker: Broker) -> dict[str, int]:
    return {use.name: use.reached for _, use in limit_uses(node, broker) if use.reached}


async def test_what_is_refused_because_of_a_limit_is_counted(node: Node) -> None:
    broker = await Broker.attach(node, OPTIONS)
    assert reached(node, broker) == {}
    worker = await node.start(Echo, address="echo")
    broker.register(worker, service="a")
    broker.register(worker, service="b")
    with pytest.raises(NotDelivered):
        broker.register(worker, service="c")
    with broker.events.subscribe(), pytest.raises(LimitReached):
        broker.events.subscribe()
    with pytest.raises(DeliveryError):
        await node.request("32#service=none", b"more than ten bytes")
    waiting = [asyncio.ensure_future(node.request("32#service=none", b"1")) for _ in range(2)]
    await eventually(lambda: broker.statistics().waiting == 2)
    with pytest.raises(DeliveryError):
        await node.request("32#service=none", b"2")
    assert reached(node, broker) == {
        "max_routes": 1,
        "max_services": 1,
        "max_watchers": 1,
        "waiting.max_bytes": 1,
        "waiting.max_messages": 1,
    }
    for each in waiting:
        each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await each


async def test_a_node_without_a_broker_has_limits_of_its_own(node: Node) -> None:
    await node.start(Echo, address="echo")
    found = {use.name: use for listener, use in limit_uses(node) if not listener}
    assert (found["node.addresses"].used, found["node.addresses"].limit) == (1, 1_000_000)
    assert set(found) == {
        "node.addresses",
        "node.requests",
        "node.pending",
        "node.pending_bytes",
        "node.waiting_bytes",
    }
