from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import (
    MAX_TIMESTAMP,
    AddressFrame,
    BadText,
    BrokerFrame,
    BrokerFrameError,
    BrokerInfo,
    Dialect,
    FieldTooLong,
    FrameTruncated,
    FrameType,
    RouteAdd,
    RouteRemove,
    RouteSetup,
    RoutingType,
    TagList,
    TrailingBytes,
    UnexpectedFrameType,
    UnsupportedVersion,
    extension_key,
    frame_type,
    locate_address,
    normal_form,
    parse_frame,
)

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
BROKER = bytes(15) + b"\x11"
ROUTE = bytes(15) + b"\x22"
ORIGIN = bytes.fromhex("112233445566778899aabbccddeeff00")
AT = 1_700_000_000_000

# What the unmodified Java classes and the npm client wrote ("executed"), but for S1 and S2,
# which are the specification's pictures by hand: frames of one and the same meaning.
V01 = "0000000104000000000000000000000000000000002204706f6e67"
V02 = "000000010400112233445566778899aabbccddeeff00066f7264657273838161016b0176"
V05 = (
    "00000001080000000000000000000000000000000011000000000000000000000000000000220000018bcfe56800"
    "04706f6e6782a849647b30303030303030302d303030302d303030302d303030302d3030303030303030303032327d"
    "8104706f6e67"
)
V06 = (
    "00000001080000000000000000000000000000000011000000000000000000000000000000220000018bcfe56800"
    "04706f6e67"
)
V07 = "000000010c0000000000000000000000000000000011000000000000000000000000000000220000018bcfe56800"
V08 = "000000011000000000000000000000000000000000110000018bcfe56800"
V10 = "000000011480112233445566778899aabbccddeeff008104706f6e67"
V12 = "000000011420112233445566778899aabbccddeeff008104706f6e67"
J1 = "00001c011480112233445566778899aabbccddeeff008104706f6e67"
J3 = "00001c011440112233445566778899aabbccddeeff009e01778104706f6e67"
D09 = "000000011480112233445566778899aabbccddeeff009e01778104706f6e67"
S1 = D09 + "deadbeef"
S2 = "000000011480112233445566778899aabbccddeeff0080008104706f6e67"

PONG: TagList = ((1, "pong"),)
UNICAST = AddressFrame(ORIGIN, RoutingType.UNICAST, PONG)

# Name, bytes, dialects, value, and how many bytes of it are a frame too.
VECTORS: list[tuple[str, str, tuple[Dialect, ...], BrokerFrame, set[int]]] = [
    ("V01", V01, (SPEC, REFERENCE), RouteSetup(ROUTE, "pong"), set()),
    (
        "V02",
        V02,
        (SPEC, REFERENCE),
        RouteSetup(ORIGIN, "orders", ((3, "a"), ("k", "v"))),
        {29, 30, 34},
    ),
    (
        "V05",
        V05,
        (SPEC, REFERENCE),
        RouteAdd(
            BROKER,
            ROUTE,
            AT,
            "pong",
            ((2, "Id{00000000-0000-0000-0000-000000000022}"), (1, "pong")),
        ),
        {51, 52, 94},
    ),
    ("V06", V06, (SPEC, REFERENCE), RouteAdd(BROKER, ROUTE, AT, "pong"), set()),
    ("V07", V07, (SPEC, REFERENCE), RouteRemove(BROKER, ROUTE, AT), set()),
    ("V08", V08, (SPEC, REFERENCE), BrokerInfo(BROKER, AT), set()),
    ("V10", V10, (REFERENCE,), UNICAST, {23}),
    ("V12", V12, (REFERENCE,), replace(UNICAST, routing=RoutingType.SHARD), {23}),
    (
        "S1",
        S1,
        (SPEC,),
        replace(UNICAST, metadata=((0x1E, b"w"),), wrapped=bytes.fromhex("deadbeef")),
        {26, 31, 32, 33, 34},
    ),
    ("S2", S2, (SPEC,), UNICAST, {25}),
    (
        "BROKER_INFO with the URIs of the reference",
        "000000011000000000000000000000000000000000110000018bcfe56800a183613a31a203623a32",
        (SPEC, REFERENCE),
        BrokerInfo(BROKER, AT, ((0x21, b"a:1"), (0x22, b"b:2"))),
        {30, 31, 36},
    ),
]
EACH = pytest.mark.parametrize(
    ("data", "dialect", "frame", "shorter"),
    [
        pytest.param(bytes.fromhex(text), dialect, frame, shorter, id=f"{name}-{dialect.value}")
        for name, text, dialects, frame, shorter in VECTORS
        for dialect in dialects
    ],
)


