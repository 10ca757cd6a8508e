"""Nodes and workers, as Ockam's tests of its node have them, where ours are not asked elsewhere."""

from __future__ import annotations

import pytest

from onward.actors import Node, Worker
from onward.actors.testing import Probe
from onward.protocol import AddressInUse, Message, RequestTimeout, address
from tests.support.transports import eventually
from tests.support.virtual import virtual_time


async def test_nodes_start_and_stop_many_times() -> None:
    for number in range(50):
        async with Node() as node:
            first, second = await Probe.on(node, "first"), await Probe.on(node, "second")
            first.send("second", bytes([number]))
            assert (await second.next()).payload == bytes([number])
        assert node.statistics().worker_count == 0


async def test_workers_that_stop_themselves_finish_their_handlers() -> None:
    entered: list[Worker] = []
    left: list[Worker] = []

    class Ending(Worker):
        def handle_message(self, message: Message) -> None:
            entered.append(self)
            self.stop()
            left.append(self)

    async with Node() as node:
        for _ in range(100):
            for worker in [await node.start(Ending) for _ in range(10)]:
                node.send(worker, b"Testing")
        await eventually(lambda: len(left) == 1000)
        assert entered == left
        await eventually(lambda: node.statistics().worker_count == 0)
        assert node.dead_letters.by_reason == {}


class Conversing(Worker):
    """Works until it is told to stop, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def on_start(self) -> None:
        self.steps.append("start")

    def on_stop(self) -> None:
        self.steps.append("stop")

    def handle_message(self, message: Message) -> None:
        if message.payload == b"Keep working":
            self.reply(message, b"OK")
        else:
            self.reply(message, b"I go home")
            self.stop()


async def test_a_worker_works_until_it_is_told_to_stop() -> None:
    worker = Conversing()
    async with Node() as node:
        await node.start(lambda: worker, address="worker")
        assert (await node.request("worker", b"Keep working")).payload == b"OK"
        assert worker.steps == ["start"]
        assert (await node.request("worker", b"Stop working")).payload == b"I go home"
        await eventually(lambda: not node.has("worker"))
        assert worker.steps == ["start", "stop"]


async def test_a_worker_starts_an_inner_one_before_it_takes_messages() -> None:
    class Outer(Worker):
        async def on_start(self) -> None:
            self.inner = await self.start_child(Conversing)

        async def handle_message(self, message: Message) -> None:
            answer = await self.request(self.inner, message.payload)
            self.reply(message, answer.payload)

    async with Node() as node:
        await node.start(Outer, address="outer")
        assert (await node.request("outer", b"Keep working")).payload == b"OK"


async def test_an_address_has_one_worker() -> None:
    async with Node() as node:
        await node.start(Conversing, address="worker")
        with pytest.raises(AddressInUse):
            await node.start(Conversing, address="worker")
        assert (await node.request("worker", b"Keep working")).payload == b"OK"
        assert node.statistics().worker_count == 1
        assert await node.start(Conversing) != address("worker")


@virtual_time
async def test_waiting_for_an_answer_ends_in_time() -> None:
    async with Node() as node:
        await Probe.on(node, "silent")
        started = node.loop.time()
        with pytest.raises(RequestTimeout):
            await node.request("silent", b"", timeout=1)
        assert node.loop.time() - started == pytest.approx(1, abs=0.1)
