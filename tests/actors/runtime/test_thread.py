from __future__ import annotations

import asyncio
import threading
from typing import Any

import pykka
import pytest

from onward.actors import Node, OnFailure, Supervision, ThreadWorker, Worker
from onward.actors._coroutines import is_coroutine
from onward.actors.runtime._thread import OwnThread
from onward.protocol import Message
from tests.support.loops import LoopFactory, on_both_loops, on_each_loop, run_on
from tests.support.workers import Echo


class Blocking(ThreadWorker):
    """Answers with the name of its thread, or what it asked others for, blocking."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def on_start(self) -> None:
        self.threads.append(threading.get_ident())

    def handle_message(self, message: Message) -> None:
        self.threads.append(threading.get_ident())
        if message.payload == b"!":
            raise ValueError("blocking")
        other: pykka.ActorRef[Any] = self.node.ref("loop")
        answer = other.ask(message.payload)
        assert isinstance(answer, bytes)
        self.reply(message, answer)

    def on_stop(self) -> None:
        self.threads.append(threading.get_ident())


class OnLoop(Worker):
    def on_receive(self, message: bytes) -> bytes:
        return message.upper()


@on_each_loop
def test_everything_runs_on_a_thread_that_may_block(loop_factory: LoopFactory) -> None:
    blocking = Blocking()

    async def main() -> None:
        async with Node() as node:
            await node.start(OnLoop, address="loop")
            await node.start(lambda: blocking, address="blocking")
            answer = await node.request("blocking", b"hi")
            assert answer.payload == b"HI"
            assert answer.return_route == (blocking.address,)

    run_on(loop_factory, main())
    assert len(blocking.threads) == 3
    assert len(set(blocking.threads)) == 1
    assert threading.get_ident() not in blocking.threads


@on_both_loops
async def test_coroutine_handlers_run_on_the_thread_too(node: Node) -> None:
    class Coroutines(ThreadWorker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(0)
            assert threading.get_ident() != home
            answer = await self.request("echo", message.payload + b"!")
            child = await self.start_child(Echo)
            again = await self.request((child,), answer.payload + b"!")
            self.reply(message, again.payload)

    home = threading.get_ident()

    node.spawn(Echo, address="echo")
    node.spawn(Coroutines, address="coroutines")
    assert (await node.request("coroutines", b"hi")).payload == b"hi!!"


def test_timers_and_children_from_the_thread() -> None:
    done = threading.Event()
    threads: list[int] = []

    class Timing(ThreadWorker):
        def on_start(self) -> None:
            cancelled = self.after(0.0, lambda: threads.append(-1))
            cancelled.cancel()
            ticking = self.every(0.001, lambda: threads.append(threading.get_ident()))

            def finish() -> None:
                ticking.cancel()
                threads.append(threading.get_ident())
                done.set()

            self.after(0.01, finish)
            self.spawn(Echo, address="child")

    with Node.in_background() as background:
        background.start(Timing)
        assert background.request("child", b"hi").payload == b"hi"
        assert done.wait(10)
    assert len(set(threads)) == 1
    assert -1 not in threads


def test_failure_and_restart_on_the_same_thread() -> None:
    made: list[Blocking] = []

    def make() -> Blocking:
        made.append(Blocking())
        return made[-1]

    with Node.in_background() as background:
        background.start(OnLoop, address="loop")
        background.start(make, address="w", supervision=Supervision(OnFailure.RESTART))
        background.send("w", b"!")
        assert background.request("w", b"hi").payload == b"HI"
    assert len(made) == 2
    assert len({*made[0].threads, *made[1].threads}) == 1


def test_a_handler_that_hangs_is_given_up() -> None:
    release = threading.Event()
    finished = threading.Event()

    class Hanging(ThreadWorker):
        def handle_message(self, message: Message) -> None:
            release.wait(30)
            finished.set()

    with Node.in_background() as background:
        background.start(Hanging, address="hanging")
        background.send("hanging", b"")
        background.stop(timeout=0.2)
        assert background.node.statistics().abandoned == 1
    # The loop it would report to is closed by now.
    release.set()
    assert finished.wait(10)


@on_both_loops
async def test_what_cannot_be_set_on_a_future() -> None:
    def stop() -> None:
        raise StopIteration

    thread = OwnThread("test")
    with pytest.raises(RuntimeError, match="StopIteration"):
        await thread.run(stop)
    assert await thread.run(lambda: 3) == 3
    waiting = asyncio.create_task(thread.run(threading.Event().wait, 0.01))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await thread.run(lambda: 4) == 4
    thread.quit()


def test_is_coroutine() -> None:
    async def nothing() -> None: ...

    coroutine = nothing()
    assert is_coroutine(coroutine)
    assert not is_coroutine(nothing)
    assert not is_coroutine(None)
    coroutine.close()
