from __future__ import annotations

import pytest
from hypothesis import example, given, strategies as st

from onward.protocol import AddressError
from onward.protocol.broker import Key, WellKnownKey, extension_key, format_key, parse_key

SPECIFICATION = {
    "ServiceName": 0x01,
    "RouteId": 0x02,
    "InstanceName": 0x03,
    "ClusterName": 0x04,
    "Provider": 0x05,
    "Region": 0x06,
    "Zone": 0x07,
    "Device": 0x08,
    "OS": 0x09,
    "UserName": 0x0A,
    "UserId": 0x0B,
    "MajorVersion": 0x0C,
    "MinorVersion": 0x0D,
    "PatchVersion": 0x0E,
    "Version": 0x0F,
    "Environment": 0x10,
    "TestCell": 0x11,
    "DNS": 0x12,
    "IPv4": 0x13,
    "IPv6": 0x14,
    "Country": 0x15,
    "TimeZone": 0x1A,
    "ShardKey": 0x1B,
    "ShardMethod": 0x1C,
    "StickyRouteKey": 0x1D,
    "LBMethod": 0x1E,
}
LITERALS = st.text(min_size=1).filter(lambda text: len(text.encode()) <= 127)
KEYS: st.SearchStrategy[Key] = st.one_of(
    st.integers(0, 0x7F),
    st.builds(extension_key, st.sampled_from((0x7C, 0x7F)), st.integers(0, 0xFFFF)),
    LITERALS,
    st.sampled_from(
        ["service", "0x01", "0x7c0001", "io.rsocket.routing.Zone", "%41", "a=b", "=", " ", "é"]
    ),
)


@pytest.mark.parametrize(("name", "number"), SPECIFICATION.items())
def test_knows_the_names_of_the_specification(name: str, number: int) -> None:
    assert WellKnownKey(number).name.replace("_", "") == name.upper()
    assert parse_key(f"io.rsocket.routing.{name}") == number
    assert parse_key(f"io.rsocket.broker.{name}") == number


def test_knows_the_keys_of_the_reference() -> None:
    assert [WellKnownKey(number).name for number in range(0x1F, 0x23)] == [
        "REFERENCE_BROKER_EXT",
        "REFERENCE_WELL_KNOWN_EXT",
        "BROKER_PROXY_URI",
        "BROKER_CLUSTER_URI",
    ]


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("service", 0x01),
        ("route", 0x02),
        ("instance", 0x03),
        ("cluster", 0x04),
        ("region", 0x06),
        ("zone", 0x07),
        ("lb-method", 0x1E),
        ("0x00", 0x00),
        ("0x19", 0x19),
        ("0x7c", 0x7C),
        ("0x7c0001", 0x7C0001),
        ("0x7fffff", 0x7FFFFF),
    ],
)
def test_reads_and_writes_names_of_numbers(word: str, key: int) -> None:
    assert parse_key(word) == key
    assert format_key(key) == word
    assert format_key(parse_key(word)) == word


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("colour", "colour"),
        ("Service", "Service"),
        ("io.rsocket.routing.Colour", "io.rsocket.routing.Colour"),
        ("%73ervice", "service"),
        ("servic%65", "service"),
        ("%30x19", "0x19"),
        ("0x80", "0x80"),
        ("0xff", "0xff"),
        ("0x1", "0x1"),
        ("0X19", "0X19"),
        ("0x1A", "0x1A"),
        ("0x190001", "0x190001"),
        ("%C3%A9", "é"),
        ("a%20b", "a b"),
        ("é", "é"),
    ],
)
def test_any_other_word_is_a_literal_key(word: str, key: str) -> None:
    assert parse_key(word) == key
    assert parse_key(format_key(key)) == key


def test_a_literal_spelled_like_a_name_stays_a_literal() -> None:
    assert format_key("service") == "%73ervice"
    assert format_key("0x19") == "%30x19"
    assert format_key("io.rsocket.routing.ServiceName") == "%69o.rsocket.routing.ServiceName"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("", "1 to 127 bytes"),
        ("x" * 128, "1 to 127 bytes"),
        ("é" * 64, "1 to 127 bytes"),
        ("%", "'%'"),
        ("a%2", "'%'"),
        ("%zz", "'%'"),
        ("%FF", "UTF-8"),
        ("\ud800", "UTF-8"),
    ],
)
def test_refuses_what_is_no_key(word: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        parse_key(word)


def test_takes_a_literal_of_127_bytes() -> None:
    assert parse_key("x" * 127) == "x" * 127


@given(KEYS)
@example("service")
@example("%73ervice")
def test_reading_and_writing_are_inverse(key: Key) -> None:
    word = format_key(key)
    assert parse_key(word) == key
    assert word.isascii()
    assert not set(word) & set(" #=>")


def test_extension_keys_are_distinct() -> None:
    assert extension_key(WellKnownKey.BROKER_EXT, 1) == 0x7C0001
    spaces = (WellKnownKey.BROKER_EXT, WellKnownKey.WELL_KNOWN_EXT)
    keys = {extension_key(space, number) for space in spaces for number in range(3)}
    assert len(keys) == 6
    assert not keys & set(range(128))


@pytest.mark.parametrize(("space", "number"), [(0x1F, 1), (0x7C, -1), (0x7C, 0x10000)])
def test_there_are_no_other_extension_keys(space: int, number: int) -> None:
    with pytest.raises(ValueError, match="no extension key"):
        extension_key(space, number)
