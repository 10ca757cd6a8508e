"""The owner of a route, as brokers with rules tell it to each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.broker import (
    MAX_OWNED,
    NO_OWNER,
    OWNER_KEY,
    Dialect,
    RouteAdd,
    RoutingTable,
    TooManyTags,
    _owner,
    bounded_since,
    owner_text,
    split_owner,
    times_of,
    with_owner,
)
from onward.protocol.broker._fields import MAX_TIMESTAMP
from onward.protocol.broker._owner import parse_owner, split_times

HOME, OTHER_HOME = bytes([1]) * 16, bytes([2]) * 16
ROUTE = RouteAdd(bytes(range(16)), bytes(range(1, 17)), 5, "orders", ((1, "orders"), ("a", "b")))


def test_the_text_is_of_all_that_makes_the_identity() -> None:
    one = owner_text("ann", "token", "")
    assert (len(one), one) == (16, "61ULBsWV3a1t-frt")
    others = {
        owner_text(*parts)
        for parts in (
            ("ann", "password", ""),
            ("ann", "token", "x"),
            ("anntoken", "", ""),
            ("bob", "token", ""),
            ("", "anntoken", ""),
        )
    }
    assert len(others | {one}) == 6


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("owner", [owner_text("ann", "token", ""), NO_OWNER])
def test_it_is_the_first_tag(dialect: Dialect, owner: str) -> None:
    told = with_owner(ROUTE, owner)
    again = RouteAdd.parse(told.serialize(dialect), dialect)
    assert again.tags[0] == (OWNER_KEY, owner)
    assert split_owner(again.tags) == (owner, 0, ROUTE.tags)
    assert again == told
    assert (again.owned(), told.owned()) == ((owner, 0), (owner, 0))


@pytest.mark.parametrize("dialect", Dialect)
def test_the_time_since_when_it_has_the_id_stands_behind_it(dialect: Dialect) -> None:
    owner = owner_text("ann", "token", "")
    told = with_owner(ROUTE, owner, 1_760_000_000_000)
    assert told.tags[0] == (OWNER_KEY, "61ULBsWV3a1t-frt@1760000000000")
    again = RouteAdd.parse(told.serialize(dialect), dialect)
    assert again == told
    assert again.owned() == told.owned() == (owner, 1_760_000_000_000)
    assert again.text.tags == told.text.tags == ROUTE.tags


@pytest.mark.parametrize(
    "since", ["", "x", "-1", "+1", " 1", "1 ", "1_0", "1.5", "0x1", "\u0661", "1" * 16, "1@2", "@"]
)
def test_what_is_no_time_counts_for_nothing(since: str) -> None:
    told = (OWNER_KEY, f"ann@{since}")
    assert split_owner((told,)) == ("ann", 0, ())
    route = replace(ROUTE, tags=(told, *ROUTE.tags))
    again = RouteAdd.parse(route.serialize(Dialect.SPECIFICATION), Dialect.SPECIFICATION)
    assert (again, again.owned()) == (route, ("ann", 0))


def test_the_time_is_neither_after_the_registration_nor_long_before() -> None:
    now, most = 1_760_000_000_000, MAX_OWNED * 1000
    for since, bounded in (
        (0, now),
        (-1, now),
        (now, now),
        (now + 1, now),
        (10**15 - 1, now),
        (now - 1, now - 1),
        (now - most, now - most),
        (now - most - 1, now - most),
        (1, now - most),
    ):
        assert bounded_since(since, now) == bounded
        assert split_times(times_of(now, since)) == (now, bounded if bounded < now else 0)
    assert bounded_since(1, 5) == 1
    assert split_times(times_of(MAX_TIMESTAMP, 5)) == (MAX_TIMESTAMP, MAX_TIMESTAMP - most)


def test_owners_are_kept_once_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_owner, "MAX_OWNERS", 2)
    monkeypatch.setattr(_owner, "_owners", {})
    kept = _owner._owners
    first = parse_owner(b"ann")
    assert first == ("ann", 0, b"ann")
    assert parse_owner(b"ann") is first
    assert parse_owner(b"bob@5") == ("bob", 5, b"bob@5")
    assert list(kept) == [b"ann", b"bob"]
    assert parse_owner(b"eve") is not None
    assert list(kept) == [b"eve"]
    assert parse_owner(b"ann") == first
    assert parse_owner(b"\xff") is parse_owner(b"ann@\xff") is None


def test_an_entry_keeps_both_times_whether_it_is_shown_or_not() -> None:
    table = RoutingTable[str]()
    one = table.add(bytes(16), HOME, "orders", (), 1000, "", now=1000).entry
    assert one is not None
    one.own_since(900)
    assert (one.timestamp, one.owned_since, one.times >= 0) == (1000, 900, True)
    table.add(bytes(16), OTHER_HOME, "orders", (), 1001, "", now=1001)
    assert (one.timestamp, one.owned_since, one.times >= 0) == (1000, 900, False)
    one.own_since(800)
    assert (one.timestamp, one.owned_since, one.times >= 0) == (1000, 800, False)
    table.remove(bytes(16), 1002, broker_id=OTHER_HOME, now=1002)
    assert (one.timestamp, one.owned_since, one.times >= 0) == (1000, 800, True)


def test_a_route_without_it() -> None:
    others = (*ROUTE.tags, (OWNER_KEY, "x"))
    for tags in (ROUTE.tags, (), others):
        assert split_owner(tags) == (None, 0, tags)
        assert replace(ROUTE, tags=tags).owned() == (None, 0)
    null = ((OWNER_KEY, None),)
    assert split_owner(null) == (NO_OWNER, 0, ())
    route = replace(ROUTE, tags=null)
    assert (route.tags, route.owned()) == (null, (NO_OWNER, 0))


@pytest.mark.parametrize("dialect", Dialect)
def test_it_is_not_left_out_where_there_is_no_room_for_it(dialect: Dialect) -> None:
    tags = tuple((f"k{number}", "") for number in range(256))
    told = with_owner(replace(ROUTE, tags=tags[1:]), "x")
    assert RouteAdd.parse(told.serialize(dialect), dialect).tags == ((OWNER_KEY, "x"), *tags[1:])
    with pytest.raises(TooManyTags):
        with_owner(replace(ROUTE, tags=tags), "x").serialize(dialect)
