"""What an instrument is told of messages to names: each received once, and ended once."""

from __future__ import annotations

import asyncio
from asyncio import sleep

import pytest

from onward.actors.dispatch import Received
from onward.protocol import NotDelivered
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    Access,
    Hold,
    Last,
    Redirect,
    Rejected,
    Reliability,
    Retry,
    RoutingPattern,
    Semantics,
    Settlement,
)
from onward.protocol.eventlog import Kind, Outcome
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.nets import SETTLE, Net, linear, sent, triangle
from tests.support.names import Counted
from tests.support.workers import Echo, Recorder


@pytest.fixture
async def net(network: SimulatedNetwork) -> Net:
    return Net(network)


def counted(net: Net) -> dict[str, Counted]:
    made = {name: Counted() for name in net.nodes}
    for name, node in net.nodes.items():
        node.add_instrument(made[name])
    return made


async def test_a_message_is_counted_at_its_ingress_and_as_a_leg_behind(net: Net) -> None:
    await linear(net)
    told = counted(net)

    def settle(delivery: Received) -> None:
        if delivery.payload == b"no":
            delivery.reject("bad")
        elif delivery.payload == b"doubt":
            delivery.modify()

    await net.nodes["c"].start(Recorder, address="shop")
    consumer = await net.at["c"].consume("orders", settle)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    outcomes = [await producer.send(each) for each in (b"", b"no", b"doubt", b"")]
    assert outcomes == [ACCEPTED, Rejected("bad"), MODIFIED, ACCEPTED]
    net.nodes["a"].send("34#orders", b"pre-settled")
    await sleep(SETTLE)
    legs = {
        Outcome.RECEIVED: 5,
        Outcome.DELIVER: 2,
        Outcome.FAILED: 1,
        Outcome.MODIFIED: 1,
        Outcome.SETTLED: 1,
    }
    assert told["a"].of(Kind.NAME) == legs
    assert told["b"].of(Kind.NAME_LEG) == told["c"].of(Kind.NAME_LEG) == legs
    assert {name: each.of(Kind.NAME_COPY) for name, each in told.items() if name != "c"} == {
        "a": {},
        "b": {},
    }
    copies = told["c"].of(Kind.NAME_COPY)
    assert sorted(copies.values()) == [1, 1, 1, 2]
    assert len({to for key in copies if isinstance(key, tuple) for to in key[1:]}) == 1
    consumer.close()
    await sleep(SETTLE)
    assert all(not each.open() for each in told.values())


async def test_holds_redirects_and_drops_are_counted_under_the_name_of_the_entry(net: Net) -> None:
    await net.start("a")
    told = counted(net)["a"]
    node, dispatcher = net.nodes["a"], net.at["a"]
    late = Semantics(undeliverable=(Retry(hold=Hold(age=5.0)), Redirect("34#late"), Last.RELEASE))
    dispatcher.provision("orders", late)
    dispatcher.provision("gone", Semantics(undeliverable=(Redirect("late"), Last.RELEASE)))
    dispatcher.provision("lost", Semantics(undeliverable=(Last.DROP,)))
    await node.start(Recorder, address="late")
    await node.start(Echo, address="echo")
    await dispatcher.consume("late", "echo")
    assert await node.request("34#orders", b"1", timeout=20.0) is not None
    node.send("34#gone", b"2")
    await node.request("34#lost", b"3")
    node.send("34#nothing", b"4")
    with pytest.raises(NotDelivered):
        await node.request("34#nothing", b"5")
    await sleep(1.0)
    assert told.of(Kind.NAME) == {
        Outcome.RECEIVED: 1,
        Outcome.HOLD: 1,
        (Outcome.REDIRECT, "34#late"): 1,
        Outcome.DELIVER: 1,
    }
    assert told.of(Kind.NAME, "34#late") == {}
    assert told.of(Kind.NAME_COPY, "34#late") == {(Outcome.DELIVER, "a/0#echo"): 1}
    assert told.of(Kind.NAME, "34#gone") == {
        Outcome.RECEIVED: 1,
        (Outcome.REDIRECT, "late"): 1,
        Outcome.SETTLED: 1,
    }
    assert told.of(Kind.NAME, "34#lost") == {Outcome.RECEIVED: 1, Outcome.DROP: 1}
    assert told.of(Kind.NAME, "34#nothing") == {
        Outcome.RECEIVED: 2,
        Outcome.DROP: 1,
        Outcome.RELEASED: 1,
    }
    assert not told.open()


