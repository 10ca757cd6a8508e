"""The places of processes, and what is found of those that run there."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onward.cli import _process_slot
from onward.cli._process import Place
from onward.cli._process_channel import Answerer, Channel, Said
from onward.cli._process_slot import MAX_ENDS, MISSED, WINDOW, Child, Slot
from onward.cli._run import Pace
from onward.cli._status import CommandError, Status
from tests.support.commands import TIMEOUT
from tests.support.fixtures import Patch


class _Process:
    """A process that ends when it is killed, or when it is let go."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.signals: list[str] = []

    async def wait(self) -> int:
        return await self.ended

    def kill(self) -> None:
        self._signalled("kill", -9)

    def terminate(self) -> None:
        self._signalled("terminate", 0)

    def _signalled(self, name: str, status: int) -> None:
        if self.ended.done():
            raise ProcessLookupError
        self.signals.append(name)
        self.ended.set_result(status)


async def nothing(what: str, said: Said) -> Said:
    return {"what": what, "given": said.get("given")}


@asynccontextmanager
async def child(answer: Answerer = nothing) -> AsyncGenerator[tuple[Child, _Process, Channel]]:
    """Yield a child, its process, and the end of its channel there."""
    own, other = socket.socketpair()
    for each in (own, other):
        each.setblocking(False)
    process: Any = _Process()
    made = Child(Place(1, 2, ("a", "b"), "/run", (), 0), process, nothing, own)
    channel = await Channel.open(other, answer)
    try:
        yield made, process, channel
    finally:
        if not process.ended.done():
            process.ended.set_result(0)
        await channel.close()
        await made.over


async def test_it_is_started_once_its_listeners_are_open() -> None:
    async with child() as (made, process, channel):
        assert not made.serves
        made.stop(Pace.ORDERLY)  # it may not listen yet: by a signal
        assert process.signals == ["terminate"]
    async with child() as (made, process, channel):
        await channel.ask("started", TIMEOUT, listeners=["a"])
        assert made.started.result() == ["a"]
        assert made.serves
        assert (await made.ask("this", given=1))["given"] == 1
        assert (await channel.ask("that", TIMEOUT, given=2))["given"] == 2
        await channel.ask("totals", TIMEOUT, totals=[1, 2, 3, 4, 5], log="; logged")
        assert made.totals is not None
        assert made.totals.lost == 5
        process.ended.set_result(3)
        await channel.close()
        assert await made.over == 3
        assert made.obituary() == "ended with status 3"
        made.signal(kill=True)  # there is nothing left to kill


async def test_it_tells_why_it_could_not_start() -> None:
    async with child() as (made, process, channel):
        await channel.ask("failed", TIMEOUT, text="no port", status=int(Status.FAILED))
        process.ended.set_result(1)
        await channel.close()
        await made.over
        assert made.obituary() == "has failed: no port"


async def test_a_start_that_takes_too_long(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_process_slot, "START", 0.01)
    async with child() as (made, process, channel):
        await asyncio.wait_for(asyncio.shield(process.ended), TIMEOUT)
        await channel.close()
        await made.over
        assert "has not started within" in made.obituary()


async def test_a_process_that_answers_lives(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_process_slot, "PULSE", 0.001)
    pulses = asyncio.Event()
    count = 0

    async def answer(what: str, said: Said) -> Said:
        nonlocal count
        count += what == "pulse"
        if count > 3 * MISSED:
            pulses.set()
        return {}

    async with child(answer) as (made, process, channel):
        await channel.ask("started", TIMEOUT, listeners=[])
        await asyncio.wait_for(pulses.wait(), TIMEOUT)
        assert not made.silent
        assert process.signals == []


async def test_a_process_that_hangs_is_killed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_process_slot, "PULSE", 0.001)
    monkeypatch.setattr(_process_slot, "SILENT", 0.01)
    asked = 0

    async def hang(what: str, said: Said) -> Said:
        nonlocal asked
        asked += what == "pulse"
        await asyncio.Event().wait()
        return {}

    async with child(hang) as (made, process, channel):
        await channel.ask("started", TIMEOUT, listeners=[])
        await asyncio.wait_for(asyncio.shield(process.ended), TIMEOUT)
        assert process.signals == ["kill"]
        assert asked == MISSED + 1
        assert made.silent
        await channel.close()
        await made.over
        assert made.obituary() == "has failed: it has hung, and was killed"


async def test_one_answer_is_enough_to_live_on(monkeypatch: Patch) -> None:
    monkeypatch.setattr(_process_slot, "PULSE", 0.001)
    monkeypatch.setattr(_process_slot, "SILENT", 0.2)
    asked, lives = 0, asyncio.Event()

    async def sometimes(what: str, said: Said) -> Said:
        nonlocal asked
        asked += what == "pulse"
        if asked > 2 * (MISSED + 1):
            lives.set()
        if asked % (MISSED + 1):
            await asyncio.Event().wait()
        return {}

    async with child(sometimes) as (_, process, channel):
        await channel.ask("started", TIMEOUT, listeners=[])
        await asyncio.wait_for(lives.wait(), TIMEOUT)
        assert process.signals == []


# --- places -------------------------------------------------------------------------------------


class _Ended:
    def obituary(self) -> str:
        return "was killed by signal 9"


def test_a_process_that_ends_again_and_again() -> None:
    slot: Any = Slot(1, "a")
    due: list[float] = []
    for number in range(MAX_ENDS):
        slot.child = _Ended()
        slot.ended(float(number))
        due.append(slot.due - number)
    assert due == [pytest.approx(0.1 * 2**number) for number in range(MAX_ENDS)]
    slot.child = _Ended()
    with pytest.raises(CommandError, match=re.escape("more than 5 times within 60 s")):
        slot.ended(WINDOW - 1)


def test_ends_long_ago_do_not_count() -> None:
    slot: Any = Slot(0, "a")
    for number in range(3 * MAX_ENDS):
        slot.child = _Ended()
        slot.ended(number * WINDOW)
        assert slot.due - number * WINDOW == pytest.approx(0.1)
