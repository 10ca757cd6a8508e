from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import (
    EMPTY_LIST,
    MIME_BROKER_FRAME,
    MIME_FORWARDING,
    MIME_ROUTING_FRAME,
    NO_ROUTE_KEY,
    AddressFrame,
    BrokerFrameError,
    Dialect,
    NullNotLast,
    RouteSetup,
    RoutingType,
    Tag,
    TagList,
    TrailingBytes,
    UnexpectedFrameType,
    Unwrapped,
    extension_key,
    parse_frame,
    translate_address,
    unicast,
    unwrap_metadata,
    wrap_metadata,
)
from onward.protocol.rsocket import COMPOSITE_MIME, MalformedComposite, build_composite

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
ID = bytes(range(16))
HINT = ((0x1E, b"random"), (NO_ROUTE_KEY, b"wait"))
EXTENDED: Tag = (extension_key(0x7F, 0x1234), "x")
FORWARDING, BROKER_FRAME = MIME_FORWARDING.decode(), MIME_BROKER_FRAME.decode()

TAG: st.SearchStrategy[Tag] = st.tuples(
    st.one_of(st.integers(1, 0x7B), st.text(min_size=1, max_size=20)), st.text(max_size=20)
)
ADDRESSES = st.builds(
    AddressFrame,
    st.binary(min_size=16, max_size=16),
    st.sampled_from(RoutingType),
    st.lists(TAG, min_size=1, max_size=5).map(tuple),
    st.booleans(),
    st.sampled_from([(), HINT]),
    st.binary(max_size=40),
)


def address(*tags: Tag, wrapped: bytes = b"") -> AddressFrame:
    return AddressFrame(ID, RoutingType.UNICAST, tags, True, HINT, wrapped)


@pytest.mark.parametrize("space", [0x7C, 0x7F])
@pytest.mark.parametrize("number", [0, 1, 0x80, 0xFF00, 0xFFFF])
def test_extension_keys_survive_in_frames(space: int, number: int) -> None:
    key = extension_key(space, number)
    for frame in (
        RouteSetup(ID, "orders", ((key, "x"), (1, "a"), (key, None))),
        AddressFrame(ID, RoutingType.SHARD, ((1, "a"), (key, "")), metadata=((key, b"\xff"),)),
    ):
        raw = frame.serialize(SPEC)
        assert bytes((0x80 | space, number >> 8, number & 0xFF)) in raw
        assert parse_frame(raw, SPEC) == frame
        with pytest.raises(BrokerFrameError):
            frame.serialize(REFERENCE)


def test_extension_keys_are_left_out_in_the_reference_dialect() -> None:
    raw = address((1, "a"), EXTENDED, ("k", "v"), wrapped=b"!").serialize(SPEC)
    expected = AddressFrame(ID, RoutingType.UNICAST, ((1, "a"), ("k", "v")), True)
    assert translate_address(raw, SPEC, REFERENCE) == expected.serialize(REFERENCE) + b"!"
    # Also where one is last, and another then has to be.
    raw = address((1, "a"), EXTENDED).serialize(SPEC)
    assert AddressFrame.parse(translate_address(raw, SPEC, REFERENCE), REFERENCE).tags == (
        (1, "a"),
    )


@pytest.mark.parametrize("key", [0x7C, 0x7F])
def test_short_extension_keys_are_left_out_in_the_specification(key: int) -> None:
    raw = AddressFrame(ID, RoutingType.MULTICAST, ((key, "x"), (1, "a"))).serialize(REFERENCE)
    found = AddressFrame.parse(translate_address(raw, REFERENCE, SPEC), SPEC)
    assert found == AddressFrame(ID, RoutingType.MULTICAST, ((1, "a"),))


def test_an_address_keeps_a_tag() -> None:
    for frame, source, target in (
        (address(EXTENDED).serialize(SPEC), SPEC, REFERENCE),
        (address(EXTENDED, (0, "x")).serialize(SPEC), SPEC, REFERENCE),
    ):
        with pytest.raises(BrokerFrameError, match="no place for any"):
            translate_address(frame, source, target)


