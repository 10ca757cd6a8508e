from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

import pytest

from onward.actors import Watch
from onward.actors.instruments._composite import WatchedCoroutine


class Noted(Watch):
    """Notes what is done around a coroutine."""

    def __init__(self) -> None:
        self.steps = 0
        self.inside = False
        self.ends: list[BaseException | None] = []

    def step(self) -> AbstractContextManager[object]:
        return self._step()

    @contextmanager
    def _step(self) -> Generator[None]:
        self.steps += 1
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def ended(self, error: BaseException | None) -> None:
        self.ends.append(error)


async def test_each_step_is_inside_and_the_result_comes_out() -> None:
    noted = Noted()

    async def work() -> str:
        assert noted.inside
        await asyncio.sleep(0)
        assert noted.inside
        return "done"

    task = asyncio.create_task(WatchedCoroutine(work(), noted))
    assert not noted.inside
    assert await task == "done"
    assert (noted.steps, noted.ends) == (2, [None])


async def test_it_can_be_awaited() -> None:
    noted = Noted()

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await WatchedCoroutine(work(), noted) == 7
    assert (noted.steps, noted.ends) == (2, [None])
    watched = WatchedCoroutine(work(), noted)
    assert iter(watched) is watched
    assert asyncio.iscoroutine(watched.cr_await)
    watched.close()


async def test_an_error_comes_out() -> None:
    noted = Noted()

    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        await asyncio.create_task(WatchedCoroutine(work(), noted))
    (error,) = noted.ends
    assert isinstance(error, ValueError)


async def test_a_cancellation_may_be_overcome() -> None:
    noted = Noted()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "all the same"

    task = asyncio.create_task(WatchedCoroutine(work(), noted))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "all the same"
    assert noted.ends == [None]


async def test_one_that_never_began_is_cancelled_without_a_warning() -> None:
    noted = Noted()

    async def work() -> None:
        raise AssertionError("unexpected start")

    task = asyncio.create_task(WatchedCoroutine(work(), noted))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(noted.ends[0], asyncio.CancelledError)
