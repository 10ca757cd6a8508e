from __future__ import annotations

import pytest

from onward.protocol.payloads import BARE_STRING, BYTES, PayloadError


def test_bytes_are_what_they_are() -> None:
    assert BYTES.encode(b"\x00\xff") == BYTES.decode(b"\x00\xff") == b"\x00\xff"


def test_only_bytes_are_bytes() -> None:
    with pytest.raises(PayloadError, match="a value of type str is not bytes"):
        BYTES.encode("text")


def test_a_bare_string_is_what_a_rust_string_is() -> None:
    assert BARE_STRING.encode("hello") == bytes.fromhex("0568656c6c6f")
    assert BARE_STRING.decode(bytes.fromhex("0568656c6c6f")) == "hello"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "a number is cut short"),
        (b"hello", "a length of 104 bytes where 4 are left"),
        (b"\x01\xff", "a text that is not UTF-8"),
        (b"\x01ab", "1 byte behind the value"),
    ],
)
def test_what_is_no_bare_string(payload: bytes, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        BARE_STRING.decode(payload)
    assert caught.value.reason == reason


@pytest.mark.parametrize("value", [b"bytes", 1, "\ud800"])
def test_what_cannot_be_a_bare_string(value: object) -> None:
    with pytest.raises(PayloadError):
        BARE_STRING.encode(value)
