"""The limits that are shared: what is used of each, and how often each was reached."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from onward.actors import (
    LimitReached,
    MailboxOptions,
    Node,
    NodeLimits,
    Overflow,
    Pending,
    TooManyRequests,
    Unresolved,
)
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from onward.actors.monitoring import Monitor, limit_uses
from onward.protocol import DeliveryError, MailboxFull, Message, NotDelivered
from tests.actors.monitoring.test_monitor import read
from tests.support.transports import eventually
from tests.support.workers import Echo, Gate, spawn_worker

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
    assert not any(use.reached for use in found.values())
    assert (found["node.addresses"].used, found["node.addresses"].limit) == (1, 1_000_000)
    assert set(found) == {
        "node.addresses",
        "node.requests",
        "node.pending",
        "node.pending_bytes",
        "node.waiting_bytes",
    }


HEAVY = bytes(20_000)
"""A payload over the size from which on bytes of mailboxes are counted."""

LIMITS = NodeLimits(
    addresses=4, requests=2, pending=3, pending_bytes=100, waiting_bytes=3 * len(HEAVY)
)


def scraped(node: Node, name: str = "onward_limit_reached_total") -> dict[str, float]:
    """Return the limits of a node that were reached, as Prometheus reads them."""
    found = read(Monitor(node))[name]
    return {limit: count for (limit, listener), count in found.items() if count and not listener}


async def refused(node: Node, to: str, payload: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        node.send(to, payload)


async def test_the_limits_of_a_node_are_counted() -> None:
    """Each by itself: what one refuses counts for no other, and what has room counts for none."""
    async with Node(limits=LIMITS) as node:
        gates = [spawn_worker(node, Gate(), name) for name in ("a", "b")]
        node.spawn(Echo, address="echo")
        expected: dict[str, float] = {}
        assert scraped(node) == expected

        node.spawn(Echo, address="fourth")
        with pytest.raises(LimitReached, match="addresses"):
            node.spawn(Echo, address="fifth")
        expected["node.addresses"] = 1
        assert scraped(node) == expected

        waiting = [asyncio.create_task(node.request(name, b"in hand")) for name in ("a", "b")]
        await asyncio.sleep(0.1)
        for number in range(1, 4):
            with pytest.raises(TooManyRequests):
                await node.request("echo", b"one more")
            expected["node.requests"] = number
        assert scraped(node) == expected

        for name in ("a", "b", "a"):
            node.send(name, HEAVY)
        assert scraped(node, "onward_limit_used")["node.waiting_bytes"] == 3 * len(HEAVY)
        await refused(node, "b", HEAVY, MailboxFull)
        node.send("b", b"light")
        expected["node.waiting_bytes"] = 1
        assert scraped(node) == expected
        assert read(Monitor(node))["onward_messages_refused_total"] == {(): 1}

        for gate in gates:
            gate.opened.set()
        await asyncio.sleep(0.1)
        for each in waiting:
            each.cancel()
        node.send("a", HEAVY)
        assert scraped(node) == expected


async def test_the_messages_that_wait_for_a_rule_are_counted() -> None:
    async with Node(limits=LIMITS) as node:
        pending = Pending()

        def rule(_: Message) -> Message | Pending:
            return pending

        node.add_rule(200, rule)
        await refused(node, "200#x", bytes(200), Unresolved)
        assert scraped(node) == {"node.pending_bytes": 1}
        for _ in range(3):
            node.send("200#x", b"")
        await refused(node, "200#x", b"", Unresolved)
        await refused(node, "200#x", bytes(200), Unresolved)
        assert scraped(node) == {"node.pending_bytes": 1, "node.pending": 2}
        pending.refuse()


@pytest.mark.parametrize("overflow", Overflow)
async def test_a_mailbox_that_is_full_counts_as_refused_or_dropped(overflow: Overflow) -> None:
    """Unless there is room for the message in the end; it is no limit of the node."""
    async with Node() as node:
        gate = spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(1, overflow))
        node.send("gate", b"in hand")
        await asyncio.sleep(0.1)
        node.send("gate", b"first")
        asking = asyncio.create_task(node.request("gate", b"second", timeout=1.0))
        await asyncio.sleep(0.1)
        gate.opened.set()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0.1)
        found = read(Monitor(node))
        refused, dropped = (
            found[f"onward_messages_{what}_total"][()] for what in ("refused", "dropped")
        )
        wanted = {Overflow.FAIL: (1, 0), Overflow.WAIT: (0, 0)}
        assert (refused, dropped) == wanted.get(overflow, (0, 1))
        assert scraped(node) == {}
        assert len(gate.messages) == 3 - refused - dropped


async def test_a_message_that_waits_in_vain_is_refused() -> None:
    async with Node() as node:
        spawn_worker(node, Gate(), "gate", mailbox=MailboxOptions(1, Overflow.WAIT))
        node.send("gate", b"in hand")
        await asyncio.sleep(0.1)
        node.send("gate", b"first")
        with pytest.raises(MailboxFull):
            await node.request("gate", b"second", timeout=1.0)
        assert read(Monitor(node))["onward_messages_refused_total"] == {(): 1}