@pytest.mark.parametrize("dialect", Dialect)
def test_the_same_dialect_is_the_same_bytes(dialect: Dialect) -> None:
    for raw in (address((1, "a")).serialize(SPEC), b"anything"):
        assert translate_address(raw, dialect, dialect) is raw


def test_translates_byte_for_byte() -> None:
    head = bytes.fromhex("0000 0001 1580") + ID
    tags = bytes.fromhex("81 81 61 01 6b 01 76")
    specified = head + bytes.fromhex("9e 06 72616e646f6d") + tags + b"wrapped"
    assert translate_address(specified, SPEC, REFERENCE) == head + tags + b"wrapped"
    # The JavaScript client's version is 0.7169; ours is what the specification's readers check.
    other = bytes.fromhex("0000 1c01 1580") + ID + tags
    assert translate_address(other, REFERENCE, SPEC) == head + EMPTY_LIST + tags


@given(ADDRESSES)
def test_there_and_back_only_metadata_are_lost(frame: AddressFrame) -> None:
    there = translate_address(frame.serialize(SPEC), SPEC, REFERENCE)
    found = unwrap_metadata(there, BROKER_FRAME)
    expected = AddressFrame(
        frame.origin_route_id, frame.routing, frame.tags, frame.encrypted, wrapped=frame.wrapped
    )
    assert found == Unwrapped(expected, REFERENCE, frame.wrapped, ())
    bare = there[: len(there) - len(frame.wrapped)]
    back = AddressFrame.parse(translate_address(bare, REFERENCE, SPEC), SPEC)
    assert (back.tags, back.wrapped) == (frame.tags, b"")


def test_null_is_empty_in_the_reference_dialect() -> None:
    raw = address((1, "a"), ("k", None)).serialize(SPEC)
    found = AddressFrame.parse(translate_address(raw, SPEC, REFERENCE), REFERENCE)
    assert found.tags == ((1, "a"), ("k", ""))
    null = raw[:22] + bytes.fromhex("81 81 61 01 6b")
    assert AddressFrame.parse(translate_address(null, REFERENCE, SPEC), SPEC).tags == (
        (1, "a"),
        ("k", None),
    )


def test_refuses_a_broken_address() -> None:
    raw = address((1, "a")).serialize(SPEC)
    for size in set(range(len(raw))) - {len(raw) - 2}:  # there it ends with a null value
        with pytest.raises(BrokerFrameError):
            translate_address(raw[:size], SPEC, REFERENCE)
    plain = AddressFrame(ID, RoutingType.UNICAST, ((1, "a"),)).serialize(REFERENCE)
    with pytest.raises(TrailingBytes):
        translate_address(plain + b"!", REFERENCE, SPEC)
    with pytest.raises(UnexpectedFrameType):
        translate_address(RouteSetup(ID, "a").serialize(SPEC), SPEC, REFERENCE)


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["text/plain", "message/x.rsocket.routing.v0", "a/b", "#48", "#110"]),
        st.binary(max_size=20),
    ),
    max_size=4,
).map(tuple)


@given(ADDRESSES, ENTRIES)
def test_wrapping_and_unwrapping_are_inverse(
    frame: AddressFrame, entries: tuple[tuple[str, bytes], ...]
) -> None:
    composite = wrap_metadata(frame, COMPOSITE_MIME, entries=entries)
    assert unwrap_metadata(composite, COMPOSITE_MIME) == (frame, SPEC, frame.wrapped, entries)
    alone = wrap_metadata(frame, FORWARDING)
    assert alone == frame.serialize(SPEC)
    assert unwrap_metadata(alone, FORWARDING) == (frame, SPEC, frame.wrapped, ())
    plain = AddressFrame(
        frame.origin_route_id, frame.routing, frame.tags, frame.encrypted, (), frame.wrapped
    )
    for mime in (MIME_BROKER_FRAME, MIME_ROUTING_FRAME):
        composite = wrap_metadata(plain, COMPOSITE_MIME, mime=mime, entries=entries)
        expected = (plain, REFERENCE, frame.wrapped, entries)
        assert unwrap_metadata(composite, COMPOSITE_MIME) == expected
        alone = wrap_metadata(plain, mime.decode())
        assert unwrap_metadata(alone, mime.decode()) == (plain, REFERENCE, frame.wrapped, ())


