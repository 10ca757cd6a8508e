"""Handlers of streams and channels: credit, elements, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from onward.actors.broker import (
    Answer,
    ApplicationError,
    Handlers,
    Handling,
    Incoming,
    Interaction,
    Request,
)
from onward.protocol.rsocket import MAX_REQUEST_N
from tests.support.handled import Written, answer, elements, settle, start


async def channel_elements(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
    async for data in incoming:
        yield data


# --- streams ----------------------------------------------------------------------------------
async def test_a_stream_is_not_advanced_without_credit(handlers: Handlers, outlet: Written) -> None:
    made: list[int] = []

    @handlers.stream
    async def count(_request: Request) -> AsyncGenerator[bytes]:
        for number in range(5):
            made.append(number)
            yield b"%d" % number

    handling = await start(handlers, outlet, Interaction.STREAM)
    assert made == []
    handling.credit(2)
    await settle()
    assert made == [0, 1]
    assert outlet.said == [b"0", b"1"]
    handling.credit(MAX_REQUEST_N)
    handling.credit(MAX_REQUEST_N)
    await handling.wait()
    assert outlet.said == [b"0", b"1", b"2", b"3", b"4", "complete"]
    assert handling.over


async def test_an_iterator_without_a_close(handlers: Handlers, outlet: Written) -> None:
    class Two:
        left = 2

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return b"%d" % self.left

    class Handler:
        def __call__(self, _request: Request) -> AsyncIterator[bytes]:
            return Two()

    handlers.stream(Handler())
    handling = await start(handlers, outlet, Interaction.STREAM)
    handling.credit(9)
    await handling.wait()
    assert outlet.said == [b"1", b"0", "complete"]


async def test_a_generator_that_never_waits_yields(handlers: Handlers, outlet: Written) -> None:
    @handlers.stream
    async def endless(_request: Request) -> AsyncGenerator[bytes]:
        while True:
            yield b"x"

    handling = await start(handlers, outlet, Interaction.STREAM)
    handling.credit(MAX_REQUEST_N)
    await settle()
    handling.cancel()
    await handling.wait()
    assert 64 <= len(outlet.said) <= 64 * 11


async def test_elements_then_an_error(handlers: Handlers, outlet: Written) -> None:
    @handlers.stream
    async def break_off(_request: Request) -> AsyncGenerator[Answer]:
        yield Answer(b"1", b"meta")
        raise ApplicationError(0x301, "no more")

    handling = await start(handlers, outlet, Interaction.STREAM)
    handling.credit(5)
    await handling.wait()
    assert outlet.said == [(b"1", b"meta", False), (0x301, "no more")]


async def test_an_element_over_the_limit_ends_the_stream(
    handlers: Handlers, outlet: Written, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    closed: list[bool] = []

    @handlers.stream
    async def grow(_request: Request) -> AsyncGenerator[bytes]:
        try:
            yield bytes(1)
            yield bytes(1001)
        finally:
            closed.append(True)

    handling = await start(handlers, outlet, Interaction.STREAM)
    handling.credit(5)
    await handling.wait()
    assert outlet.said == [bytes(1), (0x201, "the answer is too big")]
    assert closed == [True]


@pytest.mark.parametrize("credit", [0, 1, 5])
async def test_cancel_ends_the_generator(handlers: Handlers, outlet: Written, credit: int) -> None:
    closed: list[bool] = []

    @handlers.stream
    async def wait_long(_request: Request) -> AsyncGenerator[bytes]:
        try:
            yield b"1"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    handling = await start(handlers, outlet, Interaction.STREAM)
    handling.credit(credit)
    await settle()
    handling.cancel()
    handling.cancel()
    await handling.wait()
    assert closed == [True] * bool(credit)
    assert outlet.said == [b"1"] * bool(credit)
    assert handlers.statistics().running == 0


async def test_what_is_over_stays_so(handlers: Handlers, outlet: Written) -> None:
    @handlers.response
    async def slow(_request: Request) -> bytes:
        await asyncio.sleep(0)
        raise ApplicationError(0x301, "nobody hears it")

    handling = handlers.start(Interaction.RESPONSE, Request(b""), outlet)
    handling.over = True  # as when the requester's error came
    await handling.wait()
    handlers.stream(elements)
    refused = Handlers().start(Interaction.STREAM, Request(b""), Written())
    refused.cancel()
    await refused.wait()
    assert outlet.said == []


async def test_a_stream_without_requester_ends_once(handlers: Handlers, outlet: Written) -> None:
    handling: Handling

    @handlers.channel
    async def late(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        yield await anext(incoming)
        handling.input_error(0x201, "gone")

    handling = handlers.start(Interaction.CHANNEL, Request(b"first"), outlet)
    handling.credit(5)
    await handling.wait()
    assert outlet.said == [b"first"]


async def test_cancel_before_the_handler_began(handlers: Handlers, outlet: Written) -> None:
    handlers.response(answer)
    handling = handlers.start(Interaction.RESPONSE, Request(b""), outlet)
    handling.cancel()
    await handling.wait()
    assert outlet.said == []
    assert handlers.statistics().running == 0


async def test_what_is_said_after_a_cancel_reaches_nobody(
    handlers: Handlers, outlet: Written, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    @handlers.response
    async def stubborn(_request: Request) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return b"all the same"
        raise AssertionError("not reached")

    @handlers.stream
    async def failing(_request: Request) -> AsyncGenerator[bytes]:
        try:
            yield b"1"
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("while it is closed")

    for kind in Interaction.RESPONSE, Interaction.STREAM:
        handling = await start(handlers, outlet, kind)
        handling.credit(2)
        await settle()
        handling.cancel()
        await handling.wait()
    assert outlet.said == [b"1"]


async def test_the_requester_may_go_while_an_element_is_sent(handlers: Handlers) -> None:
    class Gone(Written):
        handling: Handling

        def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
            super().element(data, metadata, complete=complete)
            self.handling.cancel()

    handlers.stream(elements)
    outlet = Gone()
    outlet.handling = handlers.start(Interaction.STREAM, Request(b""), outlet)
    outlet.handling.credit(5)
    await outlet.handling.wait()
    assert outlet.said == [b"1"]
    assert outlet.handling.over


# --- channels ---------------------------------------------------------------------------------
async def test_a_channel_grants_credit_as_it_reads(handlers: Handlers, outlet: Written) -> None:
    handlers.channel(channel_elements)
    handling = await start(handlers, outlet, Interaction.CHANNEL)
    assert outlet.said == []
    handling.credit(3)
    await settle()
    assert outlet.said == [b"first", 4]
    for number in range(4):
        handling.element(b"%d" % number, None)
    await settle()
    # Two elements were taken, two are held as there is no more credit; it is half of the window.
    assert outlet.said == [b"first", 4, b"0", b"1"]
    handling.credit(10)
    await settle()
    assert outlet.said[4:] == [2, b"2", b"3", 2]
    handling.input_complete()
    await handling.wait()
    assert outlet.said[-1] == "complete"


async def test_elements_have_their_metadata(handlers: Handlers, outlet: Written) -> None:
    seen: list[Any] = []

    @handlers.channel
    async def look(request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        assert request.data == b"first"
        seen.extend([(data, incoming.metadata) async for data in incoming])
        yield b"done"

    handling = await start(handlers, outlet, Interaction.CHANNEL)
    handling.credit(1)
    await settle()
    handling.element(b"second", b"meta")
    handling.input_complete()
    await settle()
    assert seen == [(b"first", None), (b"second", b"meta")]
    handling.credit(1)
    await handling.wait()
    assert outlet.said == [4, b"done", "complete"]


async def test_a_channel_that_ends_cancels_its_input(handlers: Handlers, outlet: Written) -> None:
    kept: list[Incoming] = []

    @handlers.channel
    async def first_only(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        kept.append(incoming)
        yield await anext(incoming)

    handling = await start(handlers, outlet, Interaction.CHANNEL)
    handling.credit(5)
    await handling.wait()
    assert outlet.said == [b"first", "complete", "cancel input"]
    handling.element(b"late", None)
    handling.input_complete()
    handling.input_error(0x201, "late")
    assert [data async for data in kept[0]] == []


async def test_an_element_without_credit_is_an_error(handlers: Handlers, outlet: Written) -> None:
    handlers.channel(channel_elements)
    handling = await start(handlers, outlet, Interaction.CHANNEL)
    handling.element(b"too soon", None)
    handling.element(b"again", None)
    await handling.wait()
    assert outlet.said == [(0x204, "an element without credit")]


async def test_elements_to_a_stream_are_ignored(handlers: Handlers, outlet: Written) -> None:
    handlers.stream(elements)
    handling = await start(handlers, outlet, Interaction.STREAM)
    handling.element(b"?", None)
    handling.input_complete()
    handling.input_error(0x201, "?")
    handling.credit(5)
    await handling.wait()
    assert outlet.said == [b"1", "complete"]


@pytest.mark.parametrize(("code", "told"), [(0x301, 0x301), (0x101, 0x201)])
async def test_an_error_of_the_requester(
    handlers: Handlers, outlet: Written, code: int, told: int
) -> None:
    seen: list[ApplicationError] = []

    @handlers.channel
    async def look(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        try:
            async for data in incoming:
                yield data
        except ApplicationError as error:
            seen.append(error)
            raise

    handling = await start(handlers, outlet, Interaction.CHANNEL)
    handling.credit(5)
    await settle()
    handling.input_error(code, "broken")
    handling.input_error(code, "again")
    await handling.wait()
    assert [(error.code, error.text) for error in seen] == [(told, "broken")]
    assert outlet.said == [b"first", 4]


async def test_a_requesters_error_ends_the_wait_for_credit(
    handlers: Handlers, outlet: Written
) -> None:
    handlers.channel(channel_elements)
    handling = await start(handlers, outlet, Interaction.CHANNEL)
    handling.input_error(0x301, "broken")
    await handling.wait()
    assert outlet.said == []


async def test_only_one_task_may_take_elements(handlers: Handlers, outlet: Written) -> None:
    seen: list[BaseException] = []

    @handlers.channel
    async def twice(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        await anext(incoming)
        done = await asyncio.gather(anext(incoming), anext(incoming), return_exceptions=True)
        seen.extend(each for each in done if isinstance(each, BaseException))
        yield b"done"

    handling = await start(handlers, outlet, Interaction.CHANNEL)
    handling.credit(1)
    await settle()
    handling.element(b"one", None)
    handling.credit(1)
    await handling.wait()
    assert [str(error) for error in seen] == ["another task waits for this already"]
