"""Producers and consumers with credit by calls: what an edge with credit of its own sees."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from onward.actors import Node, Refused
from onward.actors.dispatch import (
    DISPATCH,
    ConsumerLink,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
    OutcomeCallback,
    ProducerClosed,
    ProducerLink,
)
from onward.actors.dispatch._access import UNAUTHORIZED
from onward.protocol import NAME, Address, OnwardError
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    RELEASED,
    Access,
    Ages,
    BadName,
    DeliveryLimits,
    DeliveryState,
    DropReason,
    Gate,
    Hold,
    Last,
    Refusal,
    Rejected,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
    Settlement,
)
from onward.protocol.security import ANONYMOUS, Principal
from onward.transports.simulated import SimulatedNetwork

WINDOW = DispatchOptions().anonymous_window


class Sending:
    """The end of a producer, and the producer."""

    link: ProducerLink

    def __init__(
        self,
        dispatcher: Dispatcher,
        name: str | None,
        principal: Principal | None = None,
        client: str | None = None,
    ) -> None:
        self.left = 0
        self.drains = 0
        self.ended: OnwardError | None = None
        self.states: list[DeliveryState] = []
        self.link = dispatcher.open_producer(name, self, principal, client)

    def credit(self, messages: int) -> None:
        self.left += messages

    def drain(self) -> None:
        self.drains += 1

    def end(self, reason: OnwardError) -> None:
        self.ended = reason

    def send(
        self,
        message: bytes,
        name: str | None = None,
        *,
        settled: bool = False,
        ttl: float | None = None,
    ) -> None:
        self.left -= 1
        self.link.send(name, message, ttl, None if settled else self.states.append)

    def give_back(self) -> None:
        left, self.left = self.left, 0
        self.link.drained(left)


class Taking:
    """The end of a consumer, and the consumer."""

    link: ConsumerLink

    def __init__(
        self,
        dispatcher: Dispatcher,
        name: str,
        credit: int = 0,
        outcome: DeliveryState | None = None,
        principal: Principal | None = None,
        client: str | None = None,
    ) -> None:
        self.got: list[bytes] = []
        self.told: list[OutcomeCallback | None] = []
        self.drains = 0
        self.ended: OnwardError | None = None
        self._outcome = outcome
        self.link = dispatcher.open_consumer(name, self, principal, client)
        if credit:
            self.link.credit(credit)

    def deliver(self, message: bytes, told: OutcomeCallback | None) -> None:
        self.got.append(message)
        self.told.append(told)
        if told is not None and self._outcome is not None:
            told(self._outcome)

    def drained(self) -> None:
        self.drains += 1

    def end(self, reason: OnwardError) -> None:
        self.ended = reason

    def tell(self, state: DeliveryState, number: int = 0) -> None:
        told = self.told[number]
        assert told is not None
        told(state)


@pytest.fixture
async def dispatcher(node: Node) -> Dispatcher:
    return await Dispatcher.attach(node)


async def test_a_producer_has_credit_once_there_is_a_consumer(dispatcher: Dispatcher) -> None:
    sending = Sending(dispatcher, "orders")
    assert sending.left == 0
    # The existence of a consumer opens the gate, not its credit.
    Taking(dispatcher, "orders")
    assert sending.left == WINDOW


async def test_messages_wait_for_the_credit_of_the_consumer(dispatcher: Dispatcher) -> None:
    taking, sending = Taking(dispatcher, "orders"), Sending(dispatcher, "orders")
    for number in range(4):
        sending.send(b"%d" % number)
    assert taking.got == []
    taking.link.credit(1)
    assert taking.got == [b"0"]
    taking.tell(ACCEPTED)
    # What is settled gives no credit: the consumer has asked for one message.
    assert taking.got == [b"0"]
    assert sending.states == [ACCEPTED]
    assert sending.left == WINDOW - 3
    taking.link.credit(2)
    assert taking.got == [b"0", b"1", b"2"]


@pytest.mark.parametrize("outcome", [ACCEPTED, MODIFIED, Rejected("shop:closed", "tomorrow")])
async def test_outcomes_come_back_with_the_credit(
    dispatcher: Dispatcher, outcome: DeliveryState
) -> None:
    taking, sending = Taking(dispatcher, "orders", 1), Sending(dispatcher, "orders")
    sending.send(b"a")
    taking.tell(RECEIVED)
    assert sending.states == []
    taking.tell(outcome)
    assert (sending.states, sending.left) == ([outcome], WINDOW)


async def test_a_message_that_one_consumer_releases_goes_to_the_other(
    dispatcher: Dispatcher,
) -> None:
    releasing = Taking(dispatcher, "orders", 10, RELEASED)
    accepting = Taking(dispatcher, "orders", 10, ACCEPTED)
    sending = Sending(dispatcher, "orders")
    for _ in range(4):
        sending.send(b"a")
    assert sending.states == [ACCEPTED] * 4
    assert len(accepting.got) == 4
    assert releasing.ended is None


async def test_a_pre_settled_message_gives_its_credit_back_at_once(dispatcher: Dispatcher) -> None:
    taking, sending = Taking(dispatcher, "orders", 1), Sending(dispatcher, "orders")
    sending.send(b"a", settled=True)
    sending.send(b"b", settled=True)
    assert (taking.got, taking.told, sending.left) == ([b"a"], [None], WINDOW)
    taking.link.credit(1)
    assert taking.got == [b"a", b"b"]


async def test_a_consumer_that_leaves_has_what_it_took_in_doubt(dispatcher: Dispatcher) -> None:
    # What it took may have had an effect; what waited for it certainly had none.
    taking, sending = Taking(dispatcher, "orders", 6), Sending(dispatcher, "orders")
    for _ in range(10):
        sending.send(b"a")
    assert len(taking.got) == 6
    taking.link.close()
    taking.link.close()
    assert sending.states.count(MODIFIED) == 6
    assert sending.states.count(RELEASED) == 4
    assert taking.ended is None
    taking.link.credit(1)
    taking.link.drain()
    assert taking.drains == 0


async def test_a_consumer_that_does_not_settle_is_detached(node: Node) -> None:
    limits = DeliveryLimits(settle_time=60.0)
    dispatcher = await Dispatcher.attach(node, DispatchOptions(deliveries=limits))
    taking, sending = Taking(dispatcher, "orders", 2), Sending(dispatcher, "orders")
    for number in range(3):
        sending.send(b"%d" % number)
    await sleep(50)
    (row,) = dispatcher.names()
    assert (row.stuck, row.blocked_consumers, row.blocked_producers) == (2, 1, 0)
    assert (taking.ended, sending.states) == (None, [])
    await sleep(12)
    assert isinstance(taking.ended, ConsumerRefused)
    assert taking.ended.reason is Refusal.SETTLE_TIME
    assert sending.states == [MODIFIED, MODIFIED, RELEASED]
    assert dispatcher.statistics().counts[DropReason.NOT_SETTLED] == 2
    taking.tell(ACCEPTED)  # it is late, and changes nothing
    assert len(sending.states) == 3
    other = Taking(dispatcher, "orders", 2, ACCEPTED)
    sending.send(b"3")
    assert (other.got, sending.states[-1]) == ([b"3"], ACCEPTED)


async def test_what_is_stuck_and_blocked_at_a_dispatcher(node: Node) -> None:
    limits = DeliveryLimits(stuck_time=10.0)
    options = DispatchOptions(deliveries=limits, anonymous_window=2)
    dispatcher = await Dispatcher.attach(node, options)
    taking, sending = Taking(dispatcher, "orders", 2), Sending(dispatcher, None)
    waiting = Sending(dispatcher, "mail")  # it has no credit: its name has no consumer
    sending.send(b"1", "orders")
    await sleep(11)
    sending.send(b"2", "orders")
    other = Sending(dispatcher, "orders")
    other.send(b"3")
    await sleep(9)
    assert dispatcher.ages() == Ages(oldest=20, stuck=1, producers=1)
    await sleep(2)
    assert dispatcher.ages() == Ages(oldest=22, stuck=2, consumers=1, producers=2)
    taking.tell(ACCEPTED)
    waiting.link.close()
    assert dispatcher.ages() == Ages(oldest=11, stuck=1, consumers=1)
    taking.link.close()
    assert dispatcher.ages() == Ages(producers=1)  # its name has no consumer any more
    other.link.close()
    assert dispatcher.ages() == Ages()


async def test_credit_is_drained_after_the_last_consumer_and_comes_back(
    dispatcher: Dispatcher,
) -> None:
    taking, sending = Taking(dispatcher, "orders", 5, ACCEPTED), Sending(dispatcher, "orders")
    taking.link.close()
    # Credit that was given stays, until a message has found no consumer.
    assert (sending.left, sending.drains) == (WINDOW, 0)
    sending.send(b"a")
    assert (sending.states, sending.drains) == ([RELEASED], 1)
    sending.send(b"b")
    assert (sending.states, sending.drains) == ([RELEASED] * 2, 1)
    sending.give_back()
    assert sending.left == 0
    Taking(dispatcher, "orders", 5, ACCEPTED)
    assert sending.left == WINDOW
    sending.send(b"c")
    assert sending.states[2] == ACCEPTED


async def test_a_consumer_that_comes_before_the_credit_is_back(dispatcher: Dispatcher) -> None:
    taking, sending = Taking(dispatcher, "orders", 5, ACCEPTED), Sending(dispatcher, "orders")
    taking.link.close()
    sending.send(b"a")
    Taking(dispatcher, "orders", 5, ACCEPTED)
    assert sending.left == WINDOW
    # The client had answered the drain in the meantime.
    sending.give_back()
    assert sending.left == WINDOW


async def test_a_consumer_drains(dispatcher: Dispatcher) -> None:
    taking, sending = Taking(dispatcher, "orders"), Sending(dispatcher, "orders")
    for _ in range(6):
        sending.send(b"a")
    taking.link.credit(20)
    taking.link.drain()
    assert (len(taking.got), taking.drains) == (6, 1)
    sending.send(b"b")
    assert len(taking.got) == 6
    taking.link.credit(1)
    assert taking.got[-1] == b"b"


async def test_the_credit_of_consumers_is_the_gate_where_it_is_provisioned(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.provision("orders", Semantics(gate=Gate.CREDIT))
    taking, sending = Taking(dispatcher, "orders"), Sending(dispatcher, "orders")
    assert sending.left == 0
    taking.link.credit(3)
    assert sending.left == 3
    taking.link.drain()
    # Credit that was passed on stays; its messages wait for the consumer.
    assert (sending.left, sending.drains) == (3, 0)
    sending.send(b"a")
    assert taking.got == []
    taking.link.credit(1)
    assert taking.got == [b"a"]


async def test_an_anonymous_producer_names_each_message(dispatcher: Dispatcher) -> None:
    sending = Sending(dispatcher, None)
    assert sending.left == WINDOW
    taking = Taking(dispatcher, "orders", 2)
    sending.send(b"a", "orders")
    sending.send(b"b", "nowhere")
    assert (taking.got, sending.states, sending.left) == ([b"a"], [RELEASED], WINDOW - 1)
    taking.tell(ACCEPTED)
    assert (sending.states, sending.left) == ([RELEASED, ACCEPTED], WINDOW)
    sending.send(b"c", "orders", settled=True)
    assert (taking.got, sending.left, sending.drains) == ([b"a", b"c"], WINDOW, 0)


@pytest.mark.parametrize("name", ["", "\n", "x" * 600, None])
async def test_a_message_for_what_is_no_name_is_rejected(
    dispatcher: Dispatcher, name: str | None
) -> None:
    sending = Sending(dispatcher, None)
    sending.send(b"a", name)
    sending.send(b"a", name, settled=True)
    assert sending.states == [Rejected("amqp:invalid-field", "the address is no name")]
    assert sending.left == WINDOW
    assert dispatcher.statistics().counts["messages of producers that were refused at once"] == 2


async def test_an_unavailable_name_takes_nothing(dispatcher: Dispatcher) -> None:
    dispatcher.provision("closed", Semantics(pattern=RoutingPattern.UNAVAILABLE))
    for open_one in (Sending, Taking):
        with pytest.raises(ConsumerRefused, match="unavailable"):
            open_one(dispatcher, "closed")
    sending = Sending(dispatcher, None)
    sending.send(b"a", "closed")
    assert sending.states == [Rejected("amqp:not-found", "no such name")]
    assert dispatcher.statistics().names == 0


async def test_a_message_over_the_limit_of_the_node_is_rejected(
    dispatcher: Dispatcher, node: Node
) -> None:
    Taking(dispatcher, "orders", 1)
    sending = Sending(dispatcher, "orders")
    sending.send(bytes(node.limits.payload + 1))
    (outcome,) = sending.states
    assert isinstance(outcome, Rejected)
    assert (outcome.condition, sending.left) == ("amqp:link:message-size-exceeded", WINDOW)


async def test_a_message_is_not_worth_handling_after_its_time(
    dispatcher: Dispatcher, node: Node
) -> None:
    taking, sending = Taking(dispatcher, "orders"), Sending(dispatcher, "orders")
    sending.send(b"a", ttl=5.0)
    await sleep(6)
    assert sending.states == [RELEASED]
    taking.link.credit(1)
    assert taking.got == []


async def test_a_producer_that_closes_leaves_what_it_has_sent(dispatcher: Dispatcher) -> None:
    taking, named, sending = (
        Taking(dispatcher, "orders", 5),
        Sending(dispatcher, "orders"),
        Sending(dispatcher, None),
    )
    named.send(b"a")
    sending.send(b"b", "orders")
    for each in (named, sending):
        each.link.close()
        each.link.close()
        each.send(b"late", "orders")
    assert taking.got == [b"a", b"b"]
    taking.tell(ACCEPTED, 0)
    taking.tell(ACCEPTED, 1)
    assert named.states == sending.states == []
    assert dispatcher.statistics().producers == 0
    taking.link.close()
    assert dispatcher.statistics().names == 0


async def test_a_temporary_name_is_of_one_node(dispatcher: Dispatcher) -> None:
    name = dispatcher.temporary_name()
    assert name != dispatcher.temporary_name()
    assert name.startswith(f"_temp/{dispatcher.node_name}/")
    taking = Taking(dispatcher, name, 1)
    sending = Sending(dispatcher, None)
    sending.send(b"yes", name)
    assert taking.got == [b"yes"]
    # What is asked by way of it knows it, and gets no answers to others.
    with pytest.raises(ConsumerRefused, match="consumed once"):
        Taking(dispatcher, name, 1)
    taking.link.close()
    with pytest.raises(ConsumerRefused, match="consumed once"):
        Taking(dispatcher, name, 1)
    names = [dispatcher.temporary_name() for _ in range(1001)]
    with pytest.raises(ConsumerRefused, match="consumed once"):
        Taking(dispatcher, names[0])
    Taking(dispatcher, names[-1])
    for elsewhere in ("_temp/elsewhere/a", "_topo/elsewhere/a"):
        with pytest.raises(ConsumerRefused, match="one of another node"):
            Taking(dispatcher, elsewhere)


async def test_a_direct_name_has_one_consumer(dispatcher: Dispatcher) -> None:
    dispatcher.provision("one", Semantics(pattern=RoutingPattern.DIRECT, second=Second.REFUSE))
    dispatcher.provision("new", Semantics(pattern=RoutingPattern.DIRECT, second=Second.NEWEST))
    first = Taking(dispatcher, "one")
    with pytest.raises(ConsumerRefused, match="has a consumer"):
        Taking(dispatcher, "one")
    assert first.ended is None
    old, new = Taking(dispatcher, "new", 1), Taking(dispatcher, "new", 1)
    assert isinstance(old.ended, ConsumerRefused)
    Sending(dispatcher, "new").send(b"a")
    assert (old.got, new.got) == ([], [b"a"])
    old.link.close()


async def test_all_are_ended_with_the_dispatcher(dispatcher: Dispatcher, node: Node) -> None:
    taking, named, sending = (
        Taking(dispatcher, "orders", 5),
        Sending(dispatcher, "orders"),
        Sending(dispatcher, None),
    )
    await node.stop_worker(dispatcher.address)
    assert isinstance(named.ended, ProducerClosed)
    assert isinstance(sending.ended, ProducerClosed)
    assert isinstance(taking.ended, ConsumerRefused)
    taking.link.close()


async def test_there_are_places_for_so_many(node: Node) -> None:
    dispatcher = await Dispatcher.attach(
        node, DispatchOptions(deliveries=DeliveryLimits(max_producers=1, max_consumers=1))
    )
    opened: list[Callable[[], object]] = [
        lambda: Sending(dispatcher, "orders"),
        lambda: Sending(dispatcher, None),
        lambda: Taking(dispatcher, "orders"),
    ]
    for open_one in opened:
        open_one()
    for open_one in opened:
        with pytest.raises(ConsumerRefused, match="max_"):
            open_one()
    assert dispatcher.statistics().producers == 2
    with pytest.raises(BadName):
        Sending(dispatcher, "\n")
    with pytest.raises(BadName):
        Taking(dispatcher, "\n")


async def test_there_are_so_many_names(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node, DispatchOptions(max_names=1))
    Taking(dispatcher, "orders")
    sending = Sending(dispatcher, None)
    sending.send(b"a", "other")
    (outcome,) = sending.states
    assert isinstance(outcome, Rejected)
    assert outcome.condition == "amqp:resource-limit-exceeded"
    with pytest.raises(ConsumerRefused, match="max_names"):
        Taking(dispatcher, "other")


async def test_other_semantics_while_messages_are_under_way(dispatcher: Dispatcher) -> None:
    dispatcher.provision("orders", Semantics())
    taking, sending = Taking(dispatcher, "orders", 5), Sending(dispatcher, "orders")
    sending.send(b"a")
    dispatcher.update("orders", Semantics(window=10))
    assert sending.drains == 1
    sending.give_back()
    assert sending.left == 9
    taking.tell(ACCEPTED)
    assert (sending.states, sending.left) == ([ACCEPTED], 10)
    sending.send(b"b")
    taking.tell(ACCEPTED, 1)
    assert (sending.states, sending.left) == ([ACCEPTED] * 2, 10)


async def test_roles_decide(dispatcher: Dispatcher) -> None:
    access = Access(producers=frozenset({"shop"}), consumers=frozenset({"till"}))
    dispatcher.provision("orders", Semantics(access=access))
    shop = Principal("ann", "password", frozenset({"shop"}))
    till = Principal("bob", "password", frozenset({"till"}))
    with pytest.raises(ConsumerRefused, match="other roles"):
        Taking(dispatcher, "orders", principal=shop)
    with pytest.raises(ConsumerRefused, match="other roles"):
        Sending(dispatcher, "orders", till)
    taking = Taking(dispatcher, "orders", 10, ACCEPTED, till)
    for producer in (Sending(dispatcher, "orders", shop), Sending(dispatcher, None, shop)):
        producer.send(b"a", "orders")
        assert producer.states == [ACCEPTED]
    refused = Sending(dispatcher, None, till)
    refused.send(b"b", "orders")
    assert refused.states == [UNAUTHORIZED]
    assert taking.got == [b"a", b"a"]


async def test_ends_of_principals_that_have_lost_their_roles(dispatcher: Dispatcher) -> None:
    ann = Principal("ann", "token", frozenset({"shop"}))
    taking = Taking(dispatcher, "orders", 1, ACCEPTED, principal=ann)
    sending = Sending(dispatcher, "orders", principal=ann)
    anonymous = Sending(dispatcher, None, principal=ann)
    cooks = frozenset({"cooks"})
    dispatcher.provision("orders", Semantics(access=Access(producers=cooks, consumers=cooks)))
    for each in (taking.ended, sending.ended):
        assert isinstance(each, ConsumerRefused)
        assert each.reason == "it is for other roles"
    assert anonymous.ended is None
    anonymous.send(b"1", "orders")
    assert anonymous.states == [UNAUTHORIZED]
    assert dispatcher.statistics().names == 0


SHARED = DispatchOptions(
    max_names=40,
    deliveries=DeliveryLimits(
        max_unsettled=400,
        max_unsettled_size=4000,
        max_settled_size=4000,
        max_producers=8,
        max_consumers=8,
    ),
)
"""Limits of which a client has a quarter."""
SHOP = Principal("shop", "password")
OTHER = Principal("other", "password")


@pytest.mark.parametrize("kind", ["connection", "principal"])
@pytest.mark.parametrize("size", [100, 0], ids=["bytes", "messages"])
async def test_a_client_that_floods_starves_no_other(node: Node, kind: str, size: int) -> None:
    dispatcher = await Dispatcher.attach(node, SHARED)
    held = Taking(dispatcher, "slow", credit=1000)
    Taking(dispatcher, "orders", credit=1000, outcome=ACCEPTED)
    principal = SHOP if kind == "principal" else None
    flood = [
        Sending(dispatcher, "slow", principal, "a" if principal is None else f"a{number}")
        for number in range(2)
    ]
    other = Sending(dispatcher, "orders", OTHER if principal else None, "b")
    for each in flood:
        for _ in range(WINDOW):
            each.send(bytes(size))
    taken = 10 if size else 100
    states = [state for each in flood for state in each.states]
    assert states == [RELEASED] * (2 * WINDOW - taken)
    assert len(held.got) == taken
    assert dispatcher.statistics().counts["more than the share of its source"] == len(states)
    for _ in range(WINDOW):
        other.send(b"x" * 100)
    assert other.states == [ACCEPTED] * WINDOW
    for told in held.told:
        assert told is not None
        told(ACCEPTED)
    flood[0].send(bytes(size))
    assert len(held.got) == taken + 1


@pytest.mark.parametrize("principal", [None, ANONYMOUS])
async def test_many_anonymous_connections_leave_room_to_others(
    principal: Principal | None, node: Node
) -> None:
    dispatcher = await Dispatcher.attach(node, SHARED)
    held = Taking(dispatcher, "slow", credit=10_000)
    Taking(dispatcher, "orders", credit=10_000, outcome=ACCEPTED)
    # Each has a quarter of the limits, and all together have three quarters.
    flood = [Sending(dispatcher, "slow", principal, f"a{number}") for number in range(6)]
    for each in flood:
        for _ in range(50):
            each.send(bytes(100))
    most = SHARED.deliveries.max_unsettled_size * 75 // 100
    assert len(held.got) == most // 100
    assert dispatcher.statistics().counts["more than the share of its source"] > 0
    other = Sending(dispatcher, "orders", SHOP, "b")
    for _ in range(10):
        other.send(b"x" * 100)
    assert other.states == [ACCEPTED] * 10
    for told in held.told:
        assert told is not None
        told(ACCEPTED)
    for each in flood:
        each.link.close()
    again = Sending(dispatcher, "slow", principal, "new")
    again.send(bytes(100))
    assert len(held.got) == most // 100 + 1


async def test_a_client_that_floods_with_pre_settled_messages_drops_its_own(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node, SHARED)
    slow = Taking(dispatcher, "slow")
    flood, other = Sending(dispatcher, "slow", client="a"), Sending(dispatcher, "slow", client="b")
    other.send(b"b" * 100, settled=True)
    for _ in range(30):
        flood.send(b"a" * 100, settled=True)
    other.send(b"b" * 100, settled=True)
    counts = dispatcher.statistics().counts
    assert counts["more than the share of its source"] == 20
    slow.link.credit(100)
    assert [slow.got.count(each * 100) for each in (b"a", b"b")] == [10, 2]


async def test_a_client_has_a_share_of_names_producers_and_consumers(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node, SHARED)
    for number in range(10):
        Sending(dispatcher, f"name.{number}", client="a")
    with pytest.raises(ConsumerRefused, match="max_share is reached"):
        Sending(dispatcher, "name.10", client="a")
    Sending(dispatcher, "name.10", client="b")
    anonymous = Sending(dispatcher, None, client="a")
    anonymous.send(b"1", "name.11")
    assert isinstance(anonymous.states[0], Rejected)
    assert dispatcher.statistics().counts["more names than the share of a source"] == 2
    for name in ("name.10", None):
        mine = [Sending(dispatcher, name, client="c") for _ in range(2)]
        with pytest.raises(ConsumerRefused, match="max_share is reached"):
            Sending(dispatcher, name, client="c")
        mine[0].link.close()
        Sending(dispatcher, name, client="c")
    taking = [Taking(dispatcher, "name.10", client="c") for _ in range(2)]
    with pytest.raises(ConsumerRefused, match="max_share is reached"):
        Taking(dispatcher, "name.10", client="c")
    Taking(dispatcher, "name.10", client="d")
    taking[0].link.close()
    Taking(dispatcher, "name.10", client="c")


async def test_a_peer_of_a_link_and_a_neighbour_have_shares_too(
    network: SimulatedNetwork,
) -> None:
    node = await network.node("node", error_replies=True)
    far, peer = await network.node("far"), await network.node("peer")
    dispatcher, other = await Dispatcher.attach(node, SHARED), await Dispatcher.attach(far)
    await node.listen("sim://node", expose=[DISPATCH, "34#slow"], error_replies=True)
    held = Taking(dispatcher, "slow", credit=1000)
    link = await peer.connect("sim://node")
    await other.neighbour("sim://node")
    await sleep(10)
    asked = [
        asyncio.create_task(peer.request((link, Address(NAME, b"slow")), bytes(100)))
        for _ in range(12)
    ]
    await sleep(1)
    ended = [each for each in asked if each.done()]
    assert len(ended) == 2
    assert all(isinstance(each.exception(), Refused) for each in ended)
    assert len(held.got) == 10
    producer = await other.produce("slow")
    sent = [asyncio.create_task(producer.send(bytes(100))) for _ in range(40)]
    await sleep(1)
    assert [each.result() for each in sent if each.done()] == [RELEASED] * 10
    assert dispatcher.statistics().unsettled == 40
    for told in held.told:
        assert told is not None
        told(ACCEPTED)
    await sleep(1)
    assert all(each.done() for each in (*asked, *sent))
    own = await dispatcher.produce("slow")
    mine = [asyncio.create_task(own.send(bytes(100))) for _ in range(40)]
    await sleep(1)
    assert dispatcher.statistics().unsettled == 40  # the program itself has no share
    own.close()
    await asyncio.gather(*mine, return_exceptions=True)


async def test_a_client_has_a_share_of_what_is_accepted_on_disk(node: Node, tmp_path: Path) -> None:
    options = replace(SHARED, hold_file=str(tmp_path / "held.db"))
    dispatcher = await Dispatcher.attach(node, options)
    chain = Retry(hold=Hold(disk=True)), Last.RELEASE
    at_once = Reliability(settle=Settlement.AT_ONCE)
    semantics = Semantics(undeliverable=chain, reliability=at_once, gate=Gate.OPEN)
    dispatcher.provision("orders", semantics)
    flood, other = [Sending(dispatcher, "orders", client=each) for each in "ab"]
    for _ in range(15):
        flood.send(bytes(100))
    assert flood.states == [ACCEPTED] * 10 + [RELEASED] * 5
    assert dispatcher.statistics().counts["more than the share of its source"] == 5
    for _ in range(10):
        other.send(bytes(100))
    assert other.states == [ACCEPTED] * 10
    await sleep(0)
