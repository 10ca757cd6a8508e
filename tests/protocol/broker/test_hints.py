from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import (
    MAX_NO_ROUTE,
    NO_ROUTE_KEY,
    AddressFrame,
    AddressQuery,
    BadText,
    BrokerFrameError,
    Dialect,
    Metadata,
    RoutingType,
    Tag,
    TagList,
    method_name,
    parse_query,
    query_of_address,
    read_address,
    written_method,
)
from onward.protocol.broker._hints import format_no_route, parse_no_route

SPEC, REFERENCE = Dialect.SPECIFICATION, Dialect.REFERENCE
UNICAST, MULTICAST, SHARD = RoutingType.UNICAST, RoutingType.MULTICAST, RoutingType.SHARD
ORIGIN = bytes.fromhex("112233445566778899aabbccddeeff00")
SHARD_KEY, SHARD_METHOD, STICKY, LB_METHOD = 0x1B, 0x1C, 0x1D, 0x1E
ORDERS: Tag = (1, "orders")
ADA: Tag = (10, "ada")


def asked(
    routing: RoutingType, tags: TagList, metadata: Metadata = (), dialect: Dialect = SPEC
) -> AddressQuery:
    """What an ADDRESS asks for, read from its bytes and from the frame itself."""
    address = AddressFrame(ORIGIN, routing, tags, metadata=metadata)
    found = query_of_address(address, dialect)
    assert read_address(address.serialize(dialect), dialect) == found
    return found


def refused(
    routing: RoutingType, tags: TagList, metadata: Metadata = (), dialect: Dialect = SPEC
) -> BrokerFrameError:
    address = AddressFrame(ORIGIN, routing, tags, metadata=metadata)
    with pytest.raises(BrokerFrameError) as caught:
        query_of_address(address, dialect)
    with pytest.raises(BrokerFrameError) as again:
        read_address(address.serialize(dialect), dialect)
    assert repr(caught.value) == repr(again.value)
    assert len(str(caught.value)) < 80
    return caught.value


@pytest.mark.parametrize("dialect", Dialect)
def test_without_hints_an_address_asks_for_its_tags(dialect: Dialect) -> None:
    for routing in (UNICAST, MULTICAST):
        found = asked(routing, (ORDERS, ADA, ORDERS), dialect=dialect)
        assert found == AddressQuery(routing, False, frozenset((ORDERS, ADA)), "", (), None)


def test_an_address_whose_payload_is_encrypted() -> None:
    address = AddressFrame(ORIGIN, UNICAST, (ORDERS,), encrypted=True)
    assert query_of_address(address).encrypted
    assert read_address(address.serialize(SPEC), SPEC).encrypted


@pytest.mark.parametrize("tags", [(), ((0, "x"),)])
def test_an_address_without_tags_asks_for_nothing(tags: TagList) -> None:
    with pytest.raises(BrokerFrameError, match="needs at least one"):
        query_of_address(AddressFrame(ORIGIN, UNICAST, tags))


# --- methods --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", ""),
        ("roundrobin", "roundrobin"),
        ("Round-Robin", "roundrobin"),
        ("ROUND_ROBIN", "roundrobin"),
        ("-_", ""),
        ("Straße", "strasse"),
    ],
)
def test_case_and_dashes_of_a_method_do_not_matter(text: str, name: str) -> None:
    assert method_name(text) == name
    assert asked(UNICAST, (ORDERS,), ((LB_METHOD, text.encode()),)).method == name


@given(st.text())
def test_the_normal_form_of_a_method_is_its_own(text: str) -> None:
    assert method_name(method_name(text)) == method_name(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("roundrobin", "round-robin"),
        ("Peak_EWMA", "peak-ewma"),
        ("least-outstanding", "least-outstanding"),
        ("my_method", "my_method"),
        ("", ""),
    ],
)
def test_a_built_in_method_is_written_with_its_dashes(text: str, name: str) -> None:
    assert written_method(text) == name


def test_each_kind_of_request_has_its_own_method() -> None:
    metadata: Metadata = ((SHARD_METHOD, b"jump"), (LB_METHOD, b"random"), (SHARD_KEY, b"user"))
    assert asked(UNICAST, (ORDERS, ADA), metadata).method == "random"
    assert asked(SHARD, (ORDERS, ADA), metadata).method == "jump"
    assert asked(MULTICAST, (ORDERS, ADA), metadata).method == ""


def test_the_first_method_counts() -> None:
    assert asked(UNICAST, (ORDERS,), ((LB_METHOD, b"a"), (LB_METHOD, b"b"))).method == "a"


