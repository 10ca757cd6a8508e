from __future__ import annotations

import cbor2
import pytest

from onward.protocol import MAX_ADDRESS_VALUE, MAX_ROUTE_LENGTH, Address, MalformedMessage
from onward.protocol.ockam._cbor import MAX_SKIPPED_ITEMS, CborReader


def reader(text: str) -> CborReader:
    return CborReader(bytes.fromhex(text))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8200 4161", Address(0, b"a")),
        ("821820 4161", Address(32, b"a")),
        ("8218ff 4161", Address(255, b"a")),
        ("821900ff 5801 61", Address(255, b"a")),
        ("821a00000001 590001 61", Address(1, b"a")),
        ("821b0000000000000001 5a00000001 61", Address(1, b"a")),
        ("8201 5b0000000000000001 61", Address(1, b"a")),
        ("9f00 4161 ff", Address(0, b"a")),
        ("8300 4161 f6", Address(0, b"a")),
        ("9802 00 4161", Address(0, b"a")),
        ("9f00 4161 a1 01 9f 02 ff ff", Address(0, b"a")),
    ],
)
def test_an_address_in_every_form(text: str, address: Address) -> None:
    body = reader(text)
    assert body.address("the onward route") == address
    assert body.position == len(bytes.fromhex(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("00", "an address of the onward route is a number, not an array"),
        ("80", "an address of the onward route has no value"),
        ("8100", "an address of the onward route has no value"),
        ("820040", "an address of the onward route has no value"),
        ("82004161", None),
        ("8219010041 61", "an address type of 256, over 255"),
        ("82 1bffffffffffffffff 4161", "an address type of 18446744073709551615, over 255"),
        ("8220 4161", "the type of an address is a negative number, not a number"),
        ("82f4 4161", "the type of an address is a simple value, not a number"),
        ("82f90000 4161", "the type of an address is a simple value, not a number"),
        ("82c100 4161", "the type of an address is a tag, not a number"),
        ("8200 6161", "the value of an address is a text string, not a byte string"),
        ("8200 5f4161ff", "the value of an address is a string of indefinite length"),
        ("8200 5a00ffffff", "the value of an address has 16777215 bytes, over the limit of 1024"),
        ("8200 590400 61", "the value of an address is cut short"),
        ("8200", "the message is cut short"),
        ("82", "the message is cut short"),
        ("", "the message is cut short"),
        ("8218", "the message is cut short"),
        ("821c", "a header that RFC 8949 does not define"),
        ("9f00 4161", "the message is cut short"),
        ("1f", "a header that RFC 8949 does not define"),
        ("f81f", "a header that RFC 8949 does not define"),
        ("ff", "a header that RFC 8949 does not define"),
    ],
)
def test_an_address_that_is_none(text: str, reason: str | None) -> None:
    body = reader(text)
    if reason is None:
        assert body.address("the onward route") == Address(0, b"a")
        return
    with pytest.raises(MalformedMessage) as caught:
        body.address("the onward route")
    assert caught.value.reason == reason


def test_the_longest_value_and_the_longest_route_are_taken() -> None:
    longest = Address(0, b"v" * MAX_ADDRESS_VALUE)
    whole = (longest,) * MAX_ROUTE_LENGTH
    assert CborReader(cbor2.dumps([list(one) for one in whole])).route("a route") == whole


@pytest.mark.parametrize("head", ["9841", "9f", "9bffffffffffffffff"])
def test_a_route_over_the_limit_is_refused_at_the_limit(head: str) -> None:
    text = head + "82004161" * (MAX_ROUTE_LENGTH + 1) + ("ff" if head == "9f" else "")
    body = reader(text)
    with pytest.raises(MalformedMessage, match="a route has more than 64 addresses"):
        body.route("a route")
    assert body.position <= len(bytes.fromhex(head)) + 4 * MAX_ROUTE_LENGTH


@pytest.mark.parametrize("head", ["9affffffff", "9bffffffffffffffff", "9b7fffffffffffffff"])
def test_an_announced_count_is_not_believed(head: str) -> None:
    with pytest.raises(MalformedMessage, match="cut short"):
        reader(head).route("a route")


@pytest.mark.parametrize(
    ("text", "trace"),
    [("f6", None), ("60", ""), ("627b7d", "{}"), ("7802 7b7d", "{}"), ("62c3a9", "é")],
)
def test_a_tracing_context(text: str, trace: str | None) -> None:
    assert reader(text).trace() == trace


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("61ff", "the tracing context is not UTF-8"),
        ("4161", "the tracing context is a byte string, not a text string"),
        ("7f6161ff", "the tracing context is a string of indefinite length"),
        ("f7", "the tracing context is a simple value, not a text string"),
        ("6261", "the tracing context is cut short"),
    ],
)
def test_a_tracing_context_that_is_none(text: str, reason: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        reader(text).trace()
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "00",
        "1903e8",
        "3903e7",
        "43010203",
        "63616263",
        "80",
        "83010203",
        "9f0102ff",
        "9f9f9fffffff",
        "a0",
        "a201020304",
        "bf0102ff",
        "c11a514b67b0",
        "d818 43010203",
        "f4",
        "f820",
        "f93c00",
        "fa47c35000",
        "fb3ff199999999999a",
        "828282004161f6a10282f6f6",
    ],
)
def test_skipping_passes_over_exactly_one_item(text: str) -> None:
    body = reader(text + "00")
    body.skip()
    assert body.position == len(bytes.fromhex(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the message is cut short"),
        ("82", "the message is cut short"),
        ("8201", "the message is cut short"),
        ("9f01", "the message is cut short"),
        ("4201", "a string is cut short"),
        ("5bffffffffffffffff", "a string is cut short"),
        ("5f4101ff", "a string of indefinite length"),
        ("7f6161ff", "a string of indefinite length"),
        ("1c", "a header that RFC 8949 does not define"),
        ("df", "a header that RFC 8949 does not define"),
        ("82ff01", "a header that RFC 8949 does not define"),
        ("f81f", "a header that RFC 8949 does not define"),
        ("19ff", "the message is cut short"),
    ],
)
def test_skipping_what_is_not_well_formed(text: str, reason: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        reader(text).skip()
    assert caught.value.reason == reason


@pytest.mark.parametrize("piece", ["81", "9f", "00", "a1", "c1"])
def test_skipping_ends_at_its_limit_at_any_depth(piece: str) -> None:
    body = reader("9f" + piece * 100_000)
    with pytest.raises(MalformedMessage, match="more than 256 items of unknown meaning"):
        body.skip()
    assert body.position <= MAX_SKIPPED_ITEMS + 1


@pytest.mark.parametrize(("text", "value"), [("f4", False), ("f5", True), ("f500", True)])
def test_true_and_false(text: str, value: bool) -> None:
    body = reader(text)
    assert body.is_boolean()
    assert body.boolean("the flag") is value
    assert body.position == 1


@pytest.mark.parametrize("text", ["00", "f6", "80"])
def test_what_is_neither_true_nor_false(text: str) -> None:
    body = reader(text)
    assert not body.is_boolean()
    with pytest.raises(MalformedMessage, match="the flag is neither true nor false"):
        body.boolean("the flag")
