"""What handlers see and do, with an outlet that writes everything down."""

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
    HandlersStatistics,
    Handling,
    Incoming,
    Interaction,
    Request,
)
from onward.actors.broker._handlers import ROUTING_MIME, route_of
from onward.protocol import PayloadTooBig
from onward.protocol.rsocket import MAX_REQUEST_N

FAILED = (0x201, "the handler failed")


class Written:
    """An outlet that keeps what it is told."""

    def __init__(self, limit: int = 1000) -> None:
        self.said: list[Any] = []
        self.limit = limit

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        if len(data) > self.limit:
            raise PayloadTooBig(len(data), self.limit)
        self.said.append((data, metadata, complete) if metadata or complete else data)

    def complete(self) -> None:
        self.said.append("complete")

    def error(self, code: int, text: str) -> None:
        self.said.append((code, text))

    def request_n(self, n: int) -> None:
        self.said.append(n)

    def cancel_input(self) -> None:
        self.said.append("cancel input")


@pytest.fixture
def handlers() -> Handlers:
    return Handlers(max_handling=4, channel_window=4)


@pytest.fixture
def outlet() -> Written:
    return Written()


async def settle() -> None:
    """Let every task run until it waits for something else than its turn."""
    for _ in range(10):
        await asyncio.sleep(0)


async def respond(handlers: Handlers, outlet: Written, data: bytes = b"hi", route: str = "") -> Any:
    request = Request(data, route=route)
    await handlers.start(Interaction.RESPONSE, request, outlet).wait()
    return outlet.said


async def start(
    handlers: Handlers, outlet: Written, kind: Interaction, data: bytes = b"first"
) -> Handling:
    handling = handlers.start(kind, Request(data), outlet)
    await settle()
    return handling


# --- answers ----------------------------------------------------------------------------------


async def test_a_response_is_what_the_handler_returns(handlers: Handlers, outlet: Written) -> None:
    @handlers.response
    async def echo(request: Request) -> bytes:
        return request.data

    assert await respond(handlers, outlet) == [(b"hi", None, True)]


async def test_an_answer_may_have_metadata(handlers: Handlers, outlet: Written) -> None:
    @handlers.response()
    async def echo(_request: Request) -> Answer:
        return Answer(b"data", b"meta")

    assert await respond(handlers, outlet) == [(b"data", b"meta", True)]


async def test_other_kinds_of_bytes_do(handlers: Handlers, outlet: Written) -> None:
    @handlers.response
    async def echo(request: Request) -> Any:
        return memoryview(bytearray(request.data))

    assert await respond(handlers, outlet) == [(b"hi", None, True)]


async def test_what_is_no_answer_is_a_failure(
    handlers: Handlers, outlet: Written, caplog: pytest.LogCaptureFixture
) -> None:
    @handlers.response
    async def odd(_request: Request) -> Any:
        return "text"

    assert await respond(handlers, outlet) == [FAILED]
    assert "not str" in caplog.text


async def test_a_route_finds_its_own_handler_or_the_one_for_all(handlers: Handlers) -> None:
    @handlers.response("orders.get")
    async def get(_request: Request) -> bytes:
        return b"get"

    @handlers.response
    async def rest(request: Request) -> bytes:
        return request.route.encode()

    assert await respond(handlers, Written(), route="orders.get") == [(b"get", None, True)]
    assert await respond(handlers, Written(), route="orders.put") == [(b"orders.put", None, True)]


async def test_what_no_handler_is_for_is_invalid(handlers: Handlers) -> None:
    @handlers.response("one")
    async def one(_request: Request) -> bytes:
        return b""

    nothing = (0x204, "nothing here answers request/response")
    assert await respond(handlers, Written()) == [nothing]
    other = await respond(handlers, Written(), route="x" * 300)
    assert other == [(0x204, f"nothing here answers request/response of '{'x' * 100}'")]
    assert (await start(handlers, silent := Written(), Interaction.METADATA_PUSH)).over
    assert silent.said == []
    assert handlers.statistics() == HandlersStatistics(0, 0, 0, unhandled=3, rejected=0, dropped=1)


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0x201, 0x202, 0x203, 0x204, 0x301, 0xFFFFFFFE])
async def test_an_application_error_is_told_as_it_is(
    handlers: Handlers, outlet: Written, code: int
) -> None:
    @handlers.response
    async def refuse(_request: Request) -> bytes:
        raise ApplicationError(code, "out of stock")

    assert await respond(handlers, outlet) == [(code, "out of stock")]
    assert handlers.statistics().failed == 0


