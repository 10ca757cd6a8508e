"""Producers that say the name with each message, names for replies, and waiting for outcomes."""

from __future__ import annotations

import asyncio
from asyncio import sleep

import pytest

from onward.actors import LimitReached, Node
from onward.actors.dispatch import (
    Accept,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
    ProducerClosed,
)
from onward.protocol import NAME, Address
from onward.protocol.dispatch import ACCEPTED, RELEASED, Ages, BadName, DeliveryLimits, Semantics
from tests.actors.dispatch.kept import Kept
from tests.support.workers import Echo, start_worker


@pytest.fixture
async def dispatcher(node: Node) -> Dispatcher:
    return await Dispatcher.attach(node)


# --- anonymous producers ----------------------------------------------------------------------


async def test_an_anonymous_producer_names_the_destination_of_each_message(
    node: Node, dispatcher: Dispatcher
) -> None:
    await start_worker(node, Echo(), "echo")
    await dispatcher.consume("orders", "echo")
    await dispatcher.consume("mail", "echo")
    producer = await dispatcher.produce_any()
    outcome, answer = await producer.exchange("orders", b"1")
    assert outcome == ACCEPTED
    assert answer is not None
    assert answer.payload == b"1"
    assert await producer.send("mail", b"2") == ACCEPTED
    assert await producer.send("nothing", b"3") == RELEASED
    assert (producer.credit, producer.unsettled) == (250, 0)
    with pytest.raises(BadName):
        await producer.send("", b"4")
    assert dispatcher.statistics().names == 2


async def test_an_anonymous_producer_waits_for_its_window(node: Node) -> None:
    options = DispatchOptions(
        anonymous_window=1, deliveries=DeliveryLimits(max_producers=1), max_waiting=1
    )
    dispatcher = await Dispatcher.attach(node, options)
    kept = Kept()
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    producer = await dispatcher.produce_any()
    first = asyncio.create_task(producer.send("orders", b"1"))
    await sleep(1)
    assert producer.credit == 0
    assert await producer.send("orders", b"2", timeout=1.0) == RELEASED
    second = asyncio.create_task(producer.send("orders", b"3"))
    await sleep(1)
    with pytest.raises(LimitReached, match="wait for credit"):
        await producer.send("orders", b"4")
    kept.deliveries[0].accept()
    assert await first == ACCEPTED
    await sleep(1)
    kept.deliveries[1].accept()
    assert await second == ACCEPTED
    with pytest.raises(LimitReached, match="anonymous producers"):
        await dispatcher.produce_any()


async def test_an_anonymous_producer_that_has_used_its_window_is_blocked(node: Node) -> None:
    limits = DeliveryLimits(stuck_time=10.0)
    options = DispatchOptions(deliveries=limits, anonymous_window=1)
    dispatcher, kept = await Dispatcher.attach(node, options), Kept()
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    producer = await dispatcher.produce_any()
    await dispatcher.produce_any()
    await sleep(20)
    await producer.send_settled("orders", b"0")
    sent = asyncio.ensure_future(producer.send("orders", b"1"))
    await sleep(9)
    assert dispatcher.ages() == Ages(oldest=9)
    await sleep(2)
    assert dispatcher.ages() == Ages(oldest=11, stuck=1, producers=1)
    (row,) = dispatcher.names()
    assert (row.stuck, row.blocked_producers) == (1, 0)  # it is a producer of no name
    kept.deliveries[1].accept()
    assert await sent == ACCEPTED
    assert dispatcher.ages() == Ages()


async def test_an_anonymous_producer_ends_with_its_owner(
    node: Node, dispatcher: Dispatcher
) -> None:
    owner = await start_worker(node, Echo(), "owner")
    producer = await dispatcher.produce_any(owner="owner")
    await node.stop_worker(owner.address)
    await sleep(1)
    assert producer.closed
    assert producer.credit == 0
    with pytest.raises(ProducerClosed):
        await producer.send("orders", b"1")


# --- waiting for all outcomes -----------------------------------------------------------------


async def test_drain_waits_for_each_outcome(dispatcher: Dispatcher) -> None:
    kept = Kept()
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    producer = await dispatcher.produce("orders")
    assert await producer.drain()
    tasks = [asyncio.create_task(producer.send(b"%d" % each)) for each in range(2)]
    await sleep(1)
    assert not await producer.drain(timeout=1.0)
    drained = asyncio.create_task(producer.drain())
    kept.deliveries[0].accept()
    await sleep(1)
    assert not drained.done()
    kept.deliveries[1].accept()
    assert await drained
    assert [await each for each in tasks] == [ACCEPTED, ACCEPTED]


