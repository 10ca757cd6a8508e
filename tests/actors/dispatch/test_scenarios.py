"""Scenarios of the page about them that take several nodes, over simulated links."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from onward.actors import Refused, Worker
from onward.actors.dispatch import Accept, Consumer, ConsumerRefused, OutcomeCallback, Received
from onward.protocol import Message, OnwardError
from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MODIFIED,
    NOT_FOUND,
    RELEASED,
    UNDELIVERABLE,
    Gate,
    Hold,
    Last,
    NetworkLimits,
    Outcome,
    Redirect,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
)
from onward.transports.simulated import Faults, SimulatedNetwork
from tests.actors.dispatch.kept import Kept
from tests.actors.dispatch.nets import SETTLE, Net, ended, linear, sent, triangle
from tests.support.workers import start_worker

WINDOW = Semantics().window
MULTICAST = Semantics(pattern=RoutingPattern.MULTICAST)
CLOSEST = Semantics(pattern=RoutingPattern.CLOSEST)


@pytest.fixture
async def net(network: SimulatedNetwork) -> Net:
    return Net(network)


async def settled(net: Net, tasks: Sequence[asyncio.Task[Outcome]]) -> Counter[Outcome]:
    """Return how many messages have which outcome, once no node keeps anything of them."""
    outcomes = Counter(await ended(list(tasks)))
    await sleep(1)
    assert net.unsettled == 0
    return outcomes


class Six:
    """The end of a consumer with credit for six messages."""

    def __init__(self) -> None:
        self.told: list[OutcomeCallback] = []

    def deliver(self, message: bytes, told: OutcomeCallback | None) -> None:
        assert message
        assert told is not None
        self.told.append(told)

    def drained(self) -> None:
        raise AssertionError

    def end(self, reason: OnwardError) -> None:
        raise reason


# --- credit and outcomes ----------------------------------------------------------------------


@pytest.mark.parametrize("at", ["a", "c"])
@pytest.mark.parametrize("outcome", [ACCEPTED, MODIFIED])
async def test_six_of_ten_are_taken_and_the_consumer_leaves(
    outcome: Outcome, at: str, net: Net
) -> None:
    await linear(net)
    six = Six()
    consumer = net.at[at].open_consumer("orders", six)
    consumer.credit(6)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 10)
    assert len(six.told) == 6
    if outcome == ACCEPTED:
        for told in six.told:
            told(ACCEPTED)
    consumer.close()
    assert await settled(net, tasks) == {outcome: 6, RELEASED: 4}


async def test_a_consumer_that_comes_after_the_drain_brings_the_whole_window(net: Net) -> None:
    await linear(net)
    producer = await net.at["a"].produce("orders")
    for _ in range(2):
        consumer = await net.at["c"].consume("orders", lambda _: None)
        await sleep(SETTLE)
        assert producer.credit == WINDOW
        assert await producer.send(b"x") == ACCEPTED
        consumer.close()
        await sleep(SETTLE)
        assert await producer.send(b"x") == RELEASED
        assert producer.credit == 0


async def test_messages_of_a_producer_arrive_in_their_order(net: Net) -> None:
    await linear(net)
    kept = await net.keep("c", "orders", window=7)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = [asyncio.create_task(producer.send(b"%d" % each)) for each in range(40)]
    while len(kept.deliveries) < 40:
        await sleep(1)
        for delivery in kept.deliveries:
            delivery.accept()
    assert kept.payloads == [b"%d" % each for each in range(40)]
    kept.deliveries[-1].accept()
    assert await settled(net, tasks) == {ACCEPTED: 40}


async def test_a_producer_that_closes_leaves_its_messages_to_the_consumer(net: Net) -> None:
    await linear(net)
    kept = await net.keep("c", "orders", window=2)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 4)
    producer.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    for number in range(4):
        await sleep(1)
        assert kept.deliveries[number].accept()
    await sleep(1)
    assert kept.payloads == [b"0", b"1", b"2", b"3"]
    assert net.unsettled == 0


async def test_what_consumers_release_is_accepted_once_and_each_is_asked_once(net: Net) -> None:
    await triangle(net)
    asked = Counter[tuple[int, bytes]]()

    def releasing(number: int) -> Callable[[Received], None]:
        def handle(delivery: Received) -> None:
            asked[number, delivery.payload] += 1
            delivery.release()

        return handle

    for number, at in enumerate("abbcc"):
        await net.at[at].consume("orders", releasing(number), accept=Accept.SELF)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 10)
    assert await settled(net, tasks) == {RELEASED: 10}
    assert set(asked.values()) == {1}
    asked.clear()
    kept = Kept()
    await net.at["c"].consume("orders", kept)
    await sleep(SETTLE)
    tasks = await sent(producer, 10)
    assert await settled(net, tasks) == {ACCEPTED: 10}
    assert sorted(kept.payloads) == [b"%d" % each for each in range(10)]
    assert set(asked.values()) <= {1}


@pytest.mark.parametrize("died", ["a", "b", "c"])
async def test_a_node_that_dies_leaves_doubt_at_the_nodes_that_are_left(
    died: str, net: Net
) -> None:
    await linear(net)
    kept = await net.keep("c", "orders", window=3)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    tasks = await sent(producer, 5)
    assert len(kept.deliveries) == 3
    await net.network.crash(died)
    await sleep(SETTLE)
    if died == "a":
        for each in tasks:
            each.cancel()
    else:
        # What waits for credit at a node that died is in doubt as well: it is not known there.
        assert await ended(tasks) == [MODIFIED] * 5
    if died != "c":
        assert [each.outcome for each in kept.deliveries] == [MODIFIED] * 3
        assert kept.consumer.unsettled == 0
    left = [each for at, each in net.at.items() if at != died]
    assert [each.statistics().unsettled for each in left] == [0, 0]


# --- direct -----------------------------------------------------------------------------------


async def test_a_second_consumer_of_a_direct_name_at_another_node_is_refused(net: Net) -> None:
    await linear(net)
    net.provision("one", Semantics(pattern=RoutingPattern.DIRECT))
    first = await net.keep("a", "one")
    await sleep(SETTLE)
    with pytest.raises(ConsumerRefused, match="direct"):
        await net.keep("c", "one")
    first.consumer.close()
    await sleep(SETTLE)
    second = await net.keep("c", "one")
    await sleep(SETTLE)
    producer = await net.at["b"].produce("one")
    tasks = await sent(producer, 2)
    second.consumer.close()
    assert await settled(net, tasks) == {MODIFIED: 2}
    assert (first.payloads, second.payloads) == ([], [b"0", b"1"])


async def test_two_consumers_of_a_direct_name_at_once_become_one(net: Net) -> None:
    await linear(net)
    net.provision("one", Semantics(pattern=RoutingPattern.DIRECT, second=Second.STANDBY))
    kept = [await net.keep(at, "one") for at in "ac"]
    await sleep(SETTLE)
    assert sorted(each.consumer.active for each in kept) == [False, True]
    producer = await net.at["b"].produce("one")
    await sent(producer, 6)
    assert sorted(len(each.payloads) for each in kept) == [0, 6]


async def test_a_direct_name_is_reached_by_the_cheapest_path(net: Net) -> None:
    await net.start("a", "b", "c")
    await net.join("a", "b", 1)
    await net.join("b", "c", 1)
    await net.join("a", "c", 5)
    net.provision("one", Semantics(pattern=RoutingPattern.DIRECT))
    await net.keep("c", "one")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("one")
    tasks = await sent(producer, 3)
    # They went by b, so the direct link is no loss.
    await net.cut("a", "c")
    await sleep(1)
    assert not any(each.done() for each in tasks)
    await net.cut("b", "c")
    assert await settled(net, tasks) == {MODIFIED: 3}


# --- closest and balanced ---------------------------------------------------------------------


async def test_closest_is_the_cheapest_node_whatever_its_load(net: Net) -> None:
    await net.start("a", "b", "c", "d")
    await net.join("a", "b", 5)
    await net.join("a", "c", 2)
    await net.join("c", "d", 1)
    net.provision("near", CLOSEST)
    kept = {at: await net.keep(at, "near", window=2) for at in "bd"}
    await sleep(SETTLE)
    producer = await net.at["a"].produce("near")
    tasks = await sent(producer, 6)
    assert {at: len(each.payloads) for at, each in kept.items()} == {"b": 0, "d": 2}
    kept["d"].consumer.close()
    await sleep(1)
    # What d had not been handed goes to the next one; what it had is in doubt.
    assert kept["b"].payloads == [b"2", b"3"]
    kept["b"].consumer.close()
    assert await settled(net, tasks) == {MODIFIED: 4, RELEASED: 2}


async def test_traffic_moves_to_a_cheaper_way_and_not_to_a_dearer_one(net: Net) -> None:
    await net.start("a", "b", "c", "d")
    await net.join("a", "c", 5)
    await net.keep("c", "orders")
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    first = await sent(producer, 2)
    await net.join("a", "b", 1)
    await net.join("b", "c", 1)
    await net.join("a", "d", 9)
    await net.join("d", "c", 9)
    await sleep(SETTLE)
    second = await sent(producer, 3)
    await net.cut("a", "d")
    await sleep(1)
    assert not any(each.done() for each in first + second)
    await net.cut("a", "b")
    assert await ended(second) == [MODIFIED] * 3
    assert not any(each.done() for each in first)
    await net.cut("a", "c")
    assert await settled(net, first) == {MODIFIED: 2}


async def test_a_consumer_moves_and_its_messages_follow(net: Net) -> None:
    await linear(net)
    producer = await net.at["b"].produce("orders")
    got = {each: Kept() for each in "abc"}
    outcomes: list[Outcome] = []
    consumer: Consumer | None = None
    for number, at in enumerate("acbac"):
        if consumer is not None:
            consumer.close()
        consumer = await net.at[at].consume("orders", got[at])
        await sleep(SETTLE)
        outcomes.append(await producer.send(b"%d" % number))
    assert outcomes == [ACCEPTED] * 5
    assert [got[at].payloads for at in "abc"] == [[b"0", b"3"], [b"2"], [b"1", b"4"]]
    assert net.unsettled == 0


# --- multicast --------------------------------------------------------------------------------


async def test_a_multicast_waits_for_a_consumer_and_an_anonymous_one_is_released(net: Net) -> None:
    await linear(net)
    net.provision("all", MULTICAST)
    producer, anonymous = await net.at["a"].produce("all"), await net.at["a"].produce_any()
    assert producer.credit == 0
    assert await anonymous.send("all", b"x") == RELEASED
    kept = [Kept(), Kept()]
    for at, each in zip("bc", kept, strict=True):
        await net.at[at].consume("all", each)
    await sleep(SETTLE)
    assert producer.credit == WINDOW
    assert await anonymous.send("all", b"y") == ACCEPTED
    assert await producer.send(b"z") == ACCEPTED
    assert [each.payloads for each in kept] == [[b"y", b"z"]] * 2


@pytest.mark.parametrize("cut", [False, True])
async def test_a_multicast_goes_on_without_a_consumer_that_is_lost(cut: bool, net: Net) -> None:
    await linear(net)
    net.provision("all", MULTICAST)
    here = Kept()
    await net.at["a"].consume("all", here)
    lost = await net.keep("c", "all", window=2)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    tasks = await sent(producer, 5)
    assert (len(here.payloads), len(lost.payloads)) == (5, 2)
    if cut:
        await net.cut("b", "c")
    else:
        lost.consumer.close()
    # One consumer has accepted each of them.
    assert await settled(net, tasks) == {ACCEPTED: 5}


FOR_A_WHILE = 500
"""Messages, one each 4 ms: four times as long as a node is behind with its paths."""


@pytest.mark.parametrize("is_settled", [True, False])
async def test_a_multicast_comes_once_while_a_shorter_path_comes_up(
    is_settled: bool, net: Net
) -> None:
    await net.start("a", "c")
    # It computes its paths later than the others.
    await net.start("b", network=NetworkLimits(pause=0.5, longest_pause=0.5))
    await net.join("a", "b")
    await net.join("b", "c")
    net.provision("all", Semantics(pattern=RoutingPattern.MULTICAST))
    kept = [Kept(), Kept()]
    for at, each in zip("bc", kept, strict=True):
        await net.at[at].consume("all", each)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    tasks: list[asyncio.Task[Outcome]] = []
    joins = asyncio.create_task(net.join("a", "c"))
    for number in range(FOR_A_WHILE):
        # While "a" knows the new link already and "b" does not, both send a copy to "c".
        if is_settled:
            await producer.send_settled(b"%d" % number)
        else:
            tasks.append(asyncio.create_task(producer.send(b"%d" % number)))
        await sleep(0.004)
    await joins
    await sleep(SETTLE)
    for each in kept:
        assert Counter(each.payloads) == {b"%d" % number: 1 for number in range(FOR_A_WHILE)}
    assert net.at["c"].statistics().counts["duplicates"] > 0
    assert await settled(net, tasks) == ({} if is_settled else {ACCEPTED: FOR_A_WHILE})


@pytest.mark.parametrize("is_settled", [True, False])
async def test_no_multicast_is_lost_while_the_node_behind_knows_a_shorter_path_first(
    is_settled: bool, net: Net
) -> None:
    # It computes its paths later than the others.
    await net.start("a", network=NetworkLimits(pause=0.5, longest_pause=0.5))
    await net.start("b", "c")
    await net.join("a", "b")
    await net.join("b", "c")
    net.provision("all", Semantics(pattern=RoutingPattern.MULTICAST))
    kept = [Kept(), Kept()]
    for at, each in zip("bc", kept, strict=True):
        await net.at[at].consume("all", each)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    tasks: list[asyncio.Task[Outcome]] = []
    joins = asyncio.create_task(net.join("a", "c"))
    for number in range(FOR_A_WHILE):
        # While "b" knows the new link already and "a" does not, none would send a copy to "c".
        if is_settled:
            await producer.send_settled(b"%d" % number)
        else:
            tasks.append(asyncio.create_task(producer.send(b"%d" % number)))
        await sleep(0.004)
    await joins
    await sleep(SETTLE)
    for each in kept:
        assert Counter(each.payloads) == {b"%d" % number: 1 for number in range(FOR_A_WHILE)}
    assert await settled(net, tasks) == ({} if is_settled else {ACCEPTED: FOR_A_WHILE})


@pytest.mark.parametrize(("doubled", "known"), [(0.0, 0.0), (0.3, 60.0)])
async def test_no_consumer_of_a_multicast_has_a_message_twice_while_links_change(
    doubled: float, known: float, net: Net
) -> None:
    await triangle(net)
    # Links that double what they carry need a time in which duplicates are known.
    net.network.set_all_faults(Faults(latency=(0.05, 0.4), duplicate=doubled))
    once = Reliability(deduplicate=known)
    net.provision("all", Semantics(pattern=RoutingPattern.MULTICAST, reliability=once))
    kept = [Kept() for _ in range(6)]
    for at, each in zip("aabbcc", kept, strict=True):
        await net.at[at].consume("all", each)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    tasks: list[asyncio.Task[Outcome]] = []
    changes = [("a", "b"), ("b", "c"), ("a", "c")]
    for number in range(45):
        (one, other), step = changes[number // 15], number % 15
        if step == 5:
            await net.cut(one, other)
        elif step == 10:
            await net.join(one, other)
        tasks.append(asyncio.create_task(producer.send(b"%d" % number)))
        await sleep(0.1)
    await sleep(SETTLE)
    assert await settled(net, tasks) == {ACCEPTED: 45}
    assert await producer.send(b"last") == ACCEPTED
    for each in kept:
        assert set(Counter(each.payloads).values()) == {1}
        assert each.payloads[-1] == b"last"
    assert [len(each.payloads) for each in kept[:2]] == [46, 46]


@pytest.mark.parametrize(
    ("accepts", "outcome"), [(1, ACCEPTED), (2, ACCEPTED), (3, MODIFIED), (ALL, MODIFIED)]
)
async def test_as_many_consumers_of_all_nodes_accept_as_are_asked_for(
    accepts: int, outcome: Outcome, net: Net
) -> None:
    await triangle(net)
    asked = Reliability(accepts=accepts)
    net.provision("all", Semantics(pattern=RoutingPattern.MULTICAST, reliability=asked))
    await net.at["b"].consume("all", lambda each: each.release(), accept=Accept.SELF)
    for at in "bc":
        await net.at[at].consume("all", lambda each: each.accept(), accept=Accept.SELF)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("all")
    # One has released it, and two have accepted it: fewer than that is doubt, and not released.
    assert await producer.send(b"x") == outcome
    assert net.unsettled == 0


# --- what is undeliverable --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "outcome"),
    [(Last.RELEASE, RELEASED), (Last.REJECT, UNDELIVERABLE), (Last.DROP, ACCEPTED)],
)
async def test_a_message_is_held_then_redirected_then_ended(
    last: Last, outcome: Outcome, net: Net
) -> None:
    await linear(net)
    hold = Retry(hold=Hold(messages=10, age=30.0))
    chain = (hold, Redirect("34#second"), Last.RELEASE)
    net.provision("first", Semantics(undeliverable=chain, gate=Gate.OPEN))
    net.provision("second", Semantics(undeliverable=(last,)))
    producer = await net.at["a"].produce("first")
    # Neither name has a consumer: the chain of the second one ends it.
    started = asyncio.get_running_loop().time()
    assert await producer.send(b"0") == outcome
    assert asyncio.get_running_loop().time() - started == pytest.approx(30.0)
    # On hold, until a consumer comes to another node.
    (held,) = await sent(producer, 1)
    first, second = Kept(), Kept()
    consumer = await net.at["c"].consume("first", first)
    assert await held == ACCEPTED
    consumer.close()
    await net.at["b"].consume("second", second)
    await sleep(SETTLE)
    assert await producer.send(b"2") == ACCEPTED
    assert (first.payloads, second.payloads) == ([b"0"], [b"2"])
    assert net.unsettled == 0


async def test_three_hundred_go_to_the_first_name_and_then_to_the_second(net: Net) -> None:
    await linear(net)
    redirect = Semantics(undeliverable=(Redirect("34#second"), Last.RELEASE), gate=Gate.OPEN)
    net.provision("first", redirect)
    got: dict[str, set[int]] = {"first": set(), "second": set()}

    def handle(delivery: Received, name: str) -> None:
        got[name].add(int(delivery.payload))

    first = await net.at["b"].consume("first", lambda each: handle(each, "first"))
    await net.at["c"].consume("second", lambda each: handle(each, "second"))
    await sleep(SETTLE)
    producer = await net.at["a"].produce("first")
    tasks = [asyncio.create_task(producer.send(b"%d" % each)) for each in range(300)]
    assert await settled(net, tasks) == {ACCEPTED: 300}
    first.close()
    await sleep(SETTLE)
    tasks = [asyncio.create_task(producer.send(b"%d" % each)) for each in range(300, 600)]
    assert await settled(net, tasks) == {ACCEPTED: 300}
    assert got == {"first": set(range(300)), "second": set(range(300, 600))}


# --- names and nodes --------------------------------------------------------------------------


async def test_names_are_unavailable_unless_they_are_provisioned(net: Net) -> None:
    await net.start("a", "b", default=Semantics(pattern=RoutingPattern.UNAVAILABLE))
    await net.join("a", "b")
    net.provision("shop/#", Semantics())
    await net.at["b"].consume("shop/orders", lambda _: None)
    await sleep(SETTLE)
    for attach in (net.at["a"].produce("orders"), net.at["a"].consume("orders", lambda _: None)):
        with pytest.raises(ConsumerRefused, match="unavailable"):
            await attach
    with pytest.raises(Refused, match=NOT_FOUND.condition):
        await net.nodes["a"].request("34#orders", b"x")
    producer = await net.at["a"].produce("shop/orders")
    assert await producer.send(b"x") == ACCEPTED


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        ("shop.b.c.d", 1),
        ("b.c.d", 2),
        ("f.a.b.c.d", 2),
        ("shop.c.d", 2),
        ("shop/c/c/d", 1),
        ("shop/x/z/z/d", 1),
        ("shop/x/d", 1),
        ("shop.x.e", 1),
        ("p.b.c.d", 2),
    ],
)
async def test_the_pattern_that_fits_best_decides_at_both_nodes(
    name: str, copies: int, net: Net
) -> None:
    await net.start("a", "b")
    await net.join("a", "b")
    for pattern in ("#.b.c.d", "*/b/c/d", "shop.*.d"):
        net.provision(pattern, MULTICAST)
    for pattern in ("shop.b.c.d", "shop/*/#/d", "shop.x.d"):
        net.provision(pattern, CLOSEST)
    kept = [await net.keep(at, name) for at in "ab"]
    await sleep(SETTLE)
    producer = await net.at["a"].produce(name)
    await producer.send_settled(b"x")
    await sleep(1)
    assert sum(len(each.payloads) for each in kept) == copies


async def test_a_node_that_starts_anew_has_none_of_its_names_before(net: Net) -> None:
    await linear(net)
    await net.at["b"].consume("old", lambda _: None)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("old")
    assert producer.credit == WINDOW
    await net.restart("b")
    await net.join("a", "b")
    await net.join("b", "c")
    await net.at["b"].consume("new", lambda _: None)
    await sleep(SETTLE)
    assert await producer.send(b"x", timeout=1.0) == RELEASED
    assert producer.credit == 0
    assert await (await net.at["a"].produce("new")).send(b"x") == ACCEPTED
    await net.at["c"].consume("old", lambda _: None)
    await sleep(SETTLE)
    assert await producer.send(b"x") == ACCEPTED


@pytest.mark.parametrize(("stages", "messages"), [(1, 300), (9, 30)])
async def test_a_message_goes_through_stages_by_their_names(
    stages: int, messages: int, net: Net
) -> None:
    await linear(net)

    class Stage(Worker):
        def handle_message(self, message: Message) -> None:
            self.forward(message, payload=message.payload + b".")

    for number in range(stages):
        at = "cab"[number % 3]
        await start_worker(net.nodes[at], Stage(), f"stage-{number}")
        await net.at[at].consume(f"stages/{number}", f"stage-{number}", accept=Accept.HANDED)
    kept = Kept()
    await net.at["b"].consume("end", kept, window=messages)
    await sleep(SETTLE)
    route = [*(f"34#stages/{number}" for number in range(stages)), "34#end"]
    for number in range(messages):
        net.nodes["a"].send(route, b"%d" % number)
    await sleep(SETTLE)
    expected = [b"%d%s" % (number, b"." * stages) for number in range(messages)]
    assert sorted(kept.payloads) == sorted(expected)


async def test_a_request_and_its_reply_go_over_temporary_names(net: Net) -> None:
    await linear(net)
    got: list[bytes] = []
    replies = await net.at["a"].temporary(lambda each: got.append(each.payload))
    answering = await net.at["c"].produce_any()

    async def answer(delivery: Received) -> None:
        name, _, question = delivery.payload.partition(b" ")
        delivery.accept()
        await answering.send(name.decode(), question.upper())

    await net.at["c"].consume("orders", answer)
    await sleep(SETTLE)
    producer = await net.at["a"].produce("orders")
    assert await producer.send(replies.name.encode() + b" apples?") == ACCEPTED
    await sleep(1)
    assert got == [b"APPLES?"]
