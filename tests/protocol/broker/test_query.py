from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import TAGS, Address, AddressError
from onward.protocol.broker import (
    MAX_TAGS,
    BadText,
    BrokerFrameError,
    Dialect,
    FrameTruncated,
    Query,
    Tag,
    TrailingBytes,
    format_query,
    format_tag,
    parse_query,
    parse_tag,
    query_from_tags,
    serialize_tags,
)

SPEC = Dialect.SPECIFICATION

TEXTS = st.text(max_size=30)
TAG = st.tuples(
    st.one_of(
        st.integers(1, 0x7F),
        st.integers(0x7C0000, 0x7CFFFF),
        TEXTS.filter(bool),
        st.sampled_from(["service", "0x01", "a=b", "%", " ", "@", "@shard"]),
    ),
    st.one_of(st.none(), TEXTS, st.sampled_from(["=", "a b", "%20", "a => b", "#"])),
)


@pytest.mark.parametrize(
    ("word", "tag"),
    [
        ("service=orders", (1, "orders")),
        ("io.rsocket.routing.Region=eu", (6, "eu")),
        ("region=", (6, "")),
        ("region", (6, None)),
        ("colour=blue", ("colour", "blue")),
        ("k=a=b", ("k", "a=b")),
        ("k=a%20b%3Dc", ("k", "a b=c")),
        ("%73ervice=x", ("service", "x")),
        ("k=é", ("k", "é")),
    ],
)
def test_reads_a_tag(word: str, tag: Tag) -> None:
    assert parse_tag(word) == tag
    assert parse_tag(format_tag(tag)) == tag


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("service=orders", {(1, "orders")}),
        ("  service=orders   region=eu ", {(1, "orders"), (6, "eu")}),
        ("region=eu service=orders region=eu", {(1, "orders"), (6, "eu")}),
        ("region=eu region=us", {(6, "eu"), (6, "us")}),
        (
            "route=Id{00000000-0000-0000-0000-0000000000FF}",
            {(2, "00000000-0000-0000-0000-0000000000ff")},
        ),
        ("0x00=x service=orders", {(1, "orders")}),
    ],
)
def test_reads_a_query(text: str, query: set[Tag]) -> None:
    assert parse_query(text) == query
    assert parse_query(text.encode()) == query


def test_writes_a_query_in_one_order() -> None:
    query = parse_query("zeta=1 region=eu service=orders alpha 0x7c0001=x region= region")
    assert format_query(query) == "service=orders region region= region=eu 0x7c0001=x alpha zeta=1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no tags"),
        ("   ", "no tags"),
        ("0x00=x", "no tags"),
        ("=x", "1 to 127 bytes"),
        ("@multicast service=x", "no tag"),
        ("@k=x", "no tag"),
        ("k=%", "'%'"),
        ("k=%FF", "not UTF-8"),
        ("k=\ud800", "not UTF-8"),
        ("k=" + "v" * 128, "at most 127 bytes"),
        (b"k=\xff", "not UTF-8"),
        (" ".join(f"k{number}" for number in range(MAX_TAGS + 1)), "more than 256 tags"),
    ],
)
def test_refuses_a_broken_query(text: str | bytes, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        parse_query(text)


@given(st.frozensets(TAG, min_size=1, max_size=6))
def test_reading_and_writing_are_inverse(query: Query) -> None:
    text = format_query(query)
    assert text.isascii()
    assert parse_query(text) == query


@given(st.frozensets(TAG, min_size=1, max_size=3))
def test_a_query_is_the_value_of_an_address(query: Query) -> None:
    address = Address(TAGS, format_query(query).encode())
    if len(address.value) <= 1024:
        assert parse_query(Address.parse(str(address)).value) == query


def test_stands_in_an_address() -> None:
    address = Address.parse("32#service=orders region=eu")
    assert parse_query(address.value) == {(1, "orders"), (6, "eu")}
    assert str(Address(TAGS, b"service=orders region=eu")) == "32#service=orders region=eu"


def test_reads_a_query_from_tags() -> None:
    raw = serialize_tags(((6, "eu"), (1, "orders"), (6, "eu")), SPEC)
    assert query_from_tags(raw, SPEC) == parse_query("service=orders region=eu")


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", BrokerFrameError),
        (b"\x80\x00", BrokerFrameError),
        (b"\x80\x01x", BrokerFrameError),
        (b"\x81\x01x\x00", TrailingBytes),
        (b"\x81\x02x", FrameTruncated),
        (b"\x81\x01\xff", BadText),
    ],
)
def test_refuses_broken_tags(raw: bytes, error: type[BrokerFrameError]) -> None:
    with pytest.raises(error):
        query_from_tags(raw, SPEC)
