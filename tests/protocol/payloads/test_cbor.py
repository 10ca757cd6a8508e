"""CBOR payloads: RFC 8949's own examples, and all that is refused before it is built."""

from __future__ import annotations

import math
from typing import Any

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.payloads import CBOR, CborCodec, PayloadError, PayloadLimits

SMALL = CborCodec(PayloadLimits(size=64, items=8, depth=3))

keys = st.text() | st.binary() | st.integers(-(2**32 - 1), 2**32 - 1)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda each: st.lists(each, max_size=5) | st.dictionaries(keys, each, max_size=5),
    max_leaves=20,
)

# RFC 8949, appendix A.
EXAMPLES: list[tuple[str, Any]] = [
    ("00", 0),
    ("17", 23),
    ("1818", 24),
    ("1903e8", 1000),
    ("1a000f4240", 1_000_000),
    ("1bffffffffffffffff", 2**64 - 1),
    ("20", -1),
    ("3863", -100),
    ("3bffffffffffffffff", -(2**64)),
    ("f93c00", 1.0),
    ("fa47c35000", 100000.0),
    ("fb3ff199999999999a", 1.1),
    ("f97c00", math.inf),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("40", b""),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("60", ""),
    ("6161", "a"),
    ("62c3bc", "ü"),
    ("80", []),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("98190102030405060708090a0b0c0d0e0f101112131415161718181819", list(range(1, 26))),
    ("a0", {}),
    ("a201020304", {1: 2, 3: 4}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("a120f6", {-1: None}),
    ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"),
    ("7f657374726561646d696e67ff", "streaming"),
    ("9fff", []),
    ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("7818" + "61" * 24, "a" * 24),
    ("a141000a", {b"\x00": 10}),
]

REFUSED: list[tuple[str, str]] = [
    ("", "cut short"),
    ("18", "cut short"),
    ("6261", "cut short"),
    ("42ff", "cut short"),
    ("8201", "cut short"),
    ("7f6161", "cut short"),
    ("9f01", "cut short"),
    ("1c", "a header that RFC 8949 does not define"),
    ("1f", "a header that RFC 8949 does not define"),
    ("3f", "a header that RFC 8949 does not define"),
    ("ff", "a simple value that is not false, true or null"),
    ("81ff", "a simple value that is not false, true or null"),
    ("f7", "a simple value that is not false, true or null"),
    ("f0", "a simple value that is not false, true or null"),
    ("f818", "a simple value that is not false, true or null"),
    ("c11a514b67b0", "a tag; only plain data is taken"),
    ("c249010000000000000000", "a tag; only plain data is taken"),
    ("d9d9f700", "a tag; only plain data is taken"),
    ("61ff", "a text that is not UTF-8"),
    ("7861ff" + "00" * 96, "a text that is not UTF-8"),
    ("7f61c361bcff", "a text that is not UTF-8"),
    ("5f6161ff", "a chunk of a string that is none"),
    ("5f5f4100ffff", "a chunk of a string that is none"),
    ("0000", "1 byte behind the item"),
    ("a2616101616102", "the key 'a' twice"),
    ("bf01010102ff", "the key 1 twice"),
    ("a1f501", "a key that is not a text, bytes or a number of 32 bits"),
    ("a1f601", "a key that is not a text, bytes or a number of 32 bits"),
    ("a1f93c0001", "a key that is not a text, bytes or a number of 32 bits"),
    ("a18001", "a key that is not a text, bytes or a number of 32 bits"),
    ("a11b000000010000000001", "a key that is not a text, bytes or a number of 32 bits"),
    ("9bffffffffffffffff", "over 100000 items"),
    ("9a0000ffff", "cut short"),
    ("bb7fffffffffffffff", "over 100000 items"),
    ("5bffffffffffffffff", "cut short"),
    ("81" * 33 + "00", "over 32 deep"),
    ("9f" * 33 + "00", "over 32 deep"),
]


@pytest.mark.parametrize(("written", "value"), EXAMPLES)
def test_examples_of_the_rfc_are_read(written: str, value: object) -> None:
    read = CBOR.decode(bytes.fromhex(written))
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(("written", "reason"), REFUSED)
def test_what_is_refused(written: str, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        CBOR.decode(bytes.fromhex(written))
    assert caught.value.reason == reason


def test_a_number_that_is_none_is_read() -> None:
    assert math.isnan(CBOR.decode(bytes.fromhex("f97e00")))


@given(plain)
def test_plain_data_is_read_as_it_was_written_and_as_another_reader_reads_it(value: Any) -> None:
    written = CBOR.encode(value)
    assert CBOR.decode(written) == value == cbor2.loads(written)


@given(st.binary(max_size=64))
def test_anything_is_read_or_refused_with_the_documented_error(data: bytes) -> None:
    try:
        value = CBOR.decode(data)
    except PayloadError:
        return
    # cbor2 takes whatever we take, and reads the same.
    assert repr(cbor2.loads(data)) == repr(value)


def test_limits_when_reading() -> None:
    assert SMALL.decode(cbor2.dumps([1] * 7)) == [1] * 7
    assert SMALL.decode(cbor2.dumps({1: 1, 2: 2, 3: 3})) == {1: 1, 2: 2, 3: 3}
    for value in ([1] * 8, {1: 1, 2: 2, 3: 3, 4: 4}, [[1, 2, 3], [4, 5, 6, 7]]):
        with pytest.raises(PayloadError, match="over 8 items"):
            SMALL.decode(cbor2.dumps(value))
    with pytest.raises(PayloadError, match="over 8 items"):
        SMALL.decode(b"\x9f" + 8 * b"\x01" + b"\xff")
    for major in (b"\x40", b"\x60"):
        indefinite = bytes([major[0] | 31])
        assert not SMALL.decode(indefinite + 7 * major + b"\xff")
        with pytest.raises(PayloadError, match="over 8 items"):
            SMALL.decode(indefinite + 8 * major + b"\xff")
    with pytest.raises(PayloadError, match="over 3 deep"):
        SMALL.decode(bytes.fromhex("81818180"))
    with pytest.raises(PayloadError, match="67 bytes, over the limit of 64"):
        SMALL.decode(cbor2.dumps("x" * 65))


UNWRITABLE: list[tuple[object, str]] = [
    ({1, 2}, "a value of type set is not plain data"),
    (object(), "a value of type object is not plain data"),
    (2**64, "a number over 64 bits"),
    ({1.5: 1}, "a key of type float; keys are texts, bytes and numbers of 32 bits"),
    ({True: 1}, "a key of type bool; keys are texts, bytes and numbers of 32 bits"),
    ({2**32: 1}, "a key of type int; keys are texts, bytes and numbers of 32 bits"),
    ("\ud800", "a text that UTF-8 cannot write"),
    ("x" * 65, "67 bytes, over the limit of 64"),
    ([1] * 8, "over 8 items"),
    ([1, [1, 1, 1], [1, 1]], "over 8 items"),
    ({"a": {"b": 1, "c": 1}, "d": 1}, "over 8 items"),
    ((((([],),),),), "over 3 deep"),
]


@pytest.mark.parametrize(("value", "reason"), UNWRITABLE)
def test_what_is_not_written(value: object, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        SMALL.encode(value)
    assert caught.value.reason == reason


def test_a_list_within_itself_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PayloadError, match="over 32 deep"):
        CBOR.encode(endless)
