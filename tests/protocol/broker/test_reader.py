from __future__ import annotations

import pytest

from onward.protocol import AddressError
from onward.protocol.broker import (
    MAX_REMEMBERED_SIZE,
    AddressFrame,
    AddressQuery,
    BadRoutingFlags,
    BrokerFrameError,
    Dialect,
    FrameTruncated,
    QueryReader,
    RoutingType,
    Tag,
    TrailingBytes,
    parse_address_query,
    parse_query,
)

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
ORIGIN = bytes.fromhex("112233445566778899aabbccddeeff00")
STICKY = (0x1D, b"user")


def address(*tags: Tag, dialect: Dialect = SPEC, wrapped: bytes = b"") -> bytes:
    return AddressFrame(ORIGIN, RoutingType.UNICAST, tags, wrapped=wrapped).serialize(dialect)


def test_a_repeated_query_is_the_same_object() -> None:
    reader = QueryReader()
    raw = address((1, "orders"))
    first = reader.from_address(raw, SPEC)
    assert first is reader.from_address(bytes(bytearray(raw)), SPEC)
    assert reader.from_text(b"service=orders") is reader.from_text(b"service=orders")
    assert reader.from_text(b"service=orders") == first
    assert len(reader) == 2


def test_dialects_are_remembered_apart() -> None:
    reader = QueryReader()
    # 0x7c, followed by a 16-bit number or not.
    raw = address((1, "x"))[:22] + bytes.fromhex("fc0001 0178")
    assert reader.from_address(raw[:22] + b"\x80\x00" + raw[22:], SPEC).query == {(0x7C0001, "x")}
    with pytest.raises(TrailingBytes):
        reader.from_address(raw, REFERENCE)
    plain = raw[:22] + bytes.fromhex("fc0178")
    assert reader.from_address(plain, REFERENCE).query == {(0x7C, "x")}
    with pytest.raises(BrokerFrameError):
        reader.from_address(plain, SPEC)
    assert len(reader) == 2


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


def test_hints_are_remembered_with_the_tags() -> None:
    reader = QueryReader()
    tags: tuple[Tag, ...] = ((1, "orders"), (10, "ada"))
    plain = AddressFrame(ORIGIN, RoutingType.UNICAST, tags)
    sticky = AddressFrame(ORIGIN, RoutingType.UNICAST, tags, metadata=(STICKY,))
    for _ in range(2):
        assert reader.from_address(plain.serialize(SPEC), SPEC).keys == ()
        assert reader.from_address(sticky.serialize(SPEC), SPEC).keys == ((10, "ada"),)
    assert len(reader) == 2


def test_an_address_is_remembered_without_what_it_wraps() -> None:
    reader = QueryReader()
    found = {id(reader.from_address(address((1, "a"), wrapped=bytes([n])), SPEC)) for n in range(9)}
    found.add(id(reader.from_address(address((1, "a")), SPEC)))
    assert len(found) == 1
    assert len(reader) == 1


def test_the_size_of_what_is_wrapped_does_not_matter() -> None:
    reader = QueryReader()
    first = reader.from_address(address((1, "a"), wrapped=bytes(MAX_REMEMBERED_SIZE)), SPEC)
    assert reader.from_address(address((1, "a")), SPEC) is first


@pytest.mark.parametrize("dialect", Dialect)
def test_a_broken_address_is_an_error_each_time(dialect: Dialect) -> None:
    reader = QueryReader()
    frame = address((1, "orders"), dialect=dialect)
    reader.from_address(frame, dialect)
    for size in range(22):
        for _ in range(2):
            with pytest.raises(FrameTruncated):
                reader.from_address(frame[:size], dialect)
    with pytest.raises(BadRoutingFlags):
        reader.from_address(frame[:4] + b"\x14\xe0" + frame[6:], dialect)


def test_a_broken_text_is_an_error_each_time() -> None:
    reader = QueryReader()
    for _ in range(2):
        with pytest.raises(AddressError):
            reader.from_text(b"@shard service=orders")
    assert len(reader) == 0


def test_the_number_remembered_is_limited() -> None:
    reader = QueryReader(limit=2)
    for name in ("a", "b", "c"):
        reader.from_text(f"service={name}".encode())
        reader.from_address(address((1, name)), SPEC)
        reader.from_address(address((1, name), dialect=REFERENCE), REFERENCE)
    assert len(reader) == 6
    kept = reader.from_text(b"service=b")
    assert reader.from_text(b"service=b") is kept


def test_none_are_remembered_at_limit_zero() -> None:
    reader = QueryReader(limit=0)
    assert reader.from_text(b"service=a") == parse_address_query("service=a")
    assert len(reader) == 0


def test_long_queries_are_not_remembered() -> None:
    reader = QueryReader()
    text = " ".join(f"k{number}={'v' * 100}" for number in range(12)).encode()
    assert len(text) > MAX_REMEMBERED_SIZE
    assert reader.from_text(text) == reader.from_text(text)
    assert len(reader) == 0
