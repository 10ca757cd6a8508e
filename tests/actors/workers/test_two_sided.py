from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node, NodeLimits, OnFailure, Supervision, Worker
from onward.actors.runtime._cell import Cell
from onward.actors.workers import TwoSidedWorker
from onward.actors.workers._two_sided import add_addresses
from onward.protocol import Address, Message, WorkerFailed


class Sides(TwoSidedWorker):
    """Answers with the name of the side."""

    def handle_outer(self, message: Message) -> None:
        if message.payload == b"fail":
            raise ValueError
        self.reply(message, b"outer", self.inner)

    async def handle_inner(self, message: Message) -> None:
        await asyncio.sleep(1)
        self.reply(message, b"inner", self.outer)


async def test_each_side_has_an_address_and_a_handler(node: Node) -> None:
    outer = await node.start(Sides, address="sides")
    first = await node.request("sides", b"")
    [inner] = first.return_route
    assert first.payload == b"outer"
    assert inner != outer
    assert len(inner.value) == 32
    second = await node.request(inner, b"")
    assert (second.payload, second.return_route) == (b"inner", (outer,))


async def test_the_inner_address_may_be_given(node: Node) -> None:
    await node.start(Sides, address=["sides", "other-side", "nickname"])
    assert (await node.request("sides", b"")).return_route == (Address(0, b"other-side"),)
    assert (await node.request("other-side", b"")).payload == b"inner"
    assert (await node.request("nickname", b"")).payload == b"outer"


async def test_both_addresses_stay_over_a_restart_and_go_with_the_worker(node: Node) -> None:
    restart = Supervision(OnFailure.RESTART)
    await node.start(Sides, address="sides", supervision=restart)
    [inner] = (await node.request("sides", b"")).return_route
    with pytest.raises(Exception, match="worker failed"):
        await node.request("sides", b"fail")
    assert (await node.request("sides", b"")).return_route == (inner,)
    await node.stop_worker("sides")
    assert not node.has(inner)


async def test_a_side_without_a_handler_is_a_dead_letter(node: Node) -> None:
    await node.start(TwoSidedWorker, address=["outer", "inner"])
    node.send("outer", b"")
    node.send("inner", b"")
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"unhandled": 2}


class Growing(Worker):
    """Has one more random address each time it is made, and fails when it is told to."""

    made = 0

    def _join(self, cell: Cell) -> None:
        type(self).made += 1
        add_addresses(self.node, cell, self.made)
        super()._join(cell)

    async def handle_message(self, message: Message) -> None:
        if message.payload == b"fail":
            raise ValueError
        if message.payload == b"wait":
            await asyncio.sleep(60)
        self.reply(message, b"")


@pytest.fixture
def growing() -> type[Growing]:
    class Fresh(Growing):
        made = 0

    return Fresh


async def test_a_restart_with_more_addresses(growing: type[Growing], node: Node) -> None:
    await node.start(growing, address="a", supervision=Supervision(OnFailure.RESTART))
    with pytest.raises(WorkerFailed):
        await node.request("a", b"fail")
    await node.request("a", b"")
    [worker] = node.statistics().workers
    assert (worker.restarts, growing.made) == (1, 2)
    addresses = node.parts.table.cell("a").addresses
    assert len(addresses) == 3
    for each in addresses:
        assert (await node.request(each, b"")).return_route == (each,)
    node.send("a", b"wait")
    await asyncio.sleep(1)
    for _ in range(5):
        node.send("a", b"left")
    await node.stop(timeout=1)
    assert node.dead_letters.by_reason == {"worker failed": 2, "worker stopped": 5}
    assert not any(map(node.has, addresses))


async def test_a_restart_for_which_there_are_no_addresses_fails(growing: type[Growing]) -> None:
    async with Node(limits=NodeLimits(addresses=2)) as node:
        await node.start(growing, address="a", supervision=Supervision(OnFailure.RESTART))
        inner = node.parts.table.cell("a").addresses[1]
        with pytest.raises(WorkerFailed):
            await node.request("a", b"fail")
        await asyncio.sleep(1)
        assert not node.has("a")
        assert not node.has(inner)
        assert node.statistics().worker_count == 0
