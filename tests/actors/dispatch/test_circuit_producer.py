"""Circuits of Python programs: producers that send, consumers to iterate over, and handlers."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from contextlib import suppress

import pytest

from onward.actors import LimitReached, Node
from onward.actors.dispatch import (
    CircuitClosed,
    CircuitConsumer,
    CircuitDelivery,
    CircuitLink,
    CircuitProducer,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
)
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    RELEASED,
    CircuitLimits,
    CircuitMisuse,
    DetachKind,
    Disposition,
    Modified,
    Refusal,
    Rejected,
    encode_disposition,
)
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.circuit_ends import AGAIN, LINK, RESUME, Served
from tests.actors.dispatch.nets import SETTLE, Net, linear, make_narrow

ACCEPTED_STATE = encode_disposition(Disposition(ACCEPTED))
RECEIVED_STATE = encode_disposition(Disposition(RECEIVED, settled=False))


@pytest.fixture
async def net(network: SimulatedNetwork) -> Net:
    net = Net(network)
    await linear(net)
    return net


@pytest.fixture
async def dispatcher(node: Node) -> Dispatcher:
    dispatcher = await Dispatcher.attach(node)
    dispatcher.provision("orders", LINK)
    return dispatcher


async def settled(circuit: CircuitProducer | CircuitConsumer) -> None:
    """Settle each delivery as it says."""
    assert isinstance(circuit, CircuitConsumer)
    async for delivery in circuit:
        match delivery.payload:
            case b"reject":
                delivery.reject("shop:closed", "today")
            case b"release":
                delivery.release()
            case b"modify":
                delivery.modify(undeliverable_here=True)
            case _:
                assert delivery.accept() is not delivery.settled


async def test_each_outcome_comes_to_the_producer(net: Net) -> None:
    net.provision("orders", LINK)
    net.at["c"].serve("orders", settled, window=2)
    await sleep(SETTLE)
    async with await net.at["a"].attach_producer("orders") as orders:
        sends = [orders.send(each) for each in (b"1", b"reject", b"release", b"modify")]
        assert await asyncio.gather(*sends) == [
            ACCEPTED,
            Rejected("shop:closed", "today"),
            RELEASED,
            Modified(failed=True, undeliverable_here=True),
        ]
        await orders.send_settled(b"pre-settled")
        big = b"x" * 700_000
        assert await orders.send(big) == ACCEPTED
        await sleep(1)
        assert orders.credit == 2
    await sleep(1)
    assert [each.statistics().circuits for each in net.at.values()] == [0, 0, 0]


async def test_a_container_sends_to_the_consumer_that_has_attached(net: Net) -> None:
    net.provision("prices", LINK)
    sent: list[object] = []

    async def tell(circuit: CircuitProducer | CircuitConsumer) -> None:
        assert isinstance(circuit, CircuitProducer)
        sent.extend([await circuit.send(b"%d" % number) for number in range(5)])
        await circuit.send_settled(b"last")

    net.at["c"].serve("prices", tell)
    await sleep(SETTLE)
    got: list[bytes] = []
    async with await net.at["a"].attach_consumer("prices", window=2) as prices:
        async for delivery in prices:
            got.append(delivery.payload)
            delivery.accept()
    assert got == [b"0", b"1", b"2", b"3", b"4", b"last"]
    assert sent == [ACCEPTED] * 5
    with pytest.raises(StopAsyncIteration):
        await anext(prices)


async def test_credit_and_drain_by_calls(dispatcher: Dispatcher) -> None:
    served = Served().serve(dispatcher)
    prices = await dispatcher.attach_consumer("orders", window=0)
    producer = served.ends[0].link
    assert producer.credit == 0
    prices.grant(20)
    for number in range(6):
        producer.send(b"%d" % number, b"waits")
    drain = asyncio.create_task(prices.drain())
    await sleep(0)
    assert (producer.draining, producer.credit) == (True, 14)
    producer.drained()
    await drain
    assert prices.link.credit == producer.credit == 0
    got = [await anext(prices) for _ in range(6)]
    assert [each.tag for each in got] == [b"%d" % number for number in range(6)]
    # "new credit afterwards flows"
    prices.grant(1)
    assert producer.credit == 1


async def test_a_producer_gives_back_what_no_send_needs(dispatcher: Dispatcher) -> None:
    served = Served().serve(dispatcher)
    orders = await dispatcher.attach_producer("orders")
    consumer = served.ends[0].link
    consumer.grant(3, drain=True)
    assert served.ends[0].last() == ("drained", 3)
    sends = [asyncio.create_task(orders.send(b"x")) for _ in range(2)]
    await sleep(0)
    consumer.grant(5, drain=True)
    await sleep(0.1)
    assert served.ends[0].last() == ("drained", 3)
    assert len(served.ends[0].named("transfer")) == 2
    orders.close()
    assert await asyncio.gather(*sends) == [MODIFIED, MODIFIED]
    with pytest.raises(CircuitClosed) as error:
        await orders.send(b"late")
    assert error.value.how is DetachKind.CLOSED


async def test_a_consumer_that_settles_second_or_tells_another_state(
    dispatcher: Dispatcher,
) -> None:
    served = Served().serve(dispatcher)
    orders = await dispatcher.attach_producer("orders")
    end = served.ends[0]
    end.link.grant(9)
    sends = [asyncio.create_task(orders.send(b"x")) for _ in range(3)]
    await sleep(0.1)
    first, second, third = (each[0] for each in end.named("transfer"))
    end.link.dispose(first, b"unknown", settled=False)
    assert not sends[0].done()
    end.link.dispose(first, b"unknown")
    end.link.dispose(second, RECEIVED_STATE, settled=False)
    end.link.dispose(second, ACCEPTED_STATE, settled=False)
    end.link.dispose(third)
    assert await asyncio.gather(*sends) == [MODIFIED, ACCEPTED, MODIFIED]
    assert end.last() == ("disposition", second, ACCEPTED_STATE, True)


async def test_what_was_sent_over_a_lost_circuit_is_in_doubt(net: Net) -> None:
    net.provision("orders", AGAIN)
    served = Served().serve(net.at["c"])
    await sleep(SETTLE)
    orders = await net.at["a"].attach_producer("orders")
    served.ends[0].link.grant(1)
    sends = [asyncio.create_task(orders.send(b"%d" % each)) for each in range(2)]
    await sleep(1)
    await net.cut("b", "c")
    assert await sends[0] == MODIFIED
    await net.join("b", "c")
    await sleep(SETTLE)
    served.ends[1].link.grant(1)
    await sleep(1)
    # The one that waited for credit has gone over the new circuit.
    [sent] = served.ends[1].named("transfer")
    served.ends[1].link.dispose(sent[0], ACCEPTED_STATE)
    assert await sends[1] == ACCEPTED


async def test_a_delivery_is_settled_after_its_circuit_was_resumed(net: Net) -> None:
    net.provision("orders", RESUME)
    kept: list[CircuitDelivery] = []

    async def keep(circuit: CircuitProducer | CircuitConsumer) -> None:
        assert isinstance(circuit, CircuitConsumer)
        async for delivery in circuit:
            kept.append(delivery)
            if len(kept) == 2:
                await sleep(2 * SETTLE)
                for each in kept:
                    each.accept()

    net.at["c"].serve("orders", keep)
    await sleep(SETTLE)
    orders = await net.at["a"].attach_producer("orders")
    sends = [asyncio.create_task(orders.send(b"%d" % each)) for each in range(2)]
    await sleep(1)
    await net.cut("a", "b")
    await sleep(1)
    await net.join("a", "b")
    assert await asyncio.gather(*sends) == [ACCEPTED, ACCEPTED]


async def test_a_consumer_learns_of_a_loss(net: Net) -> None:
    net.provision("prices", LINK)
    served = Served().serve(net.at["c"], "prices")
    await sleep(SETTLE)
    prices = await net.at["a"].attach_consumer("prices")
    await sleep(1)
    for tag, is_settled in ((b"1", True), (b"2", False)):
        served.ends[0].link.send(tag, tag, settled=is_settled)
    await sleep(1)
    await net.cut("a", "b")
    await sleep(1)
    # The one that is not settled is in doubt at its producer.
    assert (await anext(prices)).tag == b"1"
    with pytest.raises(CircuitClosed, match=r"prices is lost: route-lost"):
        await anext(prices)
    with pytest.raises(CircuitClosed):
        await prices.ready_to_use()


async def test_deliveries_that_are_aborted_or_too_large(node: Node) -> None:
    limits = CircuitLimits(max_delivery=10)
    dispatcher = await Dispatcher.attach(node, DispatchOptions(default=LINK, circuits=limits))
    served = Served().serve(dispatcher)
    prices = await dispatcher.attach_consumer("orders", window=1)
    producer = served.ends[0].link
    producer.send(b"1", b"begun", more=True)
    producer.send(b"1", b"", aborted=True)
    producer.send(b"2", b"12345", more=True)
    producer.send(b"2", b"12345")
    delivery = await anext(prices)
    assert delivery.payload == b"1234512345"
    assert delivery.accept()
    assert not delivery.accept()
    producer.send(b"3", b"12345678901")
    assert served.ends[0].last()[1:3] == (DetachKind.CLOSED, "delivery-too-large")
    with pytest.raises(StopAsyncIteration):
        await anext(prices)
    with pytest.raises(CircuitMisuse):
        prices.grant(1)


async def test_who_is_refused(dispatcher: Dispatcher) -> None:
    with pytest.raises(CircuitClosed, match="no circuit to orders: no-route"):
        await dispatcher.attach_producer("orders")
    with pytest.raises(ConsumerRefused, match=Refusal.MESSAGES):
        await dispatcher.attach_consumer("other")
    with pytest.raises(ConsumerRefused, match=Refusal.MESSAGES):
        dispatcher.serve("other", settled)
    with pytest.raises(ConsumerRefused, match=Refusal.CIRCUITS):
        await dispatcher.produce("orders")
    with pytest.raises(ConsumerRefused, match=Refusal.CIRCUITS):
        await dispatcher.consume("orders", print)


@pytest.mark.parametrize("producer", [True, False], ids=["producer", "consumer"])
async def test_an_attach_that_is_given_up_leaves_no_circuit(
    dispatcher: Dispatcher, producer: bool
) -> None:
    links: list[CircuitLink] = []
    served = Served(accept=links.append).serve(dispatcher)
    attach = dispatcher.attach_producer if producer else dispatcher.attach_consumer
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(attach("orders"), 1)
    await sleep(1)
    with suppress(CircuitMisuse):
        links[0].accept()
    await sleep(1)
    assert dispatcher.statistics().circuits == 0
    assert served.ends[0].named("down")


async def test_a_handler_that_fails_ends_its_circuit(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(circuit: object) -> None:
        del circuit
        raise RuntimeError("broken")

    dispatcher.serve("orders", fail)
    orders = await dispatcher.attach_producer("orders")
    assert await orders.send(b"x") == MODIFIED
    with pytest.raises(CircuitClosed, match="end-failed"):
        await orders.send(b"y")
    await sleep(0.1)
    assert "broken" in caplog.text


async def test_sends_that_wait_are_bounded_and_can_be_given_up(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node, DispatchOptions(default=LINK, max_waiting=1))
    served = Served().serve(dispatcher)
    orders = await dispatcher.attach_producer("orders")
    send = asyncio.create_task(orders.send(b"x"))
    await sleep(0)
    with pytest.raises(LimitReached):
        await orders.send(b"y")
    send.cancel()
    with suppress(asyncio.CancelledError):
        await send
    served.ends[0].link.grant(1)
    assert orders.credit == 1


async def test_a_delivery_in_parts_waits_for_a_slow_link(net: Net) -> None:
    net.provision("orders", AGAIN)
    served = Served().serve(net.at["c"])
    await sleep(SETTLE)
    orders = await net.at["a"].attach_producer("orders")
    served.ends[0].link.grant(5)
    await sleep(1)
    make_narrow(net, "a", net.links["a", "b"])
    given_up = asyncio.create_task(orders.send(bytes(1_000_000)))
    await sleep(0)
    assert orders.link.waiting
    given_up.cancel()
    with suppress(asyncio.CancelledError):
        await given_up
    await sleep(1)
    assert [each[2:4] for each in served.ends[0].named("transfer")][-1] == (False, True)
    # One whose circuit is lost in the middle goes over the next one as a whole.
    send = asyncio.create_task(orders.send(bytes(1_000_000)))
    await sleep(0)
    await net.cut("a", "b")
    await sleep(1)
    await net.join("a", "b")
    await sleep(SETTLE)
    there = served.ends[1]
    there.link.grant(1)
    await sleep(1)
    parts = there.named("transfer")
    assert sum(len(each[1]) for each in parts) == 1_000_000
    there.link.dispose(parts[0][0], ACCEPTED_STATE)
    assert await send == ACCEPTED
