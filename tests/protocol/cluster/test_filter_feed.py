"""The stream of a filter, element by element."""

from __future__ import annotations

from math import inf

from onward.protocol.cluster import (
    FILTER_SALT_SIZE,
    ClusterLimits,
    Element,
    ElementKind,
    FilterFeed,
    FilterLog,
    RouteFilter,
)
from tests.protocol.cluster.streams import HOME, INSTANCE, route_id


def log(**limits: int) -> FilterLog:
    return FilterLog(HOME, INSTANCE, lambda: bytes(FILTER_SALT_SIZE), ClusterLimits(**limits))


def build(made: FilterLog, *numbers: int, now: float = 0.0) -> None:
    made.begin(len(numbers))
    made.add(map(route_id, numbers))
    made.finish(now)


def drain(feed: FilterFeed, now: float = 0.0) -> list[Element]:
    found: list[Element] = []
    while (data := feed.next(now)) is not None:
        found.append(Element.parse(data))
    return found


def shape(elements: list[Element]) -> list[tuple[str, int, int, bool]]:
    """Return kind, number, frames and whether it is the last part, of each."""
    return [(each.kind.name, each.sequence, len(each.frames), each.last) for each in elements]


def test_a_follower_gets_the_filter_in_parts_and_then_ids() -> None:
    made = log(max_batch=1024)
    feed = FilterFeed(made)
    assert drain(feed) == []
    assert feed.get_timer() == inf
    build(made, *range(2000))
    assert feed.get_timer() == -inf
    found = drain(feed)
    assert shape(found) == [
        *[("FILTER", 0, 1, False)] * 3,
        ("FILTER", 0, 1, True),
    ]
    whole = b"".join(part for each in found for part in each.frames)
    assert RouteFilter.parse(whole, 1 << 20).may_have(route_id(1999))
    assert max(len(each.serialize(compress=False)) for each in found) <= 1024
    assert feed.get_timer() == inf
    made.joined(route_id(1))
    assert feed.get_timer() == -inf
    assert drain(feed, 5.0) == []
    assert feed.get_timer() == 6.0
    made.joined(route_id(2))
    assert shape(drain(feed, 6.0)) == [("IDS", 2, 2, False)]
    assert feed.get_timer() == inf


def test_many_ids_are_several_elements() -> None:
    made = log(max_batch=1024)
    build(made)
    feed = FilterFeed(made, max_batch=2048)
    drain(feed)
    for number in range(100):
        made.joined(route_id(number))
    feed.next(0.0)
    assert shape(drain(feed, 1.0)) == [("IDS", 51, 51, False), ("IDS", 100, 49, False)]


def test_a_new_filter_is_followed_by_the_ids_since() -> None:
    made = log()
    build(made)
    feed = FilterFeed(made, max_batch=4096)
    drain(feed)
    made.joined(route_id(1))
    made.begin(1)
    made.joined(route_id(2))
    made.add([route_id(1)])
    made.finish(60.0)
    assert [each.kind for each in drain(feed, 60.0)] == [ElementKind.FILTER]
    assert shape(drain(feed, 61.0)) == [("IDS", 2, 1, False)]


def test_a_slow_follower_gets_the_filter_it_has_begun_with_and_then_the_latest() -> None:
    made = log(max_batch=1024, filter_ids=0)
    build(made, *range(2000))
    feed = FilterFeed(made)
    first = feed.next(0.0)
    assert first is not None
    made.joined(route_id(5000))
    build(made, *range(2001))
    found = [Element.parse(first), *drain(feed, 0.0)]
    assert [each.sequence for each in found if each.last] == [0, 1]
    for last in (0, 1):
        parts = [part for each in found if each.sequence == last for part in each.frames]
        RouteFilter.parse(b"".join(parts), 1 << 20)


def test_a_follower_that_is_too_far_behind_waits_for_a_filter() -> None:
    made = log(filter_ids=2)
    build(made)
    feed = FilterFeed(made)
    drain(feed)
    for number in range(5):
        made.joined(route_id(number))
    assert feed.get_timer() == inf
    assert feed.next(100.0) is None
    build(made, *range(5))
    assert [each.kind for each in drain(feed, 100.0)] == [ElementKind.FILTER]
