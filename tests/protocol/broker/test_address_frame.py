"""The ADDRESS frame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.broker import (
    AddressFrame,
    BadRoutingFlags,
    BrokerFrameError,
    Dialect,
    FrameTruncated,
    NullNotLast,
    RoutingType,
    TagList,
    TrailingBytes,
    locate_address,
)

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
ORIGIN = bytes.fromhex("112233445566778899aabbccddeeff00")

# Vectors of `test_frames.py`.
V10 = "000000011480112233445566778899aabbccddeeff008104706f6e67"
J3 = "00001c011440112233445566778899aabbccddeeff009e01778104706f6e67"
D09 = "000000011480112233445566778899aabbccddeeff009e01778104706f6e67"
S1 = D09 + "deadbeef"
S2 = "000000011480112233445566778899aabbccddeeff0080008104706f6e67"

UNICAST = AddressFrame(ORIGIN, RoutingType.UNICAST, ((1, "pong"),))


@pytest.mark.parametrize("flags", ["1400", "1404", "14c0", "14e0", "1460", "14a0", "1700"])
@pytest.mark.parametrize("dialect", Dialect)
def test_exactly_one_routing_flag(flags: str, dialect: Dialect) -> None:
    # D02, D03: the reference notices only when it routes the request.
    data = bytes.fromhex(
        S2.replace("1480", flags) if dialect is SPEC else V10.replace("1480", flags)
    )
    for read in (AddressFrame.parse, locate_address):
        with pytest.raises(BadRoutingFlags) as caught:
            read(data, dialect)
        assert caught.value.flags == int(flags, 16) & 0x3FF


def test_two_lists_are_not_the_references_address() -> None:
    # D09: the reference takes the first list for the tags and ignores the second.
    with pytest.raises(TrailingBytes):
        AddressFrame.parse(bytes.fromhex(D09), REFERENCE)
    # J3: that client never sets the more-flag, so all up to the end are tags.
    read = AddressFrame.parse(bytes.fromhex(J3), REFERENCE)
    assert read.tags == ((0x1E, "w"), (1, "pong"))
    with pytest.raises(BrokerFrameError):
        AddressFrame.parse(bytes.fromhex(J3)[:-1], REFERENCE)
    expected = replace(UNICAST, metadata=((0x1E, b"w"),))
    assert AddressFrame.parse(bytes.fromhex(D09), SPEC) == expected


def test_metadata_does_not_vanish() -> None:
    # V13: the reference writes V10.
    with pytest.raises(BrokerFrameError, match="metadata: not in the reference dialect"):
        replace(UNICAST, metadata=((0x1E, b"weighted"),)).serialize(REFERENCE)
    with pytest.raises(BrokerFrameError, match="wrapped metadata: not in the reference"):
        replace(UNICAST, wrapped=b"x").serialize(REFERENCE)


@pytest.mark.parametrize(
    ("flags", "routing", "encrypted"),
    [
        ("1480", RoutingType.UNICAST, False),
        ("1440", RoutingType.MULTICAST, False),
        ("1420", RoutingType.SHARD, False),
        ("1580", RoutingType.UNICAST, True),
        ("1540", RoutingType.MULTICAST, True),
        ("169f", RoutingType.UNICAST, False),
    ],
)
def test_flags_of_an_address(flags: str, routing: RoutingType, encrypted: bool) -> None:
    data = bytes.fromhex(V10.replace("1480", flags))
    frame = AddressFrame.parse(data, REFERENCE)
    assert (frame.routing, frame.encrypted) == (routing, encrypted)
    if flags != "169f":
        assert frame.serialize(REFERENCE) == data


@pytest.mark.parametrize("tags", [(), ((0, "x"),)])
@pytest.mark.parametrize("dialect", Dialect)
def test_an_address_needs_a_tag(tags: TagList, dialect: Dialect) -> None:
    # D05; a query that every route matches is refused however it is written.
    with pytest.raises(BrokerFrameError, match="at least one"):
        replace(UNICAST, tags=tags).serialize(dialect)
    start = bytes.fromhex(V10)[:22] + (b"\x80\x00" if dialect is SPEC else b"")
    for lists in (b"", b"\x80\x00", b"\x80\x01x"):
        with pytest.raises(BrokerFrameError, match="at least one"):
            AddressFrame.parse(start + lists, dialect)


def test_null_before_wrapped_metadata_cannot_be_written() -> None:
    frame = replace(UNICAST, tags=(("k", None),))
    assert AddressFrame.parse(frame.serialize(SPEC), SPEC) == frame
    with pytest.raises(NullNotLast):
        replace(frame, wrapped=b"x").serialize(SPEC)
    with pytest.raises(NullNotLast):
        replace(UNICAST, metadata=(("k", None),)).serialize(SPEC)


def test_locates_the_parts_of_an_address() -> None:
    data = bytes.fromhex(S1)
    spans = locate_address(data, SPEC)
    assert spans.routing is RoutingType.UNICAST
    assert spans.encrypted is False
    assert data[spans.metadata : spans.tags] == bytes.fromhex("9e0177")
    assert data[spans.tags : spans.wrapped] == bytes.fromhex("8104706f6e67")
    assert data[spans.wrapped :] == bytes.fromhex("deadbeef")
    assert locate_address(memoryview(data), SPEC) == spans
    assert locate_address(bytearray(data), SPEC) == spans


def test_locates_the_tags_of_the_references_address() -> None:
    spans = locate_address(bytes.fromhex(V10), REFERENCE)
    assert (spans.metadata, spans.tags, spans.wrapped) == (22, 22, 28)


@pytest.mark.parametrize("size", range(6, 22))
@pytest.mark.parametrize("dialect", Dialect)
def test_an_address_without_an_origin(size: int, dialect: Dialect) -> None:
    with pytest.raises(FrameTruncated, match="origin route id"):
        locate_address(bytes.fromhex(V10)[:size], dialect)
