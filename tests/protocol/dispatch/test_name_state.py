"""A whole name at a node: each rule by itself, then all that can happen, and broken variants."""

from __future__ import annotations

from random import Random
from typing import ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MODIFIED,
    NOT_FOUND,
    RELEASED,
    UNDELIVERABLE,
    Ages,
    Announced,
    ConsumerActive,
    ConsumerEnded,
    ConsumerTarget,
    CopyEnd,
    CopyEnded,
    CreditChange,
    Delivery,
    DeliveryLimits,
    Dropped,
    DropReason,
    Gate,
    Hand,
    Held,
    Hold,
    Last,
    LinkTarget,
    Mechanism,
    NameEvent,
    NamePaths,
    NameState,
    NodeTotals,
    Outcome,
    Paths,
    Redirect,
    Redirected,
    Refusal,
    Rejected,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
    SendOn,
    Settlement,
    Tally,
    Target,
    Told,
    Unreturned,
    Weigh,
    join_links,
    node_digest,
)
from tests.support.counts import times

from .name_world import NameWorld, walk

HOLD = Retry(rounds=2, first=1.0, longest=4.0, hold=Hold(messages=2, age=20.0))
MULTICAST = RoutingPattern.MULTICAST
State = NameState[str]


def name(semantics: Semantics | None = None, limits: DeliveryLimits | None = None) -> State:
    random = Random(1)
    totals = NodeTotals(limits or DeliveryLimits())
    made = State("a", semantics or Semantics(), lambda: random.randbytes(8), totals)
    made.set_paths(paths(), str, 0.0)
    return made


def paths() -> Paths:
    return Paths(join_links({"a": {"x": 1}, "x": {"a": 1, "y": 1}, "y": {"x": 1}}), "a")


def delivery(text: str = "m", source: object = "plain", **more: object) -> Delivery[str]:
    number = more.pop("number", 1)
    assert isinstance(number, int)
    ingress = "a" if source != "x" else "x"
    identity = (ingress, b"instance", number.to_bytes(8))
    made = Delivery(text, 10, source, identity)
    for key, value in more.items():
        setattr(made, key, value)
    return made


def of(state: State, *kinds: type) -> list[NameEvent[str]]:
    """Take the events of these kinds."""
    return [each for each in state.events() if isinstance(each, kinds)]


def joined(state: State, *numbers: int, window: int = 5) -> None:
    for number in numbers:
        assert state.add_consumer(number, window, 0.0) is None
    state.events()


def handed(state: State) -> list[tuple[int, str]]:
    hands = [each for each in state.events() if isinstance(each, Hand)]
    return [(each.consumer, each.delivery.message) for each in hands]


def bound(state: State, made: Delivery[str], now: float = 0.0) -> list[bytes]:
    """Bind a message; return the tokens of the copies that were handed over or sent on."""
    state.bind(made, now)
    events = [each for each in state.events() if isinstance(each, Hand | SendOn)]
    return [each.token for each in events if each.token is not None]


def told(state: State) -> list[Outcome]:
    return [each.outcome for each in state.events() if isinstance(each, Told)]


# --- what is not settled ----------------------------------------------------------------------


def test_what_a_consumer_does_not_settle_in_time_is_in_doubt_and_counted() -> None:
    state = name(limits=DeliveryLimits(settle_time=60.0))
    joined(state, 1, window=2)
    (first,) = bound(state, delivery("1", number=1), 0.0)
    (second,) = bound(state, delivery("2", number=2), 30.0)
    bound(state, delivery("3", number=3), 31.0)  # it waits, which takes as long as it takes
    (sent_on,) = state._deliveries.bind(delivery("4", number=4), [LinkTarget("x")])
    state._deliveries.sent(sent_on, 0.0)  # the next node has to look after it
    assert state.get_timer() == 60.0
    state.due(59.0)
    assert state.events() == []
    state.due(60.0)
    events = state.events()
    assert [each for each in events if isinstance(each, CopyEnded)] == [
        CopyEnded(first, ConsumerTarget(1), CopyEnd.ABANDONED, True, None, MODIFIED)
    ]
    assert [each.outcome for each in events if isinstance(each, Told)] == [MODIFIED]
    assert [each.delivery.message for each in events if isinstance(each, Hand)] == ["3"]
    assert state._totals.counts == {DropReason.NOT_SETTLED: 1}
    assert state.get_timer() == 90.0
    # A disposition that comes late is known as such.
    state.disposition(first, ACCEPTED, ConsumerTarget(1), 61.0)
    assert state.deliveries.statistics().repeated == 1
    state.disposition(second, ACCEPTED, ConsumerTarget(1), 62.0)
    state.due(90.0)
    assert state.get_timer() == 120.0
    state.due(120.0)
    assert state._totals.counts == {DropReason.NOT_SETTLED: 2}
    assert state.get_timer() is None
    assert state.load(ConsumerTarget(1)) == 0


def test_many_times_are_looked_at_once_a_second() -> None:
    state = name(limits=DeliveryLimits(settle_time=60.0))
    joined(state, 1, window=9)
    for number in range(3):
        bound(state, delivery(number=number), number / 4)
    state.due(60.0)
    assert (told(state), state.get_timer()) == ([MODIFIED], 61.0)
    state.due(61.0)
    assert (told(state), state.get_timer()) == ([MODIFIED] * 2, None)


def test_a_consumer_with_credit_by_calls_is_detached_if_it_does_not_settle() -> None:
    state = name(limits=DeliveryLimits(settle_time=60.0))
    assert state.add_consumer(1, 5, 0.0, by_credit=True) is None
    state.credit(1, 2, 0.0)
    for number in range(3):
        bound(state, delivery(str(number), number=number), number * 20.0)
    joined(state, 2)
    state.due(60.0)
    events = state.events()
    assert ConsumerEnded(1, Refusal.SETTLE_TIME) in events
    # Its other message is in doubt as well, and what waits goes elsewhere.
    assert [each.outcome for each in events if isinstance(each, Told)] == [MODIFIED] * 2
    hands = [each for each in events if isinstance(each, Hand)]
    assert [(each.consumer, each.delivery.message) for each in hands] == [(2, "2")]
    assert state._totals.counts == {DropReason.NOT_SETTLED: 1}


def test_a_multicast_that_is_decided_by_one_late_copy_ends_once() -> None:
    limits = DeliveryLimits(settle_time=60.0)
    semantics = Semantics(pattern=MULTICAST, reliability=Reliability(accepts=ALL, deadline=3_600.0))
    state = name(semantics, limits)
    joined(state, 1, 2)
    bound(state, delivery(), 0.0)
    state.due(60.0)
    assert told(state) == [MODIFIED]
    assert state._totals.counts == {DropReason.NOT_SETTLED: 2}
    assert state.deliveries.statistics().copies == 0


def test_what_was_promised_is_sent_again_if_it_is_not_settled() -> None:
    limits = DeliveryLimits(settle_time=60.0, promise_time=100.0)
    state = name(Semantics(undeliverable=(HOLD, Last.RELEASE)), limits)
    joined(state, 1)
    bound(state, delivery(promised=True))
    state.due(60.0)
    assert state._totals.counts == {DropReason.NOT_SETTLED: 1, DropReason.DOUBT: 1}
    assert told(state) == []
    assert state.deliveries.statistics().held == 1


def test_a_name_may_have_a_settle_time_of_its_own() -> None:
    state = name(Semantics(settle_time=90.0), DeliveryLimits(settle_time=60.0))
    joined(state, 1, window=2)
    bound(state, delivery("1", number=1), 0.0)
    bound(state, delivery("2", number=2), 10.0)
    assert state.get_timer() == 90.0
    state.due(89.0)
    assert told(state) == []
    state.update(Semantics(settle_time=20.0), 25.0)  # it holds for what consumers have already
    state.due(25.0)
    assert told(state) == [MODIFIED]
    assert state.get_timer() == 30.0
    state.update(Semantics(), 29.0)
    state.due(30.0)
    assert told(state) == []
    assert state.get_timer() == 70.0
    state.due(70.0)
    assert told(state) == [MODIFIED]
    assert state.get_timer() is None
    state.update(Semantics(settle_time=5.0), 80.0)
    assert state.get_timer() is None