def test_a_method_that_is_no_text_is_the_default() -> None:
    assert asked(UNICAST, (ORDERS,), ((LB_METHOD, b"\xff"),)).method == ""
    assert query_of_address(AddressFrame(ORIGIN, UNICAST, (ORDERS,), metadata=((30, None),))) == (
        AddressQuery(UNICAST, False, frozenset((ORDERS,)))
    )


def test_the_reference_names_the_method_in_a_tag_that_is_asked_for_too() -> None:
    tags: TagList = (ORDERS, (LB_METHOD, "Weighted"))
    found = asked(UNICAST, tags, dialect=REFERENCE)
    assert found == AddressQuery(UNICAST, False, frozenset(tags), "weighted")
    assert asked(MULTICAST, tags, dialect=REFERENCE).method == ""
    assert asked(UNICAST, (ORDERS, (LB_METHOD, "")), dialect=REFERENCE).method == ""
    assert asked(UNICAST, tags).method == ""


# --- shard keys -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [b"user", b"io.rsocket.routing.UserName", b"io.rsocket.broker.UserName", b"0x0a"]
)
def test_a_key_is_named_as_people_name_it(name: bytes) -> None:
    found = asked(SHARD, (ORDERS, ADA), ((SHARD_KEY, name),))
    assert found == AddressQuery(SHARD, False, frozenset((ORDERS,)), "", (ADA,))


@pytest.mark.parametrize("key", ["colour", "a b", "%zz", "größe", "user", "0x0a", "x" * 127])
def test_a_literal_key_is_named_by_its_text(key: str) -> None:
    tag: Tag = (key, "1")
    # Also where a number could be meant.
    found = asked(SHARD, (ADA, tag), ((SHARD_KEY, key.encode()),))
    assert found.query == {ADA}
    assert found.keys == (tag,)


def test_several_keys_stand_in_the_order_they_are_named() -> None:
    tags: TagList = ((6, "eu"), ORDERS, (10, "b"), (10, None), (10, "a"))
    found = asked(SHARD, tags[:3], ((SHARD_KEY, b"user"), (SHARD_KEY, b"region")))
    assert found.keys == ((10, "b"), (6, "eu"))
    again = asked(SHARD, tags[:3], ((SHARD_KEY, b"region"), (SHARD_KEY, b"user")))
    assert again.keys == ((6, "eu"), (10, "b"))
    # Named twice is named once, and the order of one key's values does not matter.
    twice: Metadata = ((SHARD_KEY, b"user"), (SHARD_KEY, b"0x0a"))
    assert query_of_address(AddressFrame(ORIGIN, SHARD, tags, metadata=twice)).keys == (
        (10, None),
        (10, "a"),
        (10, "b"),
    )


def test_a_service_or_a_route_that_chooses_is_asked_for_too() -> None:
    route: Tag = (2, "Id{00000000-0000-0000-0000-0000000000FF}")
    canonical: Tag = (2, "00000000-0000-0000-0000-0000000000ff")
    found = asked(SHARD, (ORDERS, route), ((SHARD_KEY, b"service"), (SHARD_KEY, b"route")))
    assert found.query == {ORDERS, canonical}
    assert found.keys == (ORDERS, canonical)


def test_a_shard_request_needs_a_key() -> None:
    for metadata in ((), ((LB_METHOD, b"x"),)):
        assert str(refused(SHARD, (ORDERS,), metadata)).startswith("ShardKey: a shard request")


@pytest.mark.parametrize("name", [b"user", b"colour", b"", b"%zz", b"x" * 127])
def test_every_shard_key_names_a_tag(name: bytes) -> None:
    metadata: Metadata = ((SHARD_KEY, b"service"), (SHARD_KEY, name))
    assert str(refused(SHARD, (ORDERS,), metadata)) == "ShardKey: it names no tag of the request"


def test_a_shard_key_that_is_no_text_is_an_error_that_says_so() -> None:
    error = refused(SHARD, (ORDERS, ADA), ((SHARD_KEY, b"\xff"),))
    assert isinstance(error, BadText)
    assert str(error) == "ShardKey: not UTF-8"


def test_a_tag_is_left_to_ask_for() -> None:
    assert "besides those that choose" in str(refused(SHARD, (ADA,), ((SHARD_KEY, b"user"),)))


# --- sticky keys ----------------------------------------------------------------------------


