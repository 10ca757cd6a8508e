"""Several nodes: paths, the balance of messages, multicast, and lost links."""

from __future__ import annotations

import asyncio
import json
from asyncio import sleep
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import cbor2
import pytest

from onward.actors import GivenUp, Node
from onward.actors.dispatch import (
    DISPATCH,
    Accept,
    Dispatcher,
    DispatchOptions,
    Received,
)
from onward.actors.services import ManagementService
from onward.protocol import DELIVERY, Address, NotDelivered, RequestTimeout
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    UNDELIVERABLE,
    BadName,
    Disposition,
    Gate,
    Last,
    NodeHello,
    Outcome,
    Redirect,
    Rejected,
    Reliability,
    RoutingPattern,
    Second,
    Semantics,
    Transit,
    disposition_address,
    encode_disposition,
    encode_network_frame,
    encode_transit,
    ended_address,
    return_address,
)
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.kept import Kept
from tests.actors.dispatch.nets import SETTLE, Net, ended, linear, sent, triangle
from tests.support.transports import eventually
from tests.support.workers import Echo, Failing, Recorder, start_worker


@pytest.fixture
async def net(network: SimulatedNetwork) -> Net:
    return Net(network)


async def test_nodes_find_each_other(net: Net) -> None:
    await linear(net)
    await sleep(SETTLE)
    assert {name: each.statistics().nodes for name, each in net.at.items()} == {
        "a": 2,
        "b": 2,
        "c": 2,
    }
    assert net.at["b"].statistics().neighbours == 2


async def test_a_request_is_answered_by_a_worker_two_nodes_away(net: Net) -> None:
    await linear(net)
    await start_worker(net.nodes["c"], Echo(), "echo")
    await net.at["c"].consume("orders", "echo")
    await sleep(SETTLE)
    answer = await net.nodes["a"].request("34#orders", b"apples")
    assert answer.payload == b"apples"
    for dispatcher in net.at.values():
        assert dispatcher.statistics().unsettled == 0


ENDS: list[tuple[Callable[[Received], object], Outcome]] = [
    (lambda each: each.accept(), ACCEPTED),
    (lambda each: each.reject("shop:closed", "today"), Rejected("shop:closed", "today")),
    (lambda each: each.release(), RELEASED),
    (lambda each: each.modify(), MODIFIED),
]


@pytest.mark.parametrize(("end", "outcome"), ENDS)
async def test_outcomes_come_back_through_all_nodes(
    end: Callable[[Received], object], outcome: Outcome, net: Net
) -> None:
    await linear(net)
    await net.at["c"].consume("orders", end, accept=Accept.SELF)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    assert await producer.send(b"x") == outcome
    for dispatcher in net.at.values():
        assert dispatcher.statistics().unsettled == 0


async def test_a_producer_gets_its_credit_when_another_node_has_a_consumer(net: Net) -> None:
    await linear(net)
    producer = await net.at["a"].produce("orders")
    await sleep(SETTLE)
    assert producer.credit == 0
    kept = await net.keep("c", "orders")
    await sleep(SETTLE)
    assert producer.credit == 250
    kept.consumer.close()
    await sleep(SETTLE)
    assert await producer.send(b"x") == RELEASED
    assert producer.credit == 0
    with pytest.raises(NotDelivered):
        await net.nodes["a"].request("34#orders", b"x")


async def test_balanced_in_a_row(net: Net) -> None:
    await net.start("a", cost=1)
    await net.start("b", cost=10)
    await net.start("c", cost=20)
    await net.join("a", "b", 10)
    await net.join("b", "c", 20)
    kept = [await net.keep(each, "orders") for each in "abc"]
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 100)
    assert [len(each.deliveries) for each in kept] == [55, 33, 12]
    for each in kept:
        for delivery in each.deliveries:
            delivery.accept()
    assert await ended(tasks) == [ACCEPTED] * 100


async def test_balanced_in_a_row_without_the_middle(net: Net) -> None:
    await net.start("a", cost=1)
    await net.start("b", cost=10)
    await net.start("c", cost=20)
    await net.join("a", "b", 10)
    await net.join("b", "c", 20)
    kept = [await net.keep(each, "orders") for each in "ac"]
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 100)
    assert [len(each.deliveries) for each in kept] == [65, 35]
    for each in kept:
        each.consumer.close()
    assert await ended(tasks) == [MODIFIED] * 100