@pytest.mark.parametrize("seconds", [5.0, 50.0])
def test_the_fast_path_keeps_the_settle_time_of_a_name(seconds: float) -> None:
    state = name(Semantics(settle_time=seconds), DeliveryLimits(settle_time=10.0))
    joined(state, 1)
    fast = state.plan_fast_path(lambda _token, _entry: delivery())
    assert fast is not None
    assert fast.settle_time == fast.longest == seconds
    state.update(Semantics(), 0.0)
    assert state.plan_fast_path(lambda _token, _entry: delivery(), wait=8.0) is fast
    assert (fast.settle_time, fast.longest) == (10.0, 8.0)


def test_a_copy_that_has_ended_meanwhile_does_not_end_again() -> None:
    state = name(limits=DeliveryLimits(settle_time=60.0))
    joined(state, 1)
    (token,) = bound(state, delivery())
    deliveries = state._deliveries
    (late,) = deliveries.lapsed(60.0)
    assert deliveries.lapsed(60.0) == []
    state.disposition(token, ACCEPTED, ConsumerTarget(1), 60.0)
    state._lapse([late], 60.0)
    assert state._totals.counts == {}


def test_what_has_waited_for_long_is_seen() -> None:
    state = name(limits=DeliveryLimits(stuck_time=10.0))
    assert state.get_ages(0.0) == Ages()
    assert state.add_producer(8) is None  # it has no credit without a consumer, and sends nothing
    assert state.get_ages(0.0) == Ages(producers=1)
    assert state.add_consumer(1, 5, 0.0, by_credit=True) is None
    state.credit(1, 1, 0.0)
    assert state.get_ages(0.0) == Ages()
    (first,) = bound(state, delivery("1", number=1), 5.0)
    bound(state, delivery("2", number=2), 6.0)
    assert state.get_ages(15.0) == Ages(oldest=10.0)
    assert state.get_ages(16.5) == Ages(oldest=11.5, stuck=1, consumers=1)
    state.disposition(first, ACCEPTED, ConsumerTarget(1), 17.0)
    assert state.get_ages(17.0) == Ages(consumers=1)
    state.credit(1, 1, 18.0)
    assert state.get_ages(18.0) == Ages()


def test_a_producer_that_has_used_its_window_is_blocked_after_a_while() -> None:
    state = name(Semantics(window=1), DeliveryLimits(stuck_time=10.0))
    joined(state, 1)
    assert state.add_producer(8) is None
    assert state.send(8, delivery(source=8), 5.0)
    assert state.get_ages(15.0) == Ages(oldest=10.0)
    assert state.get_ages(15.5) == Ages(oldest=10.5, stuck=1, producers=1)


# --- messages and outcomes --------------------------------------------------------------------


def test_a_message_is_handed_over_and_its_outcome_is_told() -> None:
    state = name()
    joined(state, 1)
    made = delivery()
    (token,) = bound(state, made)
    assert state.deliveries.of_token(token) is made
    assert state.load(ConsumerTarget(1)) == 1
    assert state.busy
    state.disposition(token, ACCEPTED, ConsumerTarget(1), 1.0)
    ended = CopyEnded(token, ConsumerTarget(1), CopyEnd.TOLD, True, 1.0, ACCEPTED)
    assert state.events() == [ended, Told(made, ACCEPTED)]
    assert not state.busy
    assert not state.idle
    state.remove_consumer(1, 2.0)
    state.remove_consumer(1, 2.0)
    assert state.idle


def test_a_message_beyond_the_window_of_its_consumer_waits_for_an_outcome() -> None:
    state = name()
    joined(state, 1, window=1)
    (first,) = bound(state, delivery("1", number=1))
    assert bound(state, delivery("2", number=2)) == []
    state.disposition(first, ACCEPTED, ConsumerTarget(1), 1.0)
    assert handed(state) == [(1, "2")]


def test_pre_settled_messages_leave_no_load_when_they_are_dropped_or_handled() -> None:
    state = name(Semantics(window=2))
    joined(state, 1, window=1)
    for number in range(5):
        state.bind(delivery(str(number), settled=True, number=number), 0.0)
    events = state.events()
    dropped = [each for each in events if isinstance(each, Dropped)]
    assert [(each.delivery.message, each.reason) for each in dropped] == [
        ("1", DropReason.OVERFLOW),
        ("2", DropReason.OVERFLOW),
    ]
    assert state.load(ConsumerTarget(1)) == 3
    for _ in range(3):
        state.handled(1, 1.0)
    assert handed(state) == [(1, "3"), (1, "4")]
    assert state.load(ConsumerTarget(1)) == 0
    state.handled(1, 1.0)
    assert state.events() == []


def test_what_is_released_goes_to_another_consumer_and_then_back() -> None:
    state = name()
    joined(state, 1, 2)
    made = delivery()
    (first,) = bound(state, made)
    state.disposition(first, RELEASED, ConsumerTarget(1), 1.0)
    (again,) = [each for each in state.events() if isinstance(each, Hand)]
    assert (again.consumer, again.token is None) == (2, False)
    state.disposition(again.token or b"", RELEASED, ConsumerTarget(2), 2.0)
    assert told(state) == [RELEASED]
    assert not state.busy


def test_a_message_that_is_too_late_leaves_the_queue_wherever_it_is() -> None:
    state = name()
    joined(state, 1, window=0 + 1)
    (first,) = bound(state, delivery("1", number=1))
    bound(state, delivery("2", number=2))
    bound(state, delivery("3", number=3, until=5.0))
    bound(state, delivery("4", number=4, until=6.0, settled=True))
    assert state.get_timer() == 5.0
    state.due(5.0)
    (late,) = of(state, Told)
    assert isinstance(late, Told)
    assert (late.delivery.message, late.outcome) == ("3", RELEASED)
    assert state.get_timer() == 6.0
    state.due(6.0)
    (dropped,) = of(state, Dropped)
    assert isinstance(dropped, Dropped)
    assert (dropped.delivery.message, dropped.reason) == ("4", DropReason.NO_CONSUMER)
    assert state.get_timer() == DeliveryLimits().settle_time  # of the first one
    assert state.load(ConsumerTarget(1)) == 2
    state.disposition(first, ACCEPTED, ConsumerTarget(1), 7.0)
    assert handed(state) == [(1, "2")]
    bound(state, delivery("5", number=5, until=6.0), 7.0)
    assert state.load(ConsumerTarget(1)) == 1


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_refused_at_once(settled: bool) -> None:
    limits = DeliveryLimits(max_unsettled=1)
    cases: list[tuple[State, Delivery[str], DropReason, Outcome]] = [
        (
            name(Semantics(pattern=RoutingPattern.UNAVAILABLE)),
            delivery(settled=settled),
            DropReason.UNAVAILABLE,
            NOT_FOUND,
        ),
        (
            name(),
            delivery(settled=settled, path=(b"1234",) * 9),
            DropReason.TOO_FAR,
            RELEASED,
        ),
    ]
    if not settled:
        full = name(Semantics(reliability=Reliability(deduplicate=9.0)), limits)
        joined(full, 1)
        bound(full, delivery(number=7))
        cases.append((full, delivery(number=8), DropReason.UNSETTLED, RELEASED))
    for state, made, reason, outcome in cases:
        state.bind(made, 0.0)
        last = Dropped(made, reason) if settled else Told(made, outcome)
        assert state.events()[-1] == last


