"""An ADDRESS with more tags in front of its own, and the brokers that it has passed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import (
    MAX_TAGS,
    VIA_KEY,
    AddressFrame,
    BrokerFrameError,
    Dialect,
    RoutingType,
    Tag,
    TagList,
    TooManyTags,
    WellKnownKey,
    address_for_java,
    brokers_passed,
    locate_address,
    pin_address,
)

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
ID = bytes(range(16))
BROKER = bytes(range(16, 32))
ROUTE = bytes.fromhex("00112233445566778899aabbccddeeff")
TEXT = "00112233-4455-6677-8899-aabbccddeeff"
PIN = (int(WellKnownKey.ROUTE_ID), TEXT)
HEAD = bytes.fromhex("0000 0001 1480") + ID
PINNED = b"\x82" + bytes((0x80 | len(TEXT),)) + TEXT.encode()
VIA = bytes((len(VIA_KEY),)) + VIA_KEY.encode()

KEYS = st.one_of(st.integers(3, 0x7B), st.text(min_size=1, max_size=20))
TAGS = st.lists(st.tuples(KEYS, st.text(max_size=20)), min_size=1, max_size=5).map(tuple)
METADATA = st.lists(
    st.tuples(KEYS.filter(lambda key: key != VIA_KEY), st.binary(max_size=20)), max_size=3
).map(tuple)


def test_byte_for_byte_in_the_reference_dialect() -> None:
    for tags in (b"\x81\x81a\x01k\x01v", b"\x01k\x00"):
        assert pin_address(HEAD + tags, REFERENCE, (PIN,), BROKER) == HEAD + PINNED + tags


def test_a_list_without_more_flags() -> None:
    """The JavaScript client's: its lists go on to the end of the frame."""
    head = bytes.fromhex("0000 1c01 1480") + ID
    tags = b"\x81\x01a\x01k\x01v"
    made = pin_address(head + tags, REFERENCE, (PIN,), BROKER)
    assert made == head + PINNED + tags
    assert AddressFrame.parse(made, REFERENCE).tags == (PIN, (1, "a"), ("k", "v"))


def test_byte_for_byte_in_the_dialect_of_the_specification() -> None:
    tags, wrapped = b"\x81\x81a\x01k\x01v", b"wrapped"
    raw = HEAD + b"\x80\x00" + tags + wrapped
    made = pin_address(raw, SPEC, (PIN,), BROKER)
    assert made == HEAD + VIA + b"\x10" + BROKER + PINNED + tags + wrapped
    raw = HEAD + b"\x9e\x01w" + tags + wrapped
    made = pin_address(raw, SPEC, (PIN,), BROKER)
    assert made == HEAD + VIA + b"\x90" + BROKER + b"\x9e\x01w" + PINNED + tags + wrapped


def test_a_null_value_stays_null() -> None:
    raw = HEAD + b"\x80\x00\x81"
    made = pin_address(raw, SPEC, (PIN,), BROKER)
    assert AddressFrame.parse(made, SPEC).tags == (PIN, (1, None))


@given(TAGS, METADATA, st.sampled_from(RoutingType), st.booleans(), st.binary(max_size=30))
def test_all_else_stays_byte_for_byte(
    tags: tuple[Tag, ...],
    metadata: tuple[tuple[int | str, bytes], ...],
    routing: RoutingType,
    encrypted: bool,
    wrapped: bytes,
) -> None:
    for dialect in Dialect:
        if dialect is SPEC:
            frame = AddressFrame(ID, routing, tags, encrypted, metadata, wrapped)
        else:
            frame = AddressFrame(ID, routing, tags, encrypted)
        raw = frame.serialize(dialect)
        spans = locate_address(raw, dialect)
        extra = (PIN, ("tenant", "a"))
        made = pin_address(raw, dialect, extra, BROKER)
        assert made.startswith(raw[: spans.metadata])
        assert made.endswith(raw[spans.tags :])
        assert raw[spans.metadata : spans.tags].removesuffix(b"\x80\x00") in made
        found = AddressFrame.parse(made, dialect)
        added = tuple(tag for tag in extra if tag not in tags)
        assert found.tags == (*added, *tags)
        assert found.wrapped == frame.wrapped
        if dialect is SPEC:
            assert found.metadata == ((VIA_KEY, BROKER), *metadata)
            assert brokers_passed(made, dialect) == (BROKER,)
            again = pin_address(made, dialect, extra, ID)
            assert brokers_passed(again, dialect) == (ID, BROKER)
            assert AddressFrame.parse(again, dialect).tags == found.tags
        else:
            assert brokers_passed(made, dialect) == ()


