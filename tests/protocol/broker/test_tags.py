from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import AddressError
from onward.protocol.broker import (
    EMPTY_LIST,
    MAX_TAGS,
    BadText,
    BrokerFrameError,
    DefaultTagClaimed,
    Dialect,
    FieldTooLong,
    FrameTruncated,
    Key,
    Metadata,
    NullNotLast,
    Tag,
    TagList,
    TooManyTags,
    check_default_tags,
    extension_key,
    make_tags,
    normal_form,
    parse_metadata,
    parse_tags,
    serialize_metadata,
    serialize_tags,
    tag_set,
    with_default_tags,
)

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
BOTH = pytest.mark.parametrize("dialect", Dialect)

LITERALS = st.text(min_size=1, max_size=40)
VALUES = st.text(max_size=40).filter(lambda text: len(text.encode()) <= 127)
NUMBERS = st.integers(1, 0x7F).filter(lambda number: number not in (0x7C, 0x7F))
EXTENSIONS = st.builds(extension_key, st.sampled_from((0x7C, 0x7F)), st.integers(0, 0xFFFF))
SPEC_KEYS: st.SearchStrategy[Key] = st.one_of(
    NUMBERS, EXTENSIONS, LITERALS.filter(lambda text: len(text.encode()) <= 127)
)
REFERENCE_KEYS: st.SearchStrategy[Key] = st.one_of(
    st.integers(1, 0x7F), LITERALS.filter(lambda text: len(text.encode()) <= 127)
)

LISTS: list[tuple[str, Dialect, TagList]] = [
    ("", SPEC, ()),
    ("8000", SPEC, ()),
    ("8104706f6e67", SPEC, ((1, "pong"),)),
    ("8381 61 016b 0176", SPEC, ((3, "a"), ("k", "v"))),
    ("016b00", SPEC, (("k", ""),)),
    ("016b80 016c00", SPEC, (("k", ""), ("l", ""))),
    ("016b", SPEC, (("k", None),)),
    ("81", SPEC, ((1, None),)),
    ("80", SPEC, ()),
    ("800178", SPEC, ((0, "x"),)),
    ("8080 8000", SPEC, ((0, ""), (0, ""))),
    ("868165 868166 868165 860167", SPEC, ((6, "e"), (6, "f"), (6, "e"), (6, "g"))),
    ("99817a e60178", SPEC, ((0x19, "z"), (0x66, "x"))),
    # S3, and the same bytes as the reference reads them.
    ("fc00010178", SPEC, ((0x7C0001, "x"),)),
    ("ffffff0178", SPEC, ((0x7FFFFF, "x"),)),
    ("fc0001", SPEC, ((0x7C0001, None),)),
    ("fc0178", REFERENCE, ((0x7C, "x"),)),
    ("ff0178", REFERENCE, ((0x7F, "x"),)),
    ("02c3a9 02c3a9", SPEC, (("é", "é"),)),
]


@pytest.mark.parametrize(("text", "dialect", "tags"), LISTS)
def test_reads_a_list(text: str, dialect: Dialect, tags: TagList) -> None:
    data = bytes.fromhex(text)
    assert parse_tags(data, 0, dialect) == (tags, len(data))
    assert parse_tags(b"\xff\xff" + data, 2, dialect) == (tags, len(data) + 2)


@pytest.mark.parametrize(
    ("text", "dialect", "tags"), [each for each in LISTS if each[2] and each[2][-1][1] is not None]
)
def test_a_list_ends_where_it_says(text: str, dialect: Dialect, tags: TagList) -> None:
    data = bytes.fromhex(text)
    for trailing in (b"\0", b"\xff\xff", data):
        assert parse_tags(data + trailing, 0, dialect) == (tags, len(data))


@BOTH
def test_reads_a_list_byte_by_byte(dialect: Dialect) -> None:
    # 83 81 61 | 01 6b 01 76: InstanceName=a, k=v
    data = bytes.fromhex("83816101 6b0176".replace(" ", ""))
    accepted = {0: (), 1: ((3, None),), 5: ((3, "a"), ("k", None)), 7: ((3, "a"), ("k", "v"))}
    for size in range(len(data) + 1):
        if size in accepted:
            assert parse_tags(data[:size], 0, dialect) == (accepted[size], size)
        else:
            with pytest.raises(FrameTruncated):
                parse_tags(data[:size], 0, dialect)


