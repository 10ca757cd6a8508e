"""The log of own routes: what it keeps, and what it gives away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.broker import BrokerFrameError, Dialect, RouteAdd, parse_frame
from onward.protocol.cluster import ClusterLimits, Element, RouteLog
from onward.protocol.cluster._route_log import CHANGES_OF_ROUTE, LEAST_CHANGES
from tests.protocol.cluster.streams import HOME, INSTANCE, OTHER, added, removed, route_id


def all_routes(log: RouteLog, max_batch: int = 65_536) -> list[bytes]:
    found: list[bytes] = []
    reached: int | None = 0
    while reached is not None:
        data, reached = log.part_after(reached, log.sequence, max_batch=max_batch, compress=False)
        found += [
            frame.route_id
            for frame in (
                parse_frame(each, Dialect.SPECIFICATION) for each in Element.parse(data).frames
            )
            if isinstance(frame, RouteAdd)
        ]
    return found


def test_changes_are_numbered_and_routes_are_kept() -> None:
    log = RouteLog(HOME, INSTANCE)
    assert [log.add(added(1)), log.add(added(2)), log.add(removed(1)), log.add(added(2))] == [
        1, 2, 3, 4,
    ]  # fmt: skip
    assert len(log) == 1
    assert all_routes(log) == [route_id(2)]
    assert log.statistics().changes == 4


def test_the_removal_of_an_unknown_route_is_no_change() -> None:
    log = RouteLog(HOME, INSTANCE)
    log.add(added(1))
    log.add(removed(1))
    assert log.add(removed(1)) == log.add(removed(2)) == 2


def test_another_brokers_route_is_refused() -> None:
    log = RouteLog(HOME, INSTANCE)
    for change in (added(1, OTHER), removed(1, OTHER)):
        with pytest.raises(ValueError, match="another broker"):
            log.add(change)
    assert log.sequence == 0


def test_a_route_that_no_frame_can_hold_leaves_the_log_as_it_was() -> None:
    log = RouteLog(HOME, INSTANCE)
    log.add(added(1))
    with pytest.raises(BrokerFrameError):
        log.add(replace(added(1), tags=(("a", None), ("b", None))))
    with pytest.raises(BrokerFrameError):
        log.add(replace(added(1), tags=tuple((f"t{n}", "") for n in range(257))))
    assert log.sequence == len(log) == 1


def test_a_tag_without_a_value_goes_last() -> None:
    log = RouteLog(HOME, INSTANCE)
    log.add(replace(added(1), tags=(("a", None), ("b", "x"))))
    data, _ = log.changes_after(0, max_batch=65_536, compress=True)
    frame = RouteAdd.parse(Element.parse(data).frames[0], Dialect.SPECIFICATION)
    assert frame.tags == (("b", "x"), ("a", None))


@pytest.mark.parametrize(("home", "instance"), [(b"x", 1), (HOME, 0), (HOME, -1), (HOME, 1 << 63)])
def test_a_log_has_an_id_and_an_instance(home: bytes, instance: int) -> None:
    with pytest.raises(ValueError, match="a broker's id and instance"):
        RouteLog(home, instance)


def test_changes_over_the_number_are_forgotten() -> None:
    log = RouteLog(HOME, INSTANCE, ClusterLimits(log_changes=3))
    for number in range(5):
        log.add(added(number))
    assert [log.has_since(number) for number in (1, 2, 3, 5, 6)] == [False, True, True, True, False]
    statistics = log.statistics()
    assert (statistics.changes, statistics.forgotten, statistics.routes) == (3, 2, 5)


def test_changes_over_the_bytes_are_forgotten() -> None:
    size = len(added(1).serialize(Dialect.SPECIFICATION))
    log = RouteLog(HOME, INSTANCE, ClusterLimits(log_bytes=2 * size + 5))
    for number in range(5):
        log.add(added(number))
    assert log.statistics().change_bytes == 2 * size
    assert not log.has_since(2)
    assert log.has_since(3)


def test_a_log_may_keep_no_change() -> None:
    log = RouteLog(HOME, INSTANCE, ClusterLimits(log_changes=0))
    log.add(added(1))
    assert log.has_since(1)
    assert not log.has_since(0)
    assert all_routes(log) == [route_id(1)]


def test_what_is_kept_of_gone_routes_is_bounded() -> None:
    log = RouteLog(HOME, INSTANCE, ClusterLimits(log_changes=10))
    for number in range(10_000):
        log.add(added(number))
        log.add(removed(max(0, number - 5)))
    assert len(log) == 5
    assert all_routes(log) == [route_id(number) for number in range(9995, 10_000)]
    assert len(log._order) < 1100
    assert len(log._routes) == len(log._numbers) == 5


def test_changes_are_kept_while_they_cost_less_than_a_snapshot() -> None:
    log = RouteLog(HOME, INSTANCE)
    for number in range(1000):
        log.add(added(number))
        log.add(removed(number))
    assert log.statistics().changes == LEAST_CHANGES
    for number in range(1000):
        log.add(added(number))
    for number in range(2000):
        log.add(added(number % 1000))
    assert log.statistics().changes == CHANGES_OF_ROUTE * 1000
    # As routes leave, the changes that are kept become fewer, down to the least number.
    kept: list[int] = []
    for number in range(1000):
        log.add(removed(number))
        kept.append(log.statistics().changes)
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == LEAST_CHANGES
    assert log.has_since(log.sequence - LEAST_CHANGES)
    assert not log.has_since(log.sequence - LEAST_CHANGES - 1)


def test_a_snapshot_is_cut_into_parts_of_a_size() -> None:
    log = RouteLog(HOME, INSTANCE)
    for number in range(500):
        log.add(added(number))
    data, reached = log.part_after(0, log.sequence, max_batch=2000, compress=False)
    assert len(data) <= 2000
    assert reached == len(Element.parse(data).frames)
    assert all_routes(log, 2000) == all_routes(log) == [route_id(number) for number in range(500)]


def test_equal_subscribers_are_given_the_same_bytes() -> None:
    log = RouteLog(HOME, INSTANCE)
    log.add(added(1))
    first, reached = log.changes_after(0, max_batch=65_536, compress=True)
    log.add(added(2))
    again, reached_again = log.changes_after(0, max_batch=65_536, compress=True)
    assert again is first
    assert reached == reached_again == 1
    other, _ = log.changes_after(0, max_batch=65_536, compress=False)
    assert len(Element.parse(other).frames) == 2