def test_a_new_request_has_passed_no_broker() -> None:
    asked = AddressFrame(ROUTE, RoutingType.UNICAST, ((1, "orders"),))
    for dialect in Dialect:
        assert brokers_passed(asked.serialize(dialect), dialect) == ()


@pytest.mark.parametrize("dialect", Dialect)
def test_a_tag_that_is_there_is_not_added_again(dialect: Dialect) -> None:
    # Two spellings of one route id are one tag.
    for value in (TEXT, TEXT.upper(), f"Id{{{TEXT}}}"):
        frame = AddressFrame(ID, RoutingType.UNICAST, ((2, value), (1, "a")))
        made = pin_address(frame.serialize(dialect), dialect, (PIN, (1, "a")), BROKER)
        assert AddressFrame.parse(made, dialect).tags == frame.tags


@pytest.mark.parametrize("dialect", Dialect)
def test_too_many_tags(dialect: Dialect) -> None:
    tags = tuple((f"k{number}", "") for number in range(MAX_TAGS))
    raw = AddressFrame(ID, RoutingType.UNICAST, tags).serialize(dialect)
    with pytest.raises(TooManyTags):
        pin_address(raw, dialect, (PIN,), BROKER)
    raw = AddressFrame(ID, RoutingType.UNICAST, tags[1:]).serialize(dialect)
    assert len(AddressFrame.parse(pin_address(raw, dialect, (PIN,), BROKER), dialect).tags) == 256


@pytest.mark.parametrize("dialect", Dialect)
def test_refuses_a_broken_address(dialect: Dialect) -> None:
    raw = AddressFrame(ID, RoutingType.UNICAST, ((1, "a"),)).serialize(dialect)
    null = len(raw) - 2  # there it ends with a null value
    for size in set(range(len(raw))) - {null}:
        with pytest.raises(BrokerFrameError):
            pin_address(raw[:size], dialect, (PIN,), BROKER)
    if dialect is SPEC:
        for size in range(null):
            with pytest.raises(BrokerFrameError):
                brokers_passed(raw[:size], dialect)


@pytest.mark.parametrize("value", [b"", bytes(15), bytes(17), None])
def test_brokers_passed_that_are_no_ids(value: bytes | None) -> None:
    metadata = ((VIA_KEY, value or b""),)
    raw = AddressFrame(ID, RoutingType.UNICAST, ((1, "a"),), False, metadata).serialize(SPEC)
    with pytest.raises(BrokerFrameError, match=VIA_KEY):
        brokers_passed(raw, SPEC)


def test_several_brokers_in_one_value() -> None:
    metadata = (("k", b"?"), (VIA_KEY, ID + BROKER), (VIA_KEY, ROUTE))
    raw = AddressFrame(ID, RoutingType.UNICAST, ((1, "a"),), False, metadata).serialize(SPEC)
    assert brokers_passed(raw, SPEC) == (ID, BROKER, ROUTE)


@pytest.mark.parametrize("routing", [RoutingType.UNICAST, RoutingType.MULTICAST])
@pytest.mark.parametrize("dialect", Dialect)
def test_an_address_for_a_java_broker(dialect: Dialect, routing: RoutingType) -> None:
    tags: TagList = ((1, "sj"), ("region", "eu"), (2, "other"), ("empty", ""))
    metadata = () if dialect is REFERENCE else ((0x1E, b"roundrobin"),)
    asked = AddressFrame(bytes(range(16)), routing, tags, metadata=metadata)
    route_id = bytes.fromhex("71bb741e8c034c6d9e130137496b3ff4")
    made = address_for_java(asked.serialize(dialect), dialect, (("tenant", "x"),), route_id)
    # It compares texts: of each tag, of a route id as it writes it, and of no hint.
    assert AddressFrame.parse(made, Dialect.REFERENCE) == AddressFrame(
        bytes(range(16)),
        RoutingType.UNICAST,
        (
            ("region", "eu"),
            ("tenant", "x"),
            (1, "sj"),
            (2, "Id{71bb741e-8c03-4c6d-9e13-0137496b3ff4}"),
        ),
    )