def test_a_message_that_comes_twice_is_told_the_outcome_of_the_first() -> None:
    state = name(Semantics(reliability=Reliability(deduplicate=9.0)))
    joined(state, 1)
    (token,) = bound(state, delivery("1"))
    state.bind(delivery("2"), 1.0)
    assert told(state) == [MODIFIED]
    state.disposition(token, ACCEPTED, ConsumerTarget(1), 2.0)
    assert told(state) == [ACCEPTED]
    state.bind(delivery("3"), 3.0)
    state.bind(delivery("4", settled=True), 3.0)
    assert [type(each) for each in state.events()] == [Told, Dropped]
    state.remove_consumer(1, 4.0)
    assert not state.idle
    assert state.get_timer() == 9.0
    state.due(9.0)
    assert state.idle


def test_what_is_settled_at_once_goes_on_pre_settled() -> None:
    state = name(Semantics(reliability=Reliability(settle=Settlement.AT_ONCE)))
    joined(state, 1)
    assert state.add_producer(9) is None
    state.events()
    made = delivery(source=9)
    assert state.send(9, made, 0.0)
    assert state.credit_of(9) == 250
    assert [type(each) for each in state.events()] == [Told, CreditChange, Hand]
    assert made.settled


# --- several copies, and links ----------------------------------------------------------------


def test_what_was_promised_is_sent_again_in_doubt_as_often_as_there_are_rounds() -> None:
    state = name(Semantics(undeliverable=(HOLD, Redirect("34#failed"), Last.RELEASE)))
    joined(state, 1, 2)
    made = delivery(promised=True)
    (first,) = bound(state, made)
    state.remove_consumer(1, 1.0)
    (second,) = (each.token for each in state.events() if isinstance(each, Hand))
    assert second not in (None, first)
    assert made.doubts == 1
    state.disposition(second, MODIFIED, ConsumerTarget(2), 2.0)
    assert of(state, Told, Redirected) == [Redirected(made, Redirect("34#failed"))]
    assert state.deliveries.statistics().modified == 0
    state.bind(made, 3.0)
    assert made.doubts == 0


def test_what_was_promised_is_on_hold_after_a_doubt_until_another_consumer_comes() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.RELEASE)))
    joined(state, 1)
    made = delivery(promised=True, kept=False)
    bound(state, made)
    state.remove_consumer(1, 1.0)
    assert told(state) == []
    assert state.deliveries.statistics().held == 1
    joined_at = state.add_consumer(2, 5, 1.5)
    assert joined_at is None
    assert handed(state) == [(2, "m")]


def test_what_was_promised_is_sent_again_if_nothing_is_told_of_it() -> None:
    limits = DeliveryLimits(promise_time=5.0)
    state = name(Semantics(undeliverable=(HOLD, Last.RELEASE)), limits)
    joined(state, 1)
    (token,) = bound(state, delivery(promised=True))
    joined(state, 2)
    state.due(5.0)
    events = state.events()
    assert [each.end for each in events if isinstance(each, CopyEnded)] == [CopyEnd.ABANDONED]
    assert state.deliveries.statistics().held == 1
    state.due(6.0)
    (hand,) = [each for each in state.events() if isinstance(each, Hand)]
    assert hand.token != token


def test_what_was_promised_is_refused_by_no_limit() -> None:
    retry = Retry(hold=Hold(messages=1))
    state = name(Semantics(undeliverable=(retry, Last.RELEASE)), DeliveryLimits(max_unsettled=1))
    state.bind(delivery(number=1), 0.0)
    for number in (2, 3):
        state.bind(delivery(number=number, promised=True), 0.0)
    assert state.deliveries.statistics().held == 3
    state.bind(delivery(number=4), 0.0)
    assert told(state) == [RELEASED]
    at_once = name(Semantics(reliability=Reliability(settle=Settlement.AT_ONCE)))
    joined(at_once, 1)
    (token,) = bound(at_once, delivery(promised=True))
    at_once.disposition(token, ACCEPTED, ConsumerTarget(1), 1.0)
    assert at_once.deliveries.statistics().accepted == 1


def test_a_multicast_in_doubt_is_not_sent_to_all_again() -> None:
    state = name(Semantics(pattern=MULTICAST, undeliverable=(HOLD, Last.RELEASE)))
    joined(state, 1)
    bound(state, delivery())
    state.remove_consumer(1, 1.0)
    assert told(state) == [MODIFIED]


@pytest.mark.parametrize("accepts", [1, 2, ALL])
def test_a_promised_multicast_that_no_consumer_accepted_is_sent_again(accepts: int) -> None:
    wanted = Reliability(accepts=accepts)
    state = name(
        Semantics(pattern=MULTICAST, undeliverable=(HOLD, Last.RELEASE), reliability=wanted)
    )
    joined(state, 1, 2)
    made = delivery(promised=True)
    first, second = bound(state, made)
    # It is not decided while another consumer has it, and so may accept it.
    state.disposition(first, MODIFIED, ConsumerTarget(1), 1.0)
    assert told(state) == []
    assert state.deliveries.statistics().held == 0
    state.disposition(second, RELEASED, ConsumerTarget(2), 1.0)
    assert state.deliveries.statistics().held == 1
    state.due(2.0)
    again = [each.token for each in state.events() if isinstance(each, Hand)]
    assert len(again) == 2
    for token, target in zip(again, (1, 2), strict=True):
        assert token is not None
        state.disposition(token, ACCEPTED, ConsumerTarget(target), 3.0)
    assert told(state) == [ACCEPTED]


def test_a_promised_multicast_is_not_sent_again_once_a_consumer_has_accepted_it() -> None:
    wanted = Reliability(accepts=ALL)
    state = name(
        Semantics(pattern=MULTICAST, undeliverable=(HOLD, Last.RELEASE), reliability=wanted)
    )
    joined(state, 1, 2)
    first, _ = bound(state, delivery(promised=True))
    state.disposition(first, ACCEPTED, ConsumerTarget(1), 1.0)
    state.remove_consumer(2, 1.0)
    assert told(state) == [MODIFIED]
    assert state.deliveries.statistics().held == 0


def test_a_promised_multicast_in_doubt_goes_on_after_its_rounds() -> None:
    state = name(
        Semantics(pattern=MULTICAST, undeliverable=(HOLD, Redirect("34#failed"), Last.RELEASE))
    )
    joined(state, 1)
    made = delivery(promised=True)
    (first,) = bound(state, made)
    state.disposition(first, MODIFIED, ConsumerTarget(1), 0.0)
    state.due(1.0)
    (second,) = (each.token for each in state.events() if isinstance(each, Hand))
    assert second is not None
    state.disposition(second, MODIFIED, ConsumerTarget(1), 1.0)
    assert of(state, Told, Redirected) == [Redirected(made, Redirect("34#failed"))]


@pytest.mark.parametrize("settled", [True, False])
def test_a_multicast_that_comes_by_two_paths_is_handed_over_once(settled: bool) -> None:
    limits = DeliveryLimits(multicast_ids=2)
    state = name(Semantics(pattern=MULTICAST), limits)
    joined(state, 1, window=20)
    state.bind(delivery("1", source="x", token=b"by one..", settled=settled), 0.0)
    assert handed(state) == [(1, "1")]
    second = delivery("1", source="x", token=b"by other", settled=settled)
    state.bind(second, 0.0)
    dropped = Dropped(second, DropReason.DUPLICATE) if settled else Told(second, MODIFIED)
    assert state.events() == [dropped]
    assert state._totals.counts == {DropReason.DUPLICATE: 1}
    # The oldest is forgotten beyond the limit, and what enters here is known anyway.
    for number in (2, 3):
        state.bind(delivery(source="x", number=number, settled=True), 0.0)
    state.bind(delivery("1", source="x", token=b"third...", settled=settled), 0.0)
    for _ in range(2):
        state.bind(delivery("here", settled=True), 0.0)
    assert handed(state) == [(1, "m"), (1, "m"), (1, "1"), (1, "here"), (1, "here")]


