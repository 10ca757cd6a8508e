from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from onward.actors import Node, ThreadWorker
from onward.actors.testing import EPOCH, Deadlock, VirtualLoop, run_virtual, virtual_time


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> list[tuple[float, str]]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        began = loop.time()
        log: list[tuple[float, str]] = []

        async def after(seconds: float) -> None:
            await asyncio.sleep(seconds)
            log.append((loop.time() - began, f"{seconds}"))

        await asyncio.gather(after(3600), after(1), after(60))
        return log

    assert run_virtual(main()) == [(1.0, "1"), (60.0, "60"), (3600.0, "3600")]


async def _for_ever() -> None:
    await asyncio.Event().wait()


def test_a_wait_without_an_end_is_an_error_that_says_who_waits() -> None:
    with pytest.raises(Deadlock, match="everything waits, and no timer is set") as caught:
        run_virtual(_for_ever())
    (where,) = caught.value.waiting
    assert "_for_ever, at" in where
    assert f"{__file__}:" in where
    assert where in str(caught.value)


def test_only_some_of_many_that_wait_are_named() -> None:
    async def main() -> None:
        await asyncio.gather(*(_for_ever() for _ in range(30)))

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())
    assert len(caught.value.waiting) == 21
    assert caught.value.waiting[-1] == "and 11 more"


def test_a_task_of_which_nobody_knows_where_it_waits() -> None:
    class Foreign(Coroutine[Any, Any, None]):
        """As compiled code makes them: without a frame."""

        def send(self, value: Any, /) -> Any:
            return next(asyncio.get_running_loop().create_future().__await__())

        def throw(self, *error: Any) -> Any:
            raise error[0]

        def close(self) -> None:
            pass

        def __await__(self) -> Generator[Any, Any, None]:
            raise AssertionError

    async def main() -> None:
        await asyncio.create_task(Foreign())

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())
    assert [each.rpartition(": ")[2] for each in caught.value.waiting if "at" not in each] == [
        "Foreign"
    ]


def test_what_goes_on_for_ever_ends_all_the_same() -> None:
    ticks = 0

    async def main() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(1)
            ticks += 1

    with pytest.raises(Deadlock, match="after 1,000 virtual seconds"):
        run_virtual(main(), max_time=1000)
    assert ticks == 1000


@virtual_time
async def test_no_time_passes_while_code_runs() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(100):
        await asyncio.sleep(0)
    assert loop.time() == began == EPOCH == 1000.0


def test_work_that_never_lets_time_pass() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, print)

        def again() -> None:
            loop.call_soon(again)

        again()
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onward.actors.testing._virtual.MAX_PASSES", 1000)
        with pytest.raises(Deadlock, match="1,000 passes, and there is always more to do"):
            run_virtual(main())


@virtual_time
async def test_no_timer_is_early() -> None:
    # Asyncio calls timers that are due within the resolution of the clock of the machine. What
    # looks at the time then, and waits again for the rest, would do so without an end: while
    # others do the same in between, the clock never has its turn.
    loop = asyncio.get_running_loop()
    began, early = loop.time(), list[float]()
    at = [began + 1 + number * 2e-10 for number in range(4)]

    def called(when: float) -> None:
        early.append(loop.time() - when)

    for each in at:
        loop.call_at(each, called, each)
    await asyncio.sleep(2)
    assert len(early) == 4
    assert [each for each in early if each < 0] == []


@virtual_time
async def test_passes_are_counted_between_two_steps_of_the_clock() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onward.actors.testing._virtual.MAX_PASSES", 100)
        for _ in range(10):
            for _ in range(50):
                await asyncio.sleep(0)
            await asyncio.sleep(1)


@virtual_time
async def test_no_other_thread_works_for_it() -> None:
    with pytest.raises(RuntimeError, match="for code on one thread"):
        await asyncio.to_thread(print)
    with pytest.raises(RuntimeError, match="for code on one thread"):
        await asyncio.get_running_loop().getaddrinfo("localhost", 1)


@virtual_time
async def test_a_worker_with_a_thread_does_not_start() -> None:
    class Threaded(ThreadWorker):
        pass

    async with Node() as node:
        with pytest.raises(RuntimeError, match="for code on one thread"):
            await node.start(Threaded, address="threaded")
        assert not node.has("threaded")
