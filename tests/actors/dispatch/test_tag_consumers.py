"""Names whose consumers are the destinations of a broker that match a query of tags."""

from __future__ import annotations

from asyncio import sleep
from typing import Any

import pytest

from onward.actors import Node, Worker
from onward.actors.broker import Broker, Handlers, Request
from onward.actors.dispatch import (
    DISPATCH,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
)
from onward.protocol import Address, AddressError, Message, Route
from onward.protocol.broker import RouteSetup
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    Access,
    BadSemantics,
    NetworkLimits,
    RoutingPattern,
    Semantics,
)
from onward.protocol.security import ANONYMOUS, Principal
from onward.transports.client import connect
from onward.transports.simulated import SimulatedNetwork
from tests.support.fixtures import Patch
from tests.support.transports import eventually
from tests.support.workers import Failing, start_worker

STOCK = Semantics(tags="service=stock")


class Stock(Worker):
    """A worker that keeps what it gets, and replies."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[bytes] = []

    def handle_message(self, message: Message) -> None:
        self.got.append(message.payload)
        if message.return_route:
            self.reply(message, b"3 " + message.payload)


@pytest.fixture
async def broker(node: Node) -> Broker:
    return await Broker.attach(node)


@pytest.fixture
async def dispatcher(node: Node, broker: Broker) -> Dispatcher:
    made = await Dispatcher.attach(node, broker=broker)
    await sleep(0)
    return made


def consumers(dispatcher: Dispatcher, name: str = "orders") -> int:
    return sum(each.consumers for each in dispatcher.names() if each.name == name)


async def test_destinations_that_match_are_the_consumers(
    node: Node, broker: Broker, dispatcher: Dispatcher
) -> None:
    stocks = [await start_worker(node, Stock(), f"stock{each}") for each in range(3)]
    registrations = [
        broker.register(each.address, service="stock", tags={"region": region})
        for each, region in zip(stocks, ("eu", "eu", "us"), strict=True)
    ]
    dispatcher.provision("orders", Semantics(tags="service=stock region=eu"))
    assert consumers(dispatcher) == 2
    producer = await dispatcher.produce("orders")
    assert [await producer.send(b"%d" % each) for each in range(4)] == [ACCEPTED] * 4
    assert [len(each.got) for each in stocks] == [2, 2, 0]
    registrations[0].withdraw()
    await sleep(1)
    outcome, answer = await producer.exchange(b"apples")
    assert outcome == ACCEPTED
    assert answer is not None
    assert answer.payload == b"3 apples"
    assert stocks[1].got[-1] == b"apples"
    assert consumers(dispatcher) == 1
    await producer.send_settled(b"pears")
    await sleep(1)
    assert stocks[1].got[-1] == b"pears"


async def test_names_follow_many_destinations_in_slices_and_after_a_pause(
    node: Node, broker: Broker, monkeypatch: Patch
) -> None:
    options = DispatchOptions(name_slice=5, network=NetworkLimits(pause=1.0, longest_pause=1.0))
    dispatcher = await Dispatcher.attach(node, options, broker=broker)
    await sleep(0)
    dispatcher.provision("orders", STOCK)
    await sleep(2)
    looked: list[object] = []
    right = broker.index.own_ways

    def own_ways(asked: Address) -> Any:
        looked.append(asked)
        return right(asked)

    monkeypatch.setattr(broker.index, "own_ways", own_ways)
    stocks = [await start_worker(node, Stock(), f"stock{each}") for each in range(22)]
    for each in stocks:
        broker.register(each.address, service="stock")
    await sleep(0.01)
    looked.clear()
    for each in stocks[:10]:
        broker.register(each.address, service="stock", tags={"more": "1"})
        await sleep(0.01)
    assert looked == []  # all changes in the pause are followed at once
    await sleep(2)
    assert len(looked) == 1
    assert consumers(dispatcher) == 32
    # Each destination is a step, and a change amid them is followed behind them.
    dispatcher.withdraw("orders")
    assert 0 < consumers(dispatcher) < 32
    dispatcher.provision("orders", STOCK)
    await sleep(2)
    assert consumers(dispatcher) == 32
    dispatcher.withdraw("orders")
    await sleep(2)
    assert dispatcher.statistics().names == 0


async def test_a_destination_that_joins_later_gets_a_copy(
    node: Node, broker: Broker, dispatcher: Dispatcher
) -> None:
    multicast = Semantics(tags="service=stock", pattern=RoutingPattern.MULTICAST)
    dispatcher.provision("orders", multicast)
    producer = await dispatcher.produce("orders")
    assert producer.credit == 0
    stocks = [await start_worker(node, Stock(), f"stock{each}") for each in range(2)]
    for each in stocks:
        broker.register(each.address, service="stock")
    await sleep(1)
    assert await producer.send(b"1") == ACCEPTED
    assert [each.got for each in stocks] == [[b"1"], [b"1"]]


async def test_a_destination_whose_worker_stops_and_one_that_fails(
    node: Node, broker: Broker, dispatcher: Dispatcher
) -> None:
    dispatcher.provision("orders", STOCK)
    stock = await start_worker(node, Stock(), "stock")
    broker.register(stock.address, service="stock")
    await sleep(1)
    assert consumers(dispatcher) == 1
    await node.stop_worker(stock.address)
    await sleep(1)
    producer = await dispatcher.produce_any()
    assert await producer.send("orders", b"1") == RELEASED
    failing = await start_worker(node, Failing(), "failing")
    broker.register(failing.address, service="stock")
    await sleep(1)
    assert await producer.send("orders", b"!") == MODIFIED


async def test_a_name_that_is_no_longer_by_tags(
    node: Node, broker: Broker, dispatcher: Dispatcher
) -> None:
    stock = await start_worker(node, Stock(), "stock")
    broker.register(stock.address, service="stock")
    dispatcher.provision("orders", STOCK)
    with pytest.raises(ConsumerRefused, match="those that match its tags"):
        await dispatcher.consume("orders", "stock")
    assert consumers(dispatcher) == 1
    dispatcher.update("orders", Semantics(tags="service=other"))
    assert consumers(dispatcher) == 0
    dispatcher.update("orders", STOCK)
    assert consumers(dispatcher) == 1
    dispatcher.withdraw("orders")
    assert dispatcher.statistics().names == 0
    await dispatcher.consume("orders", "stock")
    await node.stop_worker(dispatcher.address)
    broker.register(stock.address, service="stock", tags={"more": "1"})
    await sleep(1)


async def test_a_failure_to_follow_the_broker_is_counted_and_made_good(
    node: Node, broker: Broker, dispatcher: Dispatcher, monkeypatch: Patch
) -> None:
    dispatcher.provision("orders", STOCK)
    stock = await start_worker(node, Stock(), "stock")
    failures: list[str] = []

    def own_ways(_: object) -> dict[bytes, Route]:
        failures.append("once")
        raise RuntimeError("a fault of the table")

    with monkeypatch.context() as patched:
        patched.setattr(broker.index, "own_ways", own_ways)
        broker.register(stock.address, service="stock")
        await sleep(0.5)
    counts = dispatcher.statistics().counts
    assert counts["failures to follow the destinations of the broker"] == len(failures) == 1
    assert consumers(dispatcher) == 0
    await sleep(2)
    assert consumers(dispatcher) == 1
    stopped = broker.register((await start_worker(node, Stock(), "more")).address, service="stock")
    await sleep(1)
    assert consumers(dispatcher) == 2
    assert stopped


class Wishing:
    """A node with a broker, of which destinations may ask for names."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.broker: Broker
        self.dispatcher: Dispatcher

    async def start(self) -> None:
        self.broker = await Broker.attach(self.node)
        options = DispatchOptions(consume_key="consume")
        self.dispatcher = await Dispatcher.attach(self.node, options, broker=self.broker)
        await sleep(0)

    @property
    def refused(self) -> int:
        counts = self.dispatcher.statistics().counts
        return counts.get("destinations that were refused as consumers", 0)

    async def stock(self, address: str, name: str) -> Stock:
        stock = await start_worker(self.node, Stock(), address)
        self.broker.register(stock.address, service="stock", tags={"consume": name})
        await sleep(1)
        return stock


