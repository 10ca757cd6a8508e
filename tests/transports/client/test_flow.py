"""What a client sends no faster than it is asked, what it cancels, and what took too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from onward.actors.broker import ApplicationError, Handlers, Incoming, Request
from onward.protocol import InDoubt
from onward.transports.client import connect
from tests.support.transports import eventually

from .joined import data_of, joined, source
from .peers import QUICK, broker, quick

ECHO = "service=echo"


async def test_a_stream_is_no_further_than_its_windows() -> None:
    made = 0
    handlers = Handlers()

    @handlers.stream
    async def endless(_request: Request) -> AsyncGenerator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield b"x"

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers) as destination,
        connect(uri, options=quick(stream_window=4)) as client,
    ):
        elements = client.stream(ECHO, b"")
        assert (await anext(elements)).data == b"x"
        await eventually(lambda: made >= 4)
        for _ in range(50):
            await anext(elements)
            assert made <= 51 + 4 + 1
        await elements.aclose()
        await eventually(lambda: handlers.statistics().running == 0)
        assert destination.statistics().connected == 1


async def test_a_channel_takes_from_its_source_as_it_is_asked() -> None:
    taken = 0

    async def counted() -> AsyncGenerator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x"

    handlers = Handlers(channel_window=4)
    closed = asyncio.Event()

    @handlers.channel
    async def two(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        yield await anext(incoming)
        yield await anext(incoming)
        await closed.wait()

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri, options=QUICK) as client,
    ):
        elements = client.channel(ECHO, counted())
        assert (await anext(elements)).data == b"x"
        assert (await anext(elements)).data == b"x"
        await eventually(lambda: taken == 5)
        closed.set()
        # The handler has ended and cancels what it has not taken: so the channel ends.
        assert await data_of(elements) == []
        assert taken == 5


async def test_leaving_a_loop_cancels_the_stream() -> None:
    async with joined() as pair:
        async for element in pair.client.stream(ECHO, b"1000000"):
            assert element.data == b"0"
            break
        await eventually(lambda: pair.handlers.statistics().running == 0)
        await eventually(lambda: pair.client.statistics().in_flight == 0)


async def test_cancelling_a_request_cancels_its_handler() -> None:
    handlers = Handlers()
    began, cancelled = asyncio.Event(), asyncio.Event()

    @handlers.response
    async def hold(_request: Request) -> bytes:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("not reached")

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        asked = asyncio.create_task(client.request(ECHO, b""))
        await began.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.wait_for(cancelled.wait(), 5)
        cancelled.clear()
        with pytest.raises(TimeoutError) as caught:
            await client.request(ECHO, b"", timeout=0.05)
        assert isinstance(caught.value, InDoubt)
        await asyncio.wait_for(cancelled.wait(), 5)
        assert client.statistics().timeouts == 1


async def test_a_stream_may_be_too_slow() -> None:
    handlers = Handlers()

    @handlers.stream
    async def one(_request: Request) -> AsyncGenerator[bytes]:
        yield b"1"
        await asyncio.Event().wait()

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        elements = client.stream(ECHO, b"", element_timeout=0.05)
        assert (await anext(elements)).data == b"1"
        with pytest.raises(TimeoutError):
            await anext(elements)
        await eventually(lambda: handlers.statistics().running == 0)
        assert client.statistics().in_flight == 0


async def test_a_timeout_of_a_handlers_own_is_none_of_ours() -> None:
    async def late() -> AsyncGenerator[bytes]:
        yield b"1"
        raise TimeoutError("the source's own")

    async with joined() as pair:
        with pytest.raises(TimeoutError, match="the source's own"):
            await data_of(pair.client.channel(ECHO, late()))


async def test_what_the_source_raises_is_raised_and_the_handler_is_told() -> None:
    handlers = Handlers()
    seen: asyncio.Queue[Exception] = asyncio.Queue()

    @handlers.channel
    async def look(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        try:
            async for data in incoming:
                yield data
        except ApplicationError as error:
            seen.put_nowait(error)
            raise

    async with (
        broker() as (uri, _),
        connect(uri, service="echo", handlers=handlers),
        connect(uri) as client,
    ):
        with pytest.raises(KeyError):
            await data_of(client.channel(ECHO, source(b"1", KeyError("x"))))
        assert str(await seen.get()) == "0x201: the requester failed"


async def test_a_source_without_elements_sends_nothing() -> None:
    async with joined() as pair:
        assert await data_of(pair.client.channel(ECHO, source())) == []
        assert pair.handlers.statistics().started == 0
