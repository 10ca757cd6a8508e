from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from onward.actors import MailboxOptions, Node, NodeLimits, ThreadWorker, Worker
from onward.actors.runtime._mailbox import HEAVY
from onward.protocol import (
    MailboxFull,
    Message,
    PayloadNotBytes,
    PayloadTooBig,
    WorkerFailed,
    address,
    route,
)
from tests.support.compiled import COMPILED
from tests.support.workers import Echo, Gate, Recorder, spawn_worker

WRONG: Any = ["text", {"a": 1}, bytearray(b"x"), memoryview(b"x"), 5, None, [b"x"]]


class Holder(Worker):
    """A worker that is only used to call its methods from outside."""


# Compiled code checks its arguments before the function is called.
REFUSED = TypeError if COMPILED else PayloadNotBytes


def not_bytes(wrong: object) -> str:
    """Return the pattern of the error for a payload of another type."""
    kind = type(wrong).__name__
    if not COMPILED:
        return rf"bytes, not {kind}\b"
    # `PayloadNotBytes` where the payload is in a message, else the check of an argument.
    return (
        rf"bytes, not {kind}\b|^bytes object expected; got {kind if wrong is not None else None}$"
    )


def passed_on_with(worker: Worker, message: Message, payload: Any) -> list[Callable[[], Any]]:
    """Return the methods that pass a message on, with another payload; none for `None`."""
    if payload is None:
        return []
    return [
        lambda: worker.forward(message, payload=payload),
        lambda: worker.step(message, payload=payload),
        lambda: worker.redirect(message, "recorder", payload=payload),
    ]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
async def test_each_way_to_send_refuses_a_payload_that_is_not_bytes(wrong: Any, node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "recorder")
    holder = spawn_worker(node, Holder(), "holder")
    here, there = route("holder => recorder"), route("recorder")
    in_hand = Message(here, (), wrong)
    ways: list[Callable[[], Any]] = [
        lambda: node.send("recorder", wrong),
        lambda: node.route(Message(there, (), wrong)),
        lambda: holder.send("recorder", wrong),
        lambda: holder.forward(in_hand),
        lambda: holder.step(in_hand),
        lambda: holder.redirect(in_hand, "recorder"),
        *passed_on_with(holder, Message(here, (), b""), wrong),
        lambda: holder.route(Message(there, (), wrong)),
        lambda: holder.reply(Message(here, there, b""), wrong),
    ]
    for way in ways:
        with pytest.raises(REFUSED, match=not_bytes(wrong)):
            way()
    awaited: list[Callable[[], Any]] = [
        lambda: node.send_wait("recorder", wrong),
        lambda: node.route_wait(Message(there, (), wrong)),
        lambda: node.request("recorder", wrong),
        lambda: holder.send_wait("recorder", wrong),
        lambda: holder.request("recorder", wrong),
    ]
    for way in awaited:
        with pytest.raises(TypeError, match=not_bytes(wrong)):
            await way()
    assert not recorder.messages
    assert not node.dead_letters.total
    assert not node.statistics().requests
    node.send("recorder", b"right")
    await node.stop()
    assert not node.statistics().failed


class Subclass(bytes):
    """A kind of bytes."""


async def test_a_subclass_of_bytes_is_a_payload(node: Node) -> None:
    node.spawn(Echo, address="echo")
    assert (await node.request("echo", Subclass(b"x"))).payload == b"x"


class AnswersText(Worker):
    def handle_message(self, message: Message) -> None:
        wrong: Any = message.payload.decode()
        self.reply(message, wrong if wrong.startswith("text") else message.payload)


class AnswersTextOnAThread(AnswersText, ThreadWorker):
    pass


@pytest.mark.parametrize("kind", [AnswersText, AnswersTextOnAThread])
@pytest.mark.real_time
async def test_an_answer_that_is_text(kind: type[Worker], caplog: pytest.LogCaptureFixture) -> None:
    async with Node() as node:
        node.spawn(kind, address="worker")
        with pytest.raises(WorkerFailed) as raised:
            await node.request("worker", b"text")
        assert isinstance(raised.value.__cause__, PayloadNotBytes)
        assert (await node.request("worker", b"other")).payload == b"other"
        assert node.statistics().failed == 1
        assert node.statistics().dead_letter_reasons == {"worker failed": 1}
    assert "a payload is bytes, not str" in caplog.text


