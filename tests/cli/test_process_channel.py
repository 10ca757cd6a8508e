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
