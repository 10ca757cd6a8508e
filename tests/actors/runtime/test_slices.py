"""Work in slices: done at once, or with turns of the loop in between."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.runtime._slices import Slices, in_slices, whole
from tests.support.virtual import virtual_time


def counting(most: int, done: list[int]) -> Slices[int]:
    for number in range(most):
        if number:
            yield
        done.append(number)
    return sum(done)


def failing() -> Slices[int]:
    yield
    raise ZeroDivisionError


@pytest.mark.parametrize("most", [0, 1, 4])
def test_the_whole_is_done_at_once(most: int) -> None:
    done: list[int] = []
    assert whole(counting(most, done)) == sum(range(most))
    assert done == list(range(most))


@virtual_time
async def test_other_tasks_run_after_each_slice() -> None:
    done: list[int] = []
    seen: list[int] = []

    async def watch() -> None:
        for _ in range(4):
            seen.append(len(done))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    assert await in_slices(counting(4, done)) == 6
    await watching
    assert seen == [1, 2, 3, 4]


@virtual_time
async def test_a_failure_is_that_of_the_work() -> None:
    with pytest.raises(ZeroDivisionError):
        whole(failing())
    with pytest.raises(ZeroDivisionError):
        await in_slices(failing())