def test_metadata_without_an_address() -> None:
    assert unwrap_metadata(b"", COMPOSITE_MIME) == (None, SPEC, b"", ())
    assert unwrap_metadata(b"", FORWARDING) == (None, SPEC, b"", ())
    assert unwrap_metadata(b"", BROKER_FRAME) == (None, REFERENCE, b"", ())
    assert unwrap_metadata(b"", "text/plain") == (None, SPEC, b"", ())
    assert unwrap_metadata(b"hi", "text/plain") == (None, SPEC, b"", (("text/plain", b"hi"),))
    entries = (("text/plain", b"hi"), ("#48", b"?"), ("\udcff", b"!"))
    raw = build_composite([("text/plain", b"hi"), (48, b"?"), ("\udcff", b"!")])
    assert unwrap_metadata(raw, COMPOSITE_MIME) == (None, SPEC, b"", entries)


def test_the_last_address_counts() -> None:
    first, second = unicast("a"), unicast("b")
    setup = RouteSetup(ID, "orders").serialize(SPEC)
    raw = build_composite(
        [(FORWARDING, setup)] + [(FORWARDING, each.serialize(SPEC)) for each in (first, second)]
    )
    found = unwrap_metadata(raw, COMPOSITE_MIME)
    assert found.address == second
    assert found.entries == ((FORWARDING, setup), (FORWARDING, first.serialize(SPEC)))
    # What is broken does not count beside one that is not, wherever it is.
    for broken in (b"", b"short", bytes(30)):
        entries = [(FORWARDING, broken), (FORWARDING, first.serialize(SPEC)), (FORWARDING, broken)]
        assert unwrap_metadata(build_composite(entries), COMPOSITE_MIME).address == first


@pytest.mark.parametrize("mime", [FORWARDING, BROKER_FRAME])
def test_a_broken_address_in_metadata(mime: str) -> None:
    dialect = SPEC if mime == FORWARDING else REFERENCE
    raw = AddressFrame(ID, RoutingType.UNICAST, ((1, "abc"),)).serialize(dialect)
    for size in set(range(1, len(raw))) - {len(raw) - 4}:  # there it ends with a null value
        with pytest.raises(BrokerFrameError):
            unwrap_metadata(raw[:size], mime)
        with pytest.raises(BrokerFrameError):
            unwrap_metadata(build_composite([(mime, raw[:size])]), COMPOSITE_MIME)
    with pytest.raises(MalformedComposite):
        unwrap_metadata(build_composite([(mime, raw)])[:-1], COMPOSITE_MIME)


def test_refuses_what_cannot_be_wrapped() -> None:
    frame = unicast("a", method="random")
    for metadata_mime, mime in (
        ("text/plain", MIME_FORWARDING),
        ("größe", MIME_FORWARDING),
        (COMPOSITE_MIME, b"text/plain"),
    ):
        with pytest.raises(ValueError, match="no type of metadata"):
            wrap_metadata(frame, metadata_mime, mime=mime)
    with pytest.raises(ValueError, match="entries need composite"):
        wrap_metadata(frame, FORWARDING, entries=(("a/b", b""),))
    with pytest.raises(BrokerFrameError, match="not in the reference dialect"):
        wrap_metadata(frame, BROKER_FRAME)
    tags: TagList = ((1, "a"), ("k", None))
    with pytest.raises(NullNotLast):
        wrap_metadata(AddressFrame(ID, RoutingType.UNICAST, tags, wrapped=b"!"), FORWARDING)
