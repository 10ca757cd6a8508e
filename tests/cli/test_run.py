"""Running a command until it is done or is to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from onward.cli._run import Interrupted, Pace, StopRequest, run
from onward.cli._status import Status


async def test_work_that_is_done_in_time_gives_its_result() -> None:
    async def work() -> int:
        return 7

    assert await StopRequest().unless(work()) == 7


async def test_what_work_raises_is_raised() -> None:
    async def work() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await StopRequest().unless(work())


async def test_work_is_given_up_when_the_command_is_to_stop() -> None:
    stop = StopRequest()
    cleaned_up = False

    async def work() -> None:
        nonlocal cleaned_up
        stop.wish()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up = True

    with pytest.raises(Interrupted) as caught:
        await stop.unless(work())
    assert cleaned_up
    assert (str(caught.value), caught.value.status) == ("interrupted", Status.IN_DOUBT)


async def test_waiting_ends_with_the_wish() -> None:
    stop = StopRequest()
    stop.wish()
    await stop.wait()


@pytest.mark.parametrize(
    ("wishes", "paces"),
    [
        ([Pace.AT_ONCE], [Pace.AT_ONCE]),
        ([Pace.ORDERLY, Pace.ORDERLY], [Pace.ORDERLY, Pace.AT_ONCE]),
        ([Pace.SOON, Pace.ORDERLY], [Pace.SOON, Pace.AT_ONCE]),
        # A drain of a minute can be made shorter, and then cut.
        (
            [Pace.CONFIGURED, Pace.CONFIGURED, Pace.ORDERLY, Pace.CONFIGURED, Pace.SOON],
            [Pace.CONFIGURED, Pace.CONFIGURED, Pace.ORDERLY, Pace.CONFIGURED, Pace.AT_ONCE],
        ),
    ],
)
def test_the_second_urgent_wish_means_at_once(wishes: list[Pace], paces: list[Pace]) -> None:
    stop, told = StopRequest(), list[Pace]()
    stop.wish(wishes[0])  # before the command looks
    with stop.paces(told.append):
        for wish in wishes[1:]:
            stop.wish(wish)
    assert told == paces
    stop.wish()
    assert told == paces


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_the_wish_to_stop(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    async def command(stop: StopRequest) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()

    try:
        run(command)
    finally:
        signal.signal(number, before)


def test_a_server_has_more_signals() -> None:
    reloaded = asyncio.Event()

    async def command(stop: StopRequest) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await reloaded.wait()
        os.kill(os.getpid(), signal.SIGUSR2)
        await stop.wait()

    run(command, {"SIGHUP": reloaded.set, "SIGNONE": reloaded.set})


def test_a_command_runs_on_other_threads_too() -> None:
    done = threading.Event()

    async def command(_: StopRequest) -> None:
        done.set()

    thread = threading.Thread(target=run, args=(command,))
    thread.start()
    thread.join()
    assert done.is_set()