@EACH
def test_reads_and_writes_a_vector(
    data: bytes, dialect: Dialect, frame: BrokerFrame, shorter: set[int]
) -> None:
    assert type(frame).parse(data, dialect) == frame
    assert parse_frame(data, dialect) == frame
    assert parse_frame(bytearray(data), dialect) == frame
    assert parse_frame(memoryview(data), dialect) == frame
    assert frame.serialize(dialect) == data


@EACH
def test_reads_a_vector_byte_by_byte(
    data: bytes, dialect: Dialect, frame: BrokerFrame, shorter: set[int]
) -> None:
    accepted: set[int] = set()
    for size in range(len(data)):
        try:
            part = parse_frame(data[:size], dialect)
        except BrokerFrameError:
            continue
        accepted.add(size)
        assert part != frame
    assert accepted == shorter


@EACH
def test_reads_a_vector_with_trailing_bytes(
    data: bytes, dialect: Dialect, frame: BrokerFrame, shorter: set[int]
) -> None:
    for trailing in (b"\x00", b"\x00\x00", b"\x01"):
        if isinstance(frame, AddressFrame) and dialect is SPEC:
            longer = replace(frame, wrapped=frame.wrapped + trailing)
            assert parse_frame(data + trailing, dialect) == longer
        else:
            with pytest.raises(BrokerFrameError):
                parse_frame(data + trailing, dialect)


