"""The broker as programs use it: registrations, statistics, management, limits."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from uuid import UUID

import pytest

from onward.actors import LimitReached, Node, NodeLimits, RuleInUse, ThreadWorker
from onward.actors.broker import (
    MANAGEMENT_SERVICE,
    Broker,
    BrokerOptions,
    BrokerStatistics,
    WaitingOptions,
)
from onward.protocol import (
    AddressError,
    AddressInUse,
    MailboxFull,
    NoRoute,
    NotDelivered,
    UnknownAddress,
    address,
)
from onward.protocol.broker import BrokerFrameError, RouteSetup, WellKnownKey
from tests.support.rsocket_peer import (
    ERROR,
    RR,
    World,
    asked_for,
    in_world,
    kind_of,
    request,
    setup,
    stream_of,
)
from tests.support.transports import eventually
from tests.support.workers import Echo, Recorder, start_worker

ROUTE = UUID(int=7)
AT_ONCE = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))


async def test_a_worker_is_a_destination(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    registration = broker.register(
        "echo", service="echo", tags={"region": "eu", "colour": "blue"}, route_id=ROUTE
    )
    assert registration.route_id == ROUTE
    assert node.has(registration.address)
    answer = await node.request("32#service=echo region=eu colour=blue", b"hi")
    assert answer.payload == b"hi"
    row = broker.routes()[-1]
    assert (row.route_id, row.service, row.peer) == (ROUTE, "echo", "local")
    assert dict(row.tags) == {
        "service": "echo",
        "region": "eu",
        "colour": "blue",
        "route": str(ROUTE),
    }
    assert (row.requests, row.outstanding) == (1, 0)
    assert row.since > 1.7e9
    assert broker.statistics() == BrokerStatistics(2, 0, 0, 0.0, *[0] * 10)


async def test_a_registration_is_withdrawn(node: Node) -> None:
    broker = await Broker.attach(node, AT_ONCE)
    await node.start(Echo, address="echo")
    registration = broker.register("echo", service="echo")
    assert registration.current
    assert registration.withdraw()
    assert not registration.current
    assert not registration.withdraw()
    with pytest.raises(NoRoute):
        await node.request("32#service=echo", b"")
    assert node.has("echo")


async def test_a_registration_replaces_one_with_its_route_id(node: Node) -> None:
    broker = await Broker.attach(node)
    first = await start_worker(node, Recorder(), "first")
    second = await start_worker(node, Recorder(), "second")
    old = broker.register("first", service="a", route_id=ROUTE)
    new = broker.register("second", service="a", route_id=ROUTE)
    assert (old.current, new.current) == (False, True)
    assert not old.withdraw()
    assert len(broker.routes()) == 2
    node.send("32#service=a", b"x")
    await eventually(lambda: second.messages)
    assert (first.payloads, second.payloads) == ([], [b"x"])


async def test_a_registration_outlives_its_broker() -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        await node.start(Echo, address="echo")
        registrations = [broker.register("echo", service="a") for _ in range(2)]
        await node.stop_worker("broker")
        assert registrations[0].withdraw()
    assert registrations[1].withdraw()


async def test_the_worker_of_a_registration_has_gone(node: Node) -> None:
    broker = await Broker.attach(node, AT_ONCE)
    await node.start(Echo, address="echo")
    registration = broker.register("echo", service="echo")
    await node.stop_worker("echo")
    await eventually(lambda: not registration.current)
    with pytest.raises(NoRoute):
        await node.request("32#service=echo", b"x")
    with pytest.raises(UnknownAddress):
        broker.register("echo", service="echo")
    assert len(broker.routes()) == 1


@pytest.mark.parametrize(
    ("service", "tags", "error"),
    [
        ("a", {"": "x"}, AddressError),
        ("a", {"region": "x" * 128}, BrokerFrameError),
        ("a", {f"k{n}": "v" for n in range(300)}, BrokerFrameError),
        ("", {}, BrokerFrameError),
        ("x" * 256, {}, BrokerFrameError),
    ],
)
async def test_what_cannot_be_registered(
    service: str, tags: dict[str, str | None], error: type[Exception], node: Node
) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    with pytest.raises(error):
        broker.register("echo", service=service, tags=tags)
    assert len(broker.routes()) == 1


async def test_the_table_is_full(node: Node) -> None:
    broker = await Broker.attach(node, BrokerOptions(max_routes=2))
    await node.start(Echo, address="echo")
    broker.register("echo", service="a", route_id=ROUTE)
    with pytest.raises(NotDelivered, match="2 routes, its limit"):
        broker.register("echo", service="b")
    broker.register("echo", service="b", route_id=ROUTE)
    assert [row.service for row in broker.routes()] == [MANAGEMENT_SERVICE, "b"]


async def test_a_registration_that_fails_changes_nothing() -> None:
    async with Node(limits=NodeLimits(addresses=7)) as node:
        broker = await Broker.attach(node)  # takes five
        await node.start(Echo, address="echo")
        first = broker.register("echo", service="a", route_id=ROUTE)
        with pytest.raises(LimitReached):
            broker.register("echo", service="b")
        with pytest.raises(LimitReached):
            broker.register("echo", service="b", route_id=ROUTE)
        assert first.current
        assert [row.service for row in broker.routes()] == [MANAGEMENT_SERVICE, "a"]


def itself(worker: Recorder) -> Recorder:
    return worker


class Blocking(ThreadWorker):
    """Leaves every message to the default, on a thread of its own."""


@pytest.mark.real_time
async def test_a_dead_letter_of_another_thread_is_answered_on_the_loop(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Blocking, address="blocking")
    broker.register("blocking", service="blocking")
    listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", int(listener.uri.rpartition(":")[2])
    )
    node.loop.set_debug(True)  # what is not for other threads raises there
    writer.write(setup() + request(RR, 1, asked_for("blocking")))
    async with asyncio.timeout(5):
        got = await reader.readexactly(13)
    assert (stream_of(got), kind_of(got), got[9:]) == (1, ERROR, b"\x00\x00\x02\x02")
    node.loop.set_debug(False)
    writer.close()


async def test_two_brokers_need_two_addresses(node: Node) -> None:
    broker = await Broker.attach(node, address="one")
    assert broker.address == address("one")
    with pytest.raises(AddressInUse):
        await Broker.attach(node, address="one")


async def test_the_broker_answers_questions_about_itself(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    broker.register("echo", service="echo", tags={"region": "eu"}, route_id=ROUTE)
    to = f"32#service={MANAGEMENT_SERVICE}"
    rows = json.loads((await node.request(to, b" routes\n")).payload)
    assert [row["service"] for row in rows] == [MANAGEMENT_SERVICE, "echo"]
    echo = rows[1]
    assert echo["route"] == str(ROUTE)
    assert echo["tags"]["region"] == "eu"
    assert (echo["peer"], echo["outstanding"], echo["requests"]) == ("local", 0, 0)
    figures = json.loads((await node.request(to, b"statistics")).payload)
    assert figures == {**asdict(broker.statistics()), "streams": 0, "listeners": []}
    assert "error" in json.loads((await node.request(to, b"?")).payload)
    node.send(to, b"routes")  # nobody to answer
    await node.request(to, b"routes")
    assert node.dead_letters.total == 0


@in_world()
async def test_a_peer_asks_the_broker_about_itself(w: World) -> None:
    requester, _ = await w.pair()
    (answer,) = await requester.ask(request(RR, 1, asked_for(MANAGEMENT_SERVICE), b"routes"))
    rows = json.loads(answer[9:])
    assert [row["service"] for row in rows] == [MANAGEMENT_SERVICE, "a"]
    assert rows[0]["outstanding"] == 1


async def test_no_connection_takes_over_a_local_route_id_or_a_reserved_name(node: Node) -> None:
    def nothing(_: str) -> None:
        raise AssertionError("nobody is evicted")

    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    registration = broker.register("echo", service="echo", route_id=ROUTE)
    reserved = ((WellKnownKey.SERVICE_NAME, MANAGEMENT_SERVICE),)
    for each in (
        RouteSetup(ROUTE.bytes, "mine"),
        RouteSetup(bytes(16), MANAGEMENT_SERVICE),
        RouteSetup(bytes(16), "mine", reserved),
    ):
        with pytest.raises(NotDelivered):
            broker.connect(each, address("echo"), peer="outside", evict=nothing)
    assert registration.current
    assert len(broker.routes()) == 2


async def test_a_busy_destination_is_passed_over_while_another_keeps_up(node: Node) -> None:
    broker = await Broker.attach(node)
    busy = [True, False]
    workers = [Recorder(), Recorder()]
    for number, worker in enumerate(workers):
        at = await node.start(partial(itself, worker))
        joins = RouteSetup(UUID(int=number).bytes, "a")
        broker.connect(joins, at, peer="x", evict=print, busy=partial(busy.__getitem__, number))
    for _ in range(4):
        node.send("32#service=a", b"x")
    await eventually(lambda: len(workers[1].messages) == 4)
    busy[1] = True
    for _ in range(4):
        node.send("32#service=a", b"x")
    await eventually(lambda: len(workers[1].messages) == 6)
    assert len(workers[0].messages) == 2


async def test_a_sticky_key_stays_with_a_destination_that_is_busy(node: Node) -> None:
    broker = await Broker.attach(node)
    busy = [False, False]
    workers = [Recorder(), Recorder()]
    for number, worker in enumerate(workers):
        at = await node.start(partial(itself, worker))
        joins = RouteSetup(UUID(int=number).bytes, "a")
        broker.connect(joins, at, peer="x", evict=print, busy=partial(busy.__getitem__, number))

    async def ask(user: int, first: int, second: int) -> None:
        node.send(f"32#@sticky=user service=a user={user}", b"x")
        await eventually(lambda: [len(each.messages) for each in workers] == [first, second])

    await ask(1, 1, 0)
    busy[0] = True
    await ask(1, 2, 0)
    # One that is new does not begin there, and stays where it began.
    await ask(2, 2, 1)
    await ask(3, 2, 2)
    busy[:] = [False, True]
    await ask(3, 2, 3)
    busy[0] = True
    for user in (4, 5):  # if all are busy, any
        node.send(f"32#@sticky=user service=a user={user}", b"x")
    await eventually(lambda: sum(len(each.messages) for each in workers) == 7)


async def test_a_broker_that_tells_nothing_about_itself(node: Node) -> None:
    broker = await Broker.attach(
        node, BrokerOptions(management=False, waiting=WaitingOptions(no_route_timeout=0))
    )
    assert broker.routes() == ()
    with pytest.raises(NoRoute):
        await node.request(f"32#service={MANAGEMENT_SERVICE}", b"routes")


async def test_a_request_may_wait_as_long_as_any_may(node: Node) -> None:
    broker = await Broker.attach(node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=None)))
    waiting = asyncio.ensure_future(node.request("32#service=echo", b"x"))
    await eventually(lambda: broker.statistics().waiting == 1)
    await node.start(Echo, address="echo")
    broker.register("echo", service="echo")
    assert (await waiting).payload == b"x"


@pytest.mark.real_time
async def test_a_query_from_another_thread_goes_through_a_bounded_mailbox(node: Node) -> None:
    await Broker.attach(node, BrokerOptions(max_mailbox=10))
    await node.start(Echo, address="echo")

    def flood() -> int:
        refused = 0
        for _ in range(1000):
            try:
                node.send("32#service=onward.management", b"routes")
            except MailboxFull:
                refused += 1
        return refused

    thread = ThreadPoolExecutor(1)
    flooding = thread.submit(flood)
    flooding.result(10)  # the loop stands still meanwhile
    thread.shutdown()
    assert 980 <= flooding.result() <= 990


async def test_a_second_broker_on_a_node_is_refused_and_the_first_goes_on(node: Node) -> None:
    broker = await Broker.attach(node)
    node.spawn(Echo, address="echo")
    broker.register("echo", service="echo")
    workers = node.statistics().worker_count
    subscribers = len(node.dead_letters._subscribers)
    for _ in range(2):
        text = r"^addresses of type 32 are resolved by TagIndexWorker 0#\S+/tags already$"
        with pytest.raises(RuleInUse, match=text):
            await Broker.attach(node, address="other")
        await eventually(lambda: node.statistics().worker_count == workers)
    assert len(node.dead_letters._subscribers) == subscribers
    assert (await node.request("32#service=echo", b"hi")).payload == b"hi"
    await node.stop_worker(broker.address)
    again = await Broker.attach(node, address="other")
    again.register("echo", service="echo")
    assert (await node.request("32#service=echo", b"hi")).payload == b"hi"
