from __future__ import annotations

import asyncio

import pytest

from onward.actors.testing import EPOCH, VirtualLoop, virtual_time
from onward.transports.simulated._clockwork import Clockwork


@virtual_time
async def test_what_is_due_at_once_keeps_its_order() -> None:
    # More than a heap of timers without a number would keep in order.
    loop = asyncio.get_running_loop()
    clockwork = Clockwork(loop, 10)
    log: list[tuple[float, int]] = []

    def note(number: int) -> None:
        log.append((loop.time(), number))

    for number in range(50):
        clockwork.at(EPOCH + 5 - number % 2, note, number)
    await asyncio.sleep(10)
    assert log == [
        *((EPOCH + 4, number) for number in range(1, 50, 2)),
        *((EPOCH + 5, number) for number in range(0, 50, 2)),
    ]


@virtual_time
async def test_what_is_asked_for_while_it_works() -> None:
    loop = asyncio.get_running_loop()
    clockwork = Clockwork(loop, 10)
    log: list[str] = []

    def first() -> None:
        log.append("first")
        clockwork.at(loop.time(), log.append, "at once")
        clockwork.at(loop.time() + 1, log.append, "later")

    clockwork.at(EPOCH + 1, first)
    clockwork.at(EPOCH + 1, log.append, "second")
    await asyncio.sleep(1.5)
    assert log == ["first", "second", "at once"]
    await asyncio.sleep(1)
    assert log == ["first", "second", "at once", "later"]


@virtual_time
async def test_a_call_is_not_before_its_time_though_the_loop_is_early() -> None:
    loop = asyncio.get_running_loop()
    clockwork = Clockwork(loop, 10)
    assert clockwork.now == loop.time()
    log: list[tuple[bool, bool]] = []

    def called(when: float) -> None:
        log.append((loop.time() < when, clockwork.now < when))

    when = loop.time() + 1
    clockwork.at(when, called, when)
    loop.call_at(when - 1e-10, lambda: None)  # the loop calls both then: its clock is no finer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VirtualLoop, "_clock_resolution", 1e-9)  # that of a real one
        await asyncio.sleep(2)
    assert log == [(True, False)]


@virtual_time
async def test_what_is_due_already_is_not_called_at_once() -> None:
    clockwork = Clockwork(asyncio.get_running_loop(), 10)
    log: list[str] = []
    clockwork.at(EPOCH - 1, log.append, "due")
    assert log == []
    await asyncio.sleep(0.001)
    assert log == ["due"]


@virtual_time
async def test_a_failure_stops_nothing_else() -> None:
    loop = asyncio.get_running_loop()
    clockwork = Clockwork(loop, 10)
    log: list[str] = []
    failed: list[object] = []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))

    def fail() -> None:
        raise KeyError

    clockwork.at(EPOCH + 1, fail)
    clockwork.at(EPOCH + 1, log.append, "still")
    await asyncio.sleep(2)
    assert log == ["still"]
    assert [type(each) for each in failed] == [KeyError]


@virtual_time
async def test_after_the_end_nothing_is_due() -> None:
    clockwork = Clockwork(asyncio.get_running_loop(), 2)
    log: list[str] = []
    clockwork.at(EPOCH + 1, log.append, "never")
    clockwork.stop()
    clockwork.at(EPOCH + 1, log.append, "never")
    await asyncio.sleep(2)
    clockwork.stop()
    assert log == []


@virtual_time
async def test_the_history_is_bounded() -> None:
    clockwork = Clockwork(asyncio.get_running_loop(), 2)
    for kind in ("one", "two", "three"):
        clockwork.note(kind, "a", "b")
    assert [each.kind for each in clockwork.history] == ["two", "three"]