async def test_balanced_in_a_mesh(net: Net) -> None:
    await net.start("a", "b", "c", "d")
    for one, other, cost in (("a", "b", 10), ("b", "c", 20), ("a", "d", 50), ("b", "d", 100)):
        await net.join(one, other, cost)
    kept = [await net.keep(each, "orders") for each in "abd"]
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 100)
    assert [len(each.deliveries) for each in kept] == [54, 43, 3]
    for each in kept:
        each.consumer.close()
    assert await ended(tasks) == [MODIFIED] * 100


async def test_closest_shares_among_nodes_at_the_same_cost(net: Net) -> None:
    await triangle(net)
    net.provision("near", Semantics(pattern=RoutingPattern.CLOSEST))
    kept = [await net.keep(each, "near") for each in "bc"]
    await sleep(SETTLE)
    producer = await net.at["a"].produce("near")
    for _ in range(6):
        await producer.send_settled(b"x")
    await sleep(1)
    assert [len(each.deliveries) for each in kept] == [3, 3]


async def test_each_message_has_an_outcome_while_links_come_and_go(net: Net) -> None:
    await net.start("a", "b", "c", "d")
    for one, other in (("a", "d"), ("d", "c"), ("c", "b"), ("d", "b"), ("a", "c"), ("a", "b")):
        await net.join(one, other)
    handled = Counter[int]()

    async def handle(delivery: Received) -> None:
        handled[int(delivery.payload)] += 1
        await sleep(0.3)

    await net.at["b"].consume("orders", handle)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks: list[asyncio.Task[Outcome]] = []

    async def send_ten() -> None:
        for _ in range(10):
            tasks.append(asyncio.create_task(producer.send(b"%d" % len(tasks))))
            await sleep(0.1)

    for one, other in (("a", "b"), ("a", "c"), ("d", "b")):
        await send_ten()
        await net.cut(one, other)
    await send_ten()
    await sleep(SETTLE)
    await send_ten()
    outcomes = await ended(tasks)
    # In doubt is only what was on a link as it was cut, and what came before the next path.
    lost = [number for number, outcome in enumerate(outcomes) if outcome != ACCEPTED]
    assert all(outcomes[number] in (RELEASED, MODIFIED) for number in lost)
    assert len(lost) <= 30
    assert outcomes[-10:] == [ACCEPTED] * 10
    assert max(handled.values()) == 1
    for number, outcome in enumerate(outcomes):
        # What is accepted was handled, and what is released was not.
        assert outcome == MODIFIED or handled[number] == (outcome == ACCEPTED)
    await sleep(SETTLE)
    for dispatcher in net.at.values():
        assert dispatcher.statistics().unsettled == 0


async def test_closest_goes_to_the_nearest_node_that_is_left(net: Net) -> None:
    await linear(net)
    net.provision("near", Semantics(pattern=RoutingPattern.CLOSEST))
    kept = {each: await net.keep(each, "near") for each in "abc"}
    await sleep(SETTLE)
    producer = await net.at["a"].produce("near")
    for index, name in enumerate("abc", 1):
        await producer.send_settled(b"x")
        await sleep(1)
        assert sum(len(each.deliveries) for each in kept.values()) == index
        assert len(kept[name].deliveries) == 1
        kept[name].consumer.close()
        await sleep(SETTLE)


@pytest.mark.parametrize("settled", [False, True])
async def test_a_multicast_reaches_each_consumer_once(settled: bool, net: Net) -> None:
    await triangle(net)
    net.provision("all", Semantics(pattern=RoutingPattern.MULTICAST))
    kept = [await net.keep(each, "all") for each in "aabbcc"]
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    sends = [b"%d" % each for each in range(10)]
    tasks: list[asyncio.Task[Outcome]] = []
    for payload in sends:
        if settled:
            await producer.send_settled(payload)
        else:
            tasks.append(asyncio.create_task(producer.send(payload)))
    await sleep(1)
    assert [each.payloads for each in kept] == [sends] * 6
    for each in kept:
        for delivery in each.deliveries:
            delivery.accept()
    assert await ended(tasks) == [ACCEPTED] * len(tasks)
    for dispatcher in net.at.values():
        assert dispatcher.statistics().unsettled == 0


