"""What bytes and addresses ask for, and who shares the state of a method."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, strategies as st

from onward.actors.broker import Ask, ChoiceOptions
from onward.actors.broker.table._methods import Methods
from onward.actors.broker.table._selector import Selectors
from onward.protocol import Address, AddressError
from onward.protocol.broker import (
    AddressFrame,
    BrokerFrameError,
    Dialect,
    Jump,
    PeakEwma,
    QueryReader,
    Rendezvous,
    RoundRobin,
    RoutingType,
    make_tags,
    parse_query,
    shard_hash,
)
from onward.protocol.security import NotAllowed


@pytest.fixture
def ways() -> Selectors:
    return Selectors(QueryReader(), Methods(ChoiceOptions()), 4)


def named(ways: Selectors, text: str) -> Ask:
    return ways.named(Address(32, text.encode()))


def test_all_ways_to_write_one_thing_share_its_state(ways: Selectors) -> None:
    tags = make_tags({"region": "eu", "service": "a"})
    frame = AddressFrame(bytes(16), RoutingType.UNICAST, tags).serialize(Dialect.SPECIFICATION)
    read = ways.read(frame, Dialect.SPECIFICATION)
    for text in ("service=a region=eu", "@method=Round-Robin region=eu service=a"):
        assert named(ways, text).selector is read.selector
    assert ways.read(frame, Dialect.SPECIFICATION) is read
    assert read.query == parse_query("service=a region=eu")
    assert read.text == "service=a region=eu"
    assert read.address == Address(32, b"service=a region=eu")
    assert type(read.selector.balancer) is RoundRobin
    assert read.turn is not None
    assert not read.unknown


@pytest.mark.parametrize(
    "text",
    [
        "service=b",
        "@method=peak-ewma service=a",
        "@multicast service=a",
        "@shard=user service=a user=1",
    ],
)
def test_what_differs_does_not(ways: Selectors, text: str) -> None:
    assert named(ways, text).selector is not named(ways, "service=a").selector


def test_a_method_is_made_for_each_query(ways: Selectors) -> None:
    one, two = named(ways, "@method=peak-ewma service=a"), named(ways, "@method=PeakEwma service=b")
    assert type(one.selector.balancer) is type(two.selector.balancer) is PeakEwma
    assert one.selector.balancer is not two.selector.balancer
    assert one.turn is None


def test_a_shard(ways: Selectors) -> None:
    first = named(ways, "@shard=user service=a user=1")
    second = named(ways, "@shard=user service=a user=2")
    assert first.selector is second.selector
    assert type(first.selector.sharding) is Rendezvous
    assert (first.shard, second.shard) == (
        shard_hash(make_tags({"user": "1"})),
        shard_hash(make_tags({"user": "2"})),
    )
    assert first.query == parse_query("service=a")
    assert first.text == "@shard=user service=a user=1"
    jumps = named(ways, "@shard=user @method=jump service=a user=1")
    assert type(jumps.selector.sharding) is Jump


def test_a_sticky_request_shares_the_method_with_those_that_are_not(ways: Selectors) -> None:
    sticky = named(ways, "@sticky=user service=a user=1")
    assert sticky.selector is named(ways, "service=a").selector
    assert sticky.sticky == make_tags({"user": "1"})
    assert sticky.turn is None


def test_an_unknown_method_is_the_default(ways: Selectors) -> None:
    ask = named(ways, "@method=best service=a")
    assert ask.unknown
    assert ask.turn is None
    assert ask.selector is named(ways, "service=a").selector
    assert named(ways, "@shard=user @method=best service=a user=1").unknown


def test_how_long_to_wait(ways: Selectors) -> None:
    waits = [
        named(ways, f"{word}service=a").no_route
        for word in ("", "@no-route=reject ", "@no-route=wait ", "@no-route=2.5 ")
    ]
    assert waits == [None, 0.0, inf, 2.5]


def test_the_oldest_is_forgotten(ways: Selectors) -> None:
    first = named(ways, "service=a").selector
    for number in range(3):
        named(ways, f"service=b{number}")
    assert named(ways, "service=a").selector is first
    named(ways, "service=c")
    assert len(ways) == 4
    assert named(ways, "service=a").selector is not first
    assert len(ways._asks) == len(ways._addresses) == 4


def test_as_many_keys_as_there_are_users_are_not_remembered(ways: Selectors) -> None:
    for number in range(100):
        named(ways, f"@shard=user service=a user={number}")
    assert len(ways) == 1
    assert not ways._asks


def test_what_is_long_is_not_remembered_and_shares_one_state(ways: Selectors) -> None:
    words = " ".join(f"key{number}={'v' * 100}" for number in range(12))
    one, other = named(ways, words), named(ways, f"service=a {words}")
    assert not one.selector.remembered
    assert one.selector is not other.selector
    assert one.selector.balancer is other.selector.balancer
    assert named(ways, f"@multicast {words}").selector.balancer is None
    assert len(ways) == 0
    assert not ways._addresses


def test_what_cannot_be_read(ways: Selectors) -> None:
    with pytest.raises(AddressError, match="not a tag query"):
        ways.named(Address(33, b"service=a"))
    with pytest.raises(AddressError):
        named(ways, "@nothing service=a")
    with pytest.raises(BrokerFrameError):
        ways.read(b"", Dialect.REFERENCE)


# --- forced tags ----------------------------------------------------------------------------
def test_forced_tags_join_the_query_and_choose_nothing(ways: Selectors) -> None:
    forced = parse_query("tenant=a")
    for asked, text in (
        ("service=x", "service=x tenant=a"),
        ("@multicast service=x tenant=a", "@multicast service=x tenant=a"),
        ("@sticky=tenant service=x tenant=a", "service=x tenant=a"),
        (
            "@sticky=user @sticky=tenant service=x tenant=a user=7",
            "@sticky=user service=x user=7 tenant=a",
        ),
        (
            "@shard=user @method=jump service=x user=7",
            "@shard=user @method=jump service=x user=7 tenant=a",
        ),
        ("@no-route=2 @encrypted service=x", "@no-route=2 @encrypted service=x tenant=a"),
    ):
        narrowed = ways.narrowed(named(ways, asked), forced)
        assert narrowed.text == named(ways, text).text
        assert narrowed.query == named(ways, text).query
    shared = ways.narrowed(named(ways, "service=x"), forced)
    assert ways.narrowed(named(ways, "service=x tenant=a"), forced) is shared
    assert shared.selector is not named(ways, "service=x").selector


words = st.sampled_from(
    ["service=x", "service=y", "tenant=a", "tenant=b", "tenant", "user=7", "region=eu"]
)
options = st.sampled_from(
    [
        "@multicast",
        "@shard=user",
        "@shard=tenant",
        "@shard=service",
        "@sticky=tenant",
        "@sticky=user",
        "@sticky=service",
        "@method=jump",
    ]
)


@given(st.lists(options, max_size=3), st.lists(words, min_size=1, max_size=5))
def test_no_query_escapes_its_forced_tags(hints: list[str], tags: list[str]) -> None:
    ways, forced = Selectors(QueryReader(), Methods(ChoiceOptions()), 4), parse_query("tenant=a")
    try:
        asked = named(ways, " ".join([*hints, *tags]))
    except AddressError:
        return  # no query at all
    try:
        narrowed = ways.narrowed(asked, forced)
    except (NotAllowed, BrokerFrameError):
        assert {"tenant=b", "tenant"} & set(tags) or "@shard=tenant" in hints
        return
    assert forced <= narrowed.query
    assert asked.query <= narrowed.query | set(asked.asked.keys)
    # A request that goes as a message is read again, from its text.
    again = named(ways, narrowed.text)
    assert (again.query, again.shard, again.sticky) == (
        narrowed.query,
        narrowed.shard,
        narrowed.sticky,
    )
