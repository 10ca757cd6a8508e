"""The filter of another zone where it is used: what is taken, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.cluster import (
    FILTER_SALT_SIZE,
    ClusterFrameError,
    ClusterLimits,
    Element,
    ElementKind,
    FilterNews,
    RouteFilter,
    ZoneFilter,
    ZoneFilterStatistics,
)
from tests.protocol.cluster.streams import HOME, INSTANCE, OTHER, route_id

F = ElementKind.FILTER
DATA = RouteFilter.for_ids(100, bytes(FILTER_SALT_SIZE), 1 << 20)
DATA.add([route_id(1)])
WHOLE = DATA.serialize()
ONE = Element(F, HOME, INSTANCE, 5, (WHOLE,), True)


def part(start: int, end: int, sequence: int = 5, *, last: bool = False) -> Element:
    return Element(F, HOME, INSTANCE, sequence, (WHOLE[start:end],), last)


def ids(sequence: int, *numbers: int) -> Element:
    return Element(ElementKind.IDS, HOME, INSTANCE, sequence, tuple(map(route_id, numbers)))


def test_nothing_is_there_before_the_first_filter() -> None:
    made = ZoneFilter(HOME)
    assert not made.may_have(route_id(1))
    assert made.statistics() == ZoneFilterStatistics(0, 0, 0, None)
    assert made.receive(part(0, 40), 1.0) == FilterNews()
    assert not made.may_have(route_id(1))
    assert made.receive(part(40, len(WHOLE), last=True), 2.0) == FilterNews(unnamed=True)
    assert made.may_have(route_id(1))
    assert not made.may_have(route_id(2))
    assert made.receive(ids(7, 2, 3), 3.0) == FilterNews((route_id(2), route_id(3)))
    assert made.may_have(route_id(3))
    assert made.statistics() == ZoneFilterStatistics(1, len(WHOLE), 2, 2.0)


def test_a_filter_that_only_replaces_what_was_named_needs_no_search() -> None:
    made = ZoneFilter(HOME)
    made.receive(ONE, 0.0)
    made.receive(ids(7, 2, 3), 0.0)
    assert made.receive(replace(ONE, sequence=6), 0.0) == FilterNews()
    assert not made.may_have(route_id(3))
    made.receive(ids(7, 3), 0.0)
    assert made.receive(replace(ONE, sequence=8), 0.0) == FilterNews(unnamed=True)


def test_what_has_come_stays_when_the_stream_ends() -> None:
    made = ZoneFilter(HOME)
    made.receive(ONE, 0.0)
    made.receive(part(0, 40), 0.0)
    made.lost()
    assert made.may_have(route_id(1))
    with pytest.raises(ClusterFrameError, match="do not follow"):
        made.receive(ids(6, 2), 0.0)
    assert made.receive(ONE, 0.0) == FilterNews(unnamed=True)


BIG = RouteFilter.for_ids(2000, bytes(FILTER_SALT_SIZE), 1 << 20).serialize()


@pytest.mark.parametrize(
    ("before", "element", "text"),
    [
        ((), replace(ONE, home=OTHER), "another broker's filter"),
        ((), Element(ElementKind.MARK, HOME, INSTANCE, 5), "MARK in the stream of a filter"),
        ((), ids(1, 1), "do not follow"),
        ((ONE,), ids(7, 1), "do not follow"),
        ((ONE,), ids(5, 1), "do not follow"),
        ((ONE,), replace(ids(6, 1), instance=INSTANCE + 1), "do not follow"),
        ((ONE, part(0, 40)), ids(6, 1), "do not follow"),
        ((part(0, 40),), part(40, len(WHOLE), 6, last=True), "another filter"),
        ((part(0, 40),), part(30, len(WHOLE), last=True), "more bytes than it says"),
        ((part(0, 40),), part(48, len(WHOLE), last=True), "another size"),
        ((), part(0, 16), "cut short"),
        ((), Element(F, HOME, INSTANCE, 5, (BIG,), True), "more than 1024 bytes"),
    ],
)
def test_what_may_not_come_is_refused(
    before: tuple[Element, ...], element: Element, text: str
) -> None:
    made = ZoneFilter(HOME, ClusterLimits(filter_bytes=1024))
    for each in before:
        made.receive(each, 0.0)
    there = made.may_have(route_id(1))
    with pytest.raises(ClusterFrameError, match=text):
        made.receive(element, 0.0)
    assert made.may_have(route_id(1)) == there
