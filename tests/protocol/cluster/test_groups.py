"""The groups of a zone's routes, and when they are told."""

from __future__ import annotations

from collections import Counter
from hashlib import sha1
from math import inf
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.broker import (
    COUNT_KEY,
    MAX_TAGS,
    Dialect,
    RouteAdd,
    RouteRemove,
    TagList,
    WellKnownKey,
    parse_frame,
    serialize_tags,
)
from onward.protocol.cluster import (
    FOLDED_KEY,
    ClusterLimits,
    Element,
    Position,
    RouteFeed,
    RouteGroups,
    RouteGroupsStatistics,
    RouteLog,
    group_id,
)
from onward.protocol.cluster._groups import NAMESPACE
from tests.protocol.cluster.streams import CLOCK, HOME, INSTANCE, Copy, drain
from tests.protocol.cluster.test_elements import VECTORS

EU: TagList = (("region", "eu"),)
US: TagList = (("region", "us"),)


def groups(max_groups: int = 100, *, without: tuple[int | str, ...] = ()) -> RouteGroups:
    log = RouteLog(HOME, INSTANCE, ClusterLimits(max_groups=max_groups))
    return RouteGroups("a", log, without=without)


def told(made: RouteGroups) -> dict[tuple[str, TagList], str]:
    """Return what a subscriber knows: service and tags, and the count; `+` marks folded ones."""
    copy = Copy()
    position = copy.request()
    for data in drain(RouteFeed(made.log, position)):
        copy.receive(data)
    found: dict[tuple[str, TagList], str] = {}
    for route in copy.routes.values():
        tags = tuple(
            sorted(
                (tag for tag in route.tags if tag[0] not in (1, 2, COUNT_KEY, FOLDED_KEY)),
                key=str,
            )
        )
        values = dict(route.tags)
        folded = "+" if FOLDED_KEY in values else ""
        found[route.service_name, tags] = f"{values[COUNT_KEY]}{folded}"
    assert len(found) == len(copy.routes)
    return found


def settle(made: RouteGroups, now: float = 0.0, limit: int = 500) -> float:
    """Let everything be told; return the time at which it was."""
    while (at := made.get_timer()) != inf:
        now = max(now, at)
        made.due(now, CLOCK, limit=limit)
    return now


def test_routes_that_differ_in_what_names_one_are_one_group() -> None:
    made = groups(without=("pod",))
    for number in range(3):
        made.joined(
            "orders",
            (
                (int(WellKnownKey.INSTANCE_NAME), f"i{number}"),
                ("pod", f"p{number}"),
                (int(WellKnownKey.ROUTE_ID), f"{number}"),
                (int(WellKnownKey.SERVICE_NAME), "orders"),
                (int(WellKnownKey.NO_TAG), ""),
                (COUNT_KEY, "1000000"),
                (FOLDED_KEY, "1"),
                *EU,
                *EU,
            ),
        )
    made.joined("orders", US)
    settle(made)
    assert told(made) == {("orders", EU): "3", ("orders", US): "1"}
    assert made.statistics() == RouteGroupsStatistics(4, 2, 0, 0, 2, separate=2)


def test_the_order_of_tags_does_not_count() -> None:
    made = groups()
    tags: TagList = ((6, "eu"), ("b", "1"), ("a", None), ("a", "2"), (4, "x"))
    made.joined("s", tags)
    made.joined("s", tags[::-1])
    settle(made)
    assert len(made.log) == 1
    assert made.tags_of(tags) == ((4, "x"), (6, "eu"), ("a", "2"), ("b", "1"), ("a", None))


def test_any_number_of_lists_of_tags_is_told_apart() -> None:
    made = groups(5000)
    for number in range(3000):
        made.joined("s", (("n", str(number)),))
    settle(made)
    assert len(made.log) == 3000


def test_changes_are_gathered() -> None:
    made = groups()
    assert made.get_timer() == inf
    assert made.due(0.0, CLOCK) == 0
    made.joined("s", EU)
    assert made.get_timer() == -inf
    assert made.due(5.0, CLOCK) == 0
    assert made.get_timer() == 6.0
    made.joined("s", US)
    assert made.due(5.9, CLOCK) == 0
    assert made.due(6.0, CLOCK) == 2
    assert made.get_timer() == inf


def test_a_group_is_told_when_its_number_has_doubled_or_halved() -> None:
    made = groups()
    at: list[int] = []
    for number in range(1, 41):
        made.joined("s", EU)
        if made.get_timer() != inf:
            settle(made)
            at.append(number)
    for number in range(39, -1, -1):
        made.left("s", EU)
        if made.get_timer() != inf:
            settle(made)
            at.append(number)
    assert at == [1, 2, 4, 8, 16, 32, 16, 8, 4, 2, 1, 0]
    assert told(made) == {}
    assert made.statistics() == RouteGroupsStatistics(0, 0, 0, 0, 12, separate=0)


def test_a_group_that_comes_and_goes_meanwhile_is_not_told() -> None:
    made = groups()
    made.joined("s", EU)
    made.left("s", EU)
    assert made.get_timer() == inf
    made.joined("s", EU)
    settle(made)
    made.left("s", EU)
    made.joined("s", EU)
    assert made.due(0.0, CLOCK) == 0
    settle(made)
    assert made.log.sequence == 1


def test_a_route_leaves_only_a_group_that_it_has_joined() -> None:
    made = groups(1)
    with pytest.raises(ValueError, match="not joined"):
        made.left("s", EU)
    made.joined("s", US)
    made.joined("s", EU)  # is folded
    with pytest.raises(ValueError, match="not joined"):
        made.left("s", ())
    assert made.statistics().routes == 2


