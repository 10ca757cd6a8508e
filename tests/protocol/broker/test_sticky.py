from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import RoundRobin, Sticky


@dataclass
class Route:
    route_id: bytes
    outstanding: int = 0
    latency: float = 0.0
    weight: float = 1.0


def never() -> float:
    raise AssertionError("in turn needs no random numbers")


def routes(*names: int) -> list[Route]:
    return [Route(name.to_bytes(16)) for name in names]


def pick(sticky: Sticky, key: object, *names: int) -> int:
    return names[sticky.pick(key, routes(*names), 0.0, never)]


def test_new_keys_are_placed_by_the_method_and_stay() -> None:
    sticky = Sticky(RoundRobin())
    assert [pick(sticky, key, 1, 2, 3) for key in "abcd"] == [1, 2, 3, 1]
    assert [pick(sticky, key, 1, 2, 3) for key in "dcba"] == [1, 3, 2, 1]
    assert len(sticky) == 4
    assert sticky.forgotten == 0


def test_a_key_stays_wherever_its_route_stands() -> None:
    sticky = Sticky(RoundRobin())
    assert pick(sticky, "a", 1, 2) == 1
    for names in ((2, 1), (3, 2, 1), (1,), (9, 1, 2)):
        assert pick(sticky, "a", *names) == 1


def test_a_key_whose_route_has_left_gets_another_and_stays_there() -> None:
    sticky = Sticky(RoundRobin())
    assert pick(sticky, "a", 1, 2) == 1
    assert pick(sticky, "a", 2, 3) == 3
    assert pick(sticky, "a", 1, 2, 3) == 3
    assert len(sticky) == 1


def test_the_key_unused_for_longest_is_forgotten() -> None:
    sticky = Sticky(RoundRobin(), max_sticky=2)
    assert [pick(sticky, key, 1, 2, 3) for key in "aba"] == [1, 2, 1]
    assert pick(sticky, "c", 1, 2, 3) == 3
    assert (len(sticky), sticky.forgotten) == (2, 1)
    assert pick(sticky, "a", 1, 2, 3) == 1
    assert pick(sticky, "b", 1, 2, 3) == 1
    assert sticky.forgotten == 2


def test_to_look_where_a_key_is_changes_nothing() -> None:
    sticky = Sticky(RoundRobin(), max_sticky=2)
    assert [pick(sticky, key, 1, 2, 3) for key in "ab"] == [1, 2]
    assert (sticky.route_of("a"), sticky.route_of("c")) == ((1).to_bytes(16), None)
    # Not used by being looked at: it is still the one to be forgotten.
    assert pick(sticky, "c", 1, 2, 3) == 3
    assert sticky.route_of("a") is None
    assert (len(sticky), sticky.forgotten) == (2, 1)


@pytest.mark.parametrize("limit", [0, -1])
def test_the_limit_is_at_least_one(limit: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Sticky(RoundRobin(), limit)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 8), st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True)
        ),
        max_size=60,
    ),
    st.integers(1, 6),
)
def test_stays_while_the_route_lives(steps: list[tuple[int, list[int]]], limit: int) -> None:
    sticky = Sticky(RoundRobin(), limit)
    # What it has to remember: the last `limit` keys, by when they were last used.
    expected: dict[int, int] = {}
    for key, names in steps:
        found = pick(sticky, key, *names)
        before = expected.pop(key, None)
        if before in names:
            assert found == before
        expected[key] = found
        if len(expected) > limit:
            del expected[next(iter(expected))]
        assert len(sticky) == len(expected)
