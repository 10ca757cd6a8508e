"""BARE's numbers, texts and bytes: the drafts' examples, and every way a value can be broken."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import OnwardError, ProtocolError
from onward.protocol.bare import BareError, BareReader, encode_data, encode_string, encode_uint

NUMBERS = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (200, "c801"),  # the length of a long address on Ockam's older wire
    (255, "ff01"),
    (300, "ac02"),  # what a pipe of Ockam's confirms message 300 with
    (16384, "808001"),
    ((1 << 64) - 1, "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("number", "written"), NUMBERS)
def test_a_number_is_written_as_in_the_examples_and_read_back(number: int, written: str) -> None:
    assert encode_uint(number).hex() == written
    reader = BareReader(bytes.fromhex(written))
    assert reader.uint() == number
    reader.finish()


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_number_outside_64_bits_cannot_be_written(number: int) -> None:
    with pytest.raises(BareError, match="64 bits"):
        encode_uint(number)


def test_a_text_is_its_length_and_its_utf_8() -> None:
    assert encode_string("hello").hex() == "0568656c6c6f"
    assert encode_string("ö") == b"\x02\xc3\xb6"
    assert encode_string("") == b"\x00"


def test_a_lone_surrogate_cannot_be_written() -> None:
    with pytest.raises(BareError, match="UTF-8"):
        encode_string("\ud800")


def test_data_is_its_length_and_itself() -> None:
    assert encode_data(b"\x00\xff") == b"\x02\x00\xff"
    assert encode_data(b"x" * 200)[:2] == b"\xc8\x01"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("", "a number is cut short"),
        ("80", "a number is cut short"),
        ("8000", "a number in more bytes than it needs"),
        ("ffffffffffffffffff02", "a number over 64 bits"),
        ("ffffffffffffffffff81", "a number over 64 bits"),
        ("80" * 10 + "01", "a number over 64 bits"),
    ],
)
def test_a_broken_number_is_refused(written: str, reason: str) -> None:
    with pytest.raises(BareError) as caught:
        BareReader(bytes.fromhex(written)).uint()
    assert str(caught.value) == f"not BARE: {reason}"
    assert caught.value.reason == reason


def test_a_length_that_lies_is_refused_before_anything_is_made_of_it() -> None:
    with pytest.raises(BareError, match=r"a length of 18446744073709551615 bytes where 1 are left"):
        BareReader(bytes.fromhex("ffffffffffffffffff0161")).data()


def test_a_text_must_be_utf_8() -> None:
    with pytest.raises(BareError, match="not UTF-8"):
        BareReader(b"\x01\xff").string()


def test_bytes_behind_the_value_are_refused() -> None:
    reader = BareReader(b"\x01a\x00\x00")
    assert reader.string() == "a"
    with pytest.raises(BareError, match="2 bytes behind the value"):
        reader.finish()


def test_reading_may_start_within() -> None:
    reader = BareReader(b"\xff\x02", position=1)
    assert reader.uint() == 2
    assert reader.position == 2


def test_the_error_is_of_the_tree_and_a_value_error() -> None:
    assert issubclass(BareError, ProtocolError)
    assert issubclass(BareError, OnwardError)
    assert issubclass(BareError, ValueError)


@given(st.integers(0, (1 << 64) - 1), st.text(), st.binary())
def test_values_one_after_the_other_are_read_back(number: int, text: str, data: bytes) -> None:
    written = encode_uint(number) + encode_string(text) + encode_data(data)
    reader = BareReader(written)
    assert (reader.uint(), reader.string(), reader.data()) == (number, text, data)
    reader.finish()
    for cut in range(len(written)):
        short = BareReader(written[:cut])
        with pytest.raises(BareError):
            _ = short.uint(), short.string(), short.data()


@given(st.binary(max_size=40))
def test_anything_is_read_or_refused_with_the_documented_error(data: bytes) -> None:
    reader = BareReader(data)
    try:
        number = reader.uint()
        rest = reader.string()
        reader.finish()
    except BareError:
        return
    assert encode_uint(number) + encode_string(rest) == data
