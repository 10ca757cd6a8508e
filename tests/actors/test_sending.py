from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onward.actors import Node, ThreadWorker, Worker
from onward.protocol import Message, PayloadNotBytes, WorkerFailed, address, route
from tests.support.compiled import COMPILED
from tests.support.virtual import virtual_time
from tests.support.workers import Echo, Recorder

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


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
@virtual_time
async def test_each_way_to_send_refuses_a_payload_that_is_not_bytes(wrong: Any) -> None:
    async with Node() as node:
        recorder, holder = Recorder(), Holder()
        node.spawn(lambda: recorder, address="recorder")
        node.spawn(lambda: holder, address="holder")
        here, there = route("holder => recorder"), route("recorder")
        in_hand = Message(here, (), wrong)
        ways: list[Callable[[], Any]] = [
            lambda: node.send("recorder", wrong),
            lambda: node.route(Message(there, (), wrong)),
            lambda: node.deliver(Message(there, (), wrong)),
            lambda: holder.send("recorder", wrong),
            lambda: holder.forward(in_hand),
            lambda: holder.step(in_hand),
            lambda: holder.redirect(in_hand, "recorder"),
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


@virtual_time
async def test_a_subclass_of_bytes_is_a_payload() -> None:
    async with Node() as node:
        node.spawn(Echo, address="echo")
        assert (await node.request("echo", Subclass(b"x"))).payload == b"x"


class AnswersText(Worker):
    def handle_message(self, message: Message) -> None:
        wrong: Any = message.payload.decode()
        self.reply(message, wrong if wrong.startswith("text") else message.payload)


class AnswersTextOnAThread(AnswersText, ThreadWorker):
    pass


@pytest.mark.parametrize("kind", [AnswersText, AnswersTextOnAThread])
async def test_a_worker_that_answers_with_text_fails_and_goes_on(
    kind: type[Worker], caplog: pytest.LogCaptureFixture
) -> None:
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


@virtual_time
async def test_a_worker_that_forwards_a_changed_payload_fails_alone() -> None:
    async with Node() as node:
        recorder = Recorder()
        node.spawn(lambda: recorder, address="recorder")
        node.spawn(Changes, address="changes")
        with pytest.raises(WorkerFailed):
            await node.request("changes => recorder", b"x")
        node.send("recorder", b"after")
        await node.stop_worker("recorder")
        assert recorder.payloads == [b"after"]


@virtual_time
async def test_a_source_that_is_claimed_is_never_believed() -> None:
    async with Node() as node:
        recorder, holder = Recorder(), Holder()
        node.spawn(lambda: recorder, address="recorder")
        node.spawn(lambda: holder, address="holder")
        claimed = Message(route("recorder"), (), b"x", address("trusted"))
        node.route(claimed)
        await node.route_wait(claimed)
        assert node.deliver(claimed)
        holder.route(claimed)
        holder.forward(claimed._replace(onward_route=route("holder => recorder")))
        holder.step(claimed._replace(onward_route=route("holder => recorder")))
        holder.redirect(claimed._replace(onward_route=route("holder")), "recorder")
        await node.stop_worker("recorder")
        sources = [message.source for message in recorder.messages]
        assert sources == [None] * 3 + [address("holder")] * 4
