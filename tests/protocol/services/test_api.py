from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from cbor2 import dumps
from hypothesis import given, strategies as st

from onward.protocol.bare import encode_data
from onward.protocol.services import (
    MAX_REQUEST_ID,
    ApiRequest,
    ApiResponse,
    Method,
    ResponseStatus,
    ServiceError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

NUMBER = st.integers(0, MAX_REQUEST_ID)
PATH = st.text(st.characters(codec="utf-8"), max_size=60)
BODY = st.sampled_from([b"", dumps({}), dumps([1, "two", b"3"])])


@given(st.builds(ApiRequest, NUMBER, PATH, st.sampled_from(Method), BODY))
def test_reading_a_request_is_the_inverse_of_writing(request: ApiRequest) -> None:
    assert decode_request(encode_request(request)) == request


@given(st.builds(ApiResponse, NUMBER, NUMBER, st.sampled_from(ResponseStatus), BODY))
def test_reading_a_response_is_the_inverse_of_writing(response: ApiResponse) -> None:
    assert decode_response(encode_response(response)) == response


def test_the_bytes_are_ockams() -> None:
    # Derived by hand: data of 12 bytes, then {1: 7, 2: "echo", 3: 0, 4: false}.
    assert encode_request(
        ApiRequest(7, "echo", Method.GET)
    ).hex() == "0d a4 0107 02646563686f 0300 04f4".replace(" ", "")
    assert encode_response(
        ApiResponse(1, 7, ResponseStatus.OK)
    ).hex() == "0a a4 0101 0207 0318c8 04f4".replace(" ", "")


def test_the_wrapper_may_be_left_out() -> None:
    request = ApiRequest(7, "echo", Method.PUT, dumps({"a": b"b"}))
    assert decode_request(encode_request(request)[1:]) == request


def header(**changes: Any) -> dict[int, Any]:
    """Return a request's header with fields changed, `f1` to `f4`, or left out: `None`."""
    fields: dict[int, Any] = {1: 7, 2: "echo", 3: 0, 4: False}
    fields.update({int(name[1:]): value for name, value in changes.items()})
    return {key: value for key, value in fields.items() if value is not None}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "a header that cannot be read"),
        (b"\xa4\x01", "a header that cannot be read"),
        (dumps({1: 2.5, 2: {1: {}}, 3: {}})[:-1], "a header that cannot be read"),
        (b"\xa1\x01\xc0\x60", "a header that cannot be read"),
        (dumps([1]), "a header that is no map"),
        (dumps(header(f4=True)), "wrong about the body"),
        (dumps(header()) + b"\0", "wrong about the body"),
        (dumps(header(f4=0)), "wrong about the body"),
        (dumps(header(f4=None)), "wrong about the body"),
        (dumps(header(f2=7)), "path"),
        (dumps(header(f2="x" * 256)), "path"),
        (dumps(header(f1=-1)), "field 1"),
        (dumps(header(f1=1 << 32)), "field 1"),
        (dumps(header(f1=True)), "field 1"),
        (dumps(header(f3=None)), "field 3"),
        (dumps(header(f3=5)), "5 is no method"),
    ],
)
def test_a_request_that_is_none(data: bytes, text: str) -> None:
    for payload in (data, encode_data(data)):
        with pytest.raises(ServiceError, match=text):
            decode_request(payload)


def test_a_response_that_is_none() -> None:
    with pytest.raises(ServiceError, match="299 is no status"):
        decode_response(encode_data(dumps({1: 1, 2: 7, 3: 299, 4: False})))


@given(st.binary())
def test_any_bytes_are_a_request_or_an_error(data: bytes) -> None:
    for decode in (decode_request, decode_response):
        with suppress(ServiceError):
            decode(data)