@pytest.mark.parametrize(
    ("text", "error", "field"),
    [
        ("03 6b", FrameTruncated, "tag key"),
        ("fc", FrameTruncated, "tag key"),
        ("fc00", FrameTruncated, "tag key"),
        ("016b 02 76", FrameTruncated, "tag value"),
        ("016b 81 76", FrameTruncated, "tag key"),
        ("016b 80", FrameTruncated, "tag key"),
        ("00 0176", BrokerFrameError, "tag key"),
        ("01ff 0176", BadText, "tag key"),
        ("016b 01ff", BadText, "tag value"),
        ("016b 03eda080", BadText, "tag value"),
    ],
)
def test_refuses_a_broken_list(text: str, error: type[BrokerFrameError], field: str) -> None:
    with pytest.raises(error) as caught:
        parse_tags(bytes.fromhex(text), 0, SPEC)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "error", "field"),
    [
        ("03 6b", FrameTruncated, "metadata key"),
        ("016b 02 76", FrameTruncated, "metadata value"),
        ("00 0176", BrokerFrameError, "metadata key"),
        ("01ff 0176", BadText, "metadata key"),
    ],
)
def test_refuses_broken_metadata(text: str, error: type[BrokerFrameError], field: str) -> None:
    with pytest.raises(error) as caught:
        parse_metadata(bytes.fromhex(text), 0, SPEC)
    assert caught.value.field == field


def test_says_how_much_is_missing() -> None:
    with pytest.raises(FrameTruncated) as caught:
        parse_tags(bytes.fromhex("05 6b6b"), 0, SPEC)
    assert (caught.value.size, caught.value.left) == (5, 2)
    with pytest.raises(FrameTruncated) as caught:
        parse_tags(bytes.fromhex("016b 0476"), 0, SPEC)
    assert (caught.value.size, caught.value.left) == (4, 1)


def test_metadata_values_are_bytes() -> None:
    entries: Metadata = ((0x1E, b"\xff\x00"), ("k", b""), (1, None))
    data = bytes.fromhex("9e82ff00 016b80 81")
    assert parse_metadata(data, 0, SPEC) == (entries, len(data))
    assert serialize_metadata(entries, SPEC) == data
    assert parse_metadata(EMPTY_LIST, 0, SPEC) == ((), 2)


@BOTH
def test_the_number_of_entries_is_limited(dialect: Dialect) -> None:
    tags: TagList = tuple((f"{number}", "") for number in range(MAX_TAGS))
    data = serialize_tags(tags, dialect)
    assert parse_tags(data, 0, dialect) == (tags, len(data))
    with pytest.raises(TooManyTags):
        parse_tags(data[:-1] + b"\x80\x01k\x00", 0, dialect)
    with pytest.raises(TooManyTags):
        serialize_tags((*tags, ("k", "")), dialect)


@BOTH
def test_the_longest_texts(dialect: Dialect) -> None:
    tags: TagList = (("k" * 127, "v" * 127), ("é" * 63, "é" * 63))
    data = serialize_tags(tags, dialect)
    assert parse_tags(data, 0, dialect) == (tags, len(data))


@pytest.mark.parametrize(
    ("tags", "dialect", "error"),
    [
        # V18, V17, V19: where the reference writes something else and says nothing.
        ((("k" * 128, "v"),), SPEC, FieldTooLong),
        ((("k", "v" * 128),), SPEC, FieldTooLong),
        ((("é" * 64, "v"),), REFERENCE, FieldTooLong),
        ((("k", None), ("l", "v")), SPEC, NullNotLast),
        ((("", "v"),), SPEC, BrokerFrameError),
        (((-1, "v"),), SPEC, BrokerFrameError),
        (((128, "v"),), REFERENCE, BrokerFrameError),
        (((0x7B0001, "v"),), SPEC, BrokerFrameError),
        (((0x7C, "v"),), SPEC, BrokerFrameError),
        (((0x7F, "v"),), SPEC, BrokerFrameError),
        (((0x7C0001, "v"),), REFERENCE, BrokerFrameError),
        ((("\ud800", "v"),), SPEC, BadText),
        ((("k", "\ud800"),), SPEC, BadText),
    ],
)
def test_refuses_to_write(tags: TagList, dialect: Dialect, error: type[BrokerFrameError]) -> None:
    with pytest.raises(error):
        serialize_tags(tags, dialect)


def test_an_empty_list_before_another_field() -> None:
    assert serialize_tags((), SPEC) == b""
    assert serialize_tags((), SPEC, last=False) == EMPTY_LIST
    assert serialize_metadata((), SPEC, last=False) == EMPTY_LIST


def test_null_is_possible_only_at_the_end_of_a_frame() -> None:
    assert serialize_tags(((1, "a"), ("k", None)), SPEC) == bytes.fromhex("818161 016b")
    with pytest.raises(NullNotLast):
        serialize_tags((("k", None),), SPEC, last=False)


def test_the_reference_has_no_null() -> None:
    tags: TagList = (("k", None), ("l", None))
    assert serialize_tags(tags, REFERENCE) == bytes.fromhex("016b80 016c00")


@given(st.data())
def test_reading_and_writing_are_inverse(data: st.DataObject) -> None:
    dialect = data.draw(st.sampled_from(Dialect))
    keys = SPEC_KEYS if dialect is SPEC else REFERENCE_KEYS
    tags: TagList = tuple(data.draw(st.lists(st.tuples(keys, VALUES), max_size=8)))
    if tags and dialect is SPEC and data.draw(st.booleans()):
        tags = (*tags[:-1], (tags[-1][0], None))
    wire = serialize_tags(tags, dialect)
    assert parse_tags(wire, 0, dialect) == (tags, len(wire))