@pytest.fixture
async def wishing(node: Node) -> Wishing:
    made = Wishing(node)
    await made.start()
    return made


async def test_a_destination_consumes_the_name_of_its_tag(wishing: Wishing) -> None:
    dispatcher = wishing.dispatcher
    first = await wishing.stock("first", "orders")
    second = await wishing.stock("second", "amqp:/orders")
    assert consumers(dispatcher) == 2
    producer = await dispatcher.produce("orders")
    assert [await producer.send(b"%d" % each) for each in range(4)] == [ACCEPTED] * 4
    assert [len(first.got), len(second.got)] == [2, 2]
    outcome, answer = await producer.exchange(b"apples")
    assert (outcome, answer is not None and answer.payload) == (ACCEPTED, b"3 apples")
    # It takes requests for its service as before.
    stocked = await wishing.node.request("32#service=stock", b"pears")
    assert stocked.payload == b"3 pears"
    registration = wishing.broker.register(
        first.address, service="stock", tags={"consume": "mail/eu"}
    )
    await wishing.node.stop_worker(second.address)
    await sleep(1)
    assert (consumers(dispatcher), consumers(dispatcher, "mail/eu")) == (1, 1)
    registration.withdraw()
    await sleep(1)
    assert consumers(dispatcher, "mail/eu") == 0


