from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, strategies as st

from onward.protocol import TAGS, Address, AddressError
from onward.protocol.broker import (
    MAX_TAGS,
    MAX_VALUE_SIZE,
    AddressQuery,
    RoutingType,
    Tag,
    format_address_query,
    method_name,
    parse_address_query,
    parse_query,
)
from onward.protocol.broker._hints import divide

UNICAST, MULTICAST, SHARD = RoutingType.UNICAST, RoutingType.MULTICAST, RoutingType.SHARD
ORDERS = parse_query("service=orders")

TEXTS = st.text(max_size=20)
TAG: st.SearchStrategy[Tag] = st.tuples(
    st.one_of(
        st.integers(3, 0x7F),
        st.integers(0x7C0000, 0x7CFFFF),
        TEXTS.filter(bool),
        st.sampled_from(["service", "0x01", "@", "@shard", "%40", " ", "@shard=user"]),
    ),
    st.one_of(st.none(), TEXTS, st.sampled_from(["=", "a b", "@multicast", "#"])),
)
NO_ROUTE = st.one_of(
    st.none(), st.sampled_from([0.0, inf]), st.integers(1, 10**9).map(lambda n: n / 1000)
)


@st.composite
def address_queries(draw: st.DrawFn) -> AddressQuery:
    tags = draw(st.frozensets(TAG, min_size=1, max_size=6)) | ORDERS
    routing = draw(st.sampled_from(RoutingType))
    present = sorted({key for key, _ in tags}, key=str)
    names = [] if routing is MULTICAST else draw(st.lists(st.sampled_from(present), max_size=4))
    if routing is SHARD and not names:
        names = [1]
    query, keys = divide(tags, names)
    method = "" if routing is MULTICAST else method_name(draw(TEXTS))
    return AddressQuery(routing, draw(st.booleans()), query, method, keys, draw(NO_ROUTE))


@given(address_queries())
def test_reading_and_writing_are_inverse(asked: AddressQuery) -> None:
    text = format_address_query(asked)
    assert text.isascii()
    assert parse_address_query(text) == asked
    assert parse_address_query(text.encode()) == asked
    assert format_address_query(parse_address_query(text)) == text


@given(address_queries())
def test_it_is_the_value_of_an_address(asked: AddressQuery) -> None:
    address = Address(TAGS, format_address_query(asked).encode())
    if len(address.value) <= 1024:
        assert parse_address_query(Address.parse(str(address)).value) == asked


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("service=orders", AddressQuery(UNICAST, False, ORDERS)),
        ("@multicast service=orders", AddressQuery(MULTICAST, False, ORDERS)),
        (
            "@shard=user service=orders user=42",
            AddressQuery(SHARD, False, ORDERS, "", ((10, "42"),)),
        ),
        (
            "@shard=user @shard=region @method=jump service=orders region=eu user=42",
            AddressQuery(SHARD, False, ORDERS, "jump", ((10, "42"), (6, "eu"))),
        ),
        (
            "@sticky=user service=orders user=42",
            AddressQuery(UNICAST, False, ORDERS, "", ((10, "42"),)),
        ),
        ("@no-route=reject service=orders", AddressQuery(UNICAST, False, ORDERS, no_route=0.0)),
        ("@no-route=wait service=orders", AddressQuery(UNICAST, False, ORDERS, no_route=inf)),
        ("@no-route=2.5 service=orders", AddressQuery(UNICAST, False, ORDERS, no_route=2.5)),
        ("@encrypted service=orders", AddressQuery(UNICAST, True, ORDERS)),
        ("@shard=service service=orders", AddressQuery(SHARD, False, ORDERS, "", ((1, "orders"),))),
        ("user=7", AddressQuery(UNICAST, False, frozenset({(10, "7")}))),
        ("%40multicast", AddressQuery(UNICAST, False, frozenset({("@multicast", None)}))),
    ],
)
def test_reads_and_writes(text: str, asked: AddressQuery) -> None:
    assert parse_address_query(text) == asked
    assert format_address_query(asked) == text


