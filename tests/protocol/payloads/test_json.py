"""JSON payloads: what is read, and what two readers could read differently and is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.protocol.payloads import JSON, JsonCodec, PayloadError, PayloadLimits
from onward.protocol.payloads._json import object_of

SMALL = JsonCodec(PayloadLimits(size=64, items=8, depth=3))

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda each: st.lists(each, max_size=5) | st.dictionaries(texts, each, max_size=5),
    max_leaves=20,
)

REFUSED: list[tuple[bytes, str]] = [
    (b"", "not JSON: Expecting value at character 0"),
    (b"{", "not JSON: Expecting property name enclosed in double quotes at character 1"),
    (b"[1,]", "not JSON: Expecting value at character 3"),
    (b"1 2", "not JSON: Extra data at character 2"),
    (b"nul", "not JSON: Expecting value at character 0"),
    (b"\xff", "not UTF-8"),
    ('"ä"'.encode("utf-16"), "not UTF-8"),
    (b"\xef\xbb\xbf1", "not JSON: Expecting value at character 0"),
    (b'{"a":1,"b":2,"a":3}', "the name 'a' twice"),
    (b"[NaN]", "NaN is no number of JSON"),
    (b"-Infinity", "-Infinity is no number of JSON"),
    (b"1e999", "a number too large for a float"),
    (b"1" * 5000, "a number of too many digits"),
    (b'"\\ud800"', "a text with half of a surrogate pair"),
    (b'{"\\uDFFF":1}', "a text with half of a surrogate pair"),
    (b"[" * 33, "over 32 deep"),
    (b"[" * 33 + b"]" * 33, "over 32 deep"),
    (b"[" + b"1," * 100_000 + b"1]", "over 100000 items"),
]


@pytest.mark.parametrize(("payload", "reason"), REFUSED)
def test_what_is_refused(payload: bytes, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        JSON.decode(payload)
    assert caught.value.reason == reason


@given(plain)
def test_plain_data_is_read_as_it_was_written_and_as_another_reader_reads_it(value: Any) -> None:
    written = JSON.encode(value)
    assert JSON.decode(written) == value == json.loads(written)


@given(st.binary(max_size=40) | st.text('[]{}",:\\01eu d8').map(str.encode))
def test_anything_is_read_or_refused_with_the_documented_error(data: bytes) -> None:
    try:
        value = JSON.decode(data)
    except PayloadError:
        return
    assert json.loads(data) == value


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert JSON.decode(b'"\\ud83d\\ude00"') == "\U0001f600"


def test_it_is_written_short_and_as_utf_8() -> None:
    assert JSON.encode({"a": [1, "ö"]}) == '{"a":[1,"ö"]}'.encode()


def test_marks_within_texts_do_not_count() -> None:
    assert SMALL.decode(b'["[[[[,,,,,,,,,:::::\\"[["]') == ['[[[[,,,,,,,,,:::::"[[']
    assert SMALL.decode(b'["[[[[", [[]], []]') == ["[[[[", [[]], []]


def test_a_text_that_is_not_closed_is_passed_over_once() -> None:
    # Tried from each quotation mark anew, this would take minutes.
    for end in (b"", b"\\", b'"'):
        with pytest.raises(PayloadError):
            JSON.decode(b"[" * 40 + b'"' + b'\\"' * 400_000 + end)


def test_limits() -> None:
    assert SMALL.decode(b"[1,1,1,1,1,1,1]") == [1] * 7
    with pytest.raises(PayloadError, match="over 8 items"):
        SMALL.decode(b"[1,1,1,1,1,1,1,1]")
    with pytest.raises(PayloadError, match="over 3 deep"):
        SMALL.decode(b"[[[[]]]]")
    with pytest.raises(PayloadError, match="65 bytes, over the limit of 64"):
        SMALL.decode(b" " * 65)


UNWRITABLE: list[tuple[object, str]] = [
    (b"bytes", "bytes have no place in JSON"),
    ({1: 1}, "a key of type int; keys are texts"),
    (float("nan"), "nan is no number of JSON"),
    (object(), "a value of type object is not plain data"),
    ("\ud800", "a text that UTF-8 cannot write"),
    ([10**5000], "a number of too many digits"),
    ("x" * 64, "66 bytes, over the limit of 64"),
    ([1] * 8, "over 8 items"),
    ([[[[]]]], "over 3 deep"),
]


@pytest.mark.parametrize(("value", "reason"), UNWRITABLE)
def test_what_is_not_written(value: object, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        SMALL.encode(value)
    assert caught.value.reason == reason


class Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def test_the_search_for_a_name_that_is_there_twice_grows_with_the_names() -> None:
    Name.compared = 0
    names = [Name(number) for number in range(2000)]
    with pytest.raises(PayloadError, match="the name '1999' twice"):
        object_of([(name, 1) for name in [*names, Name("1999")]])
    # One for each that meets another in a hash table, which is few; each with each is millions.
    assert Name.compared < 4 * len(names)