async def test_direct_has_one_consumer_in_the_network(net: Net) -> None:
    await linear(net)
    net.provision("one", Semantics(pattern=RoutingPattern.DIRECT, second=Second.STANDBY))
    first = await net.keep("a", "one")
    await sleep(SETTLE)
    second = await net.keep("c", "one")
    assert (first.consumer.active, second.consumer.active) == (True, False)
    producer = await net.at["b"].produce("one")
    await producer.send_settled(b"1")
    await sleep(SETTLE)
    first.consumer.close()
    await sleep(SETTLE)
    assert second.consumer.active
    await producer.send_settled(b"2")
    await sleep(1)
    assert (first.payloads, second.payloads) == ([b"1"], [b"2"])


async def test_a_lost_link_leaves_what_was_sent_in_doubt_in_both_directions(net: Net) -> None:
    await linear(net)
    kept = await net.keep("c", "orders")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 5)
    assert len(kept.deliveries) == 5
    await net.cut("b", "c")
    assert await ended(tasks) == [MODIFIED] * 5
    await sleep(1)
    assert [each.outcome for each in kept.deliveries] == [MODIFIED] * 5
    assert not kept.deliveries[0].accept()
    for dispatcher in net.at.values():
        assert dispatcher.statistics().unsettled == 0
    await net.join("b", "c")
    await sleep(SETTLE)
    again = asyncio.create_task(producer.send(b"again"))
    await sleep(1)
    assert kept.deliveries[-1].accept()
    assert await again == ACCEPTED


async def test_a_lost_producer_side_is_told_to_consumers_behind_other_nodes(net: Net) -> None:
    await linear(net)
    kept = await net.keep("c", "orders", window=3)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 5)
    await net.cut("a", "b")
    assert await ended(tasks) == [MODIFIED] * 5
    await sleep(1)
    assert [each.outcome for each in kept.deliveries[:3]] == [MODIFIED] * 3
    # What waited there for credit is withdrawn, as its producer has an outcome.
    assert len(kept.deliveries) == 3
    assert kept.consumer.unsettled == 0
    for dispatcher in net.at.values():
        assert dispatcher.statistics().unsettled == 0


async def test_a_node_in_the_middle_that_dies_is_seen_at_both_ends(net: Net) -> None:
    await linear(net)
    kept = await net.keep("c", "orders")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 5)
    await net.nodes["b"].stop()
    assert await ended(tasks) == [MODIFIED] * 5
    await sleep(1)
    assert [each.outcome for each in kept.deliveries] == [MODIFIED] * 5


async def test_a_message_takes_another_way_once_a_link_is_lost(net: Net) -> None:
    await net.start("a", "b", "c")
    await net.join("a", "b")
    await net.join("b", "c")
    await net.join("a", "c", 5)
    await net.at["c"].consume("orders", lambda _: None)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    assert await producer.send(b"1") == ACCEPTED
    await net.cut("b", "c")
    await sleep(SETTLE)
    assert await producer.send(b"2") == ACCEPTED


async def test_what_is_provisioned_once_counts_at_all_nodes(net: Net) -> None:
    await linear(net)
    net.at["b"].provision("all", Semantics(pattern=RoutingPattern.MULTICAST, window=7))
    kept = [await net.keep("c", "all") for _ in range(2)]
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    assert producer.credit == 7
    await producer.send_settled(b"x")
    await sleep(1)
    assert [each.payloads for each in kept] == [[b"x"], [b"x"]]
    # It is updated and withdrawn while it is in use.
    net.at["b"].update("all", Semantics())
    await sleep(1)
    await producer.send_settled(b"y")
    await sleep(1)
    assert sorted(kept[0].payloads + kept[1].payloads) == [b"x", b"x", b"y"]
    net.at["b"].load('[[name]]\npattern = "more"\nrouting = "multicast"\n')
    net.at["b"].withdraw("all")
    await sleep(1)
    more = [await net.keep("c", "more") for _ in range(2)]
    await sleep(SETTLE)
    await (await net.at["a"].produce("more")).send_settled(b"z")
    await sleep(1)
    assert [each.payloads for each in more] == [[b"z"], [b"z"]]
    assert all(each.conflicts() == ((), 0) for each in net.at.values())


