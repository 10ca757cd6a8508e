"""The filter of route ids: never wrong about a member, and seldom about others."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.cluster import FILTER_SALT_SIZE, ClusterFrameError, RouteFilter
from tests.protocol.cluster.streams import route_id
from tests.protocol.cluster.test_elements import VECTORS

SALT = bytes(range(FILTER_SALT_SIZE))
MOST = 1 << 20


def filled(*ids: bytes, count: int | None = None, salt: bytes = SALT) -> RouteFilter:
    made = RouteFilter.for_ids(len(ids) if count is None else count, salt, MOST)
    made.add(ids)
    return made


def test_the_vector_of_the_page_is_what_it_says() -> None:
    made = filled(route_id(1), route_id(2), count=2)
    assert made.serialize() == VECTORS["filter"]
    read = RouteFilter.parse(VECTORS["filter"], MOST)
    assert [read.may_have(route_id(number)) for number in (1, 2, 3)] == [True, True, False]


@settings(max_examples=100)
@given(
    st.lists(st.binary(min_size=16, max_size=16), max_size=80), st.binary(min_size=16, max_size=16)
)
def test_it_never_misses_one(ids: list[bytes], salt: bytes) -> None:
    for count in (0, len(ids), 2 * len(ids)):
        made = filled(*ids, count=count, salt=salt)
        read = RouteFilter.parse(made.serialize(), MOST)
        assert all(made.may_have(each) and read.may_have(each) for each in ids)
        assert read.serialize() == made.serialize()


@pytest.mark.parametrize("count", [1000, 20_000])
def test_it_is_wrong_about_one_in_a_hundred(count: int) -> None:
    """Ids that count up are no worse than random ones."""
    draw = Random(7)
    for ids in ([route_id(n) for n in range(count)], [draw.randbytes(16) for _ in range(count)]):
        made = filled(*ids)
        assert 8 * len(made.serialize()) < 10.3 * count + 8 * 24
        wrong = sum(made.may_have(draw.randbytes(16)) for _ in range(20_000))
        assert 0.004 < wrong / 20_000 < 0.013


def test_what_one_filter_takes_for_a_member_another_does_not() -> None:
    draw = Random(7)
    ids = [draw.randbytes(16) for _ in range(2000)]
    one, two = filled(*ids), filled(*ids, salt=bytes(16))
    wrong = [each for each in (draw.randbytes(16) for _ in range(20_000)) if one.may_have(each)]
    assert sum(map(two.may_have, wrong)) < len(wrong) / 10


def test_a_filter_has_at_most_the_bytes_that_it_may() -> None:
    made = RouteFilter.for_ids(10**9, SALT, 1030)
    assert len(made.serialize()) == 24 + 1024
    assert len(RouteFilter.for_ids(0, SALT, 1030).serialize()) == 24 + 8


def head(bits: int, places: int, size: int) -> bytes:
    return SALT + pack(">II", bits, places) + bytes(size)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "cut short"),
        (head(64, 7, 8)[:23], "cut short"),
        (head(64, 7, 7), "another size"),
        (head(64, 7, 9), "another size"),
        (head(0, 7, 0), "cannot be used"),
        (head(65, 7, 9), "cannot be used"),
        (head(64, 0, 8), "cannot be used"),
        (head(64, 17, 8), "cannot be used"),
        (head(0xFFFFFFC0, 7, 8), "more than 1024 bytes"),
    ],
)
def test_what_is_no_filter_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(ClusterFrameError, match=text):
        RouteFilter.parse(data, 1024)


def test_no_beginning_and_no_longer_one_is_a_filter() -> None:
    data = filled(route_id(1)).serialize()
    for size in range(len(data)):
        with pytest.raises(ClusterFrameError):
            RouteFilter.parse(data[:size], MOST)
    with pytest.raises(ClusterFrameError):
        RouteFilter.parse(data + b"\0", MOST)
