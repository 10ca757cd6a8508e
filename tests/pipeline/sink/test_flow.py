"""How many batches are out at a time: fewer where they are not taken, more where they are."""

from __future__ import annotations

import asyncio

import pytest

from onward.pipeline.sink import _flow
from onward.pipeline.sink._flow import BatchWindow


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flow, "FIRST_PAUSE", 0.0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def entered(
    flow: BatchWindow, numbers: list[int]
) -> tuple[list[int], list[asyncio.Task[None]]]:
    """Have batches wait in some order; return who is let out, and the tasks that wait."""
    out = list[int]()

    async def wait(number: int) -> None:
        await flow.enter(number)
        out.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in numbers]
    await settle()
    return out, tasks


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_as_many_are_out_as_may_be_and_those_before_go_first() -> None:
    flow = BatchWindow(2)
    out, tasks = await entered(flow, [5, 4, 3, 2, 1])
    assert out == [5, 4]
    flow.leave()
    await settle()
    assert out == [5, 4, 1]
    flow.leave()
    await settle()
    assert out == [5, 4, 1, 2]
    await end(tasks)


async def test_a_window_is_halved_down_to_one_and_grows_by_one_each_time_it_was_taken() -> None:
    flow, limits = BatchWindow(8), list[int]()
    for _ in range(5):
        assert flow.push_back() >= 0
        assert flow.push_back() >= 0  # the same event
        limits.append(flow.limit)
        await asyncio.sleep(0)
        await settle()
    assert limits == [4, 2, 1, 1, 1]
    limits = []
    for _ in range(40):
        flow.progress()
        limits.append(flow.limit)
    assert limits[:6] == [2, 2, 3, 3, 3, 4]
    assert limits[-1] == 8
    assert flow.taken == 40


async def test_all_wait_while_there_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_flow, "FIRST_PAUSE", 0.01)
    flow = BatchWindow(2)
    flow.push_back()
    out, tasks = await entered(flow, [1])
    assert out == []
    await tasks[0]
    assert out == [1]


async def test_who_is_cancelled_takes_no_place() -> None:
    flow = BatchWindow(1)
    out, tasks = await entered(flow, [1, 2, 3])
    tasks[1].cancel()
    await settle()
    flow.leave()  # lets out the third, which is cancelled before it knows
    tasks[2].cancel()
    await settle()
    assert out == [1]
    assert (await entered(flow, [4]))[0] == [4]
