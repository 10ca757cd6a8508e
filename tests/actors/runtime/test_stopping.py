"""How workers stop: what waits is handled or told of, and nothing holds a node up for ever."""

from __future__ import annotations

import asyncio
from types import TracebackType

import pytest

from onward.actors import MailboxOptions, Node, NodeLimits, OnFailure, Supervision, Worker
from onward.actors.runtime import _stopping as stopping
from onward.protocol import Message, NotDelivered, UnknownAddress, WorkerFailed, WorkerStopped
from tests.support.fixtures import Caplog
from tests.support.storied import Storied, storied
from tests.support.workers import Echo, Failing, Gate, Recorder, spawn_worker, start_worker


async def test_stop_handles_what_waits_first(node: Node) -> None:
    story: list[str] = []
    worker = await start_worker(node, Storied("w", story), "w")
    node.send("w", b"1")
    node.send("w", b"2")
    worker.stop()
    node.send("w", b"3")
    worker.stop()
    await asyncio.sleep(2)
    assert story == ["w starts", "w handles 1", "w handles 2", "w stops"]
    assert not node.has("w")
    assert node.dead_letters.by_reason == {"worker stopped": 1}


async def test_stop_worker_waits_for_the_end(node: Node) -> None:
    story: list[str] = []
    await node.start(storied("w", story), address=["w", "also"])
    node.send("w", b"1")
    await node.stop_worker("also")
    assert story == ["w starts", "w handles 1", "w stops"]
    assert not node.has("w")
    assert not node.has("also")
    with pytest.raises(UnknownAddress):
        await node.stop_worker("w")
    with pytest.raises(NotDelivered):
        node.send("w", b"2")


async def test_two_stops_at_the_same_time() -> None:
    story: list[str] = []
    async with Node() as node:
        await node.start(storied("w", story), address="w")
        await asyncio.gather(node.stop_worker("w"), node.stop_worker("w"))
    assert story == ["w starts", "w stops"]


async def test_children_stop_before_their_parents_and_the_youngest_first() -> None:
    story: list[str] = []

    class Parent(Storied):
        async def on_start(self) -> None:
            await super().on_start()
            await self.start_child(storied("elder", story))
            await self.start_child(storied("younger", story))

    async with Node() as node:
        await node.start(storied("first", story))
        await node.start(lambda: Parent("parent", story))
        await node.start(storied("last", story))
    assert story[5:] == [
        "last stops",
        "younger stops",
        "elder stops",
        "parent stops",
        "first stops",
    ]


async def test_children_of_a_worker_that_stops_by_itself(node: Node) -> None:
    story: list[str] = []

    class Parent(Storied):
        async def on_start(self) -> None:
            self.spawn(storied("child", story), address="child")

    parent = await start_worker(node, Parent("parent", story), "parent")
    await asyncio.sleep(1)
    parent.stop()
    await asyncio.sleep(1)
    assert story == ["child starts", "child stops", "parent stops"]


async def test_nothing_can_be_spawned_by_a_worker_that_stops(node: Node) -> None:
    class Parent(Worker):
        def on_stop(self) -> None:
            with pytest.raises(WorkerStopped):
                self.spawn(Echo)
            self.checked = True

    parent = await start_worker(node, Parent(), "parent")
    await node.stop_worker("parent")
    assert parent.checked


async def test_node_stop_turns_waiting_messages_into_dead_letters(node: Node) -> None:
    gate = spawn_worker(node, Gate(), "gate")
    for number in range(3):
        node.send("gate", b"%d" % number)
    await asyncio.sleep(0.1)
    node.loop.call_later(1, gate.opened.set)
    await node.stop(timeout=5)
    assert [message.payload for message in gate.messages] == [b"0"]
    assert [letter.message.payload for letter in node.dead_letters.recent] == [b"1", b"2"]
    assert node.dead_letters.by_reason == {"worker stopped": 2}
    assert node.statistics().handled == 1


async def test_a_handler_that_hangs_is_cancelled_and_reported(caplog: Caplog) -> None:
    story: list[str] = []

    class Hanging(Storied):
        async def handle_message(self, message: Message) -> None:
            await asyncio.Event().wait()

    async with Node() as node:
        await node.start(storied("other", story))
        await node.start(lambda: Hanging("hanging", story), address="hanging")
        node.send("hanging", b"")
        await asyncio.sleep(0.1)
        began = node.loop.time()
        await node.stop(timeout=4)
        assert node.loop.time() - began < 4
        assert story[2:] == ["hanging stops", "other stops"]
        assert node.statistics().abandoned == 0
    assert "does not stop in time and is cancelled" in caplog.text


async def test_last_words_that_hang_are_cancelled(node: Node) -> None:
    class Hanging(Worker):
        async def on_stop(self) -> None:
            await asyncio.Event().wait()

    await node.start(Hanging, address="hanging")
    await node.stop(timeout=4)
    assert not node.has("hanging")
    assert node.statistics().abandoned == 0


