"""Ids that are the same in every segment, and texts for people."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import RoutingType, TagList, parse_query
from onward.protocol.eventlog import (
    Asked,
    asked_tags_text,
    asked_text,
    carried_tags_text,
    name_id,
    route_key,
    tagset_id,
)
from tests.protocol.eventlog.logs import askeds


def by_hand(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def test_ids_are_what_the_page_says() -> None:
    assert name_id("café") == by_hand("café".encode())
    assert route_key(bytes(range(16))) == by_hand(bytes(range(16)))
    # Of the tags orders and zone, the routing 128 and no method.
    canonical = bytes.fromhex("83 82 82 01 66 6f7264657273 82 64 7a6f6e65 f6 18 80 60")
    asked = Asked(((1, "orders"), ("zone", None)))
    assert tagset_id(asked) == by_hand(canonical)


def test_ids_stay_what_they_are() -> None:
    # They are in lakes: another value is another name, for ever.
    assert name_id("orders") == -3049803464231846067
    assert route_key(bytes(16)) == 5931422162917553166
    assert tagset_id(Asked(((1, "orders"),), RoutingType.SHARD, "jump")) == -3304214640345317525


@given(askeds, st.randoms(use_true_random=False))
def test_the_order_of_tags_and_repeats_do_not_matter(asked: Asked, random: object) -> None:
    tags = list(asked.tags) * 2
    getattr(random, "shuffle")(tags)  # noqa: B009 - its type is hypothesis' own
    other = Asked(tuple(tags), asked.routing, asked.method)
    assert tagset_id(other) == tagset_id(asked)
    assert asked_text(other) == asked_text(asked)


def test_what_is_asked_otherwise_has_another_id() -> None:
    tags: TagList = ((1, "orders"),)
    different = [
        Asked(()),
        Asked(tags),
        Asked(tags, RoutingType.MULTICAST),
        Asked(tags, RoutingType.UNICAST, "jump"),
        Asked(((1, None),)),
        Asked(((1, ""),)),
        Asked((("1", "orders"),)),
        Asked(((2, "orders"),)),
    ]
    assert len({tagset_id(asked) for asked in different}) == len(different)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Asked(()), ""),
        (Asked(((1, "orders"),)), "service=orders"),
        (Asked((("dc", "a b"), (1, "orders"))), "service=orders dc=a%20b"),
        (Asked(((1, "orders"),), RoutingType.SHARD, "jump"), "@shard @method=jump service=orders"),
        (Asked(((1, None),), RoutingType.MULTICAST), "@multicast service"),
    ],
)
def test_a_tag_set_is_written_as_people_write_queries(asked: Asked, text: str) -> None:
    assert asked_text(asked) == text


def test_the_tags_of_a_text_are_those_that_were_asked_for() -> None:
    tags: TagList = ((6, "eu"), ("zone", None), (1, "orders"))
    assert parse_query(asked_text(Asked(tags))) == frozenset(tags)


def test_tags_as_a_map_have_the_keys_that_people_write() -> None:
    tags: TagList = (("dc", None), (1, "orders"), ("service", "x"), (1, "later"), (0, "none"))
    assert asked_tags_text(Asked(tags)) == {"service": "orders", "%73ervice": "x", "dc": ""}


def test_tags_that_are_carried_are_said_whole() -> None:
    plain: TagList = (("dc", "eu"), (1, "orders"), ("empty", ""))
    assert carried_tags_text(plain) == {"service": "orders", "dc": "eu", "empty": ""}
    assert carried_tags_text((("dc", None), ("k", "b"), ("k", None), ("k", "\u00e4"))) == {
        "dc": "",
        "dc[]": "[null]",
        "k": "\u00e4",
        "k[]": '[null, "b", "\u00e4"]',
    }
    # Nobody's own key looks like that.
    assert carried_tags_text((("k[]", "x"),)) == {"k%5B%5D": "x"}