async def test_names_that_a_destination_may_not_consume(wishing: Wishing) -> None:
    dispatcher = wishing.dispatcher
    dispatcher.provision("tagged", Semantics(tags="service=other"))
    dispatcher.provision("closed", Semantics(pattern=RoutingPattern.UNAVAILABLE))
    names = ("tagged", "closed", "_temp/shop/x", "_topo/all/x", "")
    for number, name in enumerate(names):
        await wishing.stock(f"stock{number}", name)
    assert dispatcher.names() == []
    assert wishing.refused > 0
    assert dispatcher.statistics().counts["names of destinations that cannot be read"] > 0
    dispatcher.withdraw("closed")
    await wishing.stock("more", "other")
    assert (consumers(dispatcher, "closed"), consumers(dispatcher, "other")) == (1, 1)


async def test_the_roles_of_a_name_are_those_of_the_connection(
    wishing: Wishing, monkeypatch: Patch
) -> None:
    ann = Principal("ann", "token", frozenset({"stock"}))
    bob = Principal("bob", "token", frozenset({"shop"}))
    roles = Access(consumers=frozenset({"stock"}))
    wishing.dispatcher.provision("orders", Semantics(access=roles))
    for number, principal in enumerate((ann, bob, ANONYMOUS)):
        worker = await start_worker(wishing.node, Stock(), f"connection{number}")
        setup = RouteSetup(bytes([number]) * 16, "stock", (("consume", "orders"),))
        wishing.broker.connect(
            setup, worker.address, peer="", evict=lambda _: None, principal=principal
        )
    await sleep(1)
    assert consumers(wishing.dispatcher) == 1
    assert wishing.refused == 2
    cooks = Access(consumers=frozenset({"cooks"}))
    wishing.dispatcher.update("orders", Semantics(access=cooks))
    assert consumers(wishing.dispatcher) == 0


async def test_a_wish_has_its_roles_if_the_name_becomes_one_by_tags_amid_the_steps(
    node: Node, broker: Broker, monkeypatch: Patch
) -> None:
    options = DispatchOptions(consume_key="consume", name_slice=1)
    dispatcher = await Dispatcher.attach(node, options, broker=broker)
    await sleep(0)
    roles = Access(consumers=frozenset({"stock"}))
    dispatcher.provision("orders", Semantics(access=roles))
    await sleep(1)
    changed = Semantics(access=roles, tags="service=other")
    found: list[int] = []
    attached: list[int] = []
    right = broker.index.own_ways

    def own_ways(asked: Address) -> Any:
        ways = right(asked)
        if ways and not found:
            found.append(len(ways))
            node.loop.call_soon(change)
        return ways

    def change() -> None:
        # The destinations of the name are known, and none of them is attached.
        dispatcher.update("orders", changed)
        look(50)

    def look(turns: int) -> None:
        attached.append(consumers(dispatcher))
        if turns:
            node.loop.call_soon(look, turns - 1)

    monkeypatch.setattr(broker.index, "own_ways", own_ways)
    bob = Principal("bob", "token", frozenset({"shop"}))
    worker = await start_worker(node, Stock(), "connection")
    setup = RouteSetup(b"1" * 16, "stock", (("consume", "orders"),))
    broker.connect(setup, worker.address, peer="", evict=lambda _: None, principal=bob)
    await sleep(2)
    assert found == [1]
    assert attached == [0] * 51
    # It is followed as it is now.
    dispatcher.update("orders", Semantics(tags="service=stock"))
    await sleep(2)
    assert consumers(dispatcher) == 1


