"""The reading of records: one spelling, no allocation by what is announced."""

from __future__ import annotations

from collections.abc import Callable

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_DEPTH,
    MAX_NUMBER,
    BadRecord,
    RecordReader,
    RecordTooBig,
    SigningKey,
)

KEY = SigningKey(bytes(range(32))).identity

Read = Callable[[RecordReader], object]


def number(reader: RecordReader) -> object:
    return reader.number("it")


def binary(reader: RecordReader) -> object:
    return reader.binary("it")


def text(reader: RecordReader) -> object:
    return reader.text("it", 16)


def boolean(reader: RecordReader) -> object:
    return reader.boolean("it")


def identity(reader: RecordReader) -> object:
    return reader.identity("it")


def pair(reader: RecordReader) -> object:
    return reader.enter("it", 2)


@pytest.mark.parametrize(
    ("written", "read", "value"),
    [
        ("00", number, 0),
        ("17", number, 23),
        ("1818", number, 24),
        ("18ff", number, 255),
        ("190100", number, 256),
        ("19ffff", number, 65535),
        ("1a00010000", number, 65536),
        ("1affffffff", number, 2**32 - 1),
        ("1b0000000100000000", number, 2**32),
        ("1bffffffffffffffff", number, MAX_NUMBER),
        ("40", binary, b""),
        ("426869", binary, b"hi"),
        ("60", text, ""),
        ("62c3a9", text, "é"),
        ("f4", boolean, False),
        ("f5", boolean, True),
        ("82", pair, 2),
        (f"5821{KEY.hex()}", identity, KEY),
    ],
)
def test_an_item_is_read_whole_and_refused_when_it_is_cut(
    written: str, read: Read, value: object
) -> None:
    record = bytes.fromhex(written)
    reader = RecordReader(record)
    assert read(reader) == value
    reader.end()
    for size in range(len(record)):
        with pytest.raises(BadRecord, match=r"is cut short|is missing"):
            read(RecordReader(record[:size]))
    behind = RecordReader(record + b"\x00")
    read(behind)
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        behind.end()


@pytest.mark.parametrize(
    ("written", "read", "reason"),
    [
        # RFC 8949, section 4.2.1: "The encoding of an argument MUST be as short as possible."
        ("1817", number, "it is not in the shortest form"),
        ("1900ff", number, "it is not in the shortest form"),
        ("1a0000ffff", number, "it is not in the shortest form"),
        ("1b00000000ffffffff", number, "it is not in the shortest form"),
        ("58026869", binary, "it is not in the shortest form"),
        ("980200", pair, "it is not in the shortest form"),
        # The same section says that "Indefinite-length items MUST NOT appear."
        ("5f426869ff", binary, "it is of indefinite length, or has a reserved one"),
        ("9f0000ff", pair, "it is of indefinite length, or has a reserved one"),
        ("1c", number, "it is of indefinite length, or has a reserved one"),
        ("20", number, "it is a negative number, not a number"),
        ("00", binary, "it is a number, not a byte string"),
        ("6161", binary, "it is a text, not a byte string"),
        ("4161", text, "it is a byte string, not a text"),
        ("a0", pair, "it is a map, not an array"),
        ("c000", number, "it is a tag, not a number"),
        ("f93c00", number, "it is a simple value, not a number"),
        ("f6", boolean, "it is neither true nor false"),
        ("f801", boolean, "it is neither true nor false"),
        ("61ff", text, "it is not UTF-8"),
        ("7161616161616161616161616161616161", text, "it has 17 bytes, not 0 to 16"),
        ("83", pair, "it has 3 items, not 2"),
        ("4100", identity, "it has 1 bytes, not 33"),
        (f"582103{'00' * 32}", identity, "it is of no kind of identity"),
        # Nothing is made of a length that is announced.
        ("5b7fffffffffffffff", binary, "it has 9223372036854775807 bytes, not 0 to 1048576"),
        ("9bffffffffffffffff", pair, "it has 18446744073709551615 items, not 2"),
        ("5a00100000", binary, "it is cut short"),
    ],
)
def test_another_spelling_or_kind_is_refused(written: str, read: Read, reason: str) -> None:
    with pytest.raises(BadRecord) as raised:
        read(RecordReader(bytes.fromhex(written)))
    assert raised.value.reason == reason
    assert str(raised.value) == f"bad record: {reason}"


def test_a_number_and_a_length_have_the_limit_of_their_place() -> None:
    with pytest.raises(BadRecord, match="it is 5, over 4"):
        RecordReader(b"\x05").number("it", 4)
    with pytest.raises(BadRecord, match="it has 1 items, not 2 to 3"):
        RecordReader(b"\x81").enter("it", 2, 3)
    with pytest.raises(BadRecord, match="it has 0 bytes, not 1 to 9"):
        RecordReader(b"\x40").binary("it", 9, 1)


def test_null_is_read_where_it_may_stand() -> None:
    reader = RecordReader(b"\xf6\x01")
    assert reader.is_null("the first")
    assert not reader.is_null("the second")
    assert reader.number("the second") == 1
    with pytest.raises(BadRecord, match="the third is missing"):
        reader.is_null("the third")


def test_arrays_in_arrays_have_a_limit() -> None:
    reader = RecordReader(b"\x81" * (MAX_DEPTH + 1))
    for _ in range(MAX_DEPTH):
        reader.enter("an array", 1)
    with pytest.raises(BadRecord, match="more than 8 arrays in each other"):
        reader.enter("an array", 1)


def test_arrays_beside_each_other_have_none() -> None:
    reader = RecordReader(b"\x80" * 20)
    for _ in range(20):
        reader.enter("an array", 0)
        reader.leave()
    reader.end()


def test_a_record_over_its_limit_is_not_read() -> None:
    with pytest.raises(RecordTooBig) as raised:
        RecordReader(bytes(11), 10)
    assert (raised.value.size, raised.value.limit) == (11, 10)
    assert str(raised.value) == "bad record: 11 bytes, over the limit of 10"


@given(st.integers(0, MAX_NUMBER), st.binary(max_size=300), st.text(max_size=80), st.booleans())
def test_what_cbor2_writes_of_tuples_is_read(
    count: int, data: bytes, words: str, flag: bool
) -> None:
    reader = RecordReader(cbor2.dumps((count, data, words, flag, None)))
    assert reader.enter("it", 5) == 5
    assert reader.number("a") == count
    assert reader.binary("b") == data
    assert reader.text("c", 400) == words
    assert reader.boolean("d") is flag
    assert reader.is_null("e")
    reader.leave()
    reader.end()


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (number, binary, text, boolean, identity, pair):
        reader = RecordReader(data)
        try:
            read(reader)
            reader.end()
        except BadRecord:
            continue
        # One spelling: what was read is written as the same bytes.
        assert read is pair or cbor2.dumps(cbor2.loads(data)) == data