def test_a_multicast_goes_along_the_paths_before_for_a_while() -> None:
    line = {"x": {"a": 1}, "a": {"x": 1, "y": 1}, "y": {"a": 1}}
    mesh = {"x": {"a": 1, "y": 1}, "a": {"x": 1, "y": 1}, "y": {"x": 1, "a": 1}}
    state = name(Semantics(pattern=MULTICAST), DeliveryLimits(path_overlap=2.0))
    state.set_paths(Paths(join_links(line), "a"), str, 0.0)
    state.set_nodes({"y": 0}, 0.0)
    joined(state, 1)

    def sent_on(number: int, now: float, source: str = "x") -> list[str]:
        state.bind(delivery(source=source, number=number, settled=True), now)
        return [each.link for each in state.events() if isinstance(each, SendOn)]

    assert sent_on(1, 5.0) == ["y"]
    # From now on x sends to y itself, but x may not know yet.
    state.set_paths(Paths(join_links(mesh), "a"), str, 10.0)
    assert sent_on(2, 11.0) == ["y"]
    assert sent_on(3, 11.0, "plain") == ["y"]  # it entered here, and goes there in any case
    state.set_nodes({}, 11.0)
    assert sent_on(4, 11.0) == []
    state.set_nodes({"y": 0}, 11.0)
    assert sent_on(5, 11.9) == ["y"]
    assert sent_on(6, 12.0) == []
    assert sent_on(7, 11.0) == []  # what was before is forgotten

    state.set_paths(Paths(join_links(line), "a"), str, 20.0)
    state.set_paths(Paths(join_links(mesh), "a"), str, 30.0)
    state.link_lost("y", 30.5)
    assert sent_on(8, 31.0) == []


def test_the_paths_before_are_kept_while_only_consumers_change() -> None:
    line = {"x": {"a": 1}, "a": {"x": 1, "y": 1}, "y": {"a": 1}}
    mesh = {"x": {"a": 1, "y": 1}, "a": {"x": 1, "y": 1}, "y": {"x": 1, "a": 1}}
    state = name(Semantics(pattern=MULTICAST), DeliveryLimits(path_overlap=2.0))
    state.set_paths(Paths(join_links(line), "a"), str, 0.0)
    state.set_nodes({"y": 0}, 0.0)
    now = Paths(join_links(mesh), "a")
    state.set_paths(now, str, 10.0)

    def sent_on(number: int, at: float) -> list[str]:
        state.bind(delivery(source="x", number=number, settled=True), at)
        return [each.link for each in state.events() if isinstance(each, SendOn)]

    for number in range(9):
        state.set_paths(now, str, 11.0)
        assert sent_on(number, 11.0) == ["y"]
    assert sent_on(10, 12.0) == []


@pytest.mark.parametrize(("pattern", "most"), [(RoutingPattern.BALANCED, 3), (MULTICAST, 47)])
def test_a_multicast_may_pass_more_nodes_than_the_radius(
    pattern: RoutingPattern, most: int
) -> None:
    state = name(Semantics(pattern=pattern))  # with a radius of 2
    joined(state, 1)
    for passed in (3, 4, 47, 48):
        path = tuple(node_digest(str(each)) for each in range(passed))
        made = delivery(source="x", number=passed, settled=True, path=path)
        state.bind(made, 9.0)
        (event,) = state.events()
        near = passed <= most
        assert event == (Hand(1, None, made) if near else Dropped(made, DropReason.TOO_FAR))


def test_a_multicast_that_was_released_may_come_again() -> None:
    state = name(Semantics(pattern=MULTICAST))
    state.bind(delivery(source="x", token=b"by one.."), 0.0)
    assert told(state) == [RELEASED]
    joined(state, 1)
    (token,) = bound(state, delivery(source="x", token=b"by one.."))
    state.disposition(token, RELEASED, ConsumerTarget(1), 1.0)
    assert told(state) == [RELEASED]
    (token,) = bound(state, delivery(source="x", token=b"by one.."))
    state.disposition(token, MODIFIED, ConsumerTarget(1), 1.0)
    assert told(state) == [MODIFIED]
    assert bound(state, delivery(source="x", token=b"by one..")) == []


def test_what_is_sent_again_in_doubt_is_no_second_copy_at_the_next_node() -> None:
    state = name(Semantics(pattern=MULTICAST, undeliverable=(HOLD, Last.RELEASE)))
    state.set_nodes({"x": 0}, 0.0)
    state.events()
    made = delivery(promised=True)
    before = made.identity
    (token,) = bound(state, made)
    state.disposition(token, MODIFIED, LinkTarget("x"), 1.0)
    state.due(2.0)
    assert [type(each) for each in of(state, SendOn)] == [SendOn]
    assert made.identity[:2] == before[:2]
    assert made.identity != before


@pytest.mark.parametrize(
    ("pattern", "deduplicate"),
    [(RoutingPattern.BALANCED, 0.0), (RoutingPattern.BALANCED, 60.0), (MULTICAST, 60.0)],
)
def test_what_is_sent_again_in_doubt_has_the_identity_that_duplicates_are_known_by(
    pattern: RoutingPattern, deduplicate: float
) -> None:
    chain, reliability = (HOLD, Last.RELEASE), Reliability(deduplicate=deduplicate)
    semantics = Semantics(pattern=pattern, undeliverable=chain, reliability=reliability)
    state = name(semantics)
    state.set_nodes({"x": 0}, 0.0)
    state.events()
    made = delivery(promised=True)
    before = made.identity
    (token,) = bound(state, made)
    state.disposition(token, MODIFIED, LinkTarget("x"), 1.0)
    state.due(2.0)
    assert [type(each) for each in of(state, SendOn)] == [SendOn]
    assert made.identity == before


def test_the_next_node_knows_again_what_is_sent_again_in_doubt() -> None:
    reliability = Reliability(deduplicate=60.0)
    semantics = Semantics(undeliverable=(HOLD, Last.RELEASE), reliability=reliability)
    state = name(semantics)
    state.set_nodes({"x": 0}, 0.0)
    state.events()
    made = delivery(promised=True)
    bound(state, made)
    behind = name(semantics)
    joined(behind, 1)
    first = delivery(source="x", token=b"11111111", identity=made.identity)
    (token,) = bound(behind, first)
    behind.disposition(token, ACCEPTED, ConsumerTarget(1), 0.5)
    behind.events()
    # The link goes before its outcome is here.
    state.link_lost("x", 1.0)
    state.set_paths(paths(), str, 1.5)
    state.due(5.0)
    (again,) = of(state, SendOn)
    assert isinstance(again, SendOn)
    second = delivery(source="x", token=b"22222222", identity=again.delivery.identity)
    assert bound(behind, second, 5.0) == []


def test_all_acceptances_of_a_multicast_over_links_are_counted_at_its_ingress() -> None:
    state = name(Semantics(pattern=MULTICAST, reliability=Reliability(accepts=ALL)))
    state.set_nodes({"x": 0, "y": 0}, 0.0)
    state.events()
    (token,) = bound(state, delivery())
    state.disposition(token, ACCEPTED, LinkTarget("x"), 1.0, Tally(accepted=1, released=1))
    assert told(state) == [MODIFIED]


def test_a_node_between_tells_its_tally_when_all_copies_have_ended() -> None:
    state = name(Semantics(pattern=MULTICAST, reliability=Reliability(accepts=ALL)))
    joined(state, 1, 2)
    first, second = bound(state, delivery(source="x", token=b"upstream"))
    state.disposition(first, ACCEPTED, ConsumerTarget(1), 1.0)
    assert told(state) == []
    state.disposition(second, RELEASED, ConsumerTarget(2), 1.0)
    (last,) = of(state, Told)
    assert isinstance(last, Told)
    assert (last.outcome, last.tally) == (ACCEPTED, Tally(accepted=1, released=1))


def test_a_slow_consumer_does_not_hold_up_a_multicast() -> None:
    state = name(Semantics(pattern=MULTICAST, reliability=Reliability(deadline=6.0)))
    joined(state, 1, 2)
    first, _ = bound(state, delivery(deadline=100.0))
    state.disposition(first, ACCEPTED, ConsumerTarget(1), 1.0)
    assert state.get_timer() == 6.0
    state.due(6.0)
    assert told(state) == [ACCEPTED]
    (only, _) = bound(state, delivery(number=2, deadline=8.0), 6.0)
    del only
    assert state.get_timer() == 8.0