def test_a_sticky_key_chooses_and_is_not_asked_for() -> None:
    found = asked(UNICAST, (ORDERS, ADA), ((STICKY, b"user"),))
    assert found == AddressQuery(UNICAST, False, frozenset((ORDERS,)), "", (ADA,))


@pytest.mark.parametrize("name", [b"region", b"\xff", b"%zz", b""])
def test_a_sticky_key_that_names_no_tag_is_passed_over(name: bytes) -> None:
    assert asked(UNICAST, (ORDERS, ADA), ((STICKY, name),)).keys == ()
    assert asked(UNICAST, (ORDERS, ADA), ((STICKY, name), (STICKY, b"user"))).keys == (ADA,)


def test_sticky_keys_that_leave_no_tag_to_ask_for_are_passed_over() -> None:
    found = asked(UNICAST, (ADA,), ((STICKY, b"user"), (LB_METHOD, b"random")))
    assert found == AddressQuery(UNICAST, False, frozenset((ADA,)), "random")


def test_keys_matter_only_to_the_requests_they_are_for() -> None:
    metadata: Metadata = ((STICKY, b"user"), (SHARD_KEY, b"region"))
    tags: TagList = (ORDERS, ADA, (6, "eu"))
    assert asked(UNICAST, tags, metadata).keys == (ADA,)
    assert asked(SHARD, tags, metadata).keys == ((6, "eu"),)
    assert asked(MULTICAST, tags, metadata) == AddressQuery(MULTICAST, False, frozenset(tags))


# --- no route -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"reject", 0.0),
        (b"0", 0.0),
        (b"wait", inf),
        (b"2.5", 2.5),
        (b"0.001", 0.001),
        (b"9999999.999", MAX_NO_ROUTE),
    ],
)
@pytest.mark.parametrize("routing", [UNICAST, MULTICAST])
def test_a_request_says_how_long_to_wait(routing: RoutingType, text: bytes, seconds: float) -> None:
    assert NO_ROUTE_KEY == 0x7C0001
    metadata: Metadata = ((NO_ROUTE_KEY, text), (NO_ROUTE_KEY, b"7"))
    assert asked(routing, (ORDERS,), metadata).no_route == seconds


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"Reject", b"-1", b"1e3", b"nan", b"inf", b".5", b"5.", b"1.0001", b"\xff"),
        *(b"10000000", b" 1", b"1\n", "\N{ARABIC-INDIC DIGIT ONE}".encode()),
    ],
)
def test_a_wait_that_cannot_be_read_is_an_error(text: bytes) -> None:
    error = refused(UNICAST, (ORDERS,), ((NO_ROUTE_KEY, text),))
    assert str(error) == "no-route: neither 'reject' nor 'wait' nor seconds"


@given(st.integers(0, 9_999_999_999))
def test_reading_and_writing_a_wait_are_inverse(milliseconds: int) -> None:
    seconds = float(f"{milliseconds // 1000}.{milliseconds % 1000:03}")
    assert parse_no_route(format_no_route(seconds)) == seconds


@given(st.floats(min_value=1e-12, max_value=MAX_NO_ROUTE))
def test_a_short_wait_does_not_become_none(seconds: float) -> None:
    read = parse_no_route(format_no_route(seconds))
    assert read is not None
    assert read > 0
    assert abs(read - seconds) <= 0.001


@pytest.mark.parametrize("seconds", [-1.0, nan, -inf, 1e7])
def test_a_wait_out_of_range_is_not_written(seconds: float) -> None:
    with pytest.raises(ValueError, match="is not between 0 and"):
        format_no_route(seconds)


def test_queries_are_equal_however_written() -> None:
    first = asked(SHARD, (ADA, ORDERS, (6, "eu")), ((SHARD_KEY, b"user"),))
    second = asked(SHARD, (ORDERS, (6, "eu"), ADA, ADA), ((SHARD_KEY, b"0x0a"),))
    assert first == second
    assert hash(first) == hash(second)
    assert first.query == parse_query("region=eu service=orders")


# --- hints among the tags: the reference dialect --------------------------------------------

EXTENSION = 0x1F
EU: Tag = (6, "eu")


def in_tags(routing: RoutingType, *tags: Tag) -> AddressQuery:
    return asked(routing, (ORDERS, ADA, EU, *tags), dialect=REFERENCE)


@pytest.mark.parametrize("name", ["user", "io.rsocket.broker.UserName", "0x0a"])
def test_a_shard_key_among_the_tags_chooses_and_is_not_asked_for(name: str) -> None:
    found = in_tags(SHARD, (SHARD_KEY, name), (SHARD_METHOD, "Jump"))
    assert found == AddressQuery(SHARD, False, frozenset((ORDERS, EU)), "jump", (ADA,))