async def test_drain_waits_for_what_has_no_credit_yet(dispatcher: Dispatcher) -> None:
    producer = await dispatcher.produce("orders")
    waiting = asyncio.create_task(producer.send_settled(b"1"))
    await sleep(1)
    drained = asyncio.create_task(producer.drain())
    await sleep(1)
    assert not drained.done()
    await dispatcher.consume("orders", Kept())
    await waiting
    assert await drained


async def test_a_drain_ends_with_its_producer(dispatcher: Dispatcher) -> None:
    await dispatcher.consume("orders", Kept(), accept=Accept.SELF)
    producer = await dispatcher.produce("orders")
    task = asyncio.create_task(producer.send(b"1"))
    await sleep(1)
    drained = asyncio.create_task(producer.drain())
    await sleep(1)
    producer.close()
    for each in (task, drained):
        with pytest.raises(ProducerClosed):
            await each


# --- temporary names --------------------------------------------------------------------------


async def test_a_temporary_name_ends_with_its_consumer(node: Node, dispatcher: Dispatcher) -> None:
    got: list[bytes] = []
    consumer = await dispatcher.temporary(lambda each: got.append(each.payload))
    assert consumer.name.startswith("_temp/node/")
    route = (Address(NAME, consumer.name.encode()),)
    assert (await node.request(route, b"1")).payload == b""
    consumer.close()
    producer = await dispatcher.produce_any()
    assert await producer.send(consumer.name, b"2") == RELEASED
    assert got == [b"1"]
    assert dispatcher.statistics().names == 0


async def test_a_temporary_name_ends_with_its_owner(node: Node, dispatcher: Dispatcher) -> None:
    owner = await start_worker(node, Echo(), "owner")
    consumer = await dispatcher.temporary("owner", owner="owner")
    other = await dispatcher.temporary("owner")
    assert consumer.name != other.name
    await node.stop_worker(owner.address)
    await sleep(1)
    assert consumer.reason == "its worker has stopped"
    assert dispatcher.statistics().names == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("_temp/node/1", "made by the node"),
        ("_topo/other/x", "one of other nodes"),
        ("_topo/all/x", "one of other nodes"),
    ],
)
async def test_names_that_cannot_be_consumed(
    name: str, reason: str, dispatcher: Dispatcher
) -> None:
    with pytest.raises(ConsumerRefused, match=reason):
        await dispatcher.consume(name, Kept())


async def test_nothing_is_kept_of_names_of_other_nodes(dispatcher: Dispatcher) -> None:
    producer = await dispatcher.produce_any()
    for each in ("_topo/other/x", "_temp/other/1", "_topo/all/x"):
        assert await producer.send(each, b"1") == RELEASED
    await sleep(1)
    assert dispatcher.statistics().names == 0


async def test_a_send_that_has_credit_and_is_closed_in_the_same_turn_says_so(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node)
    producer = await dispatcher.produce("orders")
    send = asyncio.create_task(producer.send(b"x"))
    await asyncio.sleep(1)
    await dispatcher.consume("orders", lambda _: None)
    producer.close()
    with pytest.raises(ProducerClosed):
        await send


@pytest.mark.parametrize("together", [True, False], ids=["cancelled with it", "cancelled before"])
async def test_credit_of_a_send_that_is_cancelled_goes_to_the_next_one(
    node: Node, together: bool
) -> None:
    dispatcher = await Dispatcher.attach(node)
    dispatcher.provision("orders", Semantics(window=1))
    kept = Kept()
    await dispatcher.consume("orders", kept, accept=Accept.SELF)
    producer = await dispatcher.produce("orders")
    sends = [asyncio.create_task(producer.send(each)) for each in (b"1", b"2", b"3")]
    await sleep(1)
    assert len(kept.deliveries) == 1
    if together:
        # The second send is woken, and cancelled before it goes on.
        kept.deliveries[0].accept()
    sends[1].cancel()
    await sleep(1)
    if not together:
        kept.deliveries[0].accept()
        await sleep(1)
    assert [each.message.payload for each in kept.deliveries] == [b"1", b"3"]
    kept.deliveries[1].accept()
    assert await sends[2] == ACCEPTED
    assert producer.credit == 1
