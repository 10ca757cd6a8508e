from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import TAGS, Address, AddressError
from onward.protocol.broker import (
    MAX_REMEMBERED_SIZE,
    MAX_TAGS,
    AddressFrame,
    AddressQuery,
    BadRoutingFlags,
    BadText,
    BrokerFrameError,
    Dialect,
    FrameTruncated,
    Query,
    QueryReader,
    RoutingType,
    Tag,
    TrailingBytes,
    format_query,
    format_tag,
    parse_query,
    parse_tag,
    query_from_tags,
    serialize_tags,
)

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
ORIGIN = bytes.fromhex("112233445566778899aabbccddeeff00")

TEXTS = st.text(max_size=30)
TAG = st.tuples(
    st.one_of(
        st.integers(1, 0x7F),
        st.integers(0x7C0000, 0x7CFFFF),
        TEXTS.filter(bool),
        st.sampled_from(["service", "0x01", "a=b", "%", " "]),
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


# --- from the wire --------------------------------------------------------------------------


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
    for _ in range(2):
        with pytest.raises(error):
            query_from_tags(raw, SPEC)
        with pytest.raises(error):
            QueryReader().from_tags(raw, SPEC)


# --- remembered -----------------------------------------------------------------------------


def test_a_repeated_query_is_the_same_object() -> None:
    reader = QueryReader()
    raw = serialize_tags(((1, "orders"),), SPEC)
    assert reader.from_tags(raw, SPEC) is reader.from_tags(bytes(bytearray(raw)), SPEC)
    assert reader.from_text(b"service=orders") is reader.from_text(b"service=orders")
    assert reader.from_text(b"service=orders") == reader.from_tags(raw, SPEC)
    assert len(reader) == 2


def test_dialects_are_remembered_apart() -> None:
    reader = QueryReader()
    raw = bytes.fromhex("fc0001 0178")
    assert reader.from_tags(raw, SPEC) == {(0x7C0001, "x")}
    with pytest.raises(TrailingBytes):
        reader.from_tags(raw, REFERENCE)
    assert reader.from_tags(bytes.fromhex("fc0178"), REFERENCE) == {(0x7C, "x")}
    with pytest.raises(FrameTruncated):
        reader.from_tags(bytes.fromhex("fc0178"[:4]), SPEC)


@pytest.mark.parametrize("dialect", Dialect)
def test_an_address_is_read_once_whoever_sends_it(dialect: Dialect) -> None:
    reader = QueryReader()
    frames = [
        AddressFrame(origin, RoutingType.MULTICAST, ((1, "orders"),), encrypted=True).serialize(
            dialect
        )
        for origin in (ORIGIN, bytes(16))
    ]
    first, second = (reader.from_address(frame, dialect) for frame in frames)
    assert first == AddressQuery(RoutingType.MULTICAST, True, parse_query("service=orders"))
    assert first is second


def test_wrapped_metadata_is_not_remembered() -> None:
    reader = QueryReader()
    for number in range(10):
        frame = AddressFrame(
            ORIGIN, RoutingType.UNICAST, ((1, "orders"),), wrapped=bytes([number])
        ).serialize(SPEC)
        assert reader.from_address(frame, SPEC).query == parse_query("service=orders")
    # The tags, once.
    assert len(reader) == 1


@pytest.mark.parametrize("dialect", Dialect)
def test_a_broken_address_is_an_error_each_time(dialect: Dialect) -> None:
    reader = QueryReader()
    frame = AddressFrame(ORIGIN, RoutingType.UNICAST, ((1, "orders"),)).serialize(dialect)
    reader.from_address(frame, dialect)
    for size in range(22):
        for _ in range(2):
            with pytest.raises(FrameTruncated):
                reader.from_address(frame[:size], dialect)
    with pytest.raises(BadRoutingFlags):
        reader.from_address(frame[:4] + b"\x14\xe0" + frame[6:], dialect)


def test_the_number_remembered_is_limited() -> None:
    reader = QueryReader(limit=2)
    for name in ("a", "b", "c"):
        reader.from_text(f"service={name}".encode())
        reader.from_tags(serialize_tags(((1, name),), SPEC), SPEC)
        reader.from_tags(serialize_tags(((1, name),), REFERENCE), REFERENCE)
    assert len(reader) == 6
    kept = reader.from_text(b"service=b")
    assert reader.from_text(b"service=b") is kept


def test_none_are_remembered_at_limit_zero() -> None:
    reader = QueryReader(limit=0)
    assert reader.from_text(b"service=a") == reader.from_text(b"service=a")
    assert len(reader) == 0


def test_long_queries_are_not_remembered() -> None:
    reader = QueryReader()
    text = " ".join(f"k{number}={'v' * 100}" for number in range(12)).encode()
    assert len(text) > MAX_REMEMBERED_SIZE
    assert reader.from_text(text) == reader.from_text(text)
    assert len(reader) == 0