def test_a_sticky_key_among_the_tags_chooses_and_is_not_asked_for() -> None:
    found = in_tags(UNICAST, (STICKY, "user"))
    assert found == AddressQuery(UNICAST, False, frozenset((ORDERS, EU)), "", (ADA,))


def test_a_tag_names_several_keys_with_spaces_between() -> None:
    for routing, key in ((SHARD, SHARD_KEY), (UNICAST, STICKY)):
        assert in_tags(routing, (key, "region user")).keys == (EU, ADA)
    literal: Tag = ("a b", "1")
    assert in_tags(SHARD, literal, (SHARD_KEY, "a b")).keys == (literal,)


@pytest.mark.parametrize("value", ["colour", ""])
def test_a_sticky_key_that_names_no_tag_is_a_tag_like_any(value: str) -> None:
    found = in_tags(UNICAST, (STICKY, value))
    assert found.query == {ORDERS, ADA, EU, (STICKY, value)}
    assert found.keys == ()


def test_hints_of_other_requests_are_tags_like_any() -> None:
    for routing, key, value in (
        (UNICAST, SHARD_KEY, "user"),
        (UNICAST, SHARD_METHOD, "jump"),
        (UNICAST, EXTENSION, "edge"),
        (SHARD, STICKY, "user"),
        (MULTICAST, SHARD_KEY, "user"),
        (MULTICAST, STICKY, "user"),
        (MULTICAST, LB_METHOD, "random"),
    ):
        named: tuple[Tag, ...] = ((SHARD_KEY, "region"),) if routing is SHARD else ()
        assert (key, value) in in_tags(routing, (key, value), *named).query


def test_words_of_the_extension_key_are_hints_and_never_asked_for() -> None:
    words: Tag = (EXTENSION, "@sticky=user @method=peak-ewma @no-route=2.5")
    found = in_tags(UNICAST, words)
    assert found == AddressQuery(UNICAST, False, frozenset((ORDERS, EU)), "peakewma", (ADA,), 2.5)
    words = (EXTENSION, "@shard=user @shard=region @method=jump @no-route=wait")
    found = in_tags(SHARD, words)
    assert found == AddressQuery(SHARD, False, frozenset((ORDERS,)), "jump", (ADA, EU), inf)
    found = in_tags(MULTICAST, (EXTENSION, "@no-route=reject"))
    assert found == AddressQuery(MULTICAST, False, frozenset((ORDERS, ADA, EU)), no_route=0.0)


def test_the_words_of_a_request_count_before_its_tag_of_the_method() -> None:
    tags: TagList = (ORDERS, (EXTENSION, "@method=random"), (LB_METHOD, "weighted"))
    found = asked(UNICAST, tags, dialect=REFERENCE)
    assert found == AddressQuery(UNICAST, False, frozenset((tags[0], tags[2])), "random")


def test_the_extension_key_means_nothing_in_the_other_dialect() -> None:
    tags: TagList = (ORDERS, (EXTENSION, "@no-route=reject"))
    assert asked(UNICAST, tags) == AddressQuery(UNICAST, False, frozenset(tags))


@pytest.mark.parametrize(
    ("routing", "tag", "text"),
    [
        (SHARD, ADA, "ShardKey: a shard request needs at least one"),
        (SHARD, (SHARD_KEY, "colour"), "ShardKey: it names no tag of the request"),
        (SHARD, (SHARD_KEY, "user colour"), "ShardKey: it names no tag of the request"),
        (SHARD, (SHARD_KEY, None), "ShardKey: it names no tag of the request"),
        (UNICAST, (EXTENSION, "@no-route=soon"), "no-route: neither 'reject' nor 'wait'"),
        (UNICAST, (EXTENSION, "@multicast"), "tag 0x1f: neither @shard, @sticky"),
        (UNICAST, (EXTENSION, "@sticky=user soon"), "tag 0x1f: neither @shard, @sticky"),
    ],
)
def test_hints_among_the_tags_that_are_wrong(routing: RoutingType, tag: Tag, text: str) -> None:
    assert str(refused(routing, (ORDERS, ADA, tag), dialect=REFERENCE)).startswith(text)


def test_hints_alone_ask_for_nothing() -> None:
    error = refused(UNICAST, ((EXTENSION, "@no-route=reject"),), dialect=REFERENCE)
    assert str(error) == "tags: an ADDRESS needs at least one"