def test_a_pre_settled_copy_of_a_multicast_is_for_its_consumer_alone() -> None:
    state = name(Semantics(pattern=MULTICAST))
    joined(state, 1, 2, window=1)
    for number in range(2):
        state.bind(delivery(settled=True, number=number), 0.0)
    state.events()
    state.remove_consumer(1, 1.0)
    (dropped,) = of(state, Dropped)
    assert isinstance(dropped, Dropped)
    assert dropped.reason is DropReason.GONE


def test_a_message_that_no_link_takes_is_released() -> None:
    state = name()
    state.set_nodes({"y": 0}, 0.0)
    assert [type(each) for each in state.events()] == [NamePaths]
    (token,) = bound(state, delivery())
    assert state.load(LinkTarget("x")) == 1
    state.disposition(token, RELEASED, LinkTarget("x"), 0.0)
    assert told(state) == [RELEASED]
    state.bind(delivery(settled=True), 0.0)
    (sent,) = state.events()
    assert isinstance(sent, SendOn)
    assert (sent.link, sent.token) == ("x", None)
    assert state.load(LinkTarget("x")) == 0


def test_a_lost_link_is_told_in_both_directions() -> None:
    state = name()
    joined(state, 1)
    (there,) = bound(state, delivery(source="x", token=b"upstream"))
    state.set_nodes({"x": 0}, 0.0)
    state.remove_consumer(1, 0.0)
    assert told(state) == [MODIFIED]
    (token,) = bound(state, delivery("on", number=2))
    joined(state, 2)
    (other,) = bound(state, delivery(source="x", token=b"another1", number=3))
    state.link_lost("x", 1.0)
    events = state.events()
    assert [each.outcome for each in events if isinstance(each, Told)] == [MODIFIED]
    ends = {each.token: each.end for each in events if isinstance(each, CopyEnded)}
    assert ends == {token: CopyEnd.LOST, other: CopyEnd.ABANDONED}
    assert there != other
    assert state.remote_paths == 0
    state.set_paths(paths(), str, 2.0)
    assert state.remote_paths == 1


def stopped(state: State) -> tuple[dict[str, Outcome], list[CopyEnded]]:
    """Stop a name; return what was told of each message, and the copies that have ended."""
    state.events()
    for each in state.deliveries.left():
        state.stop(each, 5.0)
    events = state.events()
    assert all(isinstance(each, Told | CopyEnded | CreditChange) for each in events)
    outcomes = {each.delivery.message: each.outcome for each in events if isinstance(each, Told)}
    assert not len(state.deliveries)
    assert state.load(ConsumerTarget(1)) == state.load(LinkTarget("x")) == 0
    return outcomes, [each for each in events if isinstance(each, CopyEnded)]


def test_as_a_name_stops_what_a_target_has_is_in_doubt_and_the_rest_released() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.RELEASE)))
    bound(state, delivery("held"))
    state.set_nodes({"x": 0}, 0.0)
    (there,) = (each.token for each in of(state, SendOn) if isinstance(each, SendOn))
    state.set_nodes({}, 0.0)
    joined(state, 1, 2, window=1)
    tokens = [bound(state, delivery(f"{each}", number=2 + each)) for each in range(4)]
    assert [len(each) for each in tokens] == [1, 1, 0, 0]
    state.set_nodes({"x": 0}, 0.0)
    outcomes, ends = stopped(state)
    # None of what waits was handed over to the other consumer, or sent on.
    waits = {"2": RELEASED, "3": RELEASED}
    assert outcomes == {"held": MODIFIED, "0": MODIFIED, "1": MODIFIED, **waits}
    told = {each.token: (each.end, each.sent) for each in ends if each.sent}
    here = CopyEnd.ABANDONED, True
    assert told == {there: (CopyEnd.LOST, True), tokens[0][0]: here, tokens[1][0]: here}
    assert [each.end for each in ends if not each.sent] == [CopyEnd.WITHDRAWN] * 2


def test_what_a_consumer_has_not_read_is_released_as_both_stop() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.RELEASE)))
    joined(state, 1, 2)
    bound(state, delivery("read"))
    (unread,) = bound(state, delivery("unread", number=2))
    state.stop_unread(unread, 1.0)
    ended = state.events()
    assert [each.outcome for each in ended if isinstance(each, Told)] == [RELEASED]
    assert not [each for each in ended if isinstance(each, Hand)]
    state.stop_unread(unread, 1.0)
    assert state.events() == []
    assert stopped(state)[0] == {"read": MODIFIED}


def test_a_multicast_is_released_as_no_consumer_has_read_it() -> None:
    state = name(Semantics(pattern=MULTICAST))
    joined(state, 1, 2)
    tokens = bound(state, delivery())
    state.stop_unread(tokens[0], 1.0)
    assert state.events() == []
    state.stop_unread(tokens[1], 1.0)
    assert told(state) == [RELEASED]
    assert stopped(state) == ({}, [])


def test_as_a_name_stops_what_is_on_hold_is_released() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.REJECT)))
    bound(state, delivery())
    assert stopped(state) == ({"m": RELEASED}, [])


def test_as_a_name_stops_its_multicasts_have_the_outcome_of_what_was_sent() -> None:
    state = name(Semantics(pattern=MULTICAST, reliability=Reliability(accepts=1)))
    joined(state, 1, 2, window=1)
    one, _ = bound(state, delivery("accepted", source="x"))
    state.disposition(one, ACCEPTED, ConsumerTarget(1), 1.0)
    assert told(state) == []  # the node before has to know what the other one tells
    assert len(bound(state, delivery("doubt", number=2))) == 1
    assert bound(state, delivery("waits", source="x", number=3)) == []
    outcomes, ends = stopped(state)
    assert outcomes == {"accepted": ACCEPTED, "doubt": MODIFIED, "waits": RELEASED}
    assert sorted(each.sent for each in ends) == [False, False, False, True, True]


def test_a_link_that_leads_to_another_node_is_tried_again() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.RELEASE)))
    state.set_nodes({"x": 0}, 0.0)
    (token,) = bound(state, delivery())
    state.disposition(token, RELEASED, LinkTarget("x"), 0.5)
    state.set_nodes({"x": 0}, 0.6)
    assert of(state, SendOn) == []
    state.set_nodes({"y": 0}, 0.7)
    assert len(of(state, SendOn)) == 1


@pytest.mark.parametrize("on_hold", [True, False])
def test_what_is_settled_while_it_waits_stays_within_the_bytes_of_what_is_pre_settled(
    on_hold: bool,
) -> None:
    retry = Retry(hold=Hold(messages=100))
    limits = DeliveryLimits(max_settled_size=35)
    state = name(Semantics(undeliverable=(retry, Last.DROP)), limits)
    if not on_hold:
        assert state.add_consumer(1, 100, 0.0, by_credit=True) is None
    dropped = 0
    for number in range(10):
        made = delivery(number=number)
        state.bind(made, 0.0)
        made.settled = False
        state.sender_settled(made, 0.0)
        ends = of(state, Dropped, Unreturned)
        # The first is its end in the log.
        assert len(ends) == 1 or isinstance(ends[0], Dropped)
        dropped += isinstance(ends[0], Dropped)
    assert state._totals.settled_size == 30
    assert dropped == 7
    assert state._totals.counts[DropReason.NO_ROOM if on_hold else DropReason.SETTLED_SIZE] == 7
    assert on_hold or state.load(ConsumerTarget(1)) == 3