async def test_what_is_accepted_at_once_ends_with_that(net: Net) -> None:
    await net.start("a")
    told = counted(net)["a"]
    at_once = Reliability(settle=Settlement.AT_ONCE)
    net.provision("orders", Semantics(reliability=at_once))
    kept = await net.keep("a", "orders", window=1)
    for _ in range(2):
        await net.nodes["a"].request("34#orders", b"")
    kept.consumer.close()
    await sleep(1.0)
    assert told.of(Kind.NAME) == {Outcome.RECEIVED: 2, Outcome.DELIVER: 2}
    ((key, number),) = told.of(Kind.NAME_COPY).items()
    assert isinstance(key, tuple)
    assert (key[0], number) == (Outcome.SETTLED, 1)


async def test_a_multicast_is_one_message_with_copies(net: Net) -> None:
    await triangle(net)
    told = counted(net)
    net.provision("orders", Semantics(pattern=RoutingPattern.MULTICAST))
    for name in net.nodes:
        await net.nodes[name].start(Echo, address="echo")
        await net.at[name].consume("orders", "echo")
    await sleep(SETTLE)
    await net.nodes["a"].request("34#orders", b"")
    net.nodes["a"].send("34#orders", b"")
    await sleep(SETTLE)
    assert told["a"].of(Kind.NAME)[Outcome.RECEIVED] == 2
    for name, each in told.items():
        assert not each.open()
        assert each.of(Kind.NAME_COPY) == {
            (Outcome.DELIVER, f"{name}/0#echo"): 1,
            (Outcome.SETTLED, f"{name}/0#echo"): 1,
        }


async def test_what_nothing_waits_for_any_more_has_ended(net: Net) -> None:
    await linear(net)
    told = counted(net)
    kept = await net.keep("c", "orders")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 3)
    await net.cut("a", "b")
    assert [await each for each in tasks] == [MODIFIED] * 3
    await sleep(SETTLE)
    assert told["a"].of(Kind.NAME) == {Outcome.RECEIVED: 3, Outcome.MODIFIED: 3}
    for name in "bc":
        legs = told[name].of(Kind.NAME_LEG)
        assert legs == {Outcome.RECEIVED: 3, Outcome.CANCELED: 3}
    assert len(kept.deliveries) == 3
    ((_, number),) = told["c"].of(Kind.NAME_COPY).items()
    assert number == 3
    assert all(not each.open() for each in told.values())


async def test_refused_messages_and_those_that_a_stop_ends_are_counted(net: Net) -> None:
    await net.start("a", default=Semantics(undeliverable=(Retry(), Last.RELEASE)))
    told = counted(net)["a"]
    net.provision("orders", Semantics(access=Access(producers=frozenset({"shop"}))))
    await net.nodes["a"].start(Recorder, address="in")
    kept = await net.keep("a", "kept")
    node = net.nodes["a"]
    for _ in range(2):
        asyncio.ensure_future(node.request("34#kept", b"", timeout=60.0)).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )
    node.send("34#held", b"")
    await sleep(1.0)
    assert told.of(Kind.NAME, "34#held") == {Outcome.RECEIVED: 1, Outcome.HOLD: 1}
    assert len(kept.deliveries) == 2
    await node.stop_worker(net.at["a"].address)
    assert told.of(Kind.NAME, "34#held")[Outcome.DROP] == 1
    assert told.of(Kind.NAME, "34#kept")[Outcome.MODIFIED] == 2
    assert not told.open()
