from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

from onward.actors import Node, NodeLimits, NodeNotStarted
from onward.actors.runtime._mailbox import Target
from onward.protocol import Message, NodeStopped, route
from tests.support.compiled import interpreted
from tests.support.loops import LoopFactory, on_each_loop, run_on
from tests.support.workers import Echo, Recorder, spawn_worker, start_worker


def test_a_node_has_no_loop_before_it_starts() -> None:
    node = Node()
    with pytest.raises(NodeNotStarted, match=r"^node not started: node$"):
        _ = node.loop
    with pytest.raises(NodeNotStarted, match=r"^node not started: node$"):
        node.send("w", b"")
    with pytest.raises(NodeNotStarted):
        node.spawn(Echo)


async def test_a_node_starts_once() -> None:
    node = Node()
    async with node:
        assert node.loop is asyncio.get_running_loop()
        with pytest.raises(
            NodeStopped, match=r"cannot be started: node \(a node can be started once\)"
        ):
            await node.__aenter__()
    with pytest.raises(NodeStopped, match="started once"):
        await node.__aenter__()


@on_each_loop
def test_the_loop_does_other_things_between_drains(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        async with Node(limits=NodeLimits(batch=1, drain=2)) as node:
            recorder = await start_worker(node, Recorder(), "w")
            for _ in range(50):
                node.send("w", b"")
            seen: list[int] = []

            def look() -> None:
                seen.append(len(recorder.messages))
                if len(recorder.messages) < 50:
                    node.loop.call_soon(look)
                else:
                    done.set()

            done = asyncio.Event()
            node.loop.call_soon(look)
            await done.wait()
            assert len(seen) > 10

    run_on(loop_factory, main())


@on_each_loop
def test_a_node_whose_loop_is_closed_refuses_to_send(loop_factory: LoopFactory) -> None:
    node = Node()
    recorder = Recorder()

    async def main() -> None:
        await node.__aenter__()
        await node.start(lambda: recorder, address="w")

    loop = loop_factory()
    loop.run_until_complete(main())
    node.send("w", b"taken, and then the loop is closed")
    loop.close()
    for _ in range(2):
        with pytest.raises(NodeStopped, match="its event loop was closed"):
            node.send("w", b"")
    # What had been taken is not lost silently.
    assert node.dead_letters.by_reason == {"worker stopped": 1}
    assert not node.has("w")
    assert recorder.messages == []
    with pytest.raises(NodeStopped, match="its event loop was closed"):
        node.spawn(Recorder)

    async def wait() -> None:
        for work in (node.send_wait("w", b""), node.request("w", b"")):
            with pytest.raises(NodeStopped, match="its event loop was closed"):
                await work

    run_on(loop_factory, wait())


@on_each_loop
def test_messages_to_a_closed_loop_become_dead_letters(loop_factory: LoopFactory) -> None:
    """A program that closes its loop and forgets its node still loses nothing silently."""
    node = Node()
    recorder = Recorder()

    async def main() -> None:
        await node.__aenter__()
        await node.start(lambda: recorder, address="w")
        await node.start(Recorder, address="other")

    run_on(loop_factory, main())
    node.route(Message(route("w"), (), b""))
    assert node.dead_letters.by_reason == {"worker stopped": 1}
    assert not node.has("w")
    assert not node.has("other")
    with pytest.raises(NodeStopped):
        node.route(Message(route("w"), (), b""))


async def test_call_on_loop(node: Node) -> None:
    called = asyncio.Event()
    node.parts.run_queue.call_on_loop(called.set)
    await called.wait()


def test_coroutine_functions_from_another_loop() -> None:
    with Node.in_background() as background:
        node = background.node

        async def main() -> None:
            assert asyncio.get_running_loop() is not node.loop
            address = await node.start(Echo, address="echo")
            await node.stop_worker(address)
            await node.stop()

        asyncio.run(main())
        assert not node.has("echo")


class Racing(deque[Target]):
    """A run queue to which another thread appends while it falls asleep."""

    late: Target | None = None
    looks = 0

    def __bool__(self) -> bool:
        if not len(self) and self.late is not None:
            # The first look ends the drain, the second decides not to come back.
            self.looks += 1
            if self.looks == 2:
                self.append(self.late)
                self.late = None
            return False
        return len(self) > 0


@interpreted
async def test_what_is_scheduled_while_the_queue_falls_asleep_has_its_turn(node: Node) -> None:
    recorder = spawn_worker(node, Recorder(), "w")
    node.spawn(Recorder, address="other")
    await asyncio.sleep(0.1)
    cell = recorder._cell
    assert cell is not None
    cell.queue = deque([Message((recorder.address,), (), b"late")])
    cell.scheduled = True
    racing: Any = Racing()
    parts: Any = node.parts
    parts.run_queue.ready = parts.router._ready = racing
    racing.late = cell
    node.send("other", b"")
    await asyncio.sleep(0.1)
    assert recorder.payloads == [b"late"]