@pytest.mark.parametrize("settled", [True, False])
def test_the_node_before_settles_or_abandons(settled: bool) -> None:
    state = name()
    joined(state, 1, window=1)
    (first,) = bound(state, delivery("1", source="x", token=b"11111111"))
    bound(state, delivery("2", source="x", token=b"22222222", number=2))
    state.source_ended("x", b"22222222", 1.0, settled=settled)
    waited, unreturned = state.events()
    assert isinstance(waited, CopyEnded)
    assert isinstance(unreturned, Unreturned)
    assert unreturned.delivery.settled == settled
    assert (waited.sent, state.load(ConsumerTarget(1))) == (False, 1 + settled)
    state.source_ended("x", b"11111111", 1.0, settled=settled)
    ended = state.events()[0]
    assert ended == CopyEnded(
        first, ConsumerTarget(1), CopyEnd.SETTLED if settled else CopyEnd.ABANDONED, True
    )
    assert state.load(ConsumerTarget(1)) == settled


def test_a_producer_that_settles_first_gets_its_credit_back_once() -> None:
    state = name()
    joined(state, 1)
    state.add_producer(9)
    made = delivery(source=9)
    assert state.send(9, made, 0.0)
    assert state.credit_of(9) == 249
    state.sender_settled(made, 1.0)
    state.sender_settled(made, 1.0)
    assert state.credit_of(9) == 250
    other = delivery(source="plain", number=2)
    bound(state, other)
    state.sender_settled(other, 1.0)
    assert not state.deliveries.statistics().unsettled


# --- what is undeliverable --------------------------------------------------------------------


def test_a_held_message_is_one_record_and_asks_each_consumer_once_a_round() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.REJECT)))
    made = delivery()
    state.bind(made, 0.0)
    assert state.events() == [Held(made)]
    assert state.busy
    joined_events = state.add_consumer(1, 5, 0.5)
    assert joined_events is None
    (hand,) = of(state, Hand)
    assert isinstance(hand, Hand)
    assert hand.delivery is made
    state.disposition(hand.token or b"", RELEASED, ConsumerTarget(1), 0.6)
    assert of(state, Hand, Told) == []
    state.due(state.get_timer() or 0.0)
    (hand,) = of(state, Hand)
    assert isinstance(hand, Hand)
    state.disposition(hand.token or b"", RELEASED, ConsumerTarget(1), 3.0)
    for _ in range(3):
        state.due(state.get_timer() or 0.0)
        for each in state.events():
            if isinstance(each, Hand):
                state.disposition(each.token or b"", RELEASED, ConsumerTarget(1), 9.0)
            elif isinstance(each, Told):
                assert each.outcome == UNDELIVERABLE
    assert not state.busy


def test_there_is_room_on_hold_for_so_many() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.DROP)))
    made = [delivery(number=number) for number in range(3)]
    for each in made:
        state.bind(each, 0.0)
    dropped = Dropped(made[2], DropReason.PROVISIONED)
    assert state.events() == [Held(made[0]), Held(made[1]), dropped, Told(made[2], ACCEPTED)]
    pre_settled = delivery(settled=True)
    state.bind(pre_settled, 0.0)
    assert state.events() == [Dropped(pre_settled, DropReason.NO_CONSUMER)]


def test_a_message_is_redirected_once_and_goes_on_if_that_fails() -> None:
    redirect = Redirect("34#other")
    state = name(Semantics(undeliverable=(redirect, HOLD, Last.RELEASE)))
    made = delivery()
    state.bind(made, 0.0)
    assert state.events() == [Redirected(made, redirect)]
    assert not state.busy
    state.go_on(made, 0.0)
    assert state.events() == [Held(made)]
    assert state.deliveries.statistics().held == 1
    again = delivery(redirected=True, number=2)
    state.bind(again, 0.0)
    assert state.events() == [Held(again)]
    settled = delivery(settled=True, number=3)
    state.bind(settled, 0.0)
    assert state.events() == [Redirected(settled, redirect)]
    state.go_on(settled, 0.0)
    assert state.events() == [Dropped(settled, DropReason.NO_CONSUMER)]


def test_a_message_is_redirected_to_what_is_no_consumer() -> None:
    redirect = Redirect("shelf")
    state = name(Semantics(undeliverable=(redirect, Last.REJECT)), DeliveryLimits(max_unsettled=1))
    joined(state, 1)
    shelf = ConsumerTarget(99)
    for outcome, at_its_end in (
        (ACCEPTED, ACCEPTED),
        (MODIFIED, MODIFIED),
        (RELEASED, UNDELIVERABLE),
    ):
        made = delivery()
        (token,) = bound(state, made)
        state.disposition(token, RELEASED, ConsumerTarget(1), 0.0)
        assert of(state, Redirected) == [Redirected(made, redirect)]
        copy = state.bind_to(made, shelf, 5.0, 0.0)
        assert copy is not None
        assert state.bind_to(delivery(number=2), shelf, 5.0, 0.0) is None
        state.disposition(copy, outcome, shelf, 1.0)
        assert told(state) == [at_its_end]
    made = delivery()
    state.bind(made, 2.0)
    state.remove_consumer(1, 2.0)
    assert state.bind_to(delivery(number=2), shelf, 5.0, 2.0) is not None
    state.events()
    state.due(5.0)
    assert told(state) == [MODIFIED]


def test_there_may_be_no_room_for_what_could_not_be_redirected() -> None:
    chain = (Redirect("34#other"), Last.RELEASE)
    state = name(Semantics(undeliverable=chain), DeliveryLimits(max_unsettled_size=10))
    first = delivery()
    state.bind(first, 0.0)
    joined(state, 1)
    bound(state, delivery(number=2))
    state.go_on(first, 0.0)
    assert told(state) == [RELEASED]


def test_the_chain_is_that_of_the_ingress() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.REJECT)))
    state.bind(delivery(source="x", token=b"upstream"), 0.0)
    assert told(state) == [RELEASED]


# --- consumers --------------------------------------------------------------------------------


def test_numbers_of_consumers_and_producers_are_limited_for_a_name_and_a_node() -> None:
    limits = DeliveryLimits(
        max_consumers=1, max_producers=1, max_node_consumers=2, max_node_producers=2
    )
    totals = NodeTotals(limits)
    names = [State("a", Semantics(), lambda: b"12345678", totals) for _ in range(3)]
    assert names[0].add_consumer(1, 1, 0.0) is None
    assert names[0].add_consumer(2, 1, 0.0) is Refusal.CONSUMERS
    assert names[1].add_consumer(3, 1, 0.0) is None
    assert names[2].add_consumer(4, 1, 0.0) is Refusal.CONSUMERS
    assert names[0].add_producer(5) is None
    assert names[0].add_producer(6) is Refusal.PRODUCERS
    assert names[1].add_producer(7) is None
    assert names[2].add_producer(8) is Refusal.PRODUCERS
    assert totals.counts == {Refusal.CONSUMERS: 2, Refusal.PRODUCERS: 2}
    names[0].remove_consumer(1, 0.0)
    names[0].remove_producer(5)
    names[0].remove_producer(5)
    assert names[2].add_consumer(4, 1, 0.0) is None
    assert names[2].add_producer(8) is None
    assert (totals.consumers, totals.producers, names[2].producers) == (2, 2, 1)


@pytest.mark.parametrize("of", ["name", "node"])
def test_a_source_has_a_share_of_consumers_and_producers(of: str) -> None:
    few, many = (8, 100) if of == "name" else (100, 8)
    limits = DeliveryLimits(
        max_consumers=few, max_producers=few, max_node_consumers=many, max_node_producers=many
    )
    totals = NodeTotals(limits)
    random = Random(1)
    state = State("a", Semantics(), lambda: random.randbytes(8), totals)
    one, other = totals.share_of("one"), totals.share_of("other")
    assert totals.share_of("one") is one
    for number in (1, 2):
        assert state.add_consumer(number, 5, 0.0, share=one) is None
        assert state.add_producer(number, share=one) is None
    assert state.add_consumer(3, 5, 0.0, share=one) is Refusal.SHARE
    assert state.add_producer(3, share=one) is Refusal.SHARE
    assert totals.counts[Refusal.SHARE] == 2
    assert state.add_consumer(4, 5, 0.0, share=other) is None
    assert state.add_producer(4, share=other) is None
    assert state.add_consumer(5, 5, 0.0) is None
    assert state.add_producer(5) is None
    for number in (1, 5):
        state.remove_consumer(number, 1.0)
        state.remove_producer(number)
    assert state.add_consumer(3, 5, 1.0, share=one) is None
    assert state.add_producer(3, share=one) is None
    assert (one.consumers, one.producers, other.producers) == (2, 2, 1)