@EACH
def test_frames_are_values(
    data: bytes, dialect: Dialect, frame: BrokerFrame, shorter: set[int]
) -> None:
    assert hash(frame) == hash(parse_frame(data, dialect))
    assert not hasattr(frame, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(frame, fields(frame)[0].name, b"")


# --- where we are deliberately unlike the reference -----------------------------------------

SETUP_S = "000000010400000000000000000000000000000000220173"


def test_an_empty_value_in_the_middle_is_not_misread() -> None:
    # V14: the reference leaves out the length byte of k1's empty value, and itself reads
    # {k1: "k2"}. What it leaves behind gives it away.
    with pytest.raises(TrailingBytes):
        RouteSetup.parse(bytes.fromhex(SETUP_S + "026b31026b320176"), REFERENCE)
    right = RouteSetup(ROUTE, "s", (("k1", ""), ("k2", "v")))
    assert right.serialize(REFERENCE) == bytes.fromhex(SETUP_S + "026b3180026b320176")


@pytest.mark.parametrize("dialect", Dialect)
def test_a_list_that_ends_after_a_key_has_a_null_value(dialect: Dialect) -> None:
    # V15, V17, D15: the reference fails to read what it wrote for an empty last value.
    v15 = RouteSetup.parse(bytes.fromhex(SETUP_S + "026b318176026b32"), dialect)
    assert v15.tags == (("k1", "v"), ("k2", None))
    assert RouteSetup.parse(bytes.fromhex(SETUP_S + "026b31"), dialect).tags == (("k1", None),)
    assert RouteSetup.parse(bytes.fromhex(SETUP_S + "016b"), dialect).tags == (("k", None),)


@pytest.mark.parametrize("dialect", Dialect)
def test_an_empty_value(dialect: Dialect) -> None:
    # D16, as the reference reads it.
    data = bytes.fromhex(SETUP_S + "016b00")
    assert RouteSetup.parse(data, dialect) == RouteSetup(ROUTE, "s", (("k", ""),))
    assert RouteSetup(ROUTE, "s", (("k", ""),)).serialize(dialect) == data


@pytest.mark.parametrize("dialect", Dialect)
def test_a_more_flag_with_nothing_after_it(dialect: Dialect) -> None:
    # V18: the reference drops an entry that is too long but not the flag before it.
    with pytest.raises(FrameTruncated):
        RouteSetup.parse(bytes.fromhex(SETUP_S + "01618162"), dialect)


@pytest.mark.parametrize("dialect", Dialect)
def test_unknown_numbers_of_keys_survive(dialect: Dialect) -> None:
    # V20: the reference makes one key of all numbers it does not know.
    data = bytes.fromhex(SETUP_S + "8081789f8178a08178fe817886 0178".replace(" ", ""))
    frame = RouteSetup.parse(data, dialect)
    assert [key for key, _ in frame.tags] == [0x00, 0x1F, 0x20, 0x7E, 0x06]
    assert frame.serialize(dialect) == data


def test_keys_of_16_bits_are_the_specifications_only() -> None:
    # V20 as it is: 0x7F and no 16-bit number.
    data = bytes.fromhex(SETUP_S + "8081789f8178a08178ff8178fe0178")
    assert RouteSetup.parse(data, REFERENCE).tags[3] == (0x7F, "x")
    with pytest.raises(FrameTruncated):
        RouteSetup.parse(data, SPEC)
    # S3
    frame = RouteSetup(ROUTE, "s", ((extension_key(0x7C, 1), "x"),))
    assert frame.serialize(SPEC) == bytes.fromhex(SETUP_S + "fc00010178")
    assert RouteSetup.parse(bytes.fromhex(SETUP_S + "fc00010178"), SPEC) == frame


@pytest.mark.parametrize("dialect", Dialect)
def test_an_empty_service_name(dialect: Dialect) -> None:
    # V22: refused for a destination, by the reference too, though it can write it.
    with pytest.raises(BrokerFrameError, match="service name: empty"):
        RouteSetup.parse(bytes.fromhex(SETUP_S[:-4] + "00"), dialect)
    with pytest.raises(BrokerFrameError, match="service name: empty"):
        RouteSetup(ROUTE, "").serialize(dialect)
    # D21: allowed between brokers.
    frame = RouteAdd(BROKER, ROUTE, AT, "")
    assert RouteAdd.parse(frame.serialize(dialect), dialect) == frame


# --- header ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["00001c01", "00000000", "0000ffff"])
@pytest.mark.parametrize("dialect", Dialect)
def test_any_minor_version_will_do(version: str, dialect: Dialect) -> None:
    frame = RouteSetup.parse(bytes.fromhex(version + V01[8:]), dialect)
    assert frame == RouteSetup(ROUTE, "pong")


@pytest.mark.parametrize("version", ["00010000", "00090009", "ffffffff"])
def test_another_major_version(version: str) -> None:
    # D10: the reference looks at no version.
    for text in (V01, V05, V07, V08, S2):
        data = bytes.fromhex(version + text[8:])
        with pytest.raises(UnsupportedVersion) as caught:
            parse_frame(data, SPEC)
        assert (caught.value.major, caught.value.minor) == (
            int(version[:4], 16),
            int(version[4:], 16),
        )
    for text in (V01, V05, V07, V08, V10):
        assert parse_frame(bytes.fromhex(version + text[8:]), REFERENCE) == parse_frame(
            bytes.fromhex(text), REFERENCE
        )


def test_the_javascript_clients_version_is_not_looked_at() -> None:
    assert AddressFrame.parse(bytes.fromhex(J1), REFERENCE) == UNICAST


@pytest.mark.parametrize("dialect", Dialect)
def test_an_unknown_type(dialect: Dialect) -> None:
    # D11 to D13
    for number in (0, *range(6, 64)):
        data = bytes.fromhex("00000001") + (number << 10).to_bytes(2, "big") + bytes(40)
        with pytest.raises(UnexpectedFrameType) as caught:
            parse_frame(data, dialect)
        assert (caught.value.found, caught.value.expected) == (number, None)
        with pytest.raises(UnexpectedFrameType):
            frame_type(data)


@pytest.mark.parametrize("dialect", Dialect)
def test_another_type(dialect: Dialect) -> None:
    with pytest.raises(UnexpectedFrameType) as caught:
        RouteSetup.parse(bytes.fromhex(V10), dialect)
    assert (caught.value.found, caught.value.expected) == (5, 1)
    with pytest.raises(UnexpectedFrameType):
        locate_address(bytes.fromhex(V01), dialect)


@pytest.mark.parametrize("size", range(6))
@pytest.mark.parametrize("dialect", Dialect)
def test_not_even_a_header(size: int, dialect: Dialect) -> None:
    # D14
    for read in (parse_frame, AddressFrame.parse, locate_address):
        with pytest.raises(FrameTruncated) as caught:
            read(bytes.fromhex(V01)[:size], dialect)
        assert (caught.value.field, caught.value.left) == ("header", size)
    with pytest.raises(FrameTruncated):
        frame_type(bytes(size))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (V01, FrameType.ROUTE_SETUP),
        (V05, FrameType.ROUTE_ADD),
        (V07, FrameType.ROUTE_REMOVE),
        (V08, FrameType.BROKER_INFO),
        (S1, FrameType.ADDRESS),
    ],
)
def test_the_type(text: str, kind: FrameType) -> None:
    assert frame_type(bytes.fromhex(text)) is kind
    assert frame_type(bytes.fromhex(text)[:6]) is kind


