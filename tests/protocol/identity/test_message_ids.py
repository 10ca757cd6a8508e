"""The ids of a sender: without gaps in a pair, and above those of before."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    COUNT_BITS,
    MAX_NUMBER,
    MAX_START,
    Destination,
    DestinationKind,
    MessageIds,
    SigningKey,
    id_time,
)

NOW = 1_800_000_000_000
SOURCE, *ENGINES = (SigningKey(bytes((each,)) * 32).identity for each in range(1, 6))
DESTINATIONS = [Destination(DestinationKind.ENGINE, each) for each in ENGINES]


def test_ids_of_a_pair_follow_each_other_and_begin_with_the_time() -> None:
    ids = MessageIds()
    taken = [ids.take(SOURCE, DESTINATIONS[0], NOW + late) for late in (0, 5, 3)]
    assert taken == [(NOW << COUNT_BITS) + count for count in range(3)]
    assert [id_time(each) for each in taken] == [NOW] * 3


def test_each_pair_has_a_counter_of_its_own() -> None:
    ids = MessageIds()
    for destination in DESTINATIONS:
        assert ids.take(SOURCE, destination, NOW) == NOW << COUNT_BITS
    node = Destination(DestinationKind.NODE, ENGINES[0])
    assert ids.take(SOURCE, node, NOW) == NOW << COUNT_BITS
    assert ids.take(ENGINES[0], node, NOW) == NOW << COUNT_BITS
    assert len(ids) == 6


def test_a_counter_that_overflows_moves_the_time_on() -> None:
    ids = MessageIds()
    for _ in range(1 << COUNT_BITS):
        ids.take(SOURCE, DESTINATIONS[0], NOW)
    assert ids.take(SOURCE, DESTINATIONS[0], NOW) == (NOW + 1) << COUNT_BITS


def test_a_node_that_was_restarted_begins_above_what_it_has_sent() -> None:
    before = MessageIds()
    last = [before.take(SOURCE, DESTINATIONS[0], NOW) for _ in range(1000)][-1]
    assert MessageIds().take(SOURCE, DESTINATIONS[0], NOW + 1) > last


def test_a_counter_that_was_let_go_begins_above_even_if_the_clock_is_set_back() -> None:
    ids = MessageIds(limit=1)
    first = ids.take(SOURCE, DESTINATIONS[0], NOW)
    ids.take(SOURCE, DESTINATIONS[1], NOW)
    assert len(ids) == 1
    assert ids.take(SOURCE, DESTINATIONS[0], NOW - 3_600_000) > first


def test_it_is_known_which_ids_a_counter_has_given() -> None:
    ids = MessageIds(limit=2)
    assert not ids.has_taken(SOURCE, DESTINATIONS[0], NOW << COUNT_BITS)
    first, last = (ids.take(SOURCE, DESTINATIONS[0], NOW) for _ in range(2))
    for number, known in ((first - 1, False), (first, True), (last, True), (last + 1, False)):
        assert ids.has_taken(SOURCE, DESTINATIONS[0], number) is known
    assert not ids.has_taken(SOURCE, DESTINATIONS[1], first)
    # One that was let go for others has given none that it knows of.
    for destination in DESTINATIONS[1:]:
        ids.take(SOURCE, destination, NOW)
    assert not ids.has_taken(SOURCE, DESTINATIONS[0], last)
    assert len(ids._first) == len(ids) == 2


def test_a_time_that_no_id_can_have_is_refused() -> None:
    ids = MessageIds()
    assert ids.take(SOURCE, DESTINATIONS[0], MAX_START) <= MAX_NUMBER
    for now in (-1, MAX_START + 1):
        with pytest.raises(ValueError, match="an id needs a time from 0"):
            ids.take(SOURCE, DESTINATIONS[0], now)


def test_the_times_of_the_ids_of_a_pair_are_known() -> None:
    ids, one = MessageIds(), DESTINATIONS[0]
    assert not ids.is_of(SOURCE, one, NOW)
    ids.take(SOURCE, one, NOW)
    assert [ids.is_of(SOURCE, one, NOW + each) for each in (-1, 0, 1)] == [False, True, False]
    ids._next[SOURCE, one] += 1 << COUNT_BITS
    assert [ids.is_of(SOURCE, one, NOW + each) for each in (0, 1, 2)] == [True, True, False]


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), max_size=60)


@given(STEPS)
def test_no_pair_has_an_id_twice_and_all_rise(steps: list[tuple[int, int]]) -> None:
    ids, now = MessageIds(limit=2), NOW
    highest: dict[Destination, int] = {}
    for which, moved in steps:
        now += moved
        destination = DESTINATIONS[which]
        number = ids.take(SOURCE, destination, now)
        assert number > highest.get(destination, -1)
        highest[destination] = number
        assert len(ids) <= 2
