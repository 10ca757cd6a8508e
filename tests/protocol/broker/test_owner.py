"""The owner of a route, as brokers with rules tell it to each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.broker import (
    NO_OWNER,
    OWNER_KEY,
    Dialect,
    RouteAdd,
    TooManyTags,
    owner_text,
    split_owner,
    with_owner,
)

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
    assert split_owner(again.tags) == (owner, ROUTE.tags)


def test_a_route_without_it() -> None:
    assert split_owner(ROUTE.tags) == (None, ROUTE.tags)
    assert split_owner(()) == (None, ())
    assert split_owner((*ROUTE.tags, (OWNER_KEY, "x"))) == (None, (*ROUTE.tags, (OWNER_KEY, "x")))
    assert split_owner(((OWNER_KEY, None),)) == (NO_OWNER, ())


@pytest.mark.parametrize("dialect", Dialect)
def test_it_is_not_left_out_where_there_is_no_room_for_it(dialect: Dialect) -> None:
    tags = tuple((f"k{number}", "") for number in range(256))
    told = with_owner(replace(ROUTE, tags=tags[1:]), "x")
    assert RouteAdd.parse(told.serialize(dialect), dialect).tags == ((OWNER_KEY, "x"), *tags[1:])
    with pytest.raises(TooManyTags):
        with_owner(replace(ROUTE, tags=tags), "x").serialize(dialect)
