"""What handlers see and answer, with an outlet that writes everything down."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from onward.actors.broker import (
    Answer,
    ApplicationError,
    Handlers,
    HandlersStatistics,
    Interaction,
    Request,
)
from onward.actors.broker.local._handlers import ROUTING_MIME, route_of
from tests.support.fixtures import Caplog
from tests.support.handled import Written, answer, elements, start

FAILED = (0x201, "the handler failed")


async def respond(handlers: Handlers, outlet: Written, data: bytes = b"hi", route: str = "") -> Any:
    request = Request(data, route=route)
    await handlers.start(Interaction.RESPONSE, request, outlet).wait()
    return outlet.said


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

    @handlers.response("wrapped")
    async def wrapped(request: Request) -> Any:
        data: Any = bytearray(request.data)
        return Answer(data, data)

    assert await respond(handlers, outlet) == [(b"hi", None, True)]
    assert await respond(handlers, Written(), route="wrapped") == [(b"hi", b"hi", True)]


TEXT: Any = "text"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (TEXT, "PayloadNotBytes: an answer is bytes, not str"),
        (None, "PayloadNotBytes: an answer is bytes, not NoneType"),
        (Answer(TEXT), "PayloadNotBytes: an answer is bytes, not str"),
        (Answer(b"", TEXT), "PayloadNotBytes: the metadata of an answer is bytes, not str"),
    ],
)
async def test_what_is_no_answer_is_a_failure(
    given: Any, words: str, handlers: Handlers, outlet: Written, caplog: Caplog
) -> None:
    @handlers.response
    async def odd(_request: Request) -> Any:
        return given

    assert await respond(handlers, outlet) == [FAILED]
    assert words in caplog.text


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

    nothing = (0x204, "no handler for request/response")
    assert await respond(handlers, Written()) == [nothing]
    other = await respond(handlers, Written(), route="x" * 300)
    assert other == [(0x204, f"no handler for request/response of '{'x' * 100}'")]
    assert (await start(handlers, silent := Written(), Interaction.METADATA_PUSH)).over
    assert silent.said == []
    assert handlers.statistics() == HandlersStatistics(0, 0, 0, unhandled=3, rejected=0, dropped=1)


# --- errors -----------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [0x201, 0x202, 0x203, 0x204, 0x301, 0xFFFFFFFE])
async def test_an_application_error_is_sent(handlers: Handlers, outlet: Written, code: int) -> None:
    @handlers.response
    async def refuse(_request: Request) -> bytes:
        raise ApplicationError(code, "out of stock")

    assert await respond(handlers, outlet) == [(code, "out of stock")]
    assert handlers.statistics().failed == 0


@pytest.mark.parametrize("code", [0, 0x101, 0x200, 0x205, 0x300, 0xFFFFFFFF])
def test_a_code_no_stream_ends_with_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="an error code of a stream"):
        ApplicationError(code, "")


class OfAnotherMaking(ApplicationError):
    def __init__(self, code: Any, text: Any) -> None:
        self.code, self.text = code, text


@pytest.mark.parametrize("error", [ApplicationError, OfAnotherMaking])
@pytest.mark.parametrize(("code", "text"), [(0x301, {"why": 1}), (0x301, None), (769.0, "mine")])
async def test_an_error_that_cannot_be_told_is_a_failure(
    error: Any, code: Any, text: Any, handlers: Handlers, outlet: Written, caplog: Caplog
) -> None:
    @handlers.response
    async def refuse(_request: Request) -> bytes:
        raise error(code, text)

    assert await respond(handlers, outlet) == [FAILED]
    assert "the code of an error is an int, its text a str" in caplog.text
    assert handlers.statistics().failed == 1


def test_an_application_error_says_what_it_is() -> None:
    assert str(ApplicationError(0x301, "out of stock")) == "0x301: out of stock"


async def test_a_failure_is_only_logged(
    handlers: Handlers, outlet: Written, caplog: Caplog
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
    caplog: Caplog,
) -> None:
    @handlers.response
    async def fail(_request: Request) -> bytes:
        raise RuntimeError

    for name in served:
        handlers.serves(name)
    await handlers.start(Interaction.RESPONSE, request_, outlet).wait()
    assert [record.getMessage() for record in caplog.records] == [line]


async def test_an_oversized_response(handlers: Handlers, outlet: Written, caplog: Caplog) -> None:
    caplog.set_level(logging.CRITICAL)

    @handlers.response
    async def big(_request: Request) -> bytes:
        return bytes(1001)

    assert await respond(handlers, outlet) == [(0x201, "the answer is too big")]


async def test_a_handler_that_cancels_itself(handlers: Handlers, outlet: Written) -> None:
    @handlers.response
    async def give_up(_request: Request) -> bytes:
        raise asyncio.CancelledError

    assert await respond(handlers, outlet) == [(0x203, "the handler was cancelled")]


@pytest.mark.parametrize("kind", [Interaction.FIRE_AND_FORGET, Interaction.METADATA_PUSH])
async def test_what_has_no_answer_gets_none_not_even_an_error(
    handlers: Handlers, outlet: Written, caplog: Caplog, kind: Interaction
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
def test_the_route_is_the_first_routing_tag(
    entries: tuple[tuple[str, bytes], ...], route: str
) -> None:
    assert route_of(entries) == route


@pytest.mark.parametrize("most", [1, 2])
async def test_handlers_are_busy_when_as_many_are_at_work_as_may_be(most: int) -> None:
    handlers, gate = Handlers(max_handling=most), asyncio.Event()

    @handlers.response
    async def wait(request: Request) -> bytes:
        await gate.wait()
        return request.data

    at_work: list[Any] = []
    for number in range(most):
        assert not handlers.busy
        assert handlers.room_for(None) == most
        at_work.append(await start(handlers, Written(), Interaction.RESPONSE))
        assert handlers.statistics().running == number + 1
    assert handlers.busy
    gate.set()
    await at_work[0].wait()
    assert not handlers.busy
