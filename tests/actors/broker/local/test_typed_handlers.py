"""Handlers that take values: what is decoded, refused, encoded, and which handlers are none."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest

from onward.actors import BadHandler, Node
from onward.actors.broker import (
    Answer,
    Broker,
    BrokerOptions,
    Incoming,
    Request,
    TypedHandlers,
    WaitingOptions,
)
from onward.protocol.payloads import CBOR, JSON, PayloadError
from onward.protocol.rsocket import ErrorCode
from onward.transports.client import Client, connect
from onward.transports.rsocket import DestinationError
from tests.support.transports import eventually


@dataclass
class Order:
    item: str
    count: int


@dataclass
class Receipt:
    item: str
    total: float


SHOP = "service=shop"
handlers = TypedHandlers(codec=JSON, max_handling=100)
told: list[Any] = []


@handlers.response
async def buy(order: Order) -> Receipt:
    return Receipt(order.item, order.count * 3.5)


@handlers.response("nothing")
async def nothing(_value: int) -> None: ...


@handlers.response("as it is")
async def plain(value: int, request: Request) -> Answer:
    return Answer(request.data * value, b"meta")


@handlers.response("fails")
async def fails(value: int) -> int:
    return 1 // value


@handlers.stream
async def count(to: int, request: Request) -> AsyncGenerator[int | str]:
    for number in range(to):
        yield number
    yield request.route


@handlers.fire_and_forget
async def note(order: Order) -> None:
    told.append(order)


@handlers.channel
async def shout(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
    async for data in incoming:
        yield data.upper()


@pytest.fixture
async def client() -> AsyncGenerator[Client]:
    async with Node() as node:
        broker = await Broker.attach(
            node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0))
        )
        broker.serve(handlers, service="shop")
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        async with connect(listener.uri) as client:
            yield client


@pytest.mark.real_time
async def test_a_value_comes_in_and_one_goes_out(client: Client) -> None:
    receipt = await client.request_value(SHOP, Order("tea", 2), Receipt, codec=JSON)
    assert receipt == Receipt("tea", 7.0)
    answer = await client.request(SHOP, b'{"item":"tea","count":1}')
    assert json.loads(answer.data) == {"item": "tea", "total": 3.5}


@pytest.mark.real_time
async def test_what_is_returned_is_encoded_unless_it_is_an_answer(client: Client) -> None:
    assert await client.request_value(SHOP, 1, Any, codec=JSON, route="nothing") is None
    assert await client.request(SHOP, b"2", route="as it is") == Answer(b"22", b"meta")


@pytest.mark.real_time
async def test_values_of_a_stream(client: Client) -> None:
    values = client.stream_values(SHOP, 3, Any, codec=JSON, route="all")
    assert [value async for value in values] == [0, 1, 2, "all"]


@pytest.mark.real_time
async def test_an_element_of_another_type_ends_a_stream(client: Client) -> None:
    values = client.stream_values(SHOP, 2, int, codec=JSON, route="all")
    assert [await anext(values), await anext(values)] == [0, 1]
    with pytest.raises(PayloadError):
        await anext(values)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"item":"tea","count":"two"}', "bad payload: count: Expected `int`, got `str`"),
        (b'{"item":"tea"}', "bad payload: Object missing required field count"),
        (b"\xff", "bad payload: "),
    ],
)
@pytest.mark.real_time
async def test_data_of_another_type_are_invalid(client: Client, data: bytes, text: str) -> None:
    before = handlers.statistics().failed
    with pytest.raises(DestinationError) as caught:
        await client.request(SHOP, data)
    assert caught.value.code == ErrorCode.INVALID
    assert caught.value.text.startswith(text.replace("`", ""))
    with pytest.raises(DestinationError) as caught:
        await client.stream(SHOP, data).__anext__()
    assert caught.value.code == ErrorCode.INVALID
    assert handlers.statistics().failed == before


@pytest.mark.real_time
async def test_a_handler_that_fails_tells_no_details(client: Client) -> None:
    with pytest.raises(DestinationError, match="the handler failed"):
        await client.request_value(SHOP, 0, int, codec=JSON, route="fails")


@pytest.mark.real_time
async def test_without_an_answer_data_of_another_type_are_counted(client: Client) -> None:
    told.clear()
    before = handlers.statistics().dropped
    await client.send(SHOP, b"[]")
    await client.send(SHOP, JSON.encode({"item": "tea", "count": 1}))
    await eventually(lambda: told == [Order("tea", 1)])
    assert handlers.statistics().dropped == before + 1


@pytest.mark.real_time
async def test_a_channel_is_of_bytes(client: Client) -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield b"a"

    assert [each.data async for each in client.channel(SHOP, source())] == [b"A"]


async def test_the_codec_is_cbor_by_default() -> None:
    made = TypedHandlers()

    @made.response
    async def double(value: int) -> int:
        return 2 * value

    answer = await made.response.find("")(Request(CBOR.encode(21)))  # type: ignore[misc]
    assert (CBOR.decode(answer, None), await double(1)) == (42, 2)


# --- what is no typed handler ---------------------------------------------------------------
async def bare(value: Any, request: Request, more: int) -> None: ...


async def nameless(value) -> None: ...  # type: ignore[no-untyped-def]


async def other(value: int, message: bytes) -> None: ...


async def unchecked(value: Order | Receipt) -> None: ...


async def keyword(*, value: int) -> None: ...


async def unknown(value: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


WRONG: list[tuple[Any, str]] = [
    (bare, "bare: takes a value and optionally the request, by position"),
    (keyword, "keyword: takes a value and optionally the request, by position"),
    (nameless, "nameless: 'value' has no annotation"),
    (other, "other: 'message' is the request, with another type"),
    (unchecked, "unchecked: 'value': Type unions may not contain more than one dataclass"),
    (unknown, "unknown: name 'Nowhere' is not defined, for the types of its parameters"),
]


@pytest.mark.parametrize(("handler", "why"), WRONG)
def test_a_handler_declares_a_type_that_can_be_checked(handler: Any, why: str) -> None:
    with pytest.raises(BadHandler) as caught:
        TypedHandlers().response(handler)
    assert str(caught.value).startswith(why)


def test_the_kind_of_function_is_checked_as_ever() -> None:
    async def yields(value: int) -> AsyncGenerator[int]:
        yield value

    async def returns(value: int) -> int:
        return value

    def blocks(value: int) -> int:
        return value

    made = TypedHandlers()
    with pytest.raises(TypeError, match="no generator"):
        made.response(yields)
    with pytest.raises(TypeError, match="a generator: it yields"):
        made.stream(returns)
    with pytest.raises(TypeError, match="made with `async def`"):
        made.fire_and_forget(blocks)
    made.response("a")(returns)
    with pytest.raises(ValueError, match="already"):
        made.response("a")(returns)
