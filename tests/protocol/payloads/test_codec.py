from __future__ import annotations

from typing import Any

import pytest

from onward.protocol import ProtocolError
from onward.protocol.payloads import (
    BARE_STRING,
    BYTES,
    CBOR,
    JSON,
    Codec,
    PayloadError,
    PayloadLimits,
    PlainCodec,
)


class Rot13:
    """A codec of one's own is any object that has the three."""

    name = "rot13"

    def encode(self, value: Any) -> bytes:
        return str(value).encode().translate(bytes.maketrans(b"abcnop", b"nopabc"))

    def decode(self, data: bytes, kind: Any) -> Any:
        return self.encode(data.decode()).decode()


def test_what_is_a_codec() -> None:
    own: Codec = Rot13()
    assert all(isinstance(each, Codec) for each in (own, BYTES, BARE_STRING, CBOR, JSON))
    assert own.decode(own.encode("banco"), str) == "banco"


def test_what_is_a_codec_of_plain_data() -> None:
    assert isinstance(CBOR, PlainCodec)
    assert isinstance(JSON, PlainCodec)
    assert CBOR.native == (bytes,)
    assert JSON.native == ()
    assert not any(isinstance(each, PlainCodec) for each in (Rot13(), BYTES, BARE_STRING))


def test_their_names() -> None:
    assert [each.name for each in (BYTES, BARE_STRING, CBOR, JSON)] == [
        "bytes",
        "bare-string",
        "cbor",
        "json",
    ]


def test_the_error_says_which_field_where_that_is_known() -> None:
    assert str(PayloadError("not UTF-8")) == "bad payload: not UTF-8"
    error = PayloadError("expected a number", "lines[2].count")
    assert str(error) == "bad payload: lines[2].count: expected a number"
    assert (error.reason, error.field) == ("expected a number", "lines[2].count")
    assert isinstance(error, ProtocolError)


def test_the_limits_are_on() -> None:
    assert CBOR.limits == JSON.limits == PayloadLimits(1024 * 1024, 100_000, 32)


@pytest.mark.parametrize("codec", [CBOR, JSON])
def test_the_reader_takes_what_the_writer_takes(codec: Codec) -> None:
    value: Any = {
        "item": "tea",
        "count": 2,
        "price": 1.5,
        "lines": [[1], {"a": 1}, None, True, False, -1],
    }
    assert codec.decode(codec.encode(value), None) == value
