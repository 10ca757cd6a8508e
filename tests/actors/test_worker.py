from __future__ import annotations

import asyncio

import pytest

from onward.actors import MailboxOptions, Node, NodeLimits, Worker
from onward.protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    Context,
    EmptyRoute,
    MailboxFull,
    Message,
    PayloadTooBig,
    RouteTooLong,
    UnknownAddress,
    UnknownAddressType,
)
from tests.support.workers import Echo, Recorder, start_worker

A, B, C, OWN = (Address(0, name) for name in (b"a", b"b", b"c", b"own"))
CONTEXT = Context(trace="trace")


async def two(node: Node) -> tuple[Recorder, Recorder]:
    """Start two workers: one to send from, one to look at."""
    sender = await start_worker(node, Recorder(), ["a", "own"])
    receiver = await start_worker(node, Recorder(), "b")
    return sender, receiver


async def received(receiver: Recorder) -> Message:
    await asyncio.sleep(0.1)
    [message] = receiver.messages
    return message


async def test_forward(node: Node) -> None:
    sender, receiver = await two(node)
    sender.forward(Message((A, B, C), (C,), b"payload", None, CONTEXT))
    assert await received(receiver) == Message((B, C), (A, C), b"payload", A, CONTEXT)


async def test_forward_is_what_the_message_says_about_forwarding(node: Node) -> None:
    sender, receiver = await two(node)
    message = Message((A, B, C), (C,), b"payload", C, CONTEXT)
    sender.forward(message, OWN)
    assert await received(receiver) == message.forward(OWN)


async def test_forward_to_a_worker_that_has_had_messages_before(node: Node) -> None:
    sender, receiver = await two(node)
    for _ in range(2):
        sender.forward(Message((A, B), (), b"1"))
        sender.forward(Message((A, B), (), b"2"))
        await asyncio.sleep(0.1)
    assert receiver.payloads == [b"1", b"2", b"1", b"2"]


async def test_forward_by_a_rule(node: Node) -> None:
    sender, receiver = await two(node)
    node.add_rule(200, lambda message: message.redirect(B))
    sender.forward(Message((A, Address(200, b"x"), C), (), b""))
    assert await received(receiver) == Message((B, C), (A,), b"", A)


async def test_forward_that_cannot_be(node: Node) -> None:
    sender, receiver = await two(node)
    with pytest.raises(EmptyRoute):
        sender.forward(Message((A,), (), b""))
    with pytest.raises(EmptyRoute):
        sender.forward(Message((), (), b""))
    with pytest.raises(RouteTooLong):
        sender.forward(Message((A, B), (C,) * MAX_ROUTE_LENGTH, b""))
    with pytest.raises(UnknownAddress):
        sender.forward(Message((A, C), (), b""))
    with pytest.raises(UnknownAddressType):
        sender.forward(Message((A, Address(200, b"x")), (), b""))
    sender.forward(Message((A, B), (C,) * (MAX_ROUTE_LENGTH - 1), b""))
    assert len((await received(receiver)).return_route) == MAX_ROUTE_LENGTH


async def test_forward_to_a_full_mailbox(node: Node) -> None:
    sender = await start_worker(node, Recorder(), "a")
    node.spawn(Recorder, address="b", mailbox=MailboxOptions(1))
    sender.forward(Message((A, B), (), b""))
    with pytest.raises(MailboxFull):
        sender.forward(Message((A, B), (), b""))


async def test_step(node: Node) -> None:
    sender, receiver = await two(node)
    sender.step(Message((A, B), (C,), b"payload", None, CONTEXT))
    counted = CONTEXT._replace(hops=1)
    assert await received(receiver) == Message((B,), (C,), b"payload", A, counted)


async def test_reply() -> None:
    async with Node(limits=NodeLimits(payload=8)) as node:
        sender, receiver = await two(node)
        message = Message((A,), (B, C), b"question", None, CONTEXT)
        sender.reply(message, b"answer")
        assert await received(receiver) == Message((B, C), (A,), b"answer", A, CONTEXT)
        receiver.messages.clear()
        sender.reply(message, b"answer", OWN)
        assert await received(receiver) == message.reply(b"answer", OWN)
        with pytest.raises(EmptyRoute):
            sender.reply(Message((A,), (), b""), b"answer")
        with pytest.raises(PayloadTooBig):
            sender.reply(message, b"123456789")


async def test_send() -> None:
    async with Node(limits=NodeLimits(payload=8)) as node:
        sender, receiver = await two(node)
        sender.send("b => c", b"payload", context=CONTEXT)
        assert await received(receiver) == Message((B, C), (A,), b"payload", A, CONTEXT)
        receiver.messages.clear()
        sender.send((B,), b"payload", return_route=())
        assert await received(receiver) == Message((B,), (), b"payload", A, None)
        with pytest.raises(PayloadTooBig):
            sender.send("b", b"123456789")
        with pytest.raises(PayloadTooBig):
            await sender.send_wait("b", b"123456789")


async def test_route_sets_the_source(node: Node) -> None:
    sender, receiver = await two(node)
    sender.route(Message((B,), (C,), b"payload", C, CONTEXT))
    counted = CONTEXT._replace(hops=1)
    assert await received(receiver) == Message((B,), (C,), b"payload", A, counted)


async def test_request(node: Node) -> None:
    sender, _ = await two(node)
    node.spawn(Echo, address="echo")
    assert (await sender.request("echo", b"hi", timeout=1)).payload == b"hi"


async def test_messages_nobody_handles_are_dead_letters(node: Node) -> None:
    node.spawn(Worker, address="w")
    node.send("w", b"")
    await asyncio.sleep(0.1)
    assert node.dead_letters.by_reason == {"unhandled": 1}


async def test_hooks_that_are_not_overridden(node: Node) -> None:
    worker = await start_worker(node, Worker(), "w")
    assert worker.on_start() is None
    assert worker.on_stop() is None
    assert worker.on_failure(None, None, None) is None
    assert worker.node is node
    assert worker.address == Address(0, b"w")
    assert worker.addresses == (Address(0, b"w"),)


async def test_children(node: Node) -> None:
    class Parent(Worker):
        async def on_start(self) -> None:
            self.first = self.spawn(Echo, address="first")
            self.second = await self.start_child(Echo, address="second")

    parent = await start_worker(node, Parent(), "parent")
    assert (parent.first, parent.second) == (Address(0, b"first"), Address(0, b"second"))
    assert node.statistics().workers[0].children == 2
    await node.stop_worker("first")
    assert node.statistics().workers[0].children == 1
    await node.stop_worker("parent")
    assert node.statistics().worker_count == 0


def test_a_worker_that_is_nowhere() -> None:
    worker = Worker("any", arguments="will do")
    for use in (worker.stop, lambda: worker.addresses, lambda: worker.spawn(Echo)):
        with pytest.raises((RuntimeError, AttributeError)):
            use()