def test_a_sticky_hint_that_leaves_nothing_to_ask_for_is_passed_over() -> None:
    assert parse_address_query("@sticky=user user=7") == parse_address_query("user=7")
    both = "@sticky=user @sticky=region @no-route=wait user=7 region=eu"
    assert format_address_query(parse_address_query(both)) == "@no-route=wait region=eu user=7"
    # It names a tag all the same, and there must be one.
    for text in ("@sticky=user", "@sticky=user region=eu"):
        with pytest.raises(AddressError):
            parse_address_query(text)


def test_words_have_any_order_and_names_any_form() -> None:
    text = " @method=Round-Robin  @no-route=2.500\t@sticky=io.rsocket.routing.UserName user=1 a=b "
    found = parse_address_query(text)
    assert format_address_query(found) == "@sticky=user @method=roundrobin @no-route=2.5 user=1 a=b"
    assert parse_address_query("@method=- service=orders") == AddressQuery(UNICAST, False, ORDERS)
    assert parse_address_query("@method=%C3%9C service=orders").method == "ü"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no tags"),
        ("@multicast", "no tags"),
        ("@shard=user service=orders", "no tag has this key"),
        ("@sticky=user service=orders", "no tag has this key"),
        ("@shard=0x00 service=orders 0x00=x", "no tag has this key"),
        ("@shard=user user=1", "no tags besides those that choose"),
        ("@shard service=orders", "it needs a value"),
        ("@shard= service=orders", "a key has 1 to 127 bytes"),
        ("@shard=%zz service=orders", "'%'"),
        ("@multicast=yes service=orders", "it has no value"),
        ("@method service=orders", "it needs a value"),
        ("@method=%zz service=orders", "'%'"),
        ("@method=a @method=a service=orders", "given twice"),
        ("@no-route=1 @no-route=1 service=orders", "given twice"),
        ("@no-route=soon service=orders", "neither"),
        ("@unknown service=orders", "unknown"),
        ("@ service=orders", "unknown"),
        ("service=orders @multicast", "no tag"),
        ("@multicast @shard=user service=orders user=1", "go together"),
        ("@sticky=user @shard=user service=orders user=1", "go together"),
        ("@multicast @sticky=user service=orders user=1", "go together"),
        ("@multicast @method=random service=orders", "chooses nothing"),
        (b"@shard=\xff service=orders", "not UTF-8"),
        (" ".join(f"k{number}" for number in range(MAX_TAGS + 1)), "more than 256 tags"),
        ("@shard=a " * (MAX_TAGS + 7) + "a b", "more than 256 words"),
        ("@" + "x" * 10_000 + " a", "unknown"),
        ("@shard=" + "x" * 10_000 + " a", "1 to 127 bytes"),
        ("@no-route=" + "9" * 10_000 + " a", "neither"),
    ],
)
def test_refuses_what_cannot_be_read(text: str | bytes, reason: str) -> None:
    with pytest.raises(AddressError, match=reason) as caught:
        parse_address_query(text)
    # Cut short, and nothing of ours.
    assert len(str(caught.value)) < 200


def test_takes_as_many_tags_and_names_as_a_frame() -> None:
    names = [f"k{number}" for number in range(MAX_TAGS)]
    text = " ".join([f"@shard={name}" for name in names[1:]] + names)
    found = parse_address_query(text)
    assert len(found.keys) == MAX_TAGS - 1
    assert found.query == {("k0", None)}
    assert parse_address_query(format_address_query(found)) == found


def test_a_value_has_as_many_bytes_as_on_the_wire() -> None:
    assert parse_address_query("k=" + "v" * MAX_VALUE_SIZE).query
    with pytest.raises(AddressError, match="at most 127 bytes"):
        parse_address_query("k=" + "v" * (MAX_VALUE_SIZE + 1))


def test_a_wait_out_of_range_is_not_written() -> None:
    with pytest.raises(ValueError, match="is not between"):
        format_address_query(AddressQuery(UNICAST, False, ORDERS, no_route=-1.0))
