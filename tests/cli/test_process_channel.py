"""The channel between a broker and its processes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from onward.cli._process_channel import MAX_ASKED, Answerer, Channel, ChannelClosed, Said
from onward.cli._status import CommandError


async def echo(what: str, said: Said) -> Said:
    if what == "fail":
        raise CommandError("it cannot")
    if what == "break":
        raise KeyError("inside")
    if what == "wait":
        await asyncio.Event().wait()
    return {"answer": said.get("value")}


@asynccontextmanager
async def channels(answer: Answerer = echo) -> AsyncGenerator[tuple[Channel, Channel]]:
    ends = socket.socketpair()
    for each in ends:
        each.setblocking(False)
    one, two = [await Channel.open(each, answer) for each in ends]
    try:
        yield one, two
    finally:
        await one.close()
        await two.close()


async def test_either_side_asks_the_other() -> None:
    async with channels() as (one, two):
        asked = [one.ask("this", 30, value=1), two.ask("this", 30, value=2), one.ask("that", 30)]
        assert [each["answer"] for each in await asyncio.gather(*asked)] == [1, 2, None]
        with pytest.raises(CommandError, match="it cannot"):
            await one.ask("fail", 30)


async def test_no_answer_in_time() -> None:
    async with channels() as (one, _):
        with pytest.raises(CommandError, match=r"no answer within 0\.01 s"):
            await one.ask("wait", 0.01)


async def test_the_end_of_the_other_side() -> None:
    async with channels() as (one, two):
        asked = asyncio.create_task(one.ask("wait", 30))
        await one.ask("this", 30)
        await two.close()
        with pytest.raises(ChannelClosed):
            await asked
        await asyncio.wait({one.over})
        with pytest.raises(ChannelClosed):
            await one.ask("this", 30)
        one.tell("this")  # to nothing


async def test_too_many_questions() -> None:
    async with channels() as (one, two):
        asked = [asyncio.create_task(one.ask("wait", 30)) for _ in range(MAX_ASKED)]
        await two.ask("this", 30)
        with pytest.raises(CommandError, match="too many questions"):
            await one.ask("this", 30)
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)


async def test_a_fault_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The other side does not wait in vain, and is not told what is inside."""
    async with channels() as (one, _):
        with pytest.raises(CommandError) as found:
            await one.ask("break", 30)
        assert str(found.value) == "there is a fault in the answer; see the log"
        assert (await one.ask("this", 30, value=1))["answer"] == 1
    assert "no answer to the question break" in caplog.text


async def test_a_side_with_too_many_questions_is_alive() -> None:
    """On either side: the pulse is beside the limit, and each line is an answer to it."""
    async with channels() as (one, _):
        asked = [asyncio.create_task(one.ask("wait", 30)) for _ in range(MAX_ASKED)]
        await asyncio.sleep(0)
        assert await one.pulse(30)
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)


async def test_a_side_that_answers_others_is_alive() -> None:
    other: list[Channel] = []

    async def answer(what: str, said: Said) -> Said:
        if what == "pulse":
            other[0].tell("this")
            await asyncio.Event().wait()
        return said

    async with channels(answer) as (one, two):
        other.append(two)
        assert await one.pulse(0.2)


async def test_a_side_that_writes_nothing_is_not_known_to_be_alive() -> None:
    async def hang(_: str, said: Said) -> Said:
        await asyncio.Event().wait()
        return said

    async with channels(hang) as (one, two):
        assert not await one.pulse(0.01)
        await two.close()
        await asyncio.wait({one.over})
        with pytest.raises(ChannelClosed):
            await one.pulse(30)