async def test_a_worker_that_cannot_be_stopped_is_given_up(caplog: Caplog) -> None:
    released = asyncio.Event()

    class Stubborn(Worker):
        async def on_start(self) -> None:
            self.spawn(Echo, address="child")

        async def handle_message(self, message: Message) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            raise ValueError("too late to matter")

    async with Node() as node:
        await node.start(Stubborn, address="stubborn")
        node.send("stubborn", b"")
        node.send("stubborn", b"waiting")
        await asyncio.sleep(0.1)
        began = node.loop.time()
        await node.stop(timeout=4)
        assert node.loop.time() - began <= 4
        assert not node.has("stubborn")
        assert not node.has("child")
        statistics = node.statistics()
        assert (statistics.abandoned, statistics.worker_count) == (2, 0)
        assert statistics.dead_letter_reasons == {"worker failed": 1, "worker stopped": 1}
    released.set()
    await asyncio.sleep(0.1)
    assert "cannot be stopped and is given up" in caplog.text


async def test_a_restart_that_hangs_is_ended_by_a_stop(node: Node) -> None:
    class Hanging(Failing):
        async def on_failure(
            self,
            exception_type: type[BaseException] | None,
            exception_value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            await asyncio.Event().wait()

    node.spawn(Hanging, address="w", supervision=Supervision(OnFailure.RESTART))
    node.send("w", b"!")
    await asyncio.sleep(1)
    await node.stop(timeout=4)
    assert not node.has("w")


async def test_a_worker_that_keeps_itself_busy_can_be_stopped(node: Node) -> None:
    class Busy(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(0.01)
            self.send((self.address,), b"again")

    await node.start(Busy, address="busy")
    node.send("busy", b"")
    await asyncio.sleep(1)
    await node.stop_worker("busy", timeout=4)
    assert not node.has("busy")


async def test_a_child_that_hangs_leaves_time_for_its_parent(node: Node) -> None:
    story: list[str] = []

    class Hanging(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.Event().wait()

    class Parent(Storied):
        async def on_start(self) -> None:
            self.spawn(Hanging, address="child")

    await node.start(lambda: Parent("parent", story), address="parent")
    node.send("child", b"")
    await asyncio.sleep(1)
    await node.stop(timeout=4)
    assert story == ["parent stops"]
    assert node.statistics().abandoned == 0


async def test_many_workers_stop_in_order() -> None:
    order: list[int] = []

    class Numbered(Worker):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def on_stop(self) -> None:
            order.append(self.number)

    async with Node(limits=NodeLimits(addresses=2000)) as node:
        for number in range(1500):
            node.spawn(lambda number=number: Numbered(number))  # type: ignore[misc]
    assert order == list(reversed(range(1500)))


async def test_a_mailbox_of_one_and_a_restart(node: Node) -> None:
    supervision = Supervision(OnFailure.RESTART)
    node.spawn(Failing, address="w", mailbox=MailboxOptions(1), supervision=supervision)
    node.send("w", b"!")
    await asyncio.sleep(1)
    node.send("w", b"1")
    await asyncio.sleep(1)
    assert node.statistics().handled == 2


async def test_a_restart_that_is_given_up(node: Node) -> None:
    released = asyncio.Event()

    class Stubborn(Failing):
        async def on_failure(
            self,
            exception_type: type[BaseException] | None,
            exception_value: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

    node.spawn(Stubborn, address="w", supervision=Supervision(OnFailure.RESTART))
    node.send("w", b"!")
    await asyncio.sleep(1)
    await node.stop(timeout=1)
    assert node.statistics().abandoned == 1
    released.set()
    await asyncio.sleep(0.1)
    assert not node.has("w")


async def test_no_time_at_all() -> None:
    async with Node(limits=NodeLimits(batch=1, drain=1)) as node:
        recorder = await start_worker(node, Recorder(), "w")
        for _ in range(10):
            node.send("w", b"")
        await node.stop_worker("w", timeout=0)
        assert not node.has("w")
        assert len(recorder.messages) + node.dead_letters.total == 10
        assert node.dead_letters.total > 0


async def test_closing_a_worker_that_is_closed_does_nothing(node: Node) -> None:
    recorder = await start_worker(node, Recorder(), "w")
    cell = recorder._cell
    assert cell is not None
    await node.stop_worker("w")
    cell.give_up()
    await stopping.stop_within(cell, node.loop.time() + 1, drain=True)
    assert node.statistics().worker_count == 0


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_failure_is_told_to_the_requester_now(asynchronous: bool, caplog: Caplog) -> None:
    class Plain(Worker):
        def handle_message(self, message: Message) -> None:
            raise ValueError("secret")

    class Slow(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(1)
            raise ValueError("secret")

    async with Node() as node:
        node.spawn(Slow if asynchronous else Plain, address="w")
        with pytest.raises(WorkerFailed) as failed:
            await node.request("w", b"", timeout=60)
        assert isinstance(failed.value.__cause__, ValueError)
        assert "secret" not in str(failed.value)
        assert node.dead_letters.by_reason == {"worker failed": 1}
    assert "secret" in caplog.text


async def test_who_asked_a_worker_that_is_stopped_hears_whether_it_was_begun(node: Node) -> None:
    class Hanging(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.Event().wait()

    ended: list[str] = []
    node.spawn(Hanging, address="w")
    node.watch("w", lambda: ended.append("w"))
    node.watch("w", lambda: ended.append("not"))()
    begun = asyncio.ensure_future(node.request("w", b"", timeout=60))
    await asyncio.sleep(0.1)
    waiting = asyncio.ensure_future(node.request("w", b"", timeout=60))
    await asyncio.sleep(0.1)
    await node.stop_worker("w", timeout=1)
    with pytest.raises(WorkerFailed):
        await begun
    with pytest.raises(WorkerStopped):
        await waiting
    assert ended == ["w"]
    with pytest.raises(UnknownAddress):
        node.watch("w", list)
