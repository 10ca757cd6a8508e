from __future__ import annotations

import asyncio

import pytest

from onward.actors import LimitReached, Node, NodeLimits, OnFailure, Supervision, Timer, Worker
from onward.protocol import Message
from tests.support.fixtures import Caplog
from tests.support.workers import start_worker


class Clock(Worker):
    """Writes down when things happen, in seconds since it started."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[float, str]] = []

    def on_start(self) -> None:
        self.began = self.node.loop.time()

    def write(self, what: str) -> None:
        self.log.append((round(self.node.loop.time() - self.began, 6), what))

    def handle_message(self, message: Message) -> None:
        self.write(message.payload.decode())


async def started(node: Node, supervision: Supervision | None = None) -> Clock:
    return await start_worker(node, Clock(), "clock", supervision=supervision or Supervision())


async def test_after_runs_once_at_its_time(node: Node) -> None:
    clock = await started(node)
    timer = clock.after(2.5, lambda: clock.write("due"))
    assert timer.active
    assert node.statistics().workers[0].timers == 1
    await asyncio.sleep(10)
    assert clock.log == [(2.5, "due")]
    assert not timer.active
    assert node.statistics().workers[0].timers == 0


async def test_after_no_time_comes_behind_what_waits(node: Node) -> None:
    clock = await started(node)
    clock.after(0, lambda: clock.write("timer"))
    node.send("clock", b"message")
    await asyncio.sleep(1)
    assert clock.log == [(0.0, "message"), (0.0, "timer")]


async def test_every_runs_until_cancelled(node: Node) -> None:
    clock = await started(node)
    timer = clock.every(1.0, lambda: clock.write("tick"))
    await asyncio.sleep(3.5)
    timer.cancel()
    timer.cancel()
    await asyncio.sleep(3)
    assert clock.log == [(1.0, "tick"), (2.0, "tick"), (3.0, "tick")]


async def test_coroutine_actions_do_not_run_beside_handlers_or_themselves(node: Node) -> None:
    clock = await started(node)

    async def slowly() -> None:
        clock.write("begin")
        await asyncio.sleep(2.2)
        clock.write("end")

    timer = clock.every(1.0, slowly)
    await asyncio.sleep(1.5)
    node.send("clock", b"message")
    await asyncio.sleep(3)
    timer.cancel()
    await asyncio.sleep(10)
    # The ticks at 2 and 3 both passed while the first was running: one is made up for.
    assert clock.log == [
        (1.0, "begin"),
        (3.2, "end"),
        (3.2, "message"),
        (3.2, "begin"),
        (5.4, "end"),
    ]


async def test_a_timer_that_is_due_can_still_be_cancelled(node: Node) -> None:
    clock = await started(node)
    timers: list[Timer] = []

    def first() -> None:
        clock.write("first")
        timers[0].cancel()

    clock.after(1.0, first)
    timers.append(clock.after(1.0, lambda: clock.write("second")))
    await asyncio.sleep(2)
    assert clock.log == [(1.0, "first")]


async def test_a_timer_cancelled_before_it_is_armed_never_is(node: Node) -> None:
    clock = await started(node)
    clock.after(1.0, lambda: clock.write("never")).cancel()
    await asyncio.sleep(2)
    assert clock.log == []


async def test_a_timer_cancelled_in_the_moment_it_goes_off(node: Node) -> None:
    clock = await started(node)
    due = node.loop.time() + 1.0
    timers: list[Timer] = []
    # Both are ready at the same time; asyncio no longer looks whether one is cancelled
    # by a thread while it calls the other.
    timers.append(clock.after(1.0, lambda: clock.write("never")))
    await asyncio.sleep(0)
    timers[0]._handle = None
    node.loop.call_at(due - 0.5, timers[0].cancel)
    await asyncio.sleep(2)
    assert clock.log == []


async def test_a_failing_action_is_a_failure_of_the_worker(caplog: Caplog, node: Node) -> None:
    clock = await started(node)

    def fail() -> None:
        raise ValueError("timer")

    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise ValueError("coroutine")

    clock.after(1.0, fail)
    clock.after(2.0, fail_later)
    await asyncio.sleep(3)
    assert node.statistics().failed == 2
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


async def test_timers_end_with_the_worker(node: Node) -> None:
    clock = await started(node)
    timer = clock.every(1.0, lambda: clock.write("tick"))
    await asyncio.sleep(1.5)
    await node.stop_worker("clock")
    await asyncio.sleep(5)
    assert clock.log == [(1.0, "tick")]
    assert not timer.active


async def test_timers_end_with_the_instance(node: Node) -> None:
    clocks: list[Clock] = []

    def make() -> Clock:
        clocks.append(Clock())
        return clocks[-1]

    await node.start(make, address="clock", supervision=Supervision(OnFailure.RESTART))
    old = clocks[0]
    old.every(1.0, lambda: old.write("tick"))

    def fail() -> None:
        raise ValueError("restart")

    old.after(1.5, fail)
    await asyncio.sleep(5)
    assert len(clocks) == 2
    assert old.log == [(1.0, "tick")]


async def test_impossible_times(node: Node) -> None:
    clock = await started(node)
    for seconds in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="seconds must be a number of seconds"):
            clock.after(seconds, clock.stop)
    with pytest.raises(ValueError, match="seconds must be a number of seconds"):
        clock.every(0, clock.stop)


async def test_the_number_of_timers_is_limited() -> None:
    async with Node(limits=NodeLimits(timers=2)) as node:
        clock = await started(node)
        clock.after(1, lambda: clock.write("a"))
        clock.after(2, lambda: clock.write("b"))
        with pytest.raises(LimitReached, match="2 timers"):
            clock.after(3, lambda: clock.write("c"))
        await asyncio.sleep(1.5)
        clock.after(3, lambda: clock.write("d"))
        await asyncio.sleep(5)
        assert [what for _, what in clock.log] == ["a", "b", "d"]
