"""The times of a schedule: each part of a dispatcher has one of use, whatever it was armed for."""

from __future__ import annotations

from asyncio import sleep

import pytest

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, DispatchOptions
from onward.actors.dispatch._dispatch_worker import DispatchWorker
from onward.actors.dispatch._schedule import Schedule


class Part:
    """A part of a dispatcher of which something is due at several times."""

    def __init__(self, schedule: Schedule, *times: float) -> None:
        self.schedule = schedule
        self.scheduled: float | None = None
        self.times = list(times)
        self.done: list[float] = []

    def get_timer(self) -> float | None:
        return min(self.times, default=None)

    def due(self, now: float) -> None:
        self.done += [each for each in self.times if each <= now]
        self.times = [each for each in self.times if each > now]
        self.schedule.arm(self)

    def add(self, at: float) -> None:
        self.times.append(at)
        self.schedule.arm(self)


@pytest.fixture
async def worker(node: Node) -> DispatchWorker:
    made = DispatchWorker(DispatchOptions(), None)
    await node.start(lambda: made, address=DISPATCH)
    return made


@pytest.mark.parametrize("others", [0, 3])
async def test_times_of_one_name_do_not_gather(worker: DispatchWorker, others: int) -> None:
    core = worker.core
    schedule, last = core.schedule, core.now() + 300.0
    part = Part(schedule, last)
    schedule.arm(part)
    for _ in range(1000):
        part.add(core.now() + 0.01)
        await sleep(0.02)
        for _ in range(others):
            # Some are forgotten while the name waits for its last time.
            other = Part(schedule, core.now() + 200.0)
            schedule.arm(other)
            schedule.forget(other)
    assert len(part.done) == 1000
    assert len(schedule) < 80
    await sleep(300)
    assert part.done[-1] == last
    assert len(part.done) == 1001
    assert len(schedule) == 0


async def test_an_action_may_have_those_after_it_performed(
    worker: DispatchWorker, caplog: pytest.LogCaptureFixture
) -> None:
    core, done = worker.core, list[str]()

    def first() -> None:
        done.append("first")
        core.schedule.perform()

    for action in (first, lambda: done.append("second"), lambda: done.append("third")):
        core.schedule.soon(action)
    await sleep(1)
    assert done == ["first", "second", "third"]
    assert not caplog.records