def test_connections_that_are_not_authenticated_leave_places_of_a_name_to_others() -> None:
    # The node has places for many more.
    limits = DeliveryLimits(max_consumers=8, max_producers=8, max_anonymous_share=50)
    totals = NodeTotals(limits)
    random = Random(1)
    state = State("a", Semantics(), lambda: random.randbytes(8), totals)
    shares = [totals.share_of(number, anonymous=True) for number in range(3)]
    for number in range(4):
        assert state.add_consumer(number, 5, 0.0, share=shares[number % 2]) is None
        assert state.add_producer(number, share=shares[number % 2]) is None
    assert state.add_consumer(4, 5, 0.0, share=shares[2]) is Refusal.SHARE
    assert state.add_producer(4, share=shares[2]) is Refusal.SHARE
    assert totals.counts[Refusal.SHARE] == 2
    one = totals.share_of("one")
    assert state.add_consumer(5, 5, 0.0, share=one) is None
    assert state.add_producer(5, share=one) is None
    state.remove_consumer(0, 1.0)
    state.remove_producer(0)
    assert state.add_consumer(4, 5, 1.0, share=shares[2]) is None
    assert state.add_producer(4, share=shares[2]) is None


def test_a_neighbour_has_a_larger_share_of_what_is_unsettled() -> None:
    state = name(limits=DeliveryLimits(max_unsettled=8))
    totals = NodeTotals(DeliveryLimits(max_unsettled=8))
    joined(state, 1, window=1)
    for share, most in ((totals.share_of(1), 2), (totals.share_of(2, neighbour=True), 6)):
        for number in range(most):
            state.bind(delivery(share=share, number=number), 0.0)
        assert told(state) == []
        state.bind(delivery(share=share, number=99), 0.0)
        assert told(state) == [RELEASED]


@pytest.mark.parametrize(
    ("semantics", "refusal"),
    [
        (Semantics(pattern=RoutingPattern.UNAVAILABLE), Refusal.UNAVAILABLE),
        (Semantics(mechanism=Mechanism.LINK), Refusal.CIRCUITS),
    ],
)
def test_a_name_without_messages_has_neither(semantics: Semantics, refusal: Refusal) -> None:
    state = name(semantics)
    assert state.add_consumer(1, 1, 0.0) is refusal
    assert state.add_producer(2) is refusal


def test_a_message_to_a_name_of_circuits_is_refused() -> None:
    state = name(Semantics(mechanism=Mechanism.LINK))
    state.bind(delivery("1", number=1), 0.0)
    assert told(state) == [Rejected("amqp:not-allowed", "the name takes circuits, and no messages")]
    state.bind(delivery("2", number=2, settled=True), 0.0)
    (dropped,) = of(state, Dropped)
    assert isinstance(dropped, Dropped)
    assert dropped.reason is DropReason.CIRCUITS


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        (RoutingPattern.DIRECT, [1, 1, 1]),
        (RoutingPattern.CLOSEST, [1, 2, 1]),
        (RoutingPattern.BALANCED, [1, 2, 2]),
    ],
)
def test_circuits_go_to_a_container_by_the_pattern(
    pattern: RoutingPattern, places: list[int]
) -> None:
    state = name(Semantics(mechanism=Mechanism.LINK, pattern=pattern))
    assert state.place_circuit(b"") is None
    for number in (1, 2):
        # Of a direct name the second one is refused.
        state.add_consumer(number, 10, 0.0, by_credit=True, circuits=True)
    chosen: list[Target | None] = []
    for _ in range(2):
        target = state.place_circuit(b"")
        assert target is not None
        state.circuit_begun(target)
        chosen.append(target)
    state.circuit_ended(ConsumerTarget(2))
    chosen.append(state.place_circuit(b""))
    assert chosen == [ConsumerTarget(number) for number in places]


def test_a_name_of_messages_has_no_circuits_and_a_change_ends_what_is_there() -> None:
    state = name()
    assert state.add_consumer(1, 1, 0.0, circuits=True) is Refusal.MESSAGES
    assert state.add_consumer(2, 1, 0.0) is None
    assert state.place_circuit(b"") is None
    state.update(Semantics(mechanism=Mechanism.LINK), 0.0)
    assert of(state, ConsumerEnded) == [ConsumerEnded(2, Refusal.CIRCUITS)]
    assert state.add_consumer(3, 1, 0.0, circuits=True) is None
    state.update(Semantics(), 0.0)
    assert of(state, ConsumerEnded) == [ConsumerEnded(3, Refusal.MESSAGES)]


def test_a_consumer_with_credit_by_calls() -> None:
    state = name()
    assert state.add_consumer(1, 5, 0.0, by_credit=True) is None
    state.events()
    assert bound(state, delivery("1", number=1)) == []
    bound(state, delivery("2", number=2))
    state.credit(1, 1, 0.0)
    state.credit(77, 1, 0.0)
    (hand,) = of(state, Hand)
    assert isinstance(hand, Hand)
    state.disposition(hand.token or b"", ACCEPTED, ConsumerTarget(1), 1.0)
    assert handed(state) == []
    state.credit(1, 3, 1.0)
    assert state.drain(1, 1.0) == 2
    assert state.drain(1, 1.0) == state.drain(77, 1.0) == 0
    state.bind(delivery("3", number=3, settled=True), 1.0)
    state.credit(1, 1, 1.0)
    state.handled(1, 1.0)
    assert state.drain(1, 1.0) == 0


def test_the_second_consumer_of_a_direct_name() -> None:
    refusing = name(Semantics(pattern=RoutingPattern.DIRECT))
    joined(refusing, 1)
    assert refusing.add_consumer(2, 1, 0.0) is Refusal.TAKEN
    newest = name(Semantics(pattern=RoutingPattern.DIRECT, second=Second.NEWEST))
    joined(newest, 1)
    (token,) = bound(newest, delivery())
    assert newest.add_consumer(2, 1, 0.0) is None
    events = newest.events()
    assert ConsumerEnded(1, Refusal.DISPLACED) in events
    assert ConsumerActive(2, active=True) in events
    assert [each.token for each in events if isinstance(each, CopyEnded)] == [token]
    waiting = name(Semantics(pattern=RoutingPattern.DIRECT, second=Second.STANDBY))
    joined(waiting, 1, 2)
    assert (waiting.is_active(1), waiting.is_active(2), waiting.is_active(3)) == (
        True,
        False,
        False,
    )
    waiting.remove_consumer(1, 1.0)
    assert waiting.is_active(2)


def test_a_claim_of_another_node_decides_who_has_a_direct_name() -> None:
    state = name(Semantics(pattern=RoutingPattern.DIRECT, second=Second.STANDBY))
    assert state.add_consumer(1, 1, 0.0, milliseconds=100) is None
    assert Announced(100) in state.events()
    (taken,) = bound(state, delivery("1", number=1))
    bound(state, delivery("2", number=2))
    state.bind(delivery("3", number=3, settled=True), 0.0)
    state.set_nodes({"x": 50}, 1.0)
    events = state.events()
    assert ConsumerActive(1, active=False) in events
    sent = [each.delivery.message for each in events if isinstance(each, SendOn)]
    assert sent == ["2", "3"]  # what waits goes to the node that has the name
    assert told(state) == []
    state.set_nodes({}, 2.0)
    assert state.is_active(1)
    assert state.load(ConsumerTarget(1)) == 1
    state.disposition(taken, ACCEPTED, ConsumerTarget(1), 3.0)
    assert told(state) == [ACCEPTED]
    refusing = name(Semantics(pattern=RoutingPattern.DIRECT))
    refusing.add_consumer(1, 1, 0.0, milliseconds=100)
    refusing.set_nodes({"x": 0}, 0.0)  # it has told no claim
    assert refusing.is_active(1)
    refusing.set_nodes({"x": 50}, 0.0)
    assert ConsumerEnded(1, Refusal.TAKEN) in refusing.events()


