"""The links of a connection, between the client of Proton and a dispatcher, all in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.actors.dispatch import ConsumerRefused, ProducerClosed
from onward.protocol import OnwardError
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    RELEASED,
    BadName,
    Modified,
    Outcome,
    Refusal,
    Rejected,
)
from onward.transports.amqp._options import AmqpOptions
from onward.transports.amqp._port import REFUSALS
from tests.support.amqp import Edges, disposition_frame, needs_proton, refusal
from tests.support.memory_port import MemoryPort

pytestmark = pytest.mark.peer
proton = needs_proton()


@pytest.fixture
def edges() -> Iterator[Edges[MemoryPort]]:
    made = Edges(MemoryPort())
    yield made
    for each in made.made:
        each.cut()


# --- a client that sends ------------------------------------------------------------------------


def test_there_is_credit_as_soon_as_there_is_a_consumer(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    link = edge.client.sender("orders")
    edge.pump()
    assert link.state & link.REMOTE_ACTIVE
    assert link.remote_target.address == "orders"
    assert link.remote_max_message_size == 20_000
    assert link.credit == 0
    edge.client.receiver("orders", credit=0)
    edge.pump()
    assert link.credit == 10


@pytest.mark.parametrize("size", [0, 10, 4096, 15_000])
def test_a_message_goes_through_as_it_is(edges: Edges[MemoryPort], size: int) -> None:
    sender, receiver = edges(), edges()
    receiver.client.receiver("orders")
    edges.pump()
    link = sender.client.sender("orders")
    edges.pump()
    message = sender.client.message(b"x" * size, ttl=2.0, annotations={"x-opt-a": 1})
    delivery = sender.client.send(link, message)
    edges.pump()
    assert [data for _, data in receiver.client.received] == [message]
    assert (delivery.remote_state, delivery.settled) == (proton.Delivery.ACCEPTED, True)
    assert edges.port.sent[0].ttl == 2.0
    assert edges.port.sent[0].states == [ACCEPTED]
    # The credit is back.
    assert link.credit == 10


@pytest.mark.parametrize(
    ("outcome", "state", "condition"),
    [
        (ACCEPTED, "ACCEPTED", None),
        (RELEASED, "RELEASED", None),
        (Rejected("a:b", "why"), "REJECTED", ("a:b", "why")),
        (Rejected("a:b"), "REJECTED", ("a:b", None)),
        (Rejected(), "REJECTED", None),
        (MODIFIED, "MODIFIED", (True, False)),
        (Modified(failed=False, undeliverable_here=True), "MODIFIED", (False, True)),
    ],
)
def test_the_producer_is_told_each_outcome(
    edges: Edges[MemoryPort], outcome: Outcome, state: str, condition: object
) -> None:
    edge = edges()
    edges.port.open_consumer("orders", _Nothing(), None)
    link = edge.client.sender("orders")
    edge.pump()
    delivery = edge.client.send(link, edge.client.message())
    edge.pump()
    assert not delivery.settled
    told = edges.port.sent[0].told
    assert told is not None
    before = edge.woken
    told(RECEIVED)
    edge.pump()
    assert (delivery.remote_state, delivery.settled) == (proton.Delivery.RECEIVED, False)
    told(outcome)
    told(ACCEPTED)
    assert edge.woken > before
    edge.pump()
    assert delivery.settled
    assert delivery.remote_state == getattr(proton.Delivery, state)
    if state == "REJECTED":
        found = delivery.remote.condition
        assert (found and (found.name, found.description)) == condition
    if state == "MODIFIED":
        assert (delivery.remote.failed, delivery.remote.undeliverable) == condition


class _Nothing:
    """The end of a consumer that takes nothing."""

    def deliver(self, message: bytes, told: object) -> None:
        raise AssertionError(message, told)

    def drained(self) -> None:
        raise AssertionError

    def end(self, reason: OnwardError) -> None:
        raise AssertionError(reason)


def test_a_pre_settled_message_has_no_outcome(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    edge.client.send(link, edge.client.message("a"), settled=True)
    edge.pump()
    assert edge.client.bodies == ["a"]
    assert edge.client.received[0][0].settled
    assert edges.port.sent[0].told is None
    assert link.credit == 10


def test_a_producer_may_settle_first(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edges.port.open_consumer("orders", _Nothing(), None)
    link = edge.client.sender("orders")
    edge.pump()
    delivery = edge.client.send(link, edge.client.message("a"))
    edge.pump()
    delivery.settle()
    edge.pump()
    told = edges.port.sent[0].told
    assert told is not None
    told(ACCEPTED)
    again = edge.client.send(link, edge.client.message("b"))
    edge.pump()
    told(Rejected())
    edge.pump()
    assert not again.settled


def test_an_anonymous_producer_has_a_name_in_each_message(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    link = edge.client.sender(None)
    edge.pump()
    assert link.credit == 10
    good = edge.client.send(link, edge.client.message("a", address="orders"))
    lost = edge.client.send(link, edge.client.message("b", address="nothing"))
    bad = edge.client.send(link, edge.client.message("c"))
    edge.client.send(link, edge.client.message("d"), settled=True)
    edge.pump()
    assert edge.client.bodies == ["a"]
    assert good.remote_state == proton.Delivery.ACCEPTED
    assert lost.remote_state == proton.Delivery.RELEASED
    assert bad.remote_state == proton.Delivery.REJECTED
    assert bad.remote.condition.name == "amqp:precondition-failed"
    assert edge.dropped == {"amqp:precondition-failed": 1}
    assert link.credit == 10


def test_what_is_no_message_is_rejected(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    delivery = edge.client.send(link, b"SECRET")
    edge.pump()
    found = delivery.remote.condition
    assert (found.name, found.description) == ("amqp:decode-error", "no section")
    assert edges.port.sent == []
    assert link.credit == 10


def test_credit_is_taken_back_when_the_last_consumer_leaves(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    consumer = edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    consumer.close()
    edge.pump()
    assert link.drain_mode
    assert link.credit == 10
    link.drained()
    edge.pump()
    (producer,) = edges.port.producers
    assert (producer.drains, producer.credit) == (1, 0)
    edge.client.receiver("orders")
    edge.pump()
    assert (link.credit, link.drain_mode) == (10, False)
    edge.client.send(link, edge.client.message("a"))
    edge.pump()
    assert edge.client.bodies == ["a"]


def test_a_message_that_is_rejected_during_a_drain_gives_no_new_credit(
    edges: Edges[MemoryPort],
) -> None:
    edge = edges()
    consumer = edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    consumer.close()
    edge.pump()
    assert (link.credit, link.drain_mode) == (10, True)
    delivery = edge.client.send(link, b"SECRET")
    edge.pump()
    assert delivery.remote_state == proton.Delivery.REJECTED
    assert link.credit == 9
    assert link.drained() == 9
    edge.pump()
    # All of it is accounted for: the next consumer has as much as the first.
    edge.client.receiver("orders")
    edge.pump()
    assert link.credit == 10


def test_an_aborted_message_is_no_message(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    part = edge.client.begin(link, b"x" * 5000)
    edge.pump()
    part.abort()
    edge.pump()
    whole = edge.client.send(link, edge.client.message("a"))
    edge.pump()
    assert edge.client.bodies == ["a"]
    assert whole.remote_state == proton.Delivery.ACCEPTED
    assert edge.dropped == {"aborted": 1}
    assert link.credit == 10


def test_a_message_may_come_in_parts_and_others_between_them(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    one, two = edge.client.sender("orders"), edge.client.sender("orders")
    edge.pump()
    message = edge.client.message(b"y" * 12_000)
    edge.client.begin(one, message[:5000])
    edge.pump()
    edge.client.send(two, edge.client.message("a"))
    edge.pump()
    one.stream(message[5000:])
    one.advance()
    edge.pump()
    assert edge.client.bodies == ["a", b"y" * 12_000]


def test_a_client_that_goes_in_mid_message_has_sent_none(edges: Edges[MemoryPort]) -> None:
    sender, receiver = edges(), edges()
    receiver.client.receiver("orders")
    edges.pump()
    link = sender.client.sender("orders")
    edges.pump()
    sender.client.send(link, sender.client.message("a"))
    sender.client.begin(link, b"x" * 5000)
    edges.pump()
    sender.cut()
    edges.pump()
    assert receiver.client.bodies == ["a"]
    assert len(edges.port.sent) == 1
    assert sender.dropped == {"cut short": 1}
    assert edges.port.producers == []


def test_a_message_that_is_too_large_closes_the_link_alone(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    bad, good = edge.client.sender("orders"), edge.client.sender("orders")
    edge.pump()
    large = edge.client.send(bad, edge.client.message(b"x" * 25_000))
    edge.pump()
    assert refusal(bad) == ("amqp:link:message-size-exceeded", None)
    assert [each.closed for each in edges.port.producers] == [False]
    # It came with the end of the link, and is settled with an outcome that cannot be mistaken.
    assert (large.settled, large.remote_state) == (True, proton.Delivery.REJECTED)
    assert large.remote.condition.name == "amqp:link:message-size-exceeded"
    # What comes before the client has seen that is ignored.
    edge.client.send(bad, edge.client.message("b"))
    edge.client.send(good, edge.client.message("a"))
    edge.pump()
    bad.close()
    edge.pump()
    assert edge.client.bodies == ["a"]
    assert edge.dropped == {"too large": 1}
    assert edge.engine.closed == ""


def test_unfinished_messages_of_a_connection_are_bounded(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    one, two = edge.client.sender("orders"), edge.client.sender("orders")
    edge.pump()
    edge.client.begin(one, b"x" * 16_000)
    edge.pump()
    assert edge.engine.closed == ""
    edge.client.begin(two, b"x" * 16_000)
    edge.pump()
    assert edge.engine.closed == "amqp:resource-limit-exceeded"


def test_the_dispatcher_may_end_a_producer(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    (producer,) = edges.port.producers
    producer.end.end(ProducerClosed("orders"))
    producer.end.end(ConsumerRefused("orders", Refusal.UNAVAILABLE))
    producer.end.credit(1)
    producer.end.drain()
    edge.pump()
    assert refusal(link) == ("amqp:resource-deleted", "the dispatcher has ended")
    assert edges.port.producers == []


def test_more_transfers_than_there_is_credit_close_the_link(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edges.port.window = 1
    edge.client.receiver("orders", credit=0)
    link = edge.client.sender("orders")
    edge.pump()
    # Proton's own client keeps to its credit: it is given more than the dispatcher knows.
    (at_edge,) = [each._link for each in edge.links._links.values() if each._link.is_receiver]
    at_edge.flow(1)
    edge.pump()
    edge.client.send(link, edge.client.message("a"))
    over = edge.client.send(link, edge.client.message("b"))
    edge.pump()
    assert refusal(link) == ("amqp:link:transfer-limit-exceeded", None)
    assert (over.settled, over.remote_state) == (True, proton.Delivery.RELEASED)
    assert len(edges.port.sent) == 1


def test_a_message_that_is_too_large_and_aborted_has_no_outcome(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    large = edge.client.begin(link, b"x" * 25_000)
    edge.pump()
    assert refusal(link) == ("amqp:link:message-size-exceeded", None)
    large.abort()
    after = edge.client.send(link, edge.client.message("a"))
    edge.pump()
    assert (after.settled, after.remote_state) == (True, proton.Delivery.RELEASED)
    assert edge.dropped == {"too large": 1}


def test_messages_that_come_with_one_that_is_too_large_are_released(
    edges: Edges[MemoryPort],
) -> None:
    edge = edges(max_frame=1 << 20)
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    settled = edge.client.message(b"y" * 20_100)
    edge.client.send(link, settled, settled=True)
    after = [edge.client.send(link, edge.client.message("a")) for _ in range(2)]
    edge.client.send(link, edge.client.message("a"), settled=True)
    edge.pump()
    assert refusal(link) == ("amqp:link:message-size-exceeded", None)
    assert {each.remote_state for each in after} == {proton.Delivery.RELEASED}
    assert (edges.port.sent, edge.dropped) == ([], {"too large": 1, "link closed": 1})


# --- a client that receives ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("ACCEPTED", ACCEPTED),
        ("RELEASED", RELEASED),
        ("REJECTED", Rejected("a:b", "why")),
        ("MODIFIED", Modified(failed=True, undeliverable_here=True)),
        ("", MODIFIED),
    ],
)
@pytest.mark.parametrize("settles", [True, False])
def test_the_dispatcher_is_told_each_outcome(
    edges: Edges[MemoryPort], state: str, expected: Outcome, settles: bool
) -> None:
    edge = edges()
    edge.client.accepts = False
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    edge.client.send(link, edge.client.message("a"))
    edge.pump()
    ((delivery, _),) = edge.client.received
    delivery.update(proton.Delivery.RECEIVED)
    edge.pump()
    assert edges.port.sent[0].states == [RECEIVED]
    if state == "REJECTED":
        delivery.local.condition = proton.Condition("a:b", "why")
    if state == "MODIFIED":
        delivery.local.failed = delivery.local.undeliverable = True
    if state:
        delivery.update(getattr(proton.Delivery, state))
    if settles or not state:
        delivery.settle()
    edge.pump()
    assert edges.port.sent[0].states == [RECEIVED, expected]
    # The third acknowledgement: the sender settles as well.
    assert settles or not state or delivery.settled


def test_a_rejection_without_a_condition_has_none(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.accepts = False
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    edge.client.send(link, edge.client.message("a"))
    edge.pump()
    delivery = edge.client.received[0][0]
    delivery.update(proton.Delivery.REJECTED)
    delivery.settle()
    edge.pump()
    assert edges.port.sent[0].states == [Rejected()]


@pytest.mark.parametrize("how", ["close", "detach", "session", "connection"])
def test_what_a_consumer_has_not_settled_is_in_doubt(edges: Edges[MemoryPort], how: str) -> None:
    sender, receiver = edges(), edges()
    receiver.client.accepts = False
    consumer = receiver.client.receiver("orders", credit=6)
    edges.pump()
    link = sender.client.sender("orders")
    edges.pump()
    made = [sender.client.send(link, sender.client.message(each)) for each in range(10)]
    edges.pump()
    if how == "connection":
        receiver.cut()
    elif how == "session":
        receiver.client.session.close()
    else:
        getattr(consumer, how)()
    edges.pump()
    states = Counter(each.remote_state for each in made)
    assert states == {proton.Delivery.MODIFIED: 6, proton.Delivery.RELEASED: 4}
    assert edges.port.consumers == []
    if how in ("close", "detach"):
        # A link is answered as it has ended: one that was detached is not closed.
        assert f"link_remote_{how}" in receiver.client.events


def test_credit_is_passed_on_up_to_the_limit_of_what_is_unsettled(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.accepts = False
    edge.client.receiver("orders", credit=20)
    edge.pump()
    (consumer,) = edges.port.consumers
    assert consumer.left == 8
    link = edge.client.sender("orders")
    edge.pump()
    for each in range(10):
        edge.client.send(link, edge.client.message(each))
    edge.pump()
    assert edge.client.bodies == list(range(8))
    for delivery, _ in edge.client.received[:2]:
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
    edge.pump()
    assert edge.client.bodies == list(range(10))
    assert consumer.left == 0


def test_a_consumer_may_drain(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    consumer = edge.client.receiver("orders", credit=0)
    edge.pump()
    link = edge.client.sender("orders")
    edge.pump()
    for each in range(3):
        edge.client.send(link, edge.client.message(each))
    edge.pump()
    assert edge.client.bodies == []
    consumer.drain(5)
    edge.pump()
    assert edge.client.bodies == [0, 1, 2]
    assert consumer.credit == 0
    assert not consumer.draining()
    assert edges.port.consumers[0].drains == 1
    consumer.flow(1)
    edge.client.send(link, edge.client.message(3))
    edge.pump()
    assert edge.client.bodies == [0, 1, 2, 3]


@pytest.mark.parametrize("pre_settled", [True, False])
@pytest.mark.parametrize(
    ("mode", "settled"), [("SND_SETTLED", True), ("SND_UNSETTLED", False), ("SND_MIXED", None)]
)
def test_a_consumer_says_how_its_deliveries_are_settled(
    edges: Edges[MemoryPort], mode: str, settled: bool | None, pre_settled: bool
) -> None:
    edge = edges()
    edge.client.accepts = False
    consumer = edge.client.receiver("orders", snd_settle_mode=getattr(proton.Link, mode))
    link = edge.client.sender("orders")
    edge.pump()
    assert consumer.remote_snd_settle_mode == getattr(proton.Link, mode)
    edge.client.send(link, edge.client.message("a"), settled=pre_settled)
    edge.pump()
    ((delivery, _),) = edge.client.received
    assert delivery.settled == (pre_settled if settled is None else settled)
    sent = edges.port.sent[0]
    assert sent.states == ([ACCEPTED] if settled and not pre_settled else [])
    delivery.update(proton.Delivery.RECEIVED)
    edge.pump()
    delivery.update(proton.Delivery.ACCEPTED)
    delivery.settle()
    edge.pump()
    assert sent.states[-1:] == ([] if pre_settled else [ACCEPTED])


def test_a_message_over_the_limit_of_a_consumer_is_released(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders", max_message_size=1000)
    link = edge.client.sender("orders")
    edge.pump()
    large = edge.client.send(link, edge.client.message(b"x" * 2000))
    edge.client.send(link, edge.client.message(b"x" * 2000), settled=True)
    small = edge.client.send(link, edge.client.message("a"))
    edge.pump()
    assert large.remote_state == proton.Delivery.RELEASED
    assert small.remote_state == proton.Delivery.ACCEPTED
    assert edge.client.bodies == ["a"]
    assert edge.dropped == {"too large": 1}


class _Slow:
    """A client that does not read, and one that sends: both at a memory port."""

    def __init__(self, edges: Edges[MemoryPort], **more: Any) -> None:
        self.receiver, self.sender = edges(), edges()
        self.link = self.receiver.client.receiver("orders", **more)
        edges.pump()
        self.target = self.sender.client.sender("orders")
        self.sender.pump()
        (self.consumer,) = edges.port.consumers

    def send(self, count: int, **more: Any) -> list[Any]:
        client = self.sender.client
        message = client.message(b"x" * 15_000)
        made = [client.send(self.target, message, **more) for _ in range(count)]
        self.sender.pump()
        return made


def test_credit_of_a_client_that_does_not_read_is_taken_back(edges: Edges[MemoryPort]) -> None:
    slow = _Slow(edges)
    made = slow.send(5)
    # Three wait for the client to read, and one more that was under way when that was seen.
    assert (slow.consumer.left, slow.consumer.drains) == (0, 1)
    assert [each.remote_state for each in made] == [0] * 5
    slow.receiver.links.resume()
    assert slow.consumer.left == 0
    slow.receiver.pump()
    slow.receiver.links.resume()
    slow.receiver.pump()
    slow.sender.pump()
    assert [each.remote_state for each in made] == [proton.Delivery.ACCEPTED] * 5
    assert len(slow.receiver.client.received) == 5
    assert slow.receiver.dropped == {}


def test_what_waited_for_a_client_that_goes_was_not_handed_over(edges: Edges[MemoryPort]) -> None:
    slow = _Slow(edges)
    made = slow.send(4)
    slow.receiver.cut()
    edges.pump()
    states = [each.remote_state for each in made]
    assert states == [proton.Delivery.MODIFIED] * 3 + [proton.Delivery.RELEASED]


def test_pre_settled_messages_that_a_client_does_not_read_are_bounded(
    edges: Edges[MemoryPort],
) -> None:
    slow = _Slow(edges)
    # As if they were all under way: 50,000 bytes are sent, as many wait.
    message = slow.sender.client.message(b"x" * 15_000)
    for _ in range(8):
        slow.consumer.end.deliver(message, None)
    assert slow.receiver.dropped == {"not read": 2}
    for _ in range(3):
        slow.receiver.pump()
        slow.receiver.links.resume()
    assert len(slow.receiver.client.received) == 6


def test_a_drain_waits_for_what_the_client_has_not_read(edges: Edges[MemoryPort]) -> None:
    slow = _Slow(edges)
    slow.receiver.client.accepts = False
    slow.send(4)
    slow.link.drain(0)
    (at_edge,) = [each._link for each in slow.receiver.links._links.values()]
    slow.receiver.engine.receive(slow.receiver.client.take())
    for event in slow.receiver.engine.events():
        slow.receiver.links.handle(event)
    assert (at_edge.credit, at_edge.drain_mode) == (7, True)
    slow.receiver.pump()
    slow.receiver.links.resume()
    slow.receiver.pump()
    assert len(slow.receiver.client.received) == 4
    assert (slow.link.credit, slow.link.draining()) == (0, False)


def test_an_error_in_a_call_of_the_dispatcher_is_that_of_the_link_called(
    edges: Edges[MemoryPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = edges(), edges()
    receiver.client.receiver("orders")
    edges.pump()
    link = sender.client.sender("orders")
    edges.pump()
    end = edges.port.consumers[0].end
    failing = RuntimeError("SECRET")

    def fail(*_: object) -> None:
        raise failing

    monkeypatch.setattr(end, "_send", fail)
    made = sender.client.send(link, sender.client.message("a"))
    sender.pump()
    assert (receiver.failures, sender.failures) == ([failing], [])
    # The connection that has failed ends, and with it what it had.
    receiver.cut()
    sender.pump()
    assert made.remote_state == proton.Delivery.MODIFIED
    edges.port.producers[0].end.credit(1)
    monkeypatch.setattr(sender.engine, "condition", fail)
    edges.port.producers[0].end.end(ProducerClosed("orders"))
    assert sender.failures == [failing]


def test_the_dispatcher_may_end_a_consumer(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.accepts = False
    link = edge.client.receiver("orders")
    sender = edge.client.sender("orders")
    edge.pump()
    delivery = edge.client.send(sender, edge.client.message("a"))
    edge.pump()
    (consumer,) = edges.port.consumers
    for _ in range(2):
        consumer.end.end(ConsumerRefused("orders", Refusal.DISPLACED))
    consumer.end.drained()
    edge.pump()
    assert refusal(link) == ("amqp:link:stolen", "another consumer has taken its place")
    assert delivery.remote_state == proton.Delivery.MODIFIED
    # A message for it comes too late.
    states: list[object] = []
    consumer.end.deliver(b"late", states.append)
    consumer.end.deliver(b"late", None)
    assert states == [RELEASED]
    assert edge.dropped == {"link closed": 1}
    link.flow(1)
    link.close()
    edge.pump()
    assert edge.engine.closed == ""


@pytest.mark.parametrize("by_receiver", [True, False])
@pytest.mark.parametrize(("first", "last"), [(999, 999), (0, 0x7FFFFFFF)])
def test_a_disposition_of_unknown_deliveries_changes_nothing(
    edges: Edges[MemoryPort], by_receiver: bool, first: int, last: int
) -> None:
    sender, receiver = edges(), edges()
    receiver.client.accepts = False
    receiver.client.receiver("orders")
    edges.pump()
    link = sender.client.sender("orders")
    edges.pump()
    sender.client.send(link, sender.client.message("a"))
    edges.pump()
    frame = disposition_frame(first, last, by_receiver=by_receiver)
    sender.engine.receive(frame)
    if first:
        receiver.engine.receive(frame)
    edges.pump()
    states = edges.port.sent[0].states
    assert states == []
    receiver.client.received[0][0].update(proton.Delivery.ACCEPTED)
    edges.pump()
    assert states == [ACCEPTED]
    again = sender.client.send(link, sender.client.message("b"))
    edges.pump()
    assert len(receiver.client.received) == 2
    assert not again.settled
    assert (sender.engine.closed, receiver.engine.closed) == ("", "")


def test_a_flood_of_unsettled_messages_is_bounded_by_credit(edges: Edges[MemoryPort]) -> None:
    bad, good = edges(), edges()
    bad.client.accepts = False
    bad.client.receiver("held", credit=1000)
    good.client.receiver("orders", credit=1000)
    flooding, link = bad.client.sender("held"), good.client.sender("orders")
    edges.pump()
    for each in range(30):
        bad.client.send(flooding, bad.client.message(each))
        edges.pump()
        sent = good.client.send(link, good.client.message(each))
        edges.pump()
        assert sent.remote_state == proton.Delivery.ACCEPTED
    # Its credit is 10, and 8 of them may be unsettled at one consumer.
    held = [each for each in edges.port.sent if each.name == "held"]
    assert len(held) == 10
    assert len(bad.client.received) == 8
    assert (bad.engine.closed, good.engine.closed) == ("", "")


# --- names and refusals -------------------------------------------------------------------------


def test_a_client_may_ask_for_a_name(edges: Edges[MemoryPort]) -> None:
    asking, answering = edges(), edges()
    receiver = asking.client.session.receiver("answers")
    receiver.source.dynamic = True
    receiver.open()
    receiver.flow(1)
    asking.pump()
    name = receiver.remote_source.address
    assert (name, receiver.remote_source.dynamic) == ("_temp/here/1", True)
    link = answering.client.sender(name)
    edges.pump()
    answering.client.send(link, answering.client.message("yes"))
    edges.pump()
    assert asking.client.bodies == ["yes"]
    sender = asking.client.session.sender("given")
    sender.target.dynamic = True
    sender.open()
    asking.pump()
    assert sender.remote_target.address == "_temp/here/2"


def test_a_link_that_is_refused_says_why(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edges.port.refusals["secret"] = ConsumerRefused("secret", Refusal.ROLES)
    links = [edge.client.sender("secret"), edge.client.receiver("secret")]
    unnamed = edge.client.receiver(None)
    coordinator = edge.client.session.sender("tx")
    coordinator.target.type = proton.Terminus.COORDINATOR
    coordinator.open()
    good = edge.client.receiver("orders")
    edge.pump()
    assert {refusal(each) for each in links} == {
        ("amqp:unauthorized-access", "the name is for other roles")
    }
    assert links[0].remote_target.type == links[1].remote_source.type == 0
    assert refusal(unnamed) == ("amqp:invalid-field", "a source needs a name")
    assert refusal(coordinator) == ("amqp:not-implemented", "there are no transactions")
    for each in (*links, unnamed, coordinator):
        assert each.state & each.REMOTE_CLOSED
        each.close()
    edge.pump()
    assert good.state & good.REMOTE_ACTIVE
    assert edge.engine.closed == ""


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (BadName("secret", "no"), "amqp:invalid-field"),
        (ProducerClosed("secret"), "amqp:resource-deleted"),
        (OnwardError("secret"), "amqp:internal-error"),
        *((ConsumerRefused("a", each), said[0]) for each, said in REFUSALS.items()),
    ],
)
def test_errors_of_the_dispatcher_have_conditions(
    edges: Edges[MemoryPort], error: OnwardError, condition: str
) -> None:
    edge = edges()
    edges.port.refusals["a"] = error
    link = edge.client.sender("a")
    edge.pump()
    name, description = refusal(link)
    assert name == condition
    assert "secret" not in str(description)
    assert "max_" not in str(description)


def test_each_reason_of_the_dispatcher_has_a_condition_on_the_page() -> None:
    assert list(REFUSALS) == list(Refusal)
    page = (Path(__file__).parents[3] / "docs/reference/transports-amqp.md").read_text()
    assert [each for each in Refusal if f"`Refusal.{each.name}`" not in page] == []


def test_filters_are_not_said_to_be_in_place(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    link = edge.client.session.receiver("filtered")
    link.source.address = "orders"
    link.source.filter.put_map()
    link.source.filter.enter()
    link.source.filter.put_symbol("selector")
    link.source.filter.put_string("a = 1")
    link.source.filter.exit()
    link.open()
    edge.pump()
    assert link.remote_source.address == "orders"
    assert link.remote_source.filter.next() is None


@pytest.mark.parametrize(
    ("strip", "at_port", "at_consumer"),
    [("no", 1, 1), ("in", None, None), ("out", 1, None), ("both", None, None)],
)
def test_annotations_are_stripped_or_passed(
    edges: Edges[MemoryPort], strip: Any, at_port: int | None, at_consumer: int | None
) -> None:
    edge = edges(AmqpOptions(strip=strip))
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    edge.client.send(link, edge.client.message("a", annotations={"x-opt-qd.to": 1}))
    edge.pump()
    for data, expected in (
        (edges.port.sent[0].message, at_port),
        (edge.client.received[0][1], at_consumer),
    ):
        found = proton.Message()
        found.decode(data)
        annotations: dict[str, int] = found.annotations or {}
        assert annotations.get("x-opt-qd.to") == expected
        assert found.body == "a"


def test_a_priority_passes_as_it_is_and_keeps_the_order(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    link = edge.client.sender("orders")
    edge.pump()
    for priority in (3, 9, 0):
        edge.client.send(link, edge.client.message("a", priority=priority))
    edge.pump()
    found = [proton.Message() for _ in edge.client.received]
    for message, (_, data) in zip(found, edge.client.received, strict=True):
        message.decode(data)
    assert [each.priority for each in found] == [3, 9, 0]


def test_a_payload_that_is_no_message_is_sent_as_the_data_of_one(edges: Edges[MemoryPort]) -> None:
    edge = edges()
    edge.client.receiver("orders")
    edge.pump()
    edges.port.consumers[0].end.deliver(b"plain", None)
    edge.pump()
    assert edge.client.bodies == [b"plain"]
