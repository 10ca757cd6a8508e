"""The header with credentials in front of the wire."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.ockam import MAX_CREDENTIALS, BadHeader, read_header, write_header

VECTORS = {
    "accepted": ("", "c0 0000"),
    "token": ("81746f6b", "c0 0004 81746f6b"),
    "password": (
        "80000475736572 70617373776f7264",
        "c0 000f 800004 75736572 70617373776f7264",
    ),
    "refused": (b"not authenticated".hex(), "c0 0011 6e6f742061757468656e74696361746564"),
}


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_vector_whole_byte_by_byte_and_with_more_behind(vector: tuple[str, str]) -> None:
    content, raw = (bytes.fromhex(text) for text in vector)
    assert write_header(content) == raw
    for size in range(len(raw)):
        assert read_header(raw[:size]) is None
    assert read_header(raw) == (content, len(raw))
    assert read_header(bytearray(raw + b"\x01\x00")) == (content, len(raw))


def test_a_header_that_is_too_long_is_refused_at_its_length() -> None:
    longest = write_header(bytes(MAX_CREDENTIALS))
    assert read_header(longest) == (bytes(MAX_CREDENTIALS), len(longest))
    with pytest.raises(BadHeader, match="over 8448"):
        read_header(b"\xc0" + (MAX_CREDENTIALS + 1).to_bytes(2))
    with pytest.raises(BadHeader, match="over 8448"):
        write_header(bytes(MAX_CREDENTIALS + 1))


@pytest.mark.parametrize("first", [0x00, 0x01, 0x16, 0xC1])
def test_another_first_byte(first: int) -> None:
    with pytest.raises(BadHeader, match=f"the first byte is {first:#04x}, not 0xc0"):
        read_header(bytes((first,)))


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = read_header(data)
    except BadHeader:
        return
    if found is not None:
        content, size = found
        assert data[:size] == write_header(content)