@pytest.mark.parametrize("flags", [0x001, 0x3FF])
def test_flags_of_other_frames_are_ignored(flags: int) -> None:
    # D31
    data = bytearray.fromhex(V01)
    data[4:6] = (0x400 | flags).to_bytes(2, "big")
    assert RouteSetup.parse(data, SPEC) == RouteSetup(ROUTE, "pong")


# --- fields ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", Dialect)
def test_the_longest_service_name(dialect: Dialect) -> None:
    # V04
    frame = RouteSetup(ROUTE, "n" * 255)
    data = frame.serialize(dialect)
    assert len(data) == 278
    assert data.hex().startswith("00000001040000000000000000000000000000000022ff6e6e")
    assert RouteSetup.parse(data, dialect) == frame
    for name in ("n" * 256, "é" * 128):
        with pytest.raises(FieldTooLong) as caught:
            RouteSetup(ROUTE, name).serialize(dialect)
        assert (caught.value.size, caught.value.limit) == (256, 255)


def test_a_field_is_missing() -> None:
    fields = (("timestamp", 38), ("route id", 22), ("broker id", 6))
    for size in range(6, 46):
        with pytest.raises(FrameTruncated) as caught:
            RouteRemove.parse(bytes.fromhex(V07)[:size], SPEC)
        field, start = next(each for each in fields if size >= each[1])
        assert (caught.value.field, caught.value.left) == (field, size - start)


def test_a_service_name_is_missing() -> None:
    with pytest.raises(FrameTruncated) as caught:
        RouteSetup.parse(bytes.fromhex(V01)[:22], SPEC)
    assert caught.value.field == "service name"


def test_a_service_name_is_not_utf8() -> None:
    # D30: the reference replaces what it cannot read.
    with pytest.raises(BadText, match="service name"):
        RouteSetup.parse(bytes.fromhex(V01.replace("706f6e67", "70ff6e67")), SPEC)
    with pytest.raises(BadText, match="service name"):
        RouteSetup(ROUTE, "\ud800").serialize(SPEC)


@pytest.mark.parametrize("value", [b"", ROUTE[:-1], ROUTE + b"\0"])
def test_an_id_of_another_size(value: bytes) -> None:
    for frame, field in (
        (RouteSetup(value, "s"), "route id"),
        (RouteRemove(value, ROUTE, AT), "broker id"),
        (replace(UNICAST, origin_route_id=value), "origin route id"),
    ):
        with pytest.raises(BrokerFrameError, match=f"{field}: {len(value)} bytes, not 16"):
            frame.serialize(SPEC)


