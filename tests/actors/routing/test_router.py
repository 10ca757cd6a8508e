from __future__ import annotations

import asyncio
import threading

import pytest

from onward.actors import Node, NodeLimits, RoutingLoop, RuleInUse
from onward.actors.runtime._lost import reason_text
from onward.protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    AddressError,
    EmptyRoute,
    MailboxFull,
    Message,
    NodeStopped,
    NoRoute,
    OnwardError,
    PayloadTooBig,
    RouteTooLong,
    UnknownAddress,
    UnknownAddressType,
    WorkerStopped,
)
from tests.support.workers import Echo, Recorder, start_worker

TYPE = 200


async def recorder_of(node: Node, name: str = "w") -> Recorder:
    return await start_worker(node, Recorder(), name)


async def test_what_arrives_is_what_was_sent(node: Node) -> None:
    recorder = await recorder_of(node)
    node.send("w => further", b"payload", return_route=("back", "home"))
    await asyncio.sleep(0.1)
    [message] = recorder.messages
    assert str(message) == "[0#w => 0#further] <- [0#back => 0#home] 7 bytes"
    assert message.payload == b"payload"
    assert message.source is None
    assert message.context is None


async def test_ways_to_write_a_route(node: Node) -> None:
    recorder = await recorder_of(node)
    address = Address(0, b"w")
    for route in ("w", "0#w", address, (address,), ["w"], [b"w"], (address, "x")):
        node.send(route, b"")
    await asyncio.sleep(0.1)
    assert len(recorder.messages) == 7
    with pytest.raises(AddressError):
        node.send("999#w", b"")
    with pytest.raises(RouteTooLong):
        node.send((address,) * (MAX_ROUTE_LENGTH + 1), b"")


async def test_errors_of_the_sender() -> None:
    async with Node(limits=NodeLimits(payload=3)) as node:
        with pytest.raises(EmptyRoute):
            node.send((), b"")
        with pytest.raises(UnknownAddress, match="no such worker: 0#nobody"):
            node.send("nobody", b"")
        with pytest.raises(UnknownAddressType, match="no rule for this type of address: 200#x"):
            node.send("200#x", b"")
        with pytest.raises(PayloadTooBig):
            node.send("nobody", b"1234")
        with pytest.raises(PayloadTooBig):
            await node.send_wait("nobody", b"1234")
        # Nothing of this is a dead letter: the sender knows.
        assert node.dead_letters.total == 0


def test_a_node_that_has_not_started() -> None:
    node = Node()
    with pytest.raises(NodeStopped):
        node.send("w", b"")
    with pytest.raises(NodeStopped):
        node.spawn(Echo)
    with pytest.raises(NodeStopped, match="not started"):
        asyncio.run(node.request("w", b""))


async def test_a_node_that_has_stopped() -> None:
    async with Node() as node:
        await recorder_of(node)
    with pytest.raises(NodeStopped):
        node.send("w", b"")
    with pytest.raises(NodeStopped):
        node.spawn(Echo)


async def test_rules_rewrite(node: Node) -> None:
    recorder = await recorder_of(node)
    node.add_rule(TYPE, lambda message: message.redirect(Address(0, message.to.value)))
    node.send("200#w => x", b"")
    await asyncio.sleep(0.1)
    assert str(recorder.messages[0]) == "[0#w => 0#x] <- [] 0 bytes"
    with pytest.raises(UnknownAddress, match="0#nobody"):
        node.send("200#nobody", b"")
    assert node.remove_rule(TYPE)
    assert not node.remove_rule(TYPE)
    with pytest.raises(UnknownAddressType):
        node.send("200#w", b"")


async def test_rules_may_take_a_message_over_or_raise(node: Node) -> None:
    taken: list[Message] = []

    def rule(message: Message) -> None:
        if message.to.value == b"nowhere":
            raise NoRoute(message.to)
        taken.append(message)

    node.add_rule(TYPE, rule)
    node.send("200#x", b"")
    assert len(taken) == 1
    with pytest.raises(NoRoute):
        node.send("200#nowhere", b"")


async def test_rules_that_go_in_circles(node: Node) -> None:
    calls: list[Message] = []

    def rule(message: Message) -> Message:
        calls.append(message)
        return message

    node.add_rule(TYPE, rule)
    with pytest.raises(RoutingLoop, match="more than 8 times"):
        node.send("200#x", b"")
    assert len(calls) == 9

    def countdown(message: Message) -> Message:
        left = int(message.to.value)
        return message.redirect(Address(TYPE, b"%d" % (left - 1)) if left else Address(0, b"w"))

    recorder = await recorder_of(node)
    assert node.remove_rule(TYPE)
    node.add_rule(TYPE, countdown)
    node.send("200#7", b"")
    with pytest.raises(RoutingLoop):
        node.send("200#8", b"")
    await asyncio.sleep(0.1)
    assert len(recorder.messages) == 1


