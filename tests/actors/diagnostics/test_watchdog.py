from __future__ import annotations

import asyncio
import gc
from types import FrameType

from onward.actors import Diagnostics, DiagnosticsOptions, Node
from onward.actors.diagnostics._watchdog import LoopWatch, Watchdog
from tests.support.fixtures import Patch


class Loop:
    """A node whose loop is watched, and how often that was found held."""

    def __init__(self, node: Node) -> None:
        self.run_queue = node.parts.run_queue
        self.held = 0

    def loop_held(self, frame: FrameType) -> None:
        self.held += 1
        assert frame.f_code.co_name == "look"


async def test_a_loop_that_gives_a_sign_is_not_held(node: Node) -> None:
    now = [0.0]
    loop = Loop(node)
    watch = LoopWatch(loop, 2.0, lambda: now[0])
    for _ in range(5):
        assert watch.look() == 2.0  # it asks
        now[0] += 1.5
        assert watch.look() == 0.5
        await asyncio.sleep(0)
        now[0] += 1.5
    assert loop.held == 0


async def test_a_loop_that_gives_none_is_told_of_once_for_each_time(node: Node) -> None:
    now = [0.0]
    loop = Loop(node)
    watch = LoopWatch(loop, 2.0, lambda: now[0])
    for times in (1, 2):
        watch.look()
        for _ in range(3):
            now[0] += 2.0
            assert watch.look() == 2.0
        assert loop.held == times
        await asyncio.sleep(0)


async def test_a_node_is_watched_from_its_start_to_its_stop() -> None:
    node = Node()
    loop = Loop(node)
    watch = LoopWatch(loop, 2.0)
    assert watch.look() == 2.0
    async with node:
        assert watch.look() == 2.0
    assert watch.look() is None


def test_a_loop_that_was_closed_is_watched_no_more() -> None:
    async def main() -> Loop:
        node = Node()
        await node.__aenter__()
        return Loop(node)

    loop = asyncio.run(main())
    assert LoopWatch(loop, 2.0).look() is None


def test_who_is_gone_is_watched_no_more() -> None:
    loop = Loop(Node())
    watch = LoopWatch(loop, 2.0)
    del loop
    gc.collect()
    assert watch.look() is None


def test_the_thread_ends_with_the_last_that_is_watched() -> None:
    watchdog = Watchdog()

    loops = [Loop(Node()), Loop(Node())]
    first, second = (LoopWatch(loop, 60.0) for loop in loops)
    watchdog.watch(first)
    thread = watchdog.thread
    assert thread is not None
    assert thread.daemon
    watchdog.watch(second)
    assert watchdog.thread is thread
    watchdog.forget(first)
    watchdog.forget(first)
    watchdog.forget(second)
    thread.join(30)
    assert watchdog.thread is None
    watchdog.watch(LoopWatch(Loop(Node()), 60.0))  # gone at once
    if watchdog.thread is not None:
        watchdog.thread.join(30)
    assert watchdog.thread is None


def test_no_thread_where_the_loop_is_not_watched(monkeypatch: Patch) -> None:
    watchdog = Watchdog()
    monkeypatch.setattr("onward.actors.diagnostics._diagnostics.WATCHDOG", watchdog)
    Diagnostics(Node(), DiagnosticsOptions())
    assert watchdog.thread is None