async def test_a_node_decides_for_itself_first_and_conflicts_are_reported(net: Net) -> None:
    await linear(net)
    net.at["c"].provision("all", Semantics(pattern=RoutingPattern.MULTICAST))
    kept = [await net.keep("c", "all") for _ in range(2)]
    await sleep(SETTLE)
    net.at["a"].provision("all", Semantics(gate=Gate.OPEN))
    net.at["b"].provision("_local/all", Semantics(gate=Gate.OPEN))
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    await producer.send_settled(b"x")
    await sleep(1)
    assert [each.payloads for each in kept] == [[b"x"], [b"x"]]  # c has copied what came there
    # Of the nodes that have provisioned nothing, the first one by name has the word.
    at = {name: list(map(str, each.conflicts()[0])) for name, each in net.at.items()}
    balanced, multicast = "balanced, gate open", "multicast"
    assert at == {
        "a": [f"all: {balanced} here, {multicast} at c"] * 2,  # by the pattern, and by its name
        "b": [f"all: {balanced} here, {multicast} at c"] * 2,
        "c": [f"all: {multicast} here, {balanced} at a"],
    }


async def test_a_neighbour_changes_no_name_that_a_node_has_provisioned(net: Net) -> None:
    await net.start("a", "b")
    await net.join("a", "b")
    dropped = Semantics(gate=Gate.OPEN, undeliverable=(Last.DROP,))
    moved = Semantics(gate=Gate.OPEN, undeliverable=(Redirect("34#elsewhere"), Last.DROP))
    net.at["b"].provision("orders.#", Semantics(gate=Gate.OPEN))
    net.at["a"].provision("orders.#", dropped)
    net.at["a"].provision("orders.eu", moved)
    elsewhere = await net.keep("a", "elsewhere")
    await sleep(SETTLE)
    for name in ("orders", "orders.eu"):
        producer = await net.at["b"].produce(name)
        assert await producer.send(b"x", timeout=1) == RELEASED
    assert elsewhere.payloads == []
    found, count = net.at["b"].conflicts()
    assert [(each.name, each.node, each.there) for each in found] == [
        ("orders.#", "a", dropped),
        ("orders.eu", "a", moved),
    ]
    assert count == 2


async def test_another_node_redirects_to_names_only(net: Net) -> None:
    await net.start("a", "b")
    await net.join("a", "b")
    secret = await start_worker(net.nodes["b"], Recorder(), "secret")
    for name, route in (("to-worker", "0#secret"), ("to-name", "34#failed")):
        chain = (Redirect(route), Last.RELEASE)
        net.at["a"].provision(name, Semantics(gate=Gate.OPEN, undeliverable=chain))
    failed = await net.keep("b", "failed")
    await sleep(SETTLE)
    for name in ("to-worker", "to-name"):
        with suppress(NotDelivered, RequestTimeout):
            await net.nodes["b"].request(f"34#{name}", name.encode(), timeout=1)
    await sleep(1)
    assert secret.messages == []
    assert failed.payloads == [b"to-name"]
    # What comes of a neighbour enters at no other node than it says, and at none of this name.
    link, node = net.links["a", "b"], net.nodes["a"]
    forged = encode_transit(Transit("to-name", "b", b"instance", b"12345678", settled=True))
    node.send([link, DISPATCH, Address(DELIVERY, forged)], b"forged")
    await sleep(1)
    assert failed.payloads == [b"to-name"]
    assert net.at["b"].statistics().counts["addresses that cannot be read"] == 1


