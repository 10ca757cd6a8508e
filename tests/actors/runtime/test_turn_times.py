"""Samples of how long messages wait and are handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from typing import Any

import pytest

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.runtime import _turn_times as turn_times
from onward.actors.runtime._cell import Cell
from onward.actors.runtime._turn_times import TurnTimes
from onward.protocol import Message
from tests.support.compiled import interpreted
from tests.support.workers import Echo, Recorder


class Clock:
    """A clock that workers move."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def times(node: Node, clock: Clock) -> Generator[TurnTimes]:
    """Times of which each pass is measured."""
    made = TurnTimes(clock, every=1)
    node.parts.run_queue.times = made
    yield made
    node.parts.run_queue.times = None


def slow(clock: Clock, seconds: float) -> type[Worker]:
    class Slow(Recorder):
        def handle_message(self, message: Message) -> None:
            super().handle_message(message)
            clock.now += seconds

    return Slow


def read(histograms: dict[str, Any]) -> dict[str, tuple[int, float]]:
    found = {kind: each.read() for kind, each in histograms.items()}
    return {kind: (sum(each.counts), round(each.total, 6)) for kind, each in found.items()}


async def test_a_turn_counts_for_each_of_its_messages(
    node: Node, times: TurnTimes, clock: Clock
) -> None:
    await node.start(slow(clock, 0.25), address="slow")
    for _ in range(4):
        node.send("slow", b"")
    await asyncio.sleep(0.1)
    assert read(times.handling)["Slow"] == (4, 1.0)
    # The probe is behind the four messages that waited.
    count, total = read(times.waits)["Slow"]
    assert count >= 1
    assert total >= 1.0


async def test_a_probe_is_no_message_and_needs_room(node: Node, times: TurnTimes) -> None:
    recorder = Recorder()
    await node.start(lambda: recorder, address="a", mailbox=MailboxOptions(limit=10))
    for _ in range(10):
        node.send("a", b"x")
    await asyncio.sleep(0.1)
    assert len(recorder.messages) == 10
    (found,) = (each for each in node.statistics().workers if each.kind == "Recorder")
    assert (found.handled, found.refused, found.dropped) == (10, 0, 0)
    assert "Recorder" not in times.waits
    assert read(times.handling)["Recorder"][0] == 10


async def test_a_failure_is_that_of_the_worker(
    node: Node, times: TurnTimes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    class Broken(Worker):
        def handle_message(self, message: Message) -> None:
            raise RuntimeError

    await node.start(Broken, address="failing")
    await node.start(Echo, address="echo")
    node.send("failing", b"")
    assert (await node.request("echo", b"still there")).payload == b"still there"
    assert node.statistics().failed == 1
    assert read(times.handling)["Broken"] == (1, 0.0)


@interpreted
async def test_a_fault_of_a_turn_does_not_stop_the_queue(
    node: Node, times: TurnTimes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    await node.start(Echo, address="echo")
    broken = True

    def turn(self: Cell) -> int:
        nonlocal broken
        if broken:
            broken = False
            raise RuntimeError
        return original(self)

    original = Cell.turn
    monkeypatch.setattr(Cell, "turn", turn)
    assert (await node.request("echo", b"x")).payload == b"x"
    assert not broken


async def test_classes_are_bounded(node: Node, clock: Clock) -> None:
    node.parts.run_queue.times = times = TurnTimes(clock, every=1, kinds=2)
    for number in range(4):
        await node.start(type(f"Kind{number}", (Echo,), {}), address=str(number))
        await node.request(str(number), b"")
    assert len(times.handling) == 3
    assert times.handling["other"].read().counts != ()


async def test_one_pass_in_some_is_measured(node: Node, clock: Clock) -> None:
    times = TurnTimes(clock)
    due = [times.due() for _ in range(4 * turn_times.EVERY)]
    assert due.count(True) == 4
    node.parts.run_queue.times = times
    await node.start(Echo, address="echo")
    for _ in range(10 * turn_times.EVERY):
        await node.request("echo", b"")
    assert 0 < read(times.handling)["Echo"][0] < 10 * turn_times.EVERY
    node.parts.run_queue.times = None


async def test_a_worker_that_stops_drops_its_probe(node: Node, times: TurnTimes) -> None:
    class Stopping(Worker):
        def handle_message(self, message: Message) -> None:
            self.stop()

    await node.start(Stopping, address="stopping")
    for _ in range(3):
        node.send("stopping", b"")
    await asyncio.sleep(0.1)
    assert not node.has("stopping")
