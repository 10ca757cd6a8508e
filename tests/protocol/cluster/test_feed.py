"""The stream to one subscriber: what it is sent, and when."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, strategies as st

from onward.protocol.cluster import (
    ClusterLimits,
    Element,
    ElementKind,
    Position,
    RouteFeed,
    RouteLog,
)
from tests.protocol.cluster.streams import HOME, INSTANCE, Copy, added, drain, removed, routes_in

S, C, M = ElementKind.SNAPSHOT, ElementKind.CHANGES, ElementKind.MARK


def log_of(count: int, limits: ClusterLimits | None = None) -> RouteLog:
    log = RouteLog(HOME, INSTANCE, limits)
    for number in range(count):
        log.add(added(number))
    return log


def kinds(elements: list[bytes]) -> list[ElementKind]:
    return [Element.parse(data).kind for data in elements]


def test_a_new_subscriber_is_sent_all_routes() -> None:
    log = log_of(100)
    feed = RouteFeed(log, Position(), max_batch=2000)
    assert feed.get_timer() == -inf
    elements = drain(feed)
    assert set(kinds(elements)) == {S}
    assert routes_in(elements) == 100
    assert [Element.parse(data).last for data in elements][-2:] == [False, True]
    assert feed.get_timer() == 10.0
    assert feed.statistics().snapshots == 1


def test_an_empty_log_is_sent_as_one_last_part() -> None:
    (data,) = drain(RouteFeed(RouteLog(HOME, INSTANCE), Position()))
    assert Element.parse(data) == Element(S, HOME, INSTANCE, 0, (), True)


@pytest.mark.parametrize("position", [Position(INSTANCE - 1, 5), Position(INSTANCE, 101)])
def test_a_position_that_the_log_does_not_know_leads_to_a_snapshot(position: Position) -> None:
    assert kinds(drain(RouteFeed(log_of(100), position))) == [S]


def test_a_subscriber_that_was_away_is_sent_what_it_missed_and_a_mark() -> None:
    log = log_of(100)
    elements = drain(RouteFeed(log, Position(INSTANCE, 97)))
    assert kinds(elements) == [C, M]
    assert [Element.parse(data).sequence for data in elements] == [100, 100]
    assert kinds(drain(RouteFeed(log, Position(INSTANCE, 100)))) == [M]


def test_a_subscriber_that_was_away_for_too_long_is_sent_a_snapshot() -> None:
    log = log_of(100, ClusterLimits(log_changes=10))
    assert kinds(drain(RouteFeed(log, Position(INSTANCE, 90)))) == [C, M]
    assert kinds(drain(RouteFeed(log, Position(INSTANCE, 89)))) == [S]


def test_changes_are_gathered() -> None:
    log = log_of(1)
    feed = RouteFeed(log, Position())
    drain(feed)
    log.add(added(2))
    assert feed.get_timer() == -inf
    assert feed.next(1.0) is None
    assert feed.get_timer() == 1.02
    log.add(removed(1))
    log.add(removed(2))
    assert feed.next(1.019) is None
    assert feed.statistics().behind == 2
    (data,) = drain(feed, 1.02)
    assert len(Element.parse(data).frames) == 2
    assert feed.get_timer() == 10.0


def test_changes_that_fill_an_element_do_not_wait() -> None:
    log = log_of(0)
    feed = RouteFeed(log, Position(), max_batch=2000)
    drain(feed)
    sent: list[bytes] = []
    for number in range(100):
        log.add(added(number))
        sent += drain(feed, 1.0)
    assert len(sent) > 3
    assert routes_in(sent) < 100
    assert all(len(data) <= 2000 for data in sent)
    sent += drain(feed, 1.02)
    assert routes_in(sent) == 100


def test_marks_come_at_intervals_also_while_changes_flow() -> None:
    log = log_of(1)
    feed = RouteFeed(log, Position())
    drain(feed)
    marks = 0
    for step in range(1, 4001):
        log.add(added(step))
        marks += kinds(drain(feed, step / 100)).count(M)
    assert marks == 4


def test_a_subscriber_catches_up_although_changes_flow_faster_than_it_takes_them() -> None:
    log = log_of(1000)
    feed = RouteFeed(log, Position(INSTANCE, 1), max_batch=1024)
    found: list[ElementKind] = []
    for step in range(1000):
        log.add(added(step))
        data = feed.next(float(step))
        assert data is not None
        found.append(Element.parse(data).kind)
        if found[-1] is M:
            break
    assert found[-1] is M
    assert set(found[:-1]) == {C}


def test_routes_that_change_during_a_snapshot_come_behind_it() -> None:
    log = log_of(100)
    feed = RouteFeed(log, Position(), max_batch=1024)
    copy = Copy()
    copy.request()
    first = feed.next(0.0)
    assert first is not None
    copy.receive(first)
    for number in (0, 50, 99):
        log.add(removed(number))
    for number in (1, 51, 200):
        log.add(added(number, region="us"))
    for data in [*drain(feed, 0.0), *drain(feed, 0.1)]:
        copy.receive(data)
    assert {int.from_bytes(each) for each in copy.routes} == {*range(100), 200} - {0, 50, 99}
    assert copy.routes[(51).to_bytes(16)].tags[0] == (6, "us")
    assert copy.subscription.position == Position(INSTANCE, log.sequence)


def test_a_slow_subscriber_gets_a_snapshot_and_the_log_does_not_grow() -> None:
    log = log_of(10, ClusterLimits(log_changes=10))
    feed = RouteFeed(log, Position())
    copy = Copy()
    copy.request()
    for data in drain(feed):
        copy.receive(data)
    for number in range(100):
        log.add(added(number % 7))
        log.add(removed(number % 5))
    elements = drain(feed, 1.0)
    assert kinds(elements) == [S]
    for data in elements:
        copy.receive(data)
    assert len(copy.routes) == len(log)
    assert copy.in_step == 2
    assert log.statistics().changes == 10
    assert feed.statistics().snapshots == 2


def test_a_change_costs_its_batch_on_each_link_and_nothing_more() -> None:
    log = log_of(0)
    feeds = [RouteFeed(log, Position()) for _ in range(3)]
    for feed in feeds:
        drain(feed)
    before = [feed.statistics() for feed in feeds]
    for number in range(50):
        log.add(added(number))
    for feed in feeds:
        assert drain(feed, 1.0) == []
    (data,) = drain(feeds[0], 1.02)
    assert [drain(feed, 1.02) for feed in feeds[1:]] == [[data], [data]]
    for feed, was in zip(feeds, before, strict=True):
        assert feed.statistics().bytes - was.bytes == len(data)
        assert feed.statistics().elements - was.elements == 1


@given(st.data())
def test_a_copy_becomes_equal_however_the_stream_is_taken_and_cut(data: st.DataObject) -> None:
    limits = ClusterLimits(log_changes=data.draw(st.integers(0, 8)), max_batch=1024)
    log, copy, now = RouteLog(HOME, INSTANCE, limits), Copy(), 0.0
    feed = RouteFeed(log, copy.request())
    for _ in range(data.draw(st.integers(0, 60))):
        now += data.draw(st.sampled_from((0.0, 0.01, 0.02, 11.0)))
        step = data.draw(st.sampled_from(("add", "add", "remove", "take", "take", "cut", "lose")))
        number = data.draw(st.integers(0, 12))
        if step == "add":
            log.add(added(number, region=str(now)))
        elif step == "remove":
            log.add(removed(number))
        elif step == "take":
            made = feed.next(now)
            if made is not None:
                copy.receive(made, now)
        else:
            if step == "lose":
                feed.next(now)  # one that never arrives
            copy.subscription.lost(now)
            feed = RouteFeed(log, copy.request())
    for later in (now + 1, now + 2, now + 13):
        for made in drain(feed, later):
            copy.receive(made, later)
    want, _ = RouteLog(HOME, INSTANCE).part_after(0, 0, max_batch=1024, compress=False)
    assert Element.parse(want).last
    assert copy.again == []
    assert len(copy.routes) == len(log)
    everything = Copy()
    everything.request()
    for made in drain(RouteFeed(log, Position())):
        everything.receive(made)
    assert copy.routes == everything.routes
    assert copy.subscription.position == Position(INSTANCE, log.sequence)
