"""The copy of another broker's routes: what may come, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from onward.protocol.broker import BrokerInfo, Dialect, RouteAdd, RouteRemove
from onward.protocol.cluster import (
    SUBSCRIPTION,
    CaughtUp,
    ClusterFrameError,
    ClusterLimits,
    Element,
    ElementKind,
    Position,
    RoundBegan,
    RoundEnded,
    RouteAdded,
    RouteRefused,
    RouteRemoved,
    RouteSubscription,
    SubscribeAgain,
    SubscriptionInput,
    SubscriptionState,
)
from tests.protocol.cluster.streams import CLOCK, HOME, INSTANCE, OTHER, Copy, added, removed

S, C, M = ElementKind.SNAPSHOT, ElementKind.CHANGES, ElementKind.MARK
State, Input = SubscriptionState, SubscriptionInput


def element(
    kind: ElementKind,
    sequence: int,
    *routes: RouteAdd | RouteRemove,
    last: bool = False,
    instance: int = INSTANCE,
    home: bytes = HOME,
) -> Element:
    frames = tuple(each.serialize(Dialect.SPECIFICATION) for each in routes)
    return Element(kind, home, instance, sequence, frames, last)


def subscribed(*elements: Element) -> RouteSubscription:
    subscription = RouteSubscription(HOME)
    subscription.request(0.0)
    for each in elements:
        subscription.receive(each, 0.0, CLOCK)
    return subscription


ALL = element(S, 5, added(1), added(2), last=True)


def test_a_snapshot_is_a_round() -> None:
    subscription = subscribed()
    assert subscription.receive(element(S, 5, added(1)), 0.0, CLOCK) == (
        RoundBegan(INSTANCE),
        RouteAdded(added(1)),
    )
    assert subscription.position == Position()
    assert subscription.receive(element(S, 5, added(2), last=True), 0.0, CLOCK) == (
        RouteAdded(added(2)),
        RoundEnded(),
        CaughtUp(),
    )
    assert subscription.position == Position(INSTANCE, 5)
    assert subscription.state is State.IN_STEP


def test_changes_follow() -> None:
    subscription = subscribed(ALL)
    events = subscription.receive(element(C, 7, removed(1), added(3)), 0.0, CLOCK)
    assert events == (RouteRemoved(removed(1)), RouteAdded(added(3)))
    assert subscription.receive(element(M, 7), 0.0, CLOCK) == ()
    statistics = subscription.statistics()
    assert statistics.position == Position(INSTANCE, 7)
    assert (statistics.elements, statistics.added, statistics.removed) == (3, 3, 1)


def test_a_stream_that_is_taken_up_again_is_in_step_with_its_mark() -> None:
    subscription = subscribed(ALL)
    subscription.lost(1.0)
    assert subscription.receive(element(C, 6, removed(1)), 1.0, CLOCK) == ()
    assert Position.parse(subscription.request(2.0)) == Position(INSTANCE, 5)
    assert subscription.receive(element(C, 6, removed(1)), 2.0, CLOCK) == (
        RouteRemoved(removed(1)),
    )
    assert subscription.state is State.CATCHING_UP
    assert subscription.receive(element(M, 6), 2.0, CLOCK) == (CaughtUp(),)


def test_a_snapshot_may_come_when_the_log_was_overrun() -> None:
    subscription = subscribed(ALL)
    events = subscription.receive(element(S, 50, added(1)), 0.0, CLOCK)
    assert events == (RoundBegan(INSTANCE), RouteAdded(added(1)))
    assert subscription.position == Position()
    assert subscription.receive(element(S, 50, last=True), 0.0, CLOCK) == (
        RoundEnded(),
        CaughtUp(),
    )


def test_a_snapshot_that_was_cut_off_starts_from_nothing() -> None:
    subscription = subscribed(element(S, 5, added(1)))
    subscription.lost(0.0)
    assert Position.parse(subscription.request(0.0)) == Position()
    assert RoundBegan(INSTANCE) in subscription.receive(element(S, 9, last=True), 0.0, CLOCK)


@pytest.mark.parametrize(
    "wrong",
    [
        element(C, 7, removed(1)),
        element(C, 5, removed(1)),
        element(C, 6, removed(1), removed(2)),
        element(M, 6),
        element(M, 4),
        element(C, 6, removed(1), instance=INSTANCE + 1),
        element(M, 5, instance=INSTANCE + 1),
    ],
    ids=lambda each: f"{each.kind.name} {each.sequence} {len(each.frames)}",
)
def test_a_wrong_number_leads_to_another_stream(wrong: Element) -> None:
    subscription = subscribed(ALL)
    (again,) = subscription.receive(wrong, 0.0, CLOCK)
    assert isinstance(again, SubscribeAgain)
    assert subscription.state is State.STALE
    assert subscription.receive(element(C, 6, removed(1)), 0.0, CLOCK) == ()
    assert Position.parse(subscription.request(0.0)) == Position()
    assert subscription.statistics().gaps == 1


def test_parts_of_two_snapshots_lead_to_another_stream() -> None:
    subscription = subscribed(element(S, 5, added(1)))
    (again,) = subscription.receive(element(S, 6, added(1), last=True), 0.0, CLOCK)
    assert again == SubscribeAgain("parts of two snapshots")


def test_changes_of_what_nothing_is_known_of_lead_to_another_stream() -> None:
    (again,) = subscribed().receive(element(C, 1, added(1)), 0.0, CLOCK)
    assert again == SubscribeAgain("an element of another instance")


INFO = BrokerInfo(HOME, 1).serialize(Dialect.SPECIFICATION)
LATER = b"\0\1" + added(1).serialize(Dialect.SPECIFICATION)[2:]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (element(C, 6, removed(1), home=OTHER), "another broker's routes"),
        (element(C, 7, added(1), added(1, OTHER)), "another broker's route"),
        (element(C, 6, removed(1, OTHER)), "another broker's route"),
        (Element(C, HOME, INSTANCE, 6, (INFO,)), "BrokerInfo in an element"),
        (Element(C, HOME, INSTANCE, 6, (b"\0\1\xff\xff\0\0",)), "frame type"),
        (Element(C, HOME, INSTANCE, 6, (b"\1\0" + INFO[2:],)), "version"),
        (
            Element(C, HOME, INSTANCE, 6, (added(1).serialize(Dialect.SPECIFICATION) + b"\0",)),
            "after its end",
        ),
        (element(S, 9, removed(1), last=True), "RouteRemove in an element of SNAPSHOT"),
    ],
)
def test_what_a_peer_broker_may_not_say_changes_nothing(wrong: Element, reason: str) -> None:
    subscription = subscribed(ALL)
    before = subscription.statistics()
    with pytest.raises(ClusterFrameError, match=reason):
        subscription.receive(wrong, 0.0, CLOCK)
    assert subscription.statistics() == before
    assert subscription.receive(element(C, 6, removed(1)), 0.0, CLOCK)


@pytest.mark.parametrize("wrong", [element(C, 6, removed(1)), element(M, 5)])
def test_nothing_comes_between_the_parts_of_a_snapshot(wrong: Element) -> None:
    subscription = subscribed(element(S, 5, added(1)))
    with pytest.raises(ClusterFrameError, match="while the subscription is round"):
        subscription.receive(wrong, 0.0, CLOCK)


def test_a_timestamp_far_ahead_is_refused() -> None:
    subscription = subscribed(ALL)
    edge = CLOCK + 3_600_000
    events = subscription.receive(
        element(C, 7, added(1, time=edge), added(2, time=edge + 1)), 0.0, CLOCK
    )
    assert events == (
        RouteAdded(added(1, time=edge)),
        RouteRefused(added(2, time=edge + 1), 3_600_001),
    )
    assert subscription.statistics().refused == 1


def test_only_one_stream_is_asked_for_at_a_time() -> None:
    subscription = subscribed()
    with pytest.raises(AssertionError, match="waiting"):
        subscription.request(0.0)


def test_a_copy_is_read_anew_without_its_position() -> None:
    subscription = subscribed(ALL)
    with pytest.raises(AssertionError, match="forgetting"):
        subscription.forget()
    subscription.lost(1.0)
    subscription.forget()
    assert Position.parse(subscription.request(2.0)) == Position()
    assert subscription.receive(ALL, 2.0, CLOCK)[0] == RoundBegan(INSTANCE)


def test_the_end_of_no_stream_is_nothing() -> None:
    subscription = RouteSubscription(HOME)
    subscription.lost(0.0)
    assert subscription.state is State.IDLE


def test_the_lag_is_the_time_out_of_step() -> None:
    subscription = RouteSubscription(HOME, ClusterLimits(mark=10))
    assert subscription.lag(5.0) == 0.0
    subscription.request(10.0)
    assert subscription.lag(13.0) == 3.0
    subscription.receive(element(S, 5, added(1)), 14.0, CLOCK)
    assert subscription.lag(15.0) == 5.0
    subscription.receive(element(S, 5, last=True), 15.0, CLOCK)
    assert subscription.lag(20.0) == 0.0
    assert subscription.lag(28.0) == 3.0  # a mark is overdue
    subscription.receive(element(S, 6, added(1)), 30.0, CLOCK)
    assert subscription.lag(31.0) == 1.0
    subscription.receive(element(S, 6, last=True), 32.0, CLOCK)
    subscription.lost(40.0)
    assert subscription.lag(41.0) == 1.0
    subscription.request(42.0)
    subscription.receive(element(M, 7), 43.0, CLOCK)
    assert subscription.state is State.STALE
    assert subscription.lag(45.0) == 2.0


def test_the_copy_of_the_tests_obeys_refusals() -> None:
    copy = Copy()
    copy.request()
    copy.receive(element(S, 1, added(1), last=True).serialize())
    copy.receive(element(C, 2, replace(added(1), timestamp=CLOCK * 2)).serialize())
    assert copy.routes == {}
    assert copy.refused == [CLOCK]
    copy.receive(element(M, 9).serialize())
    assert copy.again


def test_the_table_has_every_state_and_input() -> None:
    assert {state for state, _ in SUBSCRIPTION} == set(State)
    assert {given for _, given in SUBSCRIPTION} == set(Input)
    reachable = {State.IDLE}
    for _ in State:
        reachable |= {after for (state, _), after in SUBSCRIPTION.items() if state in reachable}
    assert reachable == set(State)
    assert [str(each) for each in State][:2] == ["idle", "waiting"]
    assert all(a < b for a, b in pairwise(State))


@pytest.mark.parametrize("kind", [ElementKind.FILTER, ElementKind.IDS])
def test_what_belongs_to_a_filter_may_not_come(kind: ElementKind) -> None:
    subscription = RouteSubscription(HOME)
    subscription.request(0.0)
    element = Element(kind, HOME, INSTANCE, 1, (bytes(16),))
    with pytest.raises(ClusterFrameError, match=f"{kind.name} in a stream of routes"):
        subscription.receive(element, 0.0, CLOCK)
    assert subscription.state is SubscriptionState.WAITING