@pytest.mark.parametrize("code", [0, 0x101, 0x200, 0x205, 0x300, 0xFFFFFFFF])
def test_a_code_no_stream_ends_with_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="an error code of a stream"):
        ApplicationError(code, "")


def test_an_application_error_says_what_it_is() -> None:
    assert str(ApplicationError(0x301, "out of stock")) == "0x301: out of stock"


async def test_a_failure_is_logged_and_not_told(
    handlers: Handlers, outlet: Written, caplog: pytest.LogCaptureFixture
) -> None:
    @handlers.response
    async def fail(_request: Request) -> bytes:
        raise RuntimeError("the password is 1234")

    assert await respond(handlers, outlet) == [FAILED]
    assert "the password is 1234" in caplog.text
    assert handlers.statistics() == HandlersStatistics(
        0, started=1, failed=1, unhandled=0, rejected=0, dropped=0
    )


@pytest.mark.parametrize(
    ("request_", "served", "line"),
    [
        (Request(b""), (), "request/response: the handler failed"),
        (Request(b""), ("a", "b"), "request/response of service 'a': the handler failed"),
        (
            Request(b"", route="get", tags=((1, "b"), (6, "eu"))),
            ("a", "b"),
            "request/response 'get' of service 'b': the handler failed",
        ),
        (
            Request(b"", route="x" * 200, tags=((1, None), (6, "eu"))),
            ("s " * 200,),
            f"request/response {'x' * 100!r} of service {'s ' * 50!r}: the handler failed",
        ),
    ],
)
async def test_the_log_names_the_service_that_failed(
    request_: Request,
    served: tuple[str, ...],
    line: str,
    handlers: Handlers,
    outlet: Written,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @handlers.response
    async def fail(_request: Request) -> bytes:
        raise RuntimeError

    for name in served:
        handlers.serves(name)
    await handlers.start(Interaction.RESPONSE, request_, outlet).wait()
    assert [record.getMessage() for record in caplog.records] == [line]


async def test_an_answer_over_the_limit_is_told(
    handlers: Handlers, outlet: Written, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    @handlers.response
    async def big(_request: Request) -> bytes:
        return bytes(1001)

    assert await respond(handlers, outlet) == [(0x201, "the answer is too big")]


async def test_a_handler_that_cancels_itself_answers_canceled(
    handlers: Handlers, outlet: Written
) -> None:
    @handlers.response
    async def give_up(_request: Request) -> bytes:
        raise asyncio.CancelledError

    assert await respond(handlers, outlet) == [(0x203, "the handler was cancelled")]


@pytest.mark.parametrize("kind", [Interaction.FIRE_AND_FORGET, Interaction.METADATA_PUSH])
async def test_what_has_no_answer_gets_none_not_even_an_error(
    handlers: Handlers, outlet: Written, caplog: pytest.LogCaptureFixture, kind: Interaction
) -> None:
    seen: list[bytes] = []

    async def fail(request: Request) -> None:
        seen.append(request.data)
        raise RuntimeError(request.data)

    handlers.fire_and_forget(fail)
    handlers.metadata_push(fail)
    await (await start(handlers, outlet, kind)).wait()
    assert seen == [b"first"]
    assert outlet.said == []
    assert "RuntimeError" in caplog.text


# --- limits -----------------------------------------------------------------------------------


async def test_more_than_may_be_handled_are_rejected(handlers: Handlers) -> None:
    held = asyncio.Event()

    @handlers.response
    async def hold(_request: Request) -> bytes:
        await held.wait()
        return b"done"

    @handlers.fire_and_forget
    async def forget(_request: Request) -> None:
        raise AssertionError("not started")

    first = [await start(handlers, Written(), Interaction.RESPONSE) for _ in range(4)]
    assert await respond(handlers, Written()) == [(0x202, "busy")]
    assert (await start(handlers, Written(), Interaction.FIRE_AND_FORGET)).over
    assert handlers.statistics() == HandlersStatistics(
        running=4, started=4, failed=0, unhandled=0, rejected=2, dropped=1
    )
    held.set()
    for handling in first:
        await handling.wait()
    assert handlers.statistics().running == 0
    assert await respond(handlers, Written()) == [(b"done", None, True)]


@pytest.mark.parametrize(
    "name", ["max_handling", "max_handling_per_peer", "channel_window", "channel_bytes"]
)
def test_a_limit_is_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Handlers(**{name: 0})


# --- registering ------------------------------------------------------------------------------


async def answer(_request: Request) -> bytes:
    raise AssertionError("not started")


async def elements(_request: Request) -> AsyncGenerator[bytes]:
    yield b"1"


async def channel_elements(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
    async for data in incoming:
        yield data


def test_one_handler_for_each_route(handlers: Handlers) -> None:
    handlers.response("a")(answer)
    handlers.response("b")(answer)
    with pytest.raises(ValueError, match="a handler of request/response for 'a' already"):
        handlers.response("a")(answer)


def test_generators_where_they_have_to_be(handlers: Handlers) -> None:
    wrong: Any = elements
    with pytest.raises(TypeError, match="no generator"):
        handlers.response(wrong)
    with pytest.raises(TypeError, match="no generator"):
        handlers.fire_and_forget(wrong)
    wrong = answer
    with pytest.raises(TypeError, match="a generator"):
        handlers.stream("x")(wrong)
    with pytest.raises(TypeError, match="a generator"):
        handlers.channel(wrong)


def test_functions_that_cannot_wait_are_refused_at_once(handlers: Handlers) -> None:
    def plain(_request: Request) -> bytes:
        return b""

    wrong: Any = plain
    for add in (handlers.response, handlers.fire_and_forget, handlers.metadata_push):
        with pytest.raises(TypeError, match="`async def`"):
            add(wrong)
    for table in (handlers.stream("x"), handlers.channel("x")):
        with pytest.raises(TypeError, match="`async def`"):
            table(wrong)


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


async def test_an_iterator_that_cannot_be_closed_will_do(
    handlers: Handlers, outlet: Written
) -> None:
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


async def test_a_generator_that_never_waits_lets_others_run(
    handlers: Handlers, outlet: Written
) -> None:
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
async def test_cancel_closes_the_generator(
    handlers: Handlers, outlet: Written, credit: int
) -> None:
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


async def test_a_stream_whose_requester_is_gone_does_not_end_twice(
    handlers: Handlers, outlet: Written
) -> None:
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


async def test_a_channel_gets_all_elements_and_asks_as_it_takes_them(
    handlers: Handlers, outlet: Written
) -> None:
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


async def test_a_channel_that_ends_first_cancels_its_input(
    handlers: Handlers, outlet: Written
) -> None:
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


async def test_an_element_nobody_asked_for_ends_the_channel(
    handlers: Handlers, outlet: Written
) -> None:
    handlers.channel(channel_elements)
    handling = await start(handlers, outlet, Interaction.CHANNEL)
    handling.element(b"too soon", None)
    handling.element(b"again", None)
    await handling.wait()
    assert outlet.said == [(0x204, "an element that was not asked for")]


async def test_elements_of_what_is_no_channel_are_ignored(
    handlers: Handlers, outlet: Written
) -> None:
    handlers.stream(elements)
    handling = await start(handlers, outlet, Interaction.STREAM)
    handling.element(b"?", None)
    handling.input_complete()
    handling.input_error(0x201, "?")
    handling.credit(5)
    await handling.wait()
    assert outlet.said == [b"1", "complete"]


@pytest.mark.parametrize(("code", "told"), [(0x301, 0x301), (0x101, 0x201)])
async def test_the_requesters_error_reaches_the_handler(
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


async def test_the_requesters_error_ends_a_handler_that_waits_for_credit(
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


# --- routes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "route"),
    [
        ((), ""),
        ((("other", b"\x01x"),), ""),
        (((ROUTING_MIME, b""),), ""),
        (((ROUTING_MIME, b"\x00"),), ""),
        ((("other", b"?"), (ROUTING_MIME, b"\x04echo\x03two")), "echo"),
        (((ROUTING_MIME, b"\x09cut"),), "cut"),
        (((ROUTING_MIME, b"\x02\xffx"),), "\ufffdx"),
    ],
)
def test_the_route_is_the_first_tag_of_its_metadata(
    entries: tuple[tuple[str, bytes], ...], route: str
) -> None:
    assert route_of(entries) == route