class Directory:
    def resolve(self, message: Message) -> Message:
        return message.redirect(Address(0, b"a"))

    def other(self, message: Message) -> Message:
        return message.redirect(Address(0, b"b"))


def shop(message: Message) -> Message:
    return message


def test_a_rule_is_not_replaced_by_another_owner() -> None:
    node = Node()
    one, two = Directory(), Directory()
    node.add_rule(TYPE, one.resolve, owner=one)
    with pytest.raises(RuleInUse) as raised:
        node.add_rule(TYPE, two.resolve, owner=two)
    assert str(raised.value) == (
        "addresses of type 200 are resolved by the Directory of the node already"
    )
    with pytest.raises(RuleInUse):
        node.add_rule(TYPE, one.resolve)
    node.add_rule(TYPE, one.other, owner=one)  # its own it may replace
    assert not node.remove_rule(TYPE)
    assert not node.remove_rule(TYPE, owner=two)
    with pytest.raises(RuleInUse):
        node.add_rule(TYPE, two.resolve, owner=two)
    assert node.remove_rule(TYPE, owner=one)
    node.add_rule(TYPE, two.resolve, owner=two)


def test_a_rule_without_an_owner_belongs_to_itself() -> None:
    node = Node()
    directory = Directory()
    node.add_rule(TYPE, directory.resolve)
    node.add_rule(TYPE, directory.resolve)  # a method is another object each time
    with pytest.raises(RuleInUse, match=r"by the function \S+\.Directory\.resolve already"):
        node.add_rule(TYPE, shop)
    assert node.remove_rule(TYPE)
    node.add_rule(TYPE, shop)
    with pytest.raises(RuleInUse, match=r"by the function \S+\.shop already"):
        node.add_rule(TYPE, directory.resolve)
    node.add_rule(TYPE + 1, shop, owner="the shop")
    with pytest.raises(RuleInUse, match="resolved by the shop already"):
        node.add_rule(TYPE + 1, shop)


async def test_a_rule_that_leaves_nothing(node: Node) -> None:
    node.add_rule(TYPE, lambda message: message._replace(onward_route=()))
    with pytest.raises(EmptyRoute):
        node.send("200#x", b"")


@pytest.mark.parametrize("address_type", [-1, 0, 256])
def test_types_no_rule_can_be_for(address_type: int) -> None:
    with pytest.raises(ValueError, match="cannot have the address type"):
        Node().add_rule(address_type, lambda message: message)


async def test_a_worker_with_the_very_address_comes_before_the_rule(node: Node) -> None:
    recorder = await recorder_of(node, "200#mine")
    node.add_rule(TYPE, lambda message: message.redirect(Address(0, b"nobody")))
    node.send("200#mine", b"")
    await asyncio.sleep(0.1)
    assert len(recorder.messages) == 1


async def test_deliver(node: Node) -> None:
    recorder = await recorder_of(node)
    to = recorder.address
    long = (to,) * (MAX_ROUTE_LENGTH + 1)
    assert node.parts.router.dispatch_or_lose(Message((to,), (), b""))
    assert not node.parts.router.dispatch_or_lose(Message((), (), b""))
    assert not node.parts.router.dispatch_or_lose(Message((Address(0, b"x"),), (), b""))
    assert not node.parts.router.dispatch_or_lose(Message((Address(TYPE, b"x"),), (), b""))
    assert not node.parts.router.dispatch_or_lose(Message(long, (), b""))
    assert not node.parts.router.dispatch_or_lose(Message((to,), long, b""))
    await asyncio.sleep(0.1)
    assert len(recorder.messages) == 1
    assert node.dead_letters.by_reason == {
        "empty route": 1,
        "no such worker": 1,
        "no rule for this type of address": 1,
        "route too long": 2,
    }


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (EmptyRoute(), "empty route"),
        (MailboxFull("w", "detail"), "mailbox full"),
        (PayloadTooBig(2, 1), "payload too big"),
        (WorkerStopped(), "worker stopped"),
    ],
)
def test_words_for(error: OnwardError, words: str) -> None:
    assert reason_text(error) == words


async def test_dead_letters_are_stamped_by_the_clock() -> None:
    async with Node(clock=lambda: 12.5) as node:
        message = Message((Address(0, b"x"),), (), b"")
        node.dead_letter(message, "why")
        node.dead_letter(message, EmptyRoute())
        assert [(letter.reason, letter.at) for letter in node.dead_letters.recent] == [
            ("why", 12.5),
            ("empty route", 12.5),
        ]
    async with Node() as other:
        other.dead_letter(message, "why")
        assert other.dead_letters.recent[0].at == other.loop.time()


def test_messages_from_other_threads_wake_the_loop() -> None:
    arrived = threading.Event()

    class Arriving(Recorder):
        def handle_message(self, message: Message) -> None:
            arrived.set()

    with Node.in_background() as background:
        background.start(Arriving, address="w")
        background.send("w", b"")
        assert arrived.wait(10)