# --- producers --------------------------------------------------------------------------------


def test_credit_comes_with_a_consumer_and_is_drained_without_one() -> None:
    state = name(Semantics(window=5))
    assert state.add_producer(9) is None
    assert state.credit_of(9) == state.credit_of(77) == 0
    assert not state.send(9, delivery(source=9), 0.0)
    joined(state, 1)
    assert state.credit_of(9) == 5
    state.remove_consumer(1, 0.0)
    assert state.send(9, delivery(source=9), 0.0)
    assert CreditChange(9, 0, drain=True) in state.events()
    state.drained(9)
    state.drained(77)
    assert state.credit_of(9) == 0


def test_the_outcome_of_another_name_gives_the_credit_back() -> None:
    state = name(Semantics(window=5, gate=Gate.OPEN, undeliverable=(Redirect("34#b"), Last.DROP)))
    state.add_producer(9)
    state.send(9, delivery(source=9), 0.0)
    assert state.credit_of(9) == 4
    state.settled(9)
    assert state.credit_of(9) == 5


def test_the_gate_credit_counts_what_consumers_and_links_have_left() -> None:
    state = name(Semantics(window=5, gate=Gate.CREDIT))
    state.add_producer(9)
    joined(state, 1, window=2)
    assert state.credit_of(9) == 2
    for number in range(2):
        assert state.send(9, delivery(source=9, number=number), 0.0)
    assert state.credit_of(9) == 0
    state.set_nodes({"x": 0}, 0.0)
    assert state.credit_of(9) == 3  # a window for the link, and two are unsettled
    state.add_producer(10, anonymous=True)
    assert state.credit_of(10) == 5


# --- semantics --------------------------------------------------------------------------------


def test_semantics_change_while_messages_are_under_way() -> None:
    state = name(Semantics(undeliverable=(HOLD, Last.RELEASE)))
    state.bind(delivery("held"), 0.0)
    state.update(Semantics(undeliverable=(HOLD, Last.RELEASE)), 0.0)
    state.update(Semantics(undeliverable=(Last.REJECT,), weigh=Weigh.TIME), 0.0)
    assert told(state) == [UNDELIVERABLE]
    joined(state, 1, 2, 3)
    (token,) = bound(state, delivery(number=2))
    state.update(Semantics(pattern=RoutingPattern.DIRECT), 1.0)
    events = state.events()
    assert [each.consumer for each in events if isinstance(each, ConsumerEnded)] == [2, 3]
    assert Announced(1) in events
    state.disposition(token, ACCEPTED, ConsumerTarget(1), 1.0)
    assert told(state) == [ACCEPTED]
    state.update(Semantics(pattern=RoutingPattern.DIRECT, second=Second.NEWEST), 1.0)
    assert of(state, ConsumerEnded) == []
    state.update(Semantics(pattern=RoutingPattern.UNAVAILABLE), 2.0)
    assert of(state, ConsumerEnded) == [ConsumerEnded(1, Refusal.UNAVAILABLE)]


# --- all that can happen ----------------------------------------------------------------------


class NameMachine(RuleBasedStateMachine):
    """A name, with what Hypothesis chooses to happen to it."""

    variant: ClassVar[type[NameState[int]]] = NameState

    @initialize(seed=st.integers(0, 1 << 32))
    def begin(self, seed: int) -> None:
        self.world = NameWorld(Random(seed).randrange, self.variant)
        self.world.perform()

    @rule(action=st.sampled_from(NameWorld.ACTIONS))
    def act(self, action: str) -> None:
        self.world.act(action)

    @precondition(lambda self: len(self.world.sent) > 5)
    @rule()
    def end(self) -> None:
        self.world.finish()

    @invariant()
    def credit_is_never_negative(self) -> None:
        assert all(self.world.state.credit_of(each) >= 0 for each in self.world.producers)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


TestName = NameMachine.TestCase
TestName.settings = settings(
    max_examples=times(40, 200), stateful_step_count=60, deadline=None, print_blob=False
)


def walk_many(seeds: int, variant: type[NameState[int]] = NameState) -> None:
    for seed in range(seeds):
        walk(seed, variant)


def test_many_random_runs() -> None:
    walk_many(times(300, 2_000))


Numbers = NameState[int]


class SaysReleasedOfLost(Numbers):
    def remove_consumer(self, number: int, now: float, reason: Refusal | None = None) -> None:
        for copy in self._deliveries._copies.of_target(ConsumerTarget(number)):
            copy.sent = None
        super().remove_consumer(number, now, reason)


class TellsTwice(Numbers):
    def _tell(self, delivery: Delivery[int], outcome: Outcome, *, bound: bool = True) -> None:
        if delivery.source == "plain":
            self._events.append(Told(delivery, outcome))
        super()._tell(delivery, outcome, bound=bound)


class KeepsQuiet(Numbers):
    def _finish(self, delivery: Delivery[int], outcome: Outcome) -> None:
        if delivery.settled:
            super()._finish(delivery, outcome)
        else:
            self._deliveries.end(delivery, outcome)


class TriesAgainInDoubt(Numbers):
    def _tell(self, delivery: Delivery[int], outcome: Outcome, *, bound: bool = True) -> None:
        if outcome == MODIFIED and not delivery.copies and not delivery.spread:
            outcome = RELEASED
        super()._tell(delivery, outcome, bound=bound)


class ForgetsTheTried(Numbers):
    def _choose(self, delivery: Delivery[int], now: float) -> tuple[Target, ...]:
        delivery.tried.clear()
        return super()._choose(delivery, now)


class BelievesAnyTarget(Numbers):
    def disposition(
        self,
        token: bytes,
        state: object,
        target: Target,
        now: float,
        tally: Tally | None = None,
    ) -> None:
        copy = self._deliveries._copies.get(token)
        super().disposition(token, state, copy.target if copy else target, now, tally)  # type: ignore[arg-type]


class GivesCreditTwice(Numbers):
    def _copy_ended(self, event: CopyEnded, now: float) -> None:
        record = self._record_of(event.target)
        if record is not None:
            record.queue.credit += 1
        super()._copy_ended(event, now)


class GivesNoCreditBack(Numbers):
    def settled(self, producer: int) -> None:
        del producer

    def remove_producer(self, number: int) -> None:
        self._deliveries.producer_lost(number)


class LeavesTheQueueLate(Numbers):
    def _leave_queue(self, event: CopyEnded) -> None:
        del event


class RescuesCopies(Numbers):
    def _rescue(self, delivery: Delivery[int], reason: DropReason, now: float) -> None:
        delivery.spread = False
        super()._rescue(delivery, reason, now)


class LosesPreSettled(Numbers):
    def _rescue(self, delivery: Delivery[int], reason: DropReason, now: float) -> None:
        pass


class KeepsLostLinks(Numbers):
    def link_lost(self, link: str, now: float) -> None:
        self._act(self._deliveries.target_lost(LinkTarget(link), now), now)


class ForgetsTheHold(Numbers):
    def update(self, semantics: Semantics, now: float) -> None:
        self._deliveries.set_hold(None)
        super().update(semantics, now)


class RedirectsTwice(Numbers):
    def _undeliverable(self, delivery: Delivery[int], now: float) -> None:
        delivery.redirected, delivery.part = False, None
        super()._undeliverable(delivery, now)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "variant",
    [
        SaysReleasedOfLost,
        TellsTwice,
        KeepsQuiet,
        TriesAgainInDoubt,
        ForgetsTheTried,
        BelievesAnyTarget,
        GivesCreditTwice,
        GivesNoCreditBack,
        LeavesTheQueueLate,
        RescuesCopies,
        LosesPreSettled,
        KeepsLostLinks,
        ForgetsTheHold,
        RedirectsTwice,
    ],
)
def test_a_broken_variant_is_caught(variant: type[Numbers]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        walk_many(3_000, variant)