@given(st.binary(max_size=60), st.sampled_from(Dialect))
def test_any_bytes_are_a_list_or_an_error(data: bytes, dialect: Dialect) -> None:
    try:
        metadata, end = parse_metadata(data, 0, dialect)
    except BrokerFrameError:
        return
    assert 0 <= end <= len(data)
    whole = all(value is not None for _, value in metadata)
    if metadata and (dialect is SPEC or whole):
        assert serialize_metadata(metadata, dialect) == data[:end]


def test_normal_form_has_each_tag_once_in_order() -> None:
    tags: TagList = ((6, "eu"), ("k", "v"), (6, "us"), (6, "eu"), ("k", None), ("k", ""))
    assert normal_form(tags) == ((6, "eu"), ("k", "v"), (6, "us"), ("k", None), ("k", ""))
    assert tag_set(tags) == tag_set(reversed(tags))


def test_normal_form_leaves_out_no_tag() -> None:
    assert normal_form(((0, ""), (0, "x"), (0, None), (1, "a"))) == ((1, "a"),)


@pytest.mark.parametrize("spelling", ["Id{%s}", "%s"])
def test_normal_form_of_a_route_id(spelling: str) -> None:
    text = "00000000-0000-0000-0000-0000000000ff"
    assert normal_form(((2, spelling % text.upper()),)) == ((2, text),)
    assert normal_form(((3, f"Id{{{text}}}"),)) == ((3, f"Id{{{text}}}"),)
    assert normal_form(((2, "me"), (2, None))) == ((2, "me"), (2, None))


ROUTE_ID = bytes(15) + b"\x22"
ROUTE_TEXT = "00000000-0000-0000-0000-000000000022"


def test_default_tags_are_added() -> None:
    tags: TagList = (("k", "v"),)
    assert with_default_tags(tags, "pong", ROUTE_ID) == (("k", "v"), (1, "pong"), (2, ROUTE_TEXT))


@pytest.mark.parametrize("present", [(1, "other"), (1, None), (2, "Id{mine}")])
def test_default_tags_are_added_only_if_absent(present: Tag) -> None:
    # The reference overwrites them; the specification says "if they are not already present".
    keys = [key for key, _ in with_default_tags((present,), "pong", ROUTE_ID)]
    assert sorted(map(str, keys)) == ["1", "2"]
    assert with_default_tags((present,), "pong", ROUTE_ID)[0] == present


def test_a_literal_spelled_like_a_default_tag_is_another() -> None:
    tags: TagList = (("io.rsocket.routing.ServiceName", "x"),)
    assert len(with_default_tags(tags, "pong", ROUTE_ID)) == 3


@pytest.mark.parametrize(
    "own",
    [
        (1, "pong"),
        (2, ROUTE_TEXT),
        (2, f"Id{{{ROUTE_TEXT.upper()}}}"),
        (2, ROUTE_TEXT.replace("-", "")),
        ("io.rsocket.routing.RouteId", ROUTE_TEXT),
        ("io.rsocket.broker.ServiceName", "pong"),
        ("RouteId", "anything"),
        (1, ""),
        (2, None),
        (3, "other"),
    ],
)
def test_default_tags_may_be_a_routes_own(own: Tag) -> None:
    check_default_tags((own, (6, "eu")), "pong", ROUTE_ID)


OTHER_TEXT = "00000000-0000-0000-0000-000000000023"


@pytest.mark.parametrize(
    ("claimed", "field"),
    [
        ((1, "other"), "ServiceName"),
        ((1, "Pong"), "ServiceName"),
        (("io.rsocket.routing.ServiceName", "other"), "ServiceName"),
        ((2, OTHER_TEXT), "RouteId"),
        ((2, f"Id{{{OTHER_TEXT}}}"), "RouteId"),
        ((2, f"{{{OTHER_TEXT}}}".upper()), "RouteId"),
        ((2, OTHER_TEXT.replace("-", "")), "RouteId"),
        (("io.rsocket.routing.RouteId", OTHER_TEXT), "RouteId"),
        (("IO.RSocket.Broker.ROUTEID", OTHER_TEXT), "RouteId"),
    ],
)
def test_default_tags_of_others_cannot_be_claimed(claimed: Tag, field: str) -> None:
    with pytest.raises(DefaultTagClaimed, match=field):
        check_default_tags(((1, "pong"), claimed, (6, "eu")), "pong", ROUTE_ID)


def test_makes_tags_of_words() -> None:
    given_tags = {"service": "orders", "colour": "blue", "0x19": "", "on-call": None, "zone": "a"}
    assert make_tags(given_tags) == (
        (1, "orders"),
        ("colour", "blue"),
        (0x19, ""),
        (7, "a"),
        ("on-call", None),  # last, as the wire has it
    )


def test_refuses_to_make_bad_tags() -> None:
    with pytest.raises(AddressError):
        make_tags({"": "x"})
    with pytest.raises(FieldTooLong):
        make_tags({"k": "v" * 128})
    with pytest.raises(TooManyTags):
        make_tags({f"{number}": "" for number in range(MAX_TAGS + 1)})