@pytest.mark.parametrize("timestamp", [0, MAX_TIMESTAMP + 1, 2**64 - 1])
def test_a_timestamp_out_of_range(timestamp: int) -> None:
    # D22, D23
    data = bytes.fromhex(V07)[:-8] + timestamp.to_bytes(8, "big")
    with pytest.raises(BrokerFrameError, match="timestamp"):
        RouteRemove.parse(data, REFERENCE)
    with pytest.raises(BrokerFrameError, match="timestamp"):
        RouteRemove(BROKER, ROUTE, timestamp).serialize(REFERENCE)
    with pytest.raises(BrokerFrameError, match="timestamp"):
        RouteRemove(BROKER, ROUTE, -1).serialize(REFERENCE)


@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP])
def test_the_first_and_last_timestamp(timestamp: int) -> None:
    frame = RouteRemove(BROKER, ROUTE, timestamp)
    assert RouteRemove.parse(frame.serialize(SPEC), SPEC) == frame


# --- properties -----------------------------------------------------------------------------

IDS = st.binary(min_size=16, max_size=16)
NAMES = st.text(min_size=1, max_size=60)
TIMESTAMPS = st.integers(1, MAX_TIMESTAMP)
KEYS = st.one_of(st.integers(0, 0x7B), st.text(min_size=1, max_size=30))
TAGS = st.lists(st.tuples(KEYS, st.text(max_size=30)), max_size=6).map(tuple)
METADATA = st.lists(st.tuples(KEYS, st.binary(max_size=127)), max_size=4).map(tuple)
MARKERS = (((0, ""),), ((0, b""),))
FRAMES: st.SearchStrategy[BrokerFrame] = st.one_of(
    st.builds(RouteSetup, IDS, NAMES, TAGS),
    st.builds(RouteAdd, IDS, IDS, TIMESTAMPS, st.text(max_size=60), TAGS),
    st.builds(RouteRemove, IDS, IDS, TIMESTAMPS),
    st.builds(BrokerInfo, IDS, TIMESTAMPS, METADATA),
    st.builds(
        AddressFrame,
        IDS,
        st.sampled_from(RoutingType),
        TAGS.filter(normal_form),
        st.booleans(),
        METADATA,
        st.binary(max_size=40),
    ),
)


def plain(frame: BrokerFrame, dialect: Dialect) -> BrokerFrame:
    """The frame without what the dialect cannot say; the empty list has two values."""
    if isinstance(frame, AddressFrame) and dialect is REFERENCE:
        frame = replace(frame, metadata=(), wrapped=b"")
    if not isinstance(frame, BrokerInfo | RouteRemove) and frame.tags in MARKERS:
        frame = replace(frame, tags=())
    if isinstance(frame, BrokerInfo | AddressFrame) and frame.metadata in MARKERS:
        frame = replace(frame, metadata=())
    return frame


@given(FRAMES, st.sampled_from(Dialect))
def test_reading_and_writing_are_inverse(frame: BrokerFrame, dialect: Dialect) -> None:
    frame = plain(frame, dialect)
    data = frame.serialize(dialect)
    assert parse_frame(data, dialect) == frame
    assert frame_type(data).name.replace("_", "") in type(frame).__name__.upper()


@given(FRAMES, st.sampled_from(Dialect), st.data())
def test_a_changed_frame_is_a_frame_or_an_error(
    frame: BrokerFrame, dialect: Dialect, data: st.DataObject
) -> None:
    wire = bytearray(plain(frame, dialect).serialize(dialect))
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    del wire[data.draw(st.integers(0, len(wire))) :]
    try:
        read = parse_frame(wire, dialect)
    except BrokerFrameError:
        return
    if isinstance(read, AddressFrame):
        spans = locate_address(wire, dialect)
        assert bytes(wire[spans.wrapped :]) == read.wrapped
        assert spans.routing is read.routing
