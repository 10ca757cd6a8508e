from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Iterable

import pykka
import pytest

from onward.actors import LoopFuture, WouldDeadlock
from tests.support.loops import on_both_loops


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_get_waits_for_another_thread() -> None:
    future: LoopFuture[int] = LoopFuture()
    waiting = threading.Event()
    got: list[int] = []

    def get() -> None:
        waiting.set()
        got.append(future.get(timeout=10))

    thread = in_thread(get)
    waiting.wait(10)
    future.set(3)
    thread.join()

    assert got == [3]


def test_get_times_out() -> None:
    future: LoopFuture[int] = LoopFuture()
    with pytest.raises(pykka.Timeout, match=r"0\.001 seconds"):
        future.get(timeout=0.001)


def test_a_second_outcome_is_refused() -> None:
    future: LoopFuture[int] = LoopFuture()
    future.set(1)
    with pytest.raises(queue.Full):
        future.set(2)
    with pytest.raises(queue.Full):
        future.set_exception((ValueError, ValueError(), None))
    with pytest.raises(queue.Full):
        future.set_get_hook(lambda _timeout: 3)


def test_the_traceback_of_an_exception_does_not_grow() -> None:
    future: LoopFuture[int] = LoopFuture()
    try:
        raise ValueError("once")
    except ValueError:
        future.set_exception()

    def length() -> int:
        try:
            future.get()
        except ValueError:
            frames = 0
            traceback = sys.exc_info()[2]
            while traceback is not None:
                frames, traceback = frames + 1, traceback.tb_next
            return frames
        raise AssertionError("no exception")

    assert length() == length()


def test_exception_classes_and_nothing_at_all_as_exception() -> None:
    of_class: LoopFuture[int] = LoopFuture()
    of_class.set_exception((KeyError, None, None))
    with pytest.raises(KeyError):
        of_class.get()
    of_nothing: LoopFuture[int] = LoopFuture()
    of_nothing.set_exception((None, None, None))
    with pytest.raises(RuntimeError):
        of_nothing.get()


@on_both_loops
async def test_blocking_on_a_loop_is_an_error_without_a_value() -> None:

    future: LoopFuture[int] = LoopFuture()
    with pytest.raises(WouldDeadlock):
        future.get()
    with pytest.raises(WouldDeadlock):
        future.get(timeout=1)
    with pytest.raises(pykka.Timeout):
        future.get(timeout=0)
    future.set(5)
    assert future.get() == 5


@on_both_loops
async def test_await() -> None:

    there: LoopFuture[int] = LoopFuture()
    there.set(1)
    assert await there == 1

    from_thread: LoopFuture[int] = LoopFuture()
    thread = in_thread(lambda: from_thread.set(2))
    assert await from_thread == 2
    thread.join()

    failed: LoopFuture[int] = LoopFuture()
    failed.set_exception((ValueError, ValueError("no"), None))
    with pytest.raises(ValueError, match="no"):
        await failed

    hooked: LoopFuture[int] = LoopFuture()
    hooked.set_get_hook(lambda _timeout: 4)
    assert await hooked == 4


@on_both_loops
async def test_an_awaiter_that_was_cancelled_is_not_woken() -> None:
    async def wait(future: LoopFuture[int]) -> int:
        return await future

    future: LoopFuture[int] = LoopFuture()
    task = asyncio.create_task(wait(future))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    future.set(1)
    await asyncio.sleep(0)
    assert await future == 1


def test_an_awaiter_whose_loop_is_closed_is_nobody() -> None:
    future: LoopFuture[int] = LoopFuture()
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        await future

    task = loop.create_task(wait())
    loop.run_until_complete(asyncio.sleep(0))
    loop.call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()

    future.set(1)
    assert future.get() == 1


def test_chains_are_computed_when_the_value_arrives() -> None:
    calls: list[int] = []
    future: LoopFuture[int] = LoopFuture()

    def double(value: int) -> int:
        calls.append(value)
        return 2 * value

    mapped = future.map(double)
    assert calls == []
    future.set(4)
    assert calls == [4]
    assert mapped.get() == 8
    assert future.map(double).get() == 8


def test_a_chain_of_a_failed_future_fails() -> None:
    future: LoopFuture[Iterable[int]] = LoopFuture()
    filtered = future.filter(lambda item: item > 1)
    reduced = future.reduce(lambda total, item: total + item, 0)
    future.set_exception((ValueError, ValueError("no"), None))
    with pytest.raises(ValueError, match="no"):
        filtered.get()
    with pytest.raises(ValueError, match="no"):
        reduced.get()


def test_chains_of_a_future_with_a_hook_ask_the_hook() -> None:
    future: LoopFuture[int] = LoopFuture()
    future.set_get_hook(lambda _timeout: 3)
    other: LoopFuture[int] = LoopFuture()
    other.set(4)

    assert future.map(lambda value: value + 1).get() == 4
    assert list(other.join(future).get()) == [4, 3]


def test_join_with_futures_there_and_to_come_and_of_pykka() -> None:
    first: LoopFuture[int] = LoopFuture()
    first.set(1)
    second: LoopFuture[int] = LoopFuture()
    joined = first.join(second)
    with pytest.raises(pykka.Timeout):
        joined.get(timeout=0)
    second.set(2)
    assert list(joined.get(timeout=0)) == [1, 2]

    threading_future: pykka.ThreadingFuture[int] = pykka.ThreadingFuture()
    threading_future.set(3)
    assert list(first.join(threading_future).get()) == [1, 3]


def test_join_fails_with_the_first_failure_in_order() -> None:
    first: LoopFuture[int] = LoopFuture()
    second: LoopFuture[int] = LoopFuture()
    joined = first.join(second)
    second.set_exception((ValueError, ValueError("second"), None))
    first.set(1)
    with pytest.raises(ValueError, match="second"):
        joined.get(timeout=0)


@on_both_loops
async def test_a_value_that_arrives_while_an_await_begins() -> None:
    class Racing(LoopFuture[int]):
        def _on_outcome(self, callback: Callable[[], object]) -> bool:
            self.set(6)
            return super()._on_outcome(callback)

    assert await Racing() == 6