async def test_a_name_that_is_no_longer_by_tags_has_its_roles(wishing: Wishing) -> None:
    roles = Access(consumers=frozenset({"stock"}))
    wishing.dispatcher.provision("orders", Semantics(access=roles, tags="service=stock"))
    for name, role in (("ann", "stock"), ("bob", "shop")):
        worker = await start_worker(wishing.node, Stock(), name)
        setup = RouteSetup(name.encode() * 5 + b"1", "stock", (("consume", "orders"),))
        principal = Principal(name, "token", frozenset({role}))
        wishing.broker.connect(
            setup, worker.address, peer="", evict=lambda _: None, principal=principal
        )
    await sleep(1)
    assert consumers(wishing.dispatcher) == 2
    # Both ask for it as well, and one of them may have it.
    wishing.dispatcher.update("orders", Semantics(access=roles))
    await sleep(1)
    assert (consumers(wishing.dispatcher), wishing.refused) == (1, 1)
    wishing.dispatcher.update("orders", Semantics(access=roles, tags="service=stock"))
    await sleep(1)
    assert consumers(wishing.dispatcher) == 2


async def test_destinations_ask_for_no_names_by_default(
    node: Node, broker: Broker, dispatcher: Dispatcher
) -> None:
    stock = await start_worker(node, Stock(), "stock")
    broker.register(stock.address, service="stock", tags={"consume": "orders"})
    await sleep(1)
    assert dispatcher.names() == []
    with pytest.raises(AddressError):
        DispatchOptions(consume_key="%")


async def test_tags_are_for_one_name(node: Node, broker: Broker, dispatcher: Dispatcher) -> None:
    with pytest.raises(BadSemantics, match="for one name"):
        dispatcher.provision("orders/#", STOCK)
    with pytest.raises(BadSemantics, match="for one name"):
        dispatcher.load('[default]\nrouting = "balanced"\ntags = "service=stock"')
    await node.stop_worker(dispatcher.address)
    with pytest.raises(BadSemantics, match="for one name"):
        await Dispatcher.attach(node, DispatchOptions(default=STOCK), broker=broker)


@pytest.mark.real_time
async def test_a_client_in_another_process_is_a_consumer() -> None:
    handlers = Handlers()

    @handlers.response
    async def stock(request: Request) -> bytes:
        return b"3 " + request.data

    async with Node("shop") as node:
        broker = await Broker.attach(node)
        dispatcher = await Dispatcher.attach(node, broker=broker)
        dispatcher.provision("orders", STOCK)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        async with connect(listener.uri, service="stock", handlers=handlers):
            await eventually(lambda: consumers(dispatcher) == 1)
            answer = await node.request("34#orders", b"apples", timeout=30.0)
            assert answer.payload == b"3 apples"
        await eventually(lambda: consumers(dispatcher) == 0)
        assert dispatcher.statistics().unsettled == 0


async def test_a_name_by_tags_is_reached_from_another_node(network: SimulatedNetwork) -> None:
    shop, far = await network.node("shop"), await network.node("far")
    broker = await Broker.attach(shop)
    there = await Dispatcher.attach(shop, broker=broker)
    here = await Dispatcher.attach(far, broker=await Broker.attach(far))
    await shop.listen("sim://shop", expose=[DISPATCH])
    await here.neighbour("sim://shop")
    here.provision("orders", STOCK)
    stock = await start_worker(shop, Stock(), "stock")
    broker.register(stock.address, service="stock")
    await sleep(10)
    # Another node cannot make destinations here its consumers.
    assert consumers(there) == 0
    there.provision("orders", STOCK)
    await sleep(10)
    assert consumers(there) == 1
    outcome, answer = await (await here.produce_any()).exchange("orders", b"apples")
    assert outcome == ACCEPTED
    assert answer is not None
    assert answer.payload == b"3 apples"
