from __future__ import annotations

from math import inf
from uuid import UUID

import pytest
from hypothesis import assume, given, strategies as st

from onward.protocol import AddressError
from onward.protocol.broker import (
    MAX_VALUE_SIZE,
    AddressFrame,
    AddressQuery,
    BrokerFrameError,
    Dialect,
    RoutingType,
    Tag,
    address_of_query,
    format_key,
    multicast,
    parse_address_query,
    parse_query,
    query_of_address,
    read_address,
    shard,
    unicast,
)
from tests.protocol.broker.test_query_text import address_queries

SPEC = Dialect.SPECIFICATION
ORDERS = parse_query("service=orders")


def asked(address: AddressFrame) -> AddressQuery:
    """What it asks for once it has been on the wire."""
    found = read_address(address.serialize(SPEC), SPEC)
    assert found == query_of_address(address)
    return found


def test_asks_one() -> None:
    assert asked(unicast("orders")) == AddressQuery(RoutingType.UNICAST, False, ORDERS)
    address = unicast(
        "orders",
        tags={"region": "eu", "user": "42", "colour": "blue"},
        method="Peak-EWMA",
        sticky=("user", "colour"),
        no_route=inf,
        encrypted=True,
        origin=UUID(int=7),
    )
    keys: tuple[Tag, ...] = ((10, "42"), ("colour", "blue"))
    query = parse_query("service=orders region=eu")
    assert asked(address) == AddressQuery(RoutingType.UNICAST, True, query, "peakewma", keys, inf)
    assert address.origin_route_id == bytes(15) + b"\x07"


def test_asks_all() -> None:
    address = multicast(tags={"region": "eu"}, no_route=0)
    query = parse_query("region=eu")
    expected = AddressQuery(RoutingType.MULTICAST, False, query, "", (), 0.0)
    assert asked(address) == expected
    assert asked(multicast("orders", encrypted=True, origin=bytes(16))).encrypted


def test_asks_who_is_responsible() -> None:
    address = shard("orders", tags={"user": "42"}, by="user", method="jump", no_route=2.5)
    expected = AddressQuery(RoutingType.SHARD, False, ORDERS, "jump", ((10, "42"),), 2.5)
    assert asked(address) == expected
    # For any broker to read: a long name, not our short one.
    assert address.metadata[0] == (0x1B, b"io.rsocket.routing.UserName")
    assert asked(shard("orders", tags={}, by=("service",))).keys == ((1, "orders"),)


KEYS = st.one_of(
    st.integers(1, 0x7B),
    st.integers(0x7C0000, 0x7CFFFF),
    st.text(min_size=1, max_size=20),
    st.sampled_from(["user", "0x0a", "@x", "%41", "ServiceName"]),
)


@given(st.lists(KEYS, min_size=1, max_size=5, unique=True), st.data())
def test_names_any_key(keys: list[int | str], data: st.DataObject) -> None:
    words = [format_key(key) for key in keys if key not in {1, 2}] or ["user"]
    by = data.draw(st.lists(st.sampled_from(words), min_size=1, unique=True))
    address = shard("orders", tags=dict.fromkeys(words, "x"), by=by)
    assert [format_key(key) for key, _ in asked(address).keys] == by


def test_refuses_what_cannot_be_asked() -> None:
    with pytest.raises(BrokerFrameError, match="needs at least one"):
        unicast()
    with pytest.raises(BrokerFrameError, match="it names no tag"):
        unicast("orders", sticky="user")
    with pytest.raises(BrokerFrameError, match="it names no tag"):
        shard("orders", tags={}, by="user")
    with pytest.raises(BrokerFrameError, match="needs at least one"):
        shard("orders", tags={"user": "42"}, by=())
    with pytest.raises(BrokerFrameError, match="besides those that choose"):
        shard(tags={"user": "42"}, by="user")
    with pytest.raises(BrokerFrameError, match="over the limit of 127"):
        unicast("orders", method="x" * 128)
    with pytest.raises(BrokerFrameError, match="method: not UTF-8"):
        unicast("orders", method="\ud800")
    with pytest.raises(BrokerFrameError, match="tag value: 128 bytes"):
        multicast("x" * 128)
    with pytest.raises(BrokerFrameError, match="origin route id: 15 bytes"):
        multicast("orders", origin=bytes(15))
    with pytest.raises(ValueError, match="is not between"):
        multicast("orders", no_route=-1)
    with pytest.raises(AddressError):
        unicast("orders", tags={"%": "x"})


@given(address_queries())
def test_an_address_of_a_query_asks_for_it(query: AddressQuery) -> None:
    # A text can have these two keys, a frame of the specification's dialect cannot.
    named = (*query.query, *query.keys)
    assume(not any(key in {0x7C, 0x7F} for key, _ in named))
    address = address_of_query(query, bytes(range(16)))
    assert address.origin_route_id == bytes(range(16))
    assert query_of_address(address) == query
    if sum(value is None for _, value in address.tags) < 2:  # a wire has one at most
        assert asked(address) == query


def test_a_method_that_is_too_long_to_be_written_is_left_out() -> None:
    for size in (MAX_VALUE_SIZE, MAX_VALUE_SIZE + 1):
        query = parse_address_query(f"@method={'m' * size} service=orders")
        assert (asked(address_of_query(query)) == query) == (size == MAX_VALUE_SIZE)