def test_a_background_node_refuses_a_payload_that_is_not_bytes() -> None:
    wrong: Any = "text"
    with Node.in_background() as background:
        background.start(Echo, address="echo")
        with pytest.raises(REFUSED):
            background.send("echo", wrong)
        with pytest.raises(REFUSED):
            background.request("echo", wrong)
        assert background.request("echo", b"hi").payload == b"hi"


class Changes(Worker):
    """Forwards what is not what it was."""

    def handle_message(self, message: Message) -> None:
        wrong: Any = {"not": "bytes"}
        self.forward(message._replace(payload=wrong))


async def test_a_worker_that_forwards_a_changed_payload_fails_alone(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "recorder")
    node.spawn(Changes, address="changes")
    with pytest.raises(WorkerFailed):
        await node.request("changes => recorder", b"x")
    node.send("recorder", b"after")
    await node.stop_worker("recorder")
    assert recorder.payloads == [b"after"]


class Doubler(Worker):
    """Passes messages on with a payload of twice the size."""

    def handle_message(self, message: Message) -> None:
        self.forward(message, payload=message.payload * 2)


async def test_a_message_is_passed_on_with_another_payload(node: Node) -> None:
    holder = spawn_worker(node, Holder(), "holder")
    recorder = spawn_worker(node, Recorder(), "recorder")
    came = Message(route("holder => recorder"), route("back"), b"old", address("source"))
    for pass_on in passed_on_with(holder, came, b"new"):
        pass_on()
    holder.forward(came, address("other"), payload=b"new")
    await node.stop_worker("recorder")
    forwarded, stepped, redirected, other = recorder.messages
    assert recorder.payloads == [b"new"] * 4
    assert {message.source for message in recorder.messages} == {address("holder")}
    assert forwarded.return_route == route("holder => back")
    assert stepped.return_route == route("back")
    assert stepped.context is not None
    assert stepped.context.hops == 1
    assert redirected.onward_route == route("recorder => recorder")
    assert other.return_route == route("other => back")
    assert came.payload == b"old"


async def test_an_answer_returns_through_a_worker_that_changes_payloads(node: Node) -> None:
    node.spawn(Doubler, address="doubler")
    node.spawn(Echo, address="echo")
    assert (await node.request("doubler => echo", b"x")).payload == b"xxxx"


async def test_the_bytes_of_a_changed_payload_are_counted(node: Node) -> None:
    holder = spawn_worker(node, Holder(), "holder")
    gate = spawn_worker(node, Gate(), "recorder", mailbox=MailboxOptions(max_bytes=HEAVY + 1))
    came = Message(route("holder => recorder"), (), b"light")
    node.send("recorder", b"in hand")
    await asyncio.sleep(1)
    holder.forward(came, payload=bytes(HEAVY + 1))
    assert node.parts.run_queue.waiting_bytes == HEAVY + 1
    for pass_on in passed_on_with(holder, came, bytes(HEAVY + 1)):
        with pytest.raises(MailboxFull) as caught:
            pass_on()
        assert caught.value.lost is came
    gate.opened.set()
    await node.stop_worker("recorder")
    assert node.parts.run_queue.waiting_bytes == 0


async def test_a_changed_payload_over_the_limit_is_lost_and_the_worker_goes_on() -> None:
    async with Node(limits=NodeLimits(payload=5)) as node:
        node.spawn(Doubler, address="doubler")
        node.spawn(Echo, address="echo")
        with pytest.raises(PayloadTooBig):
            await node.request("doubler => echo", b"four")
        assert (await node.request("doubler => echo", b"x")).payload == b"xxxx"
        assert node.dead_letters.by_reason == {"payload too big": 1}
        assert node.statistics().failed == 0


async def test_a_source_that_is_claimed_is_never_believed(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "recorder")
    holder = spawn_worker(node, Holder(), "holder")
    claimed = Message(route("recorder"), (), b"x", address("trusted"))
    node.route(claimed)
    await node.route_wait(claimed)
    holder.route(claimed)
    holder.forward(claimed._replace(onward_route=route("holder => recorder")))
    holder.step(claimed._replace(onward_route=route("holder => recorder")))
    holder.redirect(claimed._replace(onward_route=route("holder")), "recorder")
    await node.stop_worker("recorder")
    sources = [message.source for message in recorder.messages]
    assert sources == [None] * 2 + [address("holder")] * 4
