from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node, Worker
from onward.actors.testing import Probe, crash
from onward.protocol import Message, NodeStopped


class Recorded(Worker):
    def __init__(self, log: list[str], child: bool = False) -> None:
        super().__init__()
        self.log = log
        self.child = child

    async def on_start(self) -> None:
        if not self.child:
            await self.start_child(lambda: Recorded(self.log, child=True), address="child")
            self.every(1, lambda: self.log.append("tick"))

    async def handle_message(self, message: Message) -> None:
        self.log.append(message.payload.decode())
        await asyncio.sleep(10)
        self.log.append("handled")

    def on_stop(self) -> None:
        self.log.append("stopped")


async def test_nobody_is_asked() -> None:
    log: list[str] = []
    node = Node("a")
    async with node:
        await node.start(lambda: Recorded(log), address="parent")
        for address in ("parent", "child"):
            node.send(address, address.encode())
            node.send(address, b"never")
        asked = asyncio.create_task(node.request("child", b"never"))
        await asyncio.sleep(0.5)
        crash(node)
        with pytest.raises(NodeStopped):
            await asked
        with pytest.raises(NodeStopped):
            node.send("parent", b"")
        await asyncio.sleep(100)
    assert log == ["parent", "child"]
    assert not node.parts.table.targets
    crash(node)  # again is nothing


async def test_a_worker_that_tries_to_say_something() -> None:
    class Chatty(Worker):
        async def handle_message(self, message: Message) -> None:
            try:
                await asyncio.sleep(10)
            finally:
                self.reply(message, b"last words")

    node = Node("a")
    async with node:
        probe = await Probe.on(node)
        await node.start(Chatty, address="chatty")
        probe.send("chatty", b"")
        await asyncio.sleep(1)
        crash(node)
        await asyncio.sleep(1)
    assert probe.payloads == []


async def test_a_node_that_has_not_started() -> None:
    node = Node("a")
    crash(node)
    with pytest.raises(NodeStopped):
        async with node:
            pass


async def test_while_it_starts() -> None:
    class Slow(Worker):
        async def on_start(self) -> None:
            await asyncio.sleep(10)

    node = Node("a")
    async with node:
        starting = asyncio.create_task(node.start(Slow))
        await asyncio.sleep(1)
        crash(node)
        with pytest.raises(Exception, match="stopped"):
            await starting
