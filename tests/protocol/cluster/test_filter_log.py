"""The filter of a zone where it is made: when that is, and which ids are kept."""

from __future__ import annotations

from itertools import count
from math import inf

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.cluster import (
    FILTER_SALT_SIZE,
    ClusterLimits,
    Element,
    ElementKind,
    FilterFeed,
    FilterLog,
    FilterLogStatistics,
    FilterNews,
    ZoneFilter,
)
from tests.protocol.cluster.streams import HOME, INSTANCE, route_id


def log(**limits: float) -> FilterLog:
    numbers = count(1)
    return FilterLog(
        HOME,
        INSTANCE,
        lambda: next(numbers).to_bytes(FILTER_SALT_SIZE),
        ClusterLimits(**limits),  # type: ignore[arg-type]
    )


def build(made: FilterLog, ids: set[bytes], now: float) -> None:
    made.begin(len(ids))
    assert made.building
    made.add(ids)
    made.finish(now)


def ids(*numbers: int) -> set[bytes]:
    return {route_id(number) for number in numbers}


def test_a_filter_is_made_at_once_and_then_only_after_changes() -> None:
    made = log()
    assert made.get_timer() == -inf
    build(made, set(), 5.0)
    assert made.get_timer() == inf
    made.joined(route_id(1))
    assert made.get_timer() == 65.0
    build(made, ids(1), 65.0)
    assert made.get_timer() == inf
    made.left()
    assert made.get_timer() == 125.0
    assert made.statistics() == FilterLogStatistics(2, made.statistics().size, 0, 0)
    assert made.statistics().size > 1280


def test_a_filter_that_has_become_too_small_is_made_anew_early() -> None:
    made = log()
    build(made, set(), 0.0)
    for number in range(1024):
        made.joined(route_id(number))
    assert made.get_timer() == 60.0
    made.joined(route_id(1024))
    assert made.get_timer() == 6.0


def test_what_joins_while_a_filter_is_made_is_kept() -> None:
    made = log()
    made.joined(route_id(1))
    made.begin(1)
    made.joined(route_id(2))
    made.add(ids(1))
    assert made.get_timer() == -inf
    made.joined(route_id(3))
    made.finish(0.0)
    number, sequence, _ = made.filter()
    assert (number, sequence, made.sequence) == (1, 1, 3)
    assert made.ids_after(1, 9) == [route_id(2), route_id(3)]
    assert made.ids_after(2, 9) == [route_id(3)]
    assert made.ids_after(1, 1) == [route_id(2)]


def test_more_ids_than_are_kept_make_a_filter_due() -> None:
    made = log(filter_ids=4)
    build(made, set(), 0.0)
    for number in range(5):
        made.joined(route_id(number))
    assert made.get_timer() == -inf
    assert not made.has_since(0)
    assert made.has_since(3)
    assert made.statistics() == FilterLogStatistics(1, made.statistics().size, 2, 3)
    made.begin(5)
    made.joined(route_id(5))
    made.joined(route_id(6))
    assert made.building
    made.joined(route_id(7))  # one that has joined since it was begun is dropped
    assert not made.building
    for call in (lambda: made.add([]), lambda: made.finish(0.0)):
        with pytest.raises(AssertionError, match="no filter was begun"):
            call()
    build(made, ids(*range(8)), 1.0)
    assert made.get_timer() == inf


def test_ids_of_before_a_filter_was_begun_are_dropped_while_it_is_made() -> None:
    made = log(filter_ids=4)
    build(made, set(), 0.0)
    for number in range(4):
        made.joined(route_id(number))
    made.begin(4)
    made.joined(route_id(4))
    assert made.building
    made.finish(1.0)
    assert made.ids_after(4, 9) == [route_id(4)]


@pytest.mark.parametrize(("home", "instance"), [(b"x", 1), (HOME, 0), (HOME, 1 << 63)])
def test_a_log_is_that_of_a_broker(home: bytes, instance: int) -> None:
    with pytest.raises(ValueError, match="broker's id"):
        FilterLog(home, instance, lambda: b"")


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 30)),
        st.tuples(st.sampled_from(["leave", "slice", "wait", "credit", "again"]), st.just(0)),
    ),
    max_size=80,
)


class Zone:
    """A log of a filter, the routes that there are, and a follower that takes its time.

    Attributes:
        log: The log.
        there: The route ids that there are.
        now: The time.
    """

    def __init__(self, kept: int, slices: int) -> None:
        self.log = log(filter_ids=kept, filter_every=10.0, max_batch=1024)
        self.there: list[bytes] = []
        self.now = 0.0
        self.filter = ZoneFilter(HOME)
        self.feed = FilterFeed(self.log)
        self._slices = slices
        self._cursor = 0

    def do(self, step: str, number: int) -> None:
        match step:
            case "join":
                self.log.joined(route_id(number))
                self.there.append(route_id(number))
            case "leave" if self.there and not self.log.building:
                self.there.pop(0)
                self.log.left()
            case "slice":
                self.turn()
            case "wait":
                self.now += 3.0
            case "credit":
                self.take()
            case "again":
                self.filter.lost()
                self.feed = FilterFeed(self.log)
            case _:
                pass

    def turn(self) -> None:
        made = self.log
        if made.get_timer() > self.now:
            return
        if not made.building:
            made.begin(len(self.there))
            self._cursor = 0
        made.add(self.there[self._cursor : self._cursor + self._slices])
        self._cursor += self._slices
        if self._cursor >= len(self.there):
            made.finish(self.now)

    def take(self) -> bool:
        data = self.feed.next(self.now)
        if data is None:
            return False
        news = self.filter.receive(Element.parse(data), self.now)
        assert all(map(self.filter.may_have, news.ids))
        return True


@settings(max_examples=300)
@given(_STEPS, st.integers(0, 12), st.integers(1, 3))
def test_a_follower_never_misses_a_route_for_long(
    steps: list[tuple[str, int]], kept: int, slices: int
) -> None:
    """Whatever a follower is slow to take, in the end its filter has all routes that there are."""
    zone = Zone(kept, slices)
    for step, number in steps:
        zone.do(step, number)
    for _ in range(300):
        zone.now += 1.0
        zone.turn()
        while zone.take():
            pass
    assert all(map(zone.filter.may_have, zone.there))
    assert zone.log.get_timer() == zone.feed.get_timer() == inf
    assert zone.log.statistics().ids <= kept
    # It is at the number of the last id: the next one follows.
    one = Element(ElementKind.IDS, HOME, INSTANCE, zone.log.sequence + 1, (route_id(99),))
    assert zone.filter.receive(one, zone.now) == FilterNews((route_id(99),))