def test_a_turn_tells_no_more_than_its_limit() -> None:
    made = groups()
    for number in range(7):
        made.joined(f"s{number}", ())
    made.due(0.0, CLOCK, limit=3)
    assert [made.due(1.0, CLOCK, limit=3) for _ in range(4)] == [3, 3, 1, 0]


def test_timestamps_grow_whatever_the_clock_does() -> None:
    made = groups()
    for clock in (CLOCK, CLOCK - 60_000, CLOCK - 60_000):
        made.joined("s", EU)
        made.due(0.0, clock)
        made.due(10.0, clock)
        made.left("s", EU)
        made.due(20.0, clock)
        made.due(30.0, clock)
    feed = RouteFeed(made.log, Position(INSTANCE, 0))
    frames = [
        parse_frame(frame, Dialect.SPECIFICATION)
        for data in drain(feed)
        for frame in Element.parse(data).frames
    ]
    stamps = [frame.timestamp for frame in frames if isinstance(frame, RouteAdd | RouteRemove)]
    assert stamps == sorted(stamps)
    assert stamps[0] == CLOCK
    assert len(set(stamps)) == len(stamps) == 6


def test_groups_beyond_the_limit_are_folded_until_there_is_room() -> None:
    made = groups(2)
    for name in ("a", "b", "c", "d", "c"):
        made.joined("s", ((name, "1"),))
    made.joined("s", ())
    settle(made)
    assert told(made) == {
        ("s", (("a", "1"),)): "1",
        ("s", (("b", "1"),)): "1",
        ("s", ()): "4+",
    }
    assert (made.statistics().folded, made.statistics().reached) == (2, 2)
    made.left("s", (("c", "1"),))
    made.left("s", (("a", "1"),))
    settle(made)
    assert told(made) == {
        ("s", (("b", "1"),)): "1",
        ("s", (("c", "1"),)): "1",
        ("s", ()): "2+",
    }
    made.left("s", (("d", "1"),))
    settle(made, limit=1)
    assert told(made)["s", ()] == "1"
    assert made.statistics().folded == 0


def test_services_beyond_twice_the_limit_are_not_told_until_there_is_room() -> None:
    made = groups(1)
    for name in "abcd":
        made.joined(name, ())
    settle(made)
    assert sorted(told(made)) == [("a", ()), ("b", ())]
    assert (made.statistics().untold, made.statistics().reached) == (2, 2)
    made.left("c", ())
    made.left("a", ())
    settle(made)
    assert sorted(told(made)) == [("b", ()), ("d", ())]
    assert made.statistics().untold == 0


def test_a_group_that_no_frame_can_hold_is_not_told() -> None:
    made = groups()
    made.joined("s", tuple((f"k{number}", "") for number in range(MAX_TAGS)))
    made.joined("s", (("a", None), ("b", None)))
    made.joined("s", EU)
    settle(made)
    assert told(made) == {("s", EU): "1"}
    assert made.statistics().untold == 2
    made.left("s", (("a", None), ("b", None)))
    assert made.statistics().untold == 1


def test_the_id_of_a_group_is_that_of_its_zone_and_tags() -> None:
    tags: TagList = ((6, "eu"), ("colour", "blue"))
    name = b"\0\1a\0\6orders" + serialize_tags(tags, Dialect.SPECIFICATION)
    assert UUID(bytes=NAMESPACE).version == 4
    expected = UUID(bytes=sha1(NAMESPACE + name, usedforsecurity=False).digest()[:16], version=5)
    assert group_id("a", "orders", tags) == expected.bytes
    assert group_id("a", "orders", tags) == VECTORS["group-id"]
    others = {("b", "orders", tags), ("a", "order", tags), ("a", "orders", tags[:1])}
    assert len({group_id(*other) for other in others} | {group_id("a", "orders", tags)}) == 4


_TAGS = st.sampled_from([(), EU, US, (*EU, ("b", "1")), (("b", "1"), *EU), (("b", None),)])
_STEPS = st.lists(
    st.tuples(st.sampled_from("st"), _TAGS, st.integers(0, 3), st.integers(0, 5)), max_size=60
)


@settings(max_examples=300)
@given(_STEPS, st.integers(2, 4), st.integers(1, 3))
def test_what_is_told_is_a_recount(
    steps: list[tuple[str, TagList, int, int]], most: int, limit: int
) -> None:
    """Routes join and leave in any order; what others know follows, within the limits."""
    made = groups(most)
    there: list[tuple[str, TagList]] = []
    now, copy = 0.0, Copy()
    feed = RouteFeed(made.log, copy.request())
    for service, tags, leave, wait in steps:
        if leave and there:
            made.left(*there.pop(leave % len(there)))
        else:
            made.joined(service, tags)
            there.append((service, tags))
        now += wait / 2
        made.due(now, CLOCK, limit=limit)
        for data in drain(feed, now):
            copy.receive(data, now)
    now = settle(made, now, limit)
    for data in drain(feed, now + 1) + drain(feed, now + 2):
        copy.receive(data, now)
    recount = Counter((service, made.tags_of(tags)) for service, tags in there)
    seen = told(made)
    assert len(copy.routes) == len(seen)
    separate = [group for group in recount if group[1]]
    assert made.statistics().folded == max(0, len(separate) - most)
    assert len([group for group in seen if group[1]]) == min(len(separate), most)
    hidden = Counter[str]()
    for group in separate:
        if group not in seen:
            hidden[group[0]] += recount[group]
    for group, shown in seen.items():
        exact = recount[group] if group[1] else recount[group] + hidden[group[0]]
        assert exact / 2 < int(shown.rstrip("+")) < 2 * exact
        assert shown.endswith("+") == (not group[1] and hidden[group[0]] > 0)
    assert all((service, ()) in seen for service in hidden)