async def test_a_neighbour_with_another_name_than_expected_is_closed(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    await net.start("a", "b", "c")
    with pytest.raises(BadName):
        await net.at["a"].neighbour("sim://b", name="b/c")
    await net.at["a"].neighbour("sim://b", name="b")
    await net.at["a"].neighbour("sim://c", name="d")
    await sleep(SETTLE)
    assert "it has another name than expected" in caplog.text
    assert [each.node for each in net.at["a"].nodes()] == ["a", "b"]


async def test_a_neighbour_that_sends_garbage_is_closed(
    net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    await net.start("a")
    stranger = await net.network.node("stranger")
    link = await stranger.connect("sim://a")
    stranger.send([link, DISPATCH], b"garbage")
    await sleep(1)
    assert net.at["a"].statistics().counts["neighbours that were closed"] == 1
    assert not stranger.has(link)
    assert "is closed: a bad frame" in caplog.text


async def test_a_link_that_exists_can_be_one_to_a_neighbour(net: Net) -> None:
    await net.start("a", "b")
    link = await net.nodes["a"].connect("sim://b")
    assert await net.at["a"].neighbour(link) == link
    assert await net.at["a"].neighbour(link) == link
    await sleep(SETTLE)
    assert net.at["a"].statistics().neighbours == 1


async def test_the_newest_consumer_of_the_network_has_a_direct_name(net: Net) -> None:
    await linear(net)
    net.provision("one", Semantics(pattern=RoutingPattern.DIRECT, second=Second.NEWEST))
    first = await net.keep("a", "one")
    await sleep(SETTLE)
    second = await net.keep("c", "one")
    await sleep(SETTLE)
    assert first.consumer.reason == "another consumer has taken its place"
    assert second.consumer.active


async def test_a_message_that_comes_twice_is_bound_once(net: Net) -> None:
    await net.start("a")
    net.provision("once", Semantics(reliability=Reliability(deduplicate=60.0)))
    kept = await net.keep("a", "once")
    other = await net.network.node("b")
    transit = encode_transit(Transit("once", "b", b"instance", b"12345678", settled=True))
    back = await other.connect("sim://a")
    hello = encode_network_frame(NodeHello("b", 1, 0, ("a",)))
    other.send([back, DISPATCH], hello)
    for _ in range(2):
        other.send([back, DISPATCH, Address(DELIVERY, transit)], b"x")
    await sleep(0.5)
    assert kept.payloads == [b"x"]
    assert net.at["a"].statistics().counts["duplicates"] == 1


async def test_a_consumer_behind_a_link_without_a_dispatcher(net: Net) -> None:
    await net.start("a")
    shop = await net.network.node("shop", error_replies=True)
    await start_worker(shop, Echo(), "echo")
    await start_worker(shop, Failing(), "failing")
    await shop.listen("sim://shop", expose=["echo", "failing"], error_replies=True)
    a, dispatcher = net.nodes["a"], net.at["a"]
    link = await a.connect("sim://shop")
    await dispatcher.consume("orders", [link, "echo"])
    assert (await a.request("34#orders", b"x")).payload == b"x"
    await dispatcher.consume("failing", [link, "failing"])
    with pytest.raises(GivenUp):
        await a.request("34#failing", b"!")
    await dispatcher.consume("gone", [link, "gone"])
    with pytest.raises(NotDelivered):
        await a.request("34#gone", b"x")
    assert dispatcher.statistics().unsettled == 0


async def test_what_no_neighbour_sends_is_refused(net: Net) -> None:
    await net.start("a")
    kept = await net.keep("a", "orders")
    stranger = await net.network.node("stranger")
    link = await stranger.connect("sim://a")
    settled = encode_transit(Transit("orders", "x", b"instance", b"12345678", settled=True))
    stranger.send([link, DISPATCH, Address(DELIVERY, settled)], b"x")
    await sleep(1)
    assert net.at["a"].statistics().counts["messages of no neighbour"] == 1
    # A hello of a node that has not heard this one makes no neighbour yet.
    stranger.send([link, DISPATCH], encode_network_frame(NodeHello("stranger", 1, 0, ())))
    stranger.send([link, DISPATCH, Address(DELIVERY, settled)], b"x")
    await sleep(1)
    assert net.at["a"].statistics().counts["messages of no neighbour"] == 2
    assert kept.deliveries == []
    stranger.send([link, DISPATCH], encode_network_frame(NodeHello("stranger", 1, 0, ("a",))))
    unsettled = encode_transit(Transit("orders", "x", b"instance", b"12345678"))
    stranger.send([link, DISPATCH, Address(DELIVERY, unsettled)], b"x")
    await sleep(1)
    assert net.at["a"].statistics().counts["addresses that cannot be read"] == 1
    later = Address(DELIVERY, b"t" + cbor2.dumps([2, "orders"]))
    stranger.send([link, DISPATCH, later], b"x")
    await sleep(1)
    assert net.at["a"].statistics().counts["of a later version"] == 1
    assert kept.deliveries == []


async def test_a_neighbour_with_another_name_than_the_pinned_one_sends_nothing(net: Net) -> None:
    await net.start("a")
    kept = await net.keep("a", "orders")
    other = await net.network.node("b")
    await other.listen("sim://b", expose=[DISPATCH])
    link = await net.at["a"].neighbour("sim://b", name="c")
    settled = encode_transit(Transit("orders", "x", b"instance", b"12345678", settled=True))
    back = await start_worker(other, Recorder(), DISPATCH)
    await sleep(2)
    hellos = [message for message in back.messages if message.return_route]
    other.send([*hellos[0].return_route, Address(DELIVERY, settled)], b"x")
    other.send(hellos[0].return_route, encode_network_frame(NodeHello("b", 1, 0, ("a",))))
    other.send([*hellos[0].return_route, Address(DELIVERY, settled)], b"x")
    await sleep(1)
    assert kept.deliveries == []
    assert not net.nodes["a"].has(link)


async def test_only_a_neighbour_ends_what_it_has_sent(net: Net) -> None:
    await linear(net)
    kept = await net.keep("b", "orders")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    (send,) = await sent(producer, 1)
    ((_, token),) = upstream(net.at["b"])
    stranger = await net.network.node("stranger")
    link = await stranger.connect("sim://b")
    end = Address(DELIVERY, ended_address(token, settled=False))
    stranger.send([link, DISPATCH], encode_network_frame(NodeHello("stranger", 1, 0, ())))
    stranger.send([link, DISPATCH, end], b"")
    await sleep(1)
    assert kept.deliveries[0].accept()
    assert await ended([send]) == [ACCEPTED]


def upstream(dispatcher: Dispatcher) -> list[tuple[str, bytes]]:
    """Return the links and tokens of what is unsettled for nodes before this one."""
    links = dispatcher._core.copies.upstream
    return [(str(link), token) for link, tokens in links.items() for token in tokens]


async def test_a_message_that_has_passed_too_many_nodes_is_released(net: Net) -> None:
    await net.start("a")
    kept = await net.keep("a", "orders")
    other = await net.network.node("b")
    link = await other.connect("sim://a")
    other.send([link, DISPATCH], encode_network_frame(NodeHello("b", 1, 0, ("a",))))
    path = tuple(bytes([each]) * 4 for each in range(9))
    far = encode_transit(Transit("orders", "x", b"instance", b"12345678", settled=True, path=path))
    other.send([link, DISPATCH, Address(DELIVERY, far)], b"x")
    await sleep(0.5)
    assert net.at["a"].statistics().counts["passed too many nodes"] == 1
    assert kept.deliveries == []


async def test_an_outcome_counts_from_the_link_that_the_copy_was_sent_on(net: Net) -> None:
    await linear(net)
    kept = await net.keep("c", "orders")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    (send,) = await sent(producer, 1)
    # The worker of c has the token of the copy of c; a stranger has learnt it.
    forged = [each for each in net.at["c"]._core.copies.tokens]  # noqa: C416
    stranger = await net.network.node("stranger")
    link = await stranger.connect("sim://c")
    end = Address(DELIVERY, disposition_address(return_address(forged[0])))
    frame = encode_disposition(Disposition(ACCEPTED))
    stranger.send([link, DISPATCH, end], frame)
    await sleep(1)
    assert not send.done()
    kept.deliveries[0].reject("no")
    assert await send == Rejected("no")


async def test_the_name_of_a_node_reaches_its_local_name(net: Net) -> None:
    await linear(net)
    await start_worker(net.nodes["c"], Echo(), "echo")
    await net.at["c"].consume("_local/status", "echo")
    await sleep(SETTLE)
    answer = await net.nodes["a"].request("34#_topo/c/status", b"?")
    assert answer.payload == b"?"
    with pytest.raises(NotDelivered):
        await net.nodes["a"].request("34#_local/status", b"?")


async def test_a_watch_is_told_about_consumers_at_other_nodes(network: SimulatedNetwork) -> None:
    net = Net(network)
    await linear(net)
    told: list[int] = []
    unwatch = net.at["a"].watch("orders", lambda _, paths: told.append(paths))
    consumer = await net.at["c"].consume("orders", Kept())
    await sleep(SETTLE)
    consumer.close()
    await sleep(SETTLE)
    assert told == [1, 0]
    assert net.at["a"].statistics().names == 1
    unwatch()
    assert net.at["a"].statistics().names == 0


@pytest.mark.real_time
async def test_three_nodes_over_tcp() -> None:
    async with Node("a") as a, Node("b") as b, Node("c") as c:
        at = [await Dispatcher.attach(each) for each in (a, b, c)]
        to_b = await b.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        to_c = await c.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        await at[0].neighbour(to_b.uri)
        link = await at[1].neighbour(to_c.uri)
        await start_worker(c, Echo(), "echo")
        await at[2].consume("orders", "echo")
        kept = Kept()
        await at[2].consume("kept", kept, accept=Accept.SELF)
        known = asyncio.Event()
        at[0].watch("kept", lambda _, paths: known.set() if paths else None)
        producer = await at[0].produce("kept")
        await asyncio.wait_for(known.wait(), 60)
        answer = await a.request("34#orders", b"apples")
        assert answer.payload == b"apples"
        sends = [asyncio.create_task(producer.send(b"x")) for _ in range(3)]
        await eventually(lambda: len(kept.deliveries) == 3)
        kept.deliveries[0].accept()
        assert await sends[0] == ACCEPTED
        await b.stop_worker(link)
        assert await asyncio.wait_for(ended(sends[1:]), 60) == [MODIFIED] * 2
        await eventually(lambda: kept.deliveries[1].outcome is not None)
        assert [each.outcome for each in kept.deliveries] == [ACCEPTED, MODIFIED, MODIFIED]


async def test_nothing_is_reached_that_is_not_exposed(network: SimulatedNetwork) -> None:
    net = Net(network)
    await net.start("a")
    await net.at["a"].consume("orders", lambda _: None)
    stranger = await network.node("stranger")
    await net.nodes["a"].listen("sim://a2")
    link = await stranger.connect("sim://a2")
    stranger.send([link, "34#orders"], b"x")
    stranger.send([link, DISPATCH], b"x")
    await sleep(1)
    assert net.nodes["a"].statistics().dead_letters == 2
    assert net.at["a"].statistics().neighbours == 0
    # A peer that may be a neighbour cannot name a worker behind a name, nor forge an outcome.
    through = await stranger.connect("sim://a")
    stranger.send([through, DISPATCH, "34#orders"], b"x")
    stranger.send([through, DISPATCH, "echo"], b"x")
    stranger.send([through, DISPATCH, "35#tx"], b"x")
    stranger.send([through, DISPATCH, "35#d12345678"], b"x")
    await sleep(1)
    assert net.nodes["a"].statistics().dead_letters == 6


@pytest.mark.parametrize("settled", [False, True])
async def test_a_name_of_all_nodes_reaches_the_local_name_of_each(settled: bool, net: Net) -> None:
    await triangle(net)
    for at in "abc":
        net.at[at].provision("_local/news", Semantics(pattern=RoutingPattern.MULTICAST))
    kept = [await net.keep(at, "_local/news") for at in "abbc"]
    await sleep(SETTLE)
    producer = await net.at["a"].produce("_topo/all/news")
    if settled:
        await producer.send_settled(b"0")
        await sleep(1)
    else:
        (task,) = await sent(producer, 1)
        await sleep(1)
        for each in kept:
            each.deliveries[0].accept()
        assert await task == ACCEPTED
    assert [each.payloads for each in kept] == [[b"0"]] * 4
    producer.close()
    await sleep(SETTLE)
    assert [net.at[at].statistics().names for at in "abc"] == [1, 1, 1]


async def test_the_worst_outcome_of_all_nodes_is_told(net: Net) -> None:
    await linear(net)
    kept = [await net.keep(at, "_local/news") for at in "ac"]
    await sleep(SETTLE)
    producer = await net.at["b"].produce_any()
    task = asyncio.create_task(producer.send("_topo/all/news", b"1"))
    await sleep(1)
    kept[0].deliveries[0].accept()
    kept[1].deliveries[0].reject("shop:closed")
    assert await task == Rejected("shop:closed")


async def test_a_reply_comes_to_a_temporary_name_from_two_nodes_away(net: Net) -> None:
    await linear(net)
    got: list[bytes] = []
    consumer = await net.at["a"].temporary(lambda each: got.append(each.payload))
    await sleep(SETTLE)
    producer = await net.at["c"].produce_any()
    assert await producer.send(consumer.name, b"1") == ACCEPTED
    consumer.close()
    assert await producer.send(consumer.name, b"2") == RELEASED
    assert got == [b"1"]
    assert net.at["c"].statistics().names == 0


async def test_the_network_as_a_table(net: Net) -> None:
    await net.start("a", "b", "c", "d")
    await net.join("a", "b", 2)
    await net.join("b", "c", 3)
    await net.keep("c", "orders")
    await net.keep("a", "mail")
    await sleep(SETTLE)
    rows = net.at["a"].nodes()
    assert [(each.node, each.cost, each.next_hop, each.names) for each in rows] == [
        ("a", 0, "", 1),
        ("b", 2, "b", 0),
        ("c", 5, "b", 1),
    ]
    assert [each.peers for each in rows] == [{"b": 2}, {"a": 1, "c": 3}, {"b": 1}]
    assert [each.link for each in rows] == ["", str(net.links["a", "b"]), ""]


async def test_what_an_operator_asks_the_management_service(net: Net) -> None:
    await linear(net)
    net.at["a"].provision("orders/#", Semantics(pattern=RoutingPattern.CLOSEST))
    await net.keep("c", "orders/1")
    node = net.nodes["a"]
    await node.start(ManagementService, address="management")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders/1")
    tasks = await sent(producer, 2)
    answer = json.loads((await node.request("management", b"addresses")).payload)
    (row,) = answer["rows"]
    assert (answer["node"], answer["total"]) == ("a", 1)
    assert row.pop("in_flight") == 2
    assert 0 < row.pop("oldest") < 10
    assert {name: value for name, value in row.items() if value} == {
        "name": "orders/1",
        "routing": "closest",
        "provision": "orders/#",
        "nodes": 1,
        "producers": 1,
    }
    answer = json.loads((await node.request("management", b"network")).payload)
    assert [each["node"] for each in answer["rows"]] == ["a", "b", "c"]
    producer.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    await node.stop_worker(DISPATCH)
    answer = json.loads((await node.request("management", b"network")).payload)
    assert answer == {"error": "ask for workers, links, dead-letters or node"}


async def test_a_redirect_to_a_worker_of_another_node_is_accepted_by_its_reply(
    network: SimulatedNetwork,
) -> None:
    node, far = await network.node("near"), await network.node("far")
    dispatcher = await Dispatcher.attach(node, DispatchOptions(outcome_timeout=5))
    await far.listen("sim://far", expose=["echo"])
    await start_worker(far, Echo(), "echo")
    link = await node.connect("sim://far")
    chain = Redirect(f"{link} => echo"), Last.REJECT
    dispatcher.provision("orders", Semantics(undeliverable=chain, gate=Gate.OPEN))
    producer = await dispatcher.produce("orders")
    outcome, answer = await producer.exchange(b"1")
    assert outcome == ACCEPTED
    assert answer is not None
    assert answer.payload == b"1"
    assert (await node.request("34#orders", b"2")).payload == b"2"
    await network.crash("far")
    assert await producer.send(b"3") == MODIFIED  # the link is not lost yet
    await sleep(30)
    assert await producer.send(b"4") == UNDELIVERABLE
    assert dispatcher.statistics().unsettled == 0


async def test_the_paths_before_are_known_also_without_any_name(net: Net) -> None:
    await linear(net)
    await sleep(SETTLE)
    core = net.at["b"]._core
    before = core.paths
    assert not core.names.states
    await net.cut("b", "c")
    await sleep(0.5)
    assert core.paths is not before
    assert before in core.totals.paths.before(core.now())
    assert core.totals.paths.radius == core.paths.radius
    await sleep(SETTLE)
    # A name that comes now does not begin with paths that were left long ago.
    assert core.names.find(core._read("orders")) is not None
    assert core.totals.paths.before(core.now()) == ()
