"""Padding to buckets: one spelling, one outcome for what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    BUCKETS,
    MAX_RECORD,
    MessageTooBig,
    bucket_of,
    padded,
    padded_size,
    unpadded,
)


def test_the_buckets_are_1_to_64_kib() -> None:
    assert BUCKETS == (1024, 2048, 4096, 8192, 16384, 32768, 65536)


@pytest.mark.parametrize("bucket", BUCKETS)
def test_a_bucket_has_room_for_its_size_and_no_byte_more(bucket: int) -> None:
    assert bucket_of(bucket) == bucket
    assert bucket_of(bucket // 2 + 1) == bucket
    assert unpadded(padded(bytes(bucket - 4), bucket)) == bytes(bucket - 4)
    with pytest.raises(MessageTooBig) as raised:
        padded(bytes(bucket - 3), bucket)
    assert (raised.value.size, raised.value.limit) == (bucket + 1, bucket)


def test_what_fits_in_no_bucket_is_an_error_with_its_size() -> None:
    assert bucket_of(0) == 1024
    with pytest.raises(MessageTooBig) as raised:
        bucket_of(65537)
    assert (raised.value.size, raised.value.limit) == (65537, 65536)
    assert str(raised.value) == "65537 bytes to seal, over the limit of 65536"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0\0\0",  # cut in the length
        b"\0\0\0\1",  # over the room by one
        b"\0\0\0\3hi",
        b"\xff\xff\xff\xffhi",
        b"\0\0\0\2hi\1",  # padding that is not zero, at either end
        b"\0\0\0\2hi\1\0",
        b"\0\0\0\2hi\0\1",
    ],
)
def test_whatever_is_wrong_has_one_outcome(text: bytes) -> None:
    assert unpadded(text) is None


@given(st.binary(max_size=300), st.integers(0, 300))
def test_what_was_padded_comes_back(data: bytes, more: int) -> None:
    room = 4 + len(data) + more
    text = padded(data, room)
    assert len(text) == room
    assert unpadded(text) == data


@pytest.mark.parametrize(
    ("size", "filled"),
    [
        (0, 1024),
        (1024, 1024),
        (1025, 2048),
        (65_536, 65_536),
        (65_537, 131_072),
        (131_072, 131_072),
        (MAX_RECORD, MAX_RECORD),
    ],
)
def test_a_record_of_a_link_is_filled_to_a_bucket_or_a_multiple_of_the_last(
    size: int, filled: int
) -> None:
    assert padded_size(size) == filled


@given(st.binary(max_size=40))
def test_any_bytes_have_one_spelling_or_are_refused(text: bytes) -> None:
    data = unpadded(text)
    assert data is None or padded(data, len(text)) == text
