"""Deliveries: the matrix of losses, several copies, tries, and the hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest

from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MODIFIED,
    RECEIVED,
    RELEASED,
    ConsumerTarget,
    CopyEnd,
    CopyEnded,
    Decided,
    Deliveries,
    Delivery,
    DeliveryEvent,
    DeliveryLimits,
    Disposition,
    Hold,
    HoldEnded,
    LinkTarget,
    Modified,
    NodeTotals,
    Outcome,
    Rejected,
    Retry,
    Returned,
    Round,
    Tally,
    Target,
    Unreturned,
    decode_disposition,
    encode_disposition,
)

IDENTITY = ("a", b"instance", b"12345678")
ONE, TWO = ConsumerTarget(1), ConsumerTarget(2)
LINK = LinkTarget("x")
REJECTED = Rejected("amqp:not-allowed", "no")
Table = Deliveries[str]
Event = DeliveryEvent[str]


def tokens() -> Callable[[], bytes]:
    random = Random(1)
    return lambda: random.randbytes(8)


def table(limits: DeliveryLimits | None = None) -> Table:
    return Deliveries(tokens(), NodeTotals(limits or DeliveryLimits()))


def bound(
    made: Table,
    *targets: Target,
    kept: bool = False,
    accepts: int | None = None,
    early: bool = True,
    token: bytes | None = None,
    deadline: float | None = None,
) -> tuple[Delivery[str], list[bytes]]:
    if accepts is None and len(targets) > 1:
        accepts = 1
    delivery = Delivery("payload", 10, "in", IDENTITY, token=token, deadline=deadline)
    delivery.kept = kept
    assert made.enter(delivery, 1.0)
    bound = made.bind(delivery, targets, accepts=accepts, early=early, limit=deadline)
    return delivery, bound


def outcomes(made: Table, events: Sequence[Event]) -> list[Outcome]:
    """Return the outcomes; what no target has, and is not to be sent again, is released."""
    told: list[Outcome] = []
    for each in events:
        if isinstance(each, Decided):
            told.append(each.outcome)
        elif isinstance(each, Returned) and not each.again:
            made.end(each.delivery, RELEASED)
            told.append(RELEASED)
    return told


def ends(events: Sequence[Event]) -> list[tuple[Target, CopyEnd, bool]]:
    return [(each.target, each.end, each.sent) for each in events if isinstance(each, CopyEnded)]


# --- the matrix -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, RELEASED, MODIFIED, Modified(failed=False)])
@pytest.mark.parametrize("target", [ONE, LINK])
def test_an_outcome_is_told_the_way_the_delivery_came(target: Target, state: Outcome) -> None:
    made = table()
    delivery, (token,) = bound(made, target)
    made.sent(token, 2.0)
    made.sent(token, 3.0)  # the first time counts
    assert made.statistics().unsettled == made.statistics().copies == 1
    assert made.of_token(token) is delivery
    assert made.open_at(target) == 1
    events = made.disposition(token, state, target, 4.0)
    seconds = None if state == RELEASED else 2.0
    assert events[0] == CopyEnded(token, target, CopyEnd.TOLD, True, seconds, state)
    last = Returned(delivery, False) if state == RELEASED else Decided(delivery, state)
    assert events[1:] == [last]
    assert outcomes(made, events) == [state]
    assert delivery.outcome == state
    assert delivery.tally is None
    assert made.of_token(token) is None
    assert made.open_at(target) == 0
    assert made.statistics().unsettled == made.statistics().copies == 0


@pytest.mark.parametrize("target", [ONE, LINK])
@pytest.mark.parametrize(
    ("sent", "outcome"), [(True, MODIFIED), (False, RELEASED)], ids=["sent", "unsent"]
)
def test_a_lost_target_is_doubt_if_the_copy_was_sent(
    target: Target, sent: bool, outcome: Outcome
) -> None:
    made = table()
    _, (token,) = bound(made, target)
    if sent:
        made.sent(token, 2.0)
    events = made.target_lost(target, 3.0)
    assert outcomes(made, events) == [outcome]
    assert ends(events) == [(target, CopyEnd.LOST, sent)]
    assert made.target_lost(target, 3.0) == []


def test_ten_are_sent_six_are_taken_and_the_consumer_leaves() -> None:
    made = table()
    for number in range(10):
        _, (token,) = bound(made, ONE)
        if number < 6:
            made.sent(token, 2.0)
    assert Counter(outcomes(made, made.target_lost(ONE, 3.0))) == {MODIFIED: 6, RELEASED: 4}
    taken = table()
    for number in range(10):
        _, (token,) = bound(taken, ONE)
        if number < 6:
            taken.sent(token, 2.0)
            assert outcomes(taken, taken.disposition(token, ACCEPTED, ONE, 2.5)) == [ACCEPTED]
    assert outcomes(taken, taken.target_lost(ONE, 3.0)) == [RELEASED] * 4


@pytest.mark.parametrize(
    ("sent", "end"), [(True, CopyEnd.ABANDONED), (False, CopyEnd.WITHDRAWN)], ids=["sent", "unsent"]
)
def test_the_targets_are_told_when_the_link_before_is_lost(sent: bool, end: CopyEnd) -> None:
    made = table()
    _, (token,) = bound(made, ONE)
    if sent:
        made.sent(token, 2.0)
    events = made.source_lost("in")
    assert outcomes(made, events) == []
    assert ends(events) == [(ONE, end, sent)]
    assert made.source_lost("in") == []
    assert made.disposition(token, ACCEPTED, ONE, 3.0) == []
    assert made.statistics().repeated == 1
    assert made.statistics().unreturned == 1


def test_a_lost_producer_only_unlinks_its_deliveries() -> None:
    made = table()
    delivery, (token,) = bound(made, ONE)
    made.producer_lost("in")
    made.producer_lost("in")
    assert made.source_lost("in") == []
    made.sent(token, 2.0)
    assert made.disposition(token, ACCEPTED, ONE, 3.0)[-1] == Decided(delivery, ACCEPTED)
    assert delivery.source is None
    assert made.statistics().unreturned == 1
    assert made.statistics().unsettled == 0


def test_a_producer_that_settles_first_settles_all_copies() -> None:
    made = table()
    delivery, (first, _) = bound(made, ONE, LINK)
    made.sent(first, 2.0)
    events = made.sender_settled(delivery)
    assert ends(events) == [(ONE, CopyEnd.SETTLED, True), (LINK, CopyEnd.SETTLED, False)]
    assert outcomes(made, events) == []
    assert made.sender_settled(delivery) == []
    assert made.statistics().unsettled == 0


def test_a_delivery_that_has_its_outcome_is_not_counted_as_unreturned() -> None:
    made = table()
    _, (first, _) = bound(made, ONE, TWO)
    made.sent(first, 2.0)
    assert outcomes(made, made.disposition(first, REJECTED, ONE, 3.0)) == [REJECTED]
    assert ends(made.source_lost("in")) == [(TWO, CopyEnd.WITHDRAWN, False)]
    assert made.statistics().unreturned == 0


# --- several copies -------------------------------------------------------------------------


def test_a_delivery_with_copies_is_told_once_and_late_copies_are_information() -> None:
    made = table()
    delivery, (first, second, third) = bound(made, ONE, TWO, LINK)
    for token in (first, second, third):
        made.sent(token, 2.0)
    assert outcomes(made, made.disposition(first, ACCEPTED, ONE, 3.0)) == []
    assert outcomes(made, made.disposition(second, REJECTED, TWO, 3.0)) == [REJECTED]
    assert made.statistics().unsettled == 1
    assert outcomes(made, made.disposition(third, ACCEPTED, LINK, 3.0, Tally(accepted=4))) == []
    assert delivery.tally == Tally(accepted=5, rejected=1)
    assert made.statistics().unsettled == 0


def test_a_slow_consumer_does_not_hold_up_a_delivery_to_several() -> None:
    made = table()
    _, (first, second, _) = bound(made, ONE, TWO, LINK, deadline=10.0)
    made.sent(first, 2.0)
    made.sent(second, 2.0)
    made.disposition(first, ACCEPTED, ONE, 3.0)
    assert made.get_timer() == 10.0
    assert made.due(9.9) == []
    events = made.due(10.0)
    assert outcomes(made, events) == [ACCEPTED]
    assert set(ends(events)) == {
        (TWO, CopyEnd.ABANDONED, True),
        (LINK, CopyEnd.WITHDRAWN, False),
    }
    assert made.get_timer() is None
    assert made.statistics().overdue == 2


@pytest.mark.parametrize(("accepts", "outcome"), [(1, ACCEPTED), (2, MODIFIED), (ALL, MODIFIED)])
def test_a_dead_consumer_counts_as_doubt(accepts: int, outcome: Outcome) -> None:
    made = table()
    _, (first, second) = bound(made, ONE, TWO, accepts=accepts)
    made.sent(first, 2.0)
    made.sent(second, 2.0)
    made.disposition(first, ACCEPTED, ONE, 3.0)
    assert outcomes(made, made.target_lost(TWO, 4.0)) == [outcome]


def test_acceptances_that_one_copy_cannot_give_make_doubt() -> None:
    made = table()
    _, (token,) = bound(made, ONE, accepts=2)
    made.sent(token, 2.0)
    assert outcomes(made, made.disposition(token, ACCEPTED, ONE, 3.0)) == [MODIFIED]


@pytest.mark.parametrize(("accepts", "outcome"), [(1, ACCEPTED), (3, MODIFIED), (ALL, MODIFIED)])
def test_the_copies_behind_the_only_link_are_counted(accepts: int, outcome: Outcome) -> None:
    made = table()
    delivery, (token,) = bound(made, LINK, accepts=accepts)
    made.sent(token, 2.0)
    tally = Tally(accepted=2, released=1)
    assert outcomes(made, made.disposition(token, ACCEPTED, LINK, 3.0, tally)) == [outcome]
    assert delivery.tally == tally


def test_a_node_between_waits_for_all_copies_and_has_the_outcome_in_its_tally() -> None:
    made = table()
    delivery, (first, second) = bound(made, ONE, LINK, accepts=1, early=False)
    made.sent(first, 2.0)
    made.sent(second, 2.0)
    assert outcomes(made, made.disposition(first, REJECTED, ONE, 3.0)) == []
    assert outcomes(made, made.disposition(second, ACCEPTED, LINK, 3.0, Tally(2))) == [REJECTED]
    assert delivery.tally == Tally(2, 1)
    frame = encode_disposition(Disposition(REJECTED, tally=delivery.tally))
    assert decode_disposition(frame).tally == Tally(2, 1)


def test_the_node_before_says_that_its_producer_has_settled() -> None:
    made = table()
    _, (token,) = bound(made, ONE, token=b"upstream")
    assert made.source_ended("in", b"other", settled=True) == []
    assert made.source_ended("on", b"upstream", settled=True) == []
    assert made.statistics().unknown == 2
    events = made.source_ended("in", b"upstream", settled=True)
    assert ends(events) == [(ONE, CopyEnd.SETTLED, False)]
    assert made.source_ended("in", b"upstream", settled=True) == []
    assert made.disposition(token, ACCEPTED, ONE, 3.0) == []


def test_the_node_before_abandons_a_delivery() -> None:
    made = table()
    _, (first, _) = bound(made, ONE, LINK, token=b"upstream")
    _, (kept,) = bound(made, TWO, token=b"different")
    made.sent(first, 2.0)
    events = made.source_ended("in", b"upstream", settled=False)
    assert ends(events) == [(ONE, CopyEnd.ABANDONED, True), (LINK, CopyEnd.WITHDRAWN, False)]
    assert outcomes(made, events) == []
    made.sent(kept, 2.0)
    assert outcomes(made, made.disposition(kept, ACCEPTED, TWO, 3.0)) == [ACCEPTED]
    assert made.source_ended("in", b"different", settled=False) == []


def test_a_node_that_uses_a_token_twice_is_refused() -> None:
    made = table()
    bound(made, ONE, token=b"upstream")
    assert not made.enter(Delivery("x", 1, "in", IDENTITY, token=b"upstream"), 1.0)
    assert made.statistics().refused == 1
    made.source_ended("in", b"upstream", settled=False)
    bound(made, ONE, token=b"upstream")


def test_what_is_released_before_its_delivery_begins_is_counted() -> None:
    made = table()
    made.count_released()
    assert (made.statistics().released, len(made)) == (1, 0)


# --- another target -------------------------------------------------------------------------


def test_a_released_delivery_goes_to_another_target_once() -> None:
    made = table()
    delivery, (token,) = bound(made, ONE, kept=True)
    made.sent(token, 2.0)
    events = made.disposition(token, RELEASED, ONE, 3.0)
    assert events[-1] == Returned(delivery, again=True)
    assert delivery.tried == {ONE}
    (again,) = made.bind(delivery, [TWO])
    made.sent(again, 4.0)
    assert outcomes(made, made.disposition(again, ACCEPTED, TWO, 5.0)) == [ACCEPTED]
    assert made.statistics().reforwarded == 1
    other, (token,) = bound(made, ONE, kept=True)
    assert made.target_lost(ONE, 3.0)[-1] == Returned(other, again=True)
    made.end(other, RELEASED)
    assert made.statistics().released == 1
    assert made.statistics().unsettled == 0


def test_what_is_in_doubt_or_received_is_not_sent_again() -> None:
    made = table()
    _, (token,) = bound(made, ONE, kept=True)
    made.sent(token, 2.0)
    assert outcomes(made, made.target_lost(ONE, 3.0)) == [MODIFIED]
    _, (token,) = bound(made, ONE, kept=True)
    made.sent(token, 2.0)
    assert made.disposition(token, RECEIVED, ONE, 3.0) == []
    assert outcomes(made, made.disposition(token, RELEASED, ONE, 3.0)) == [RELEASED]


def test_tries_are_bounded_in_number_and_time() -> None:
    made = table(DeliveryLimits(max_tries=2, try_time=10.0))
    delivery, (token,) = bound(made, ONE, kept=True)
    assert made.target_lost(ONE, 2.0)[-1] == Returned(delivery, again=True)
    (token,) = made.bind(delivery, [TWO])
    made.sent(token, 3.0)
    assert outcomes(made, made.disposition(token, RELEASED, TWO, 3.0)) == [RELEASED]
    bound(made, ONE, kept=True)
    assert outcomes(made, made.target_lost(ONE, 11.0)) == [RELEASED]
    bound(made, ONE, kept=True, deadline=5.0)
    assert outcomes(made, made.due(5.0)) == [RELEASED]


# --- bad input ------------------------------------------------------------------------------


def test_bad_dispositions_are_counted_and_change_nothing() -> None:
    made = table(DeliveryLimits(finished_tokens=1))
    _, (token,) = bound(made, ONE)
    assert made.disposition(token, ACCEPTED, ONE, 1.5) == []  # it was not sent
    made.sent(token, 2.0)
    for target in (TWO, LINK):
        assert made.disposition(token, ACCEPTED, target, 3.0) == []
    assert made.disposition(b"nonsense", ACCEPTED, ONE, 3.0) == []
    assert outcomes(made, made.disposition(token, ACCEPTED, ONE, 3.0)) == [ACCEPTED]
    assert made.disposition(token, REJECTED, ONE, 3.0) == []
    figures = made.statistics()
    assert (figures.forged, figures.unknown, figures.repeated) == (3, 1, 1)
    bound(made, ONE)
    made.target_lost(ONE, 4.0)
    assert made.disposition(token, REJECTED, ONE, 3.0) == []  # forgotten by now
    assert made.statistics().unknown == 2
    made.sent(token, 5.0)


def test_a_full_table_refuses_a_delivery() -> None:
    made = table(DeliveryLimits(max_unsettled=1))
    bound(made, ONE)
    assert not made.enter(Delivery("payload", 10, "in", IDENTITY), 1.0)
    assert made.statistics().refused == 1


def test_the_bytes_of_all_names_are_bounded_together() -> None:
    totals = NodeTotals(DeliveryLimits(max_unsettled_size=25))
    one, other = Deliveries[str](tokens(), totals), Deliveries[str](tokens(), totals)
    (first, (token,)), _ = bound(one, ONE), bound(other, ONE)
    assert totals.size == 20
    assert not one.enter(Delivery("payload", 6, "in", IDENTITY), 1.0)
    assert one.statistics().refused == 1
    one.sent(token, 2.0)
    assert outcomes(one, one.disposition(token, ACCEPTED, ONE, 3.0)) == [ACCEPTED]
    assert first.outcome == ACCEPTED
    assert one.statistics().size == 0
    assert other.statistics().size == totals.size == 10


def test_a_token_in_use_is_not_given_again() -> None:
    values = [b"a" * 8, b"a" * 8, b"b" * 8, b"b" * 8, b"c" * 8][::-1]
    made: Table = Deliveries(values.pop)
    _, (first,) = bound(made, ONE)
    _, (second,) = bound(made, TWO)
    made.target_lost(TWO, 2.0)
    _, (third,) = bound(made, TWO)
    assert (first, second, third) == (b"a" * 8, b"b" * 8, b"c" * 8)


def test_deadlines_of_ended_copies_do_not_gather() -> None:
    made = table()
    for _ in range(500):
        _, (token,) = bound(made, ONE, deadline=100.0)
        made.sent(token, 2.0)
        made.disposition(token, ACCEPTED, ONE, 3.0)
    assert len(made._copies._deadlines) < 100  # pyright: ignore[reportPrivateUsage]
    assert made.due(100.0) == []
    assert made.get_timer() is None


# --- hold -----------------------------------------------------------------------------------


def held(made: Table, *, settled: bool = False) -> Delivery[str]:
    delivery = Delivery("payload", 10, "in", IDENTITY, settled=settled)
    assert settled or made.enter(delivery, 1.0)
    assert made.hold(delivery, 1.0)
    return delivery


def holding(rounds: int = 1) -> Table:
    made = table()
    assert made.set_hold(Retry(rounds=rounds, hold=Hold(messages=2))) == []
    return made


def test_a_delivery_on_hold_is_one_record_from_its_entry_to_its_outcome() -> None:
    made = holding()
    delivery = held(made)
    figures = made.statistics()
    assert (figures.held, figures.held_size, figures.unsettled, figures.size) == (1, 10, 1, 10)
    assert (len(made), figures.held_settled) == (1, 0)
    assert made.joined(ONE) == [delivery]
    assert made.get_timer() == 2.0
    assert made.due(2.0) == [Round(delivery)]
    (token,) = made.bind(delivery, [ONE])
    assert made.statistics().held == 0
    assert made.joined(TWO) == []
    made.sent(token, 3.0)
    assert made.disposition(token, RELEASED, ONE, 3.0)[-1] == Returned(delivery, again=True)
    assert made.hold(delivery, 3.0)
    assert made.joined(ONE) == []
    assert made.due(5.0) == [HoldEnded(delivery)]
    made.end(delivery, RELEASED)
    figures = made.statistics()
    assert (figures.released, figures.unsettled, figures.size, figures.hold_expired) == (1, 0, 0, 1)


def test_there_is_no_hold_unless_it_is_set() -> None:
    made = table()
    delivery = Delivery("payload", 10, "in", IDENTITY)
    assert made.enter(delivery, 1.0)
    assert not made.hold(delivery, 1.0)
    assert made.joined(ONE) == []
    assert made.statistics().held == made.statistics().hold_refused == 0


def test_what_is_settled_on_hold_without_room_ends_along_the_chain_of_its_name() -> None:
    made = table(DeliveryLimits(max_settled_size=15))
    assert made.set_hold(Retry(rounds=1, hold=Hold(messages=2))) == []
    held(made, settled=True)
    gone = held(made)
    assert made.sender_settled(gone) == [HoldEnded(gone, no_room=True)]
    assert gone.settled
    assert (made.statistics().unreturned, made.statistics().unsettled) == (1, 0)


def test_losses_of_what_is_on_hold() -> None:
    made = holding()
    gone = held(made)
    assert made.left() == [gone]
    assert made.source_lost("in") == [Unreturned(gone)]
    assert made.left() == []
    assert (made.statistics().held, made.statistics().unsettled) == (0, 0)
    made.leave(gone)
    stays = held(made)
    made.producer_lost("in")
    assert stays.source is None
    assert made.statistics().held == 1
    assert made.sender_settled(stays) == [Unreturned(stays)]
    assert stays.settled
    assert made.left() == [stays]
    assert (made.statistics().held, made.statistics().unsettled) == (1, 0)
    assert (len(made), made.statistics().held_settled) == (1, 1)
    also = held(made, settled=True)
    full = Delivery("payload", 10, "in", IDENTITY, settled=True)
    assert not made.hold(full, 1.0)
    assert made.statistics().hold_refused == 1
    assert made.set_hold(None) == [stays, also]
    made.end(also, RELEASED)
    assert made.statistics().released == 0  # only an unsettled one has an outcome
    assert made.get_timer() is None


def test_a_link_that_leads_to_other_nodes_may_be_tried_again() -> None:
    made = holding()
    _, (token,) = bound(made, LINK, kept=True)
    made.sent(token, 2.0)
    (_, returned) = made.disposition(token, RELEASED, LINK, 3.0)
    assert isinstance(returned, Returned)
    assert made.hold(returned.delivery, 3.0)
    assert made.joined(LINK) == []
    made.forget_tried(LINK)
    assert made.joined(LINK) == [returned.delivery]


def test_a_copy_of_a_message_that_is_too_late_is_released() -> None:
    made = table()
    _, (token,) = bound(made, ONE)
    events = made.too_late(token, 2.0)
    assert ends(events) == [(ONE, CopyEnd.WITHDRAWN, False)]
    assert outcomes(made, events) == [RELEASED]
    assert made.too_late(token, 2.0) == []


def test_a_consumer_on_standby_keeps_what_it_has() -> None:
    made = table()
    _, (first,) = bound(made, ONE)
    bound(made, ONE)
    made.sent(first, 2.0)
    assert outcomes(made, made.target_lost(ONE, 3.0, sent=False)) == [RELEASED]
    assert outcomes(made, made.disposition(first, ACCEPTED, ONE, 4.0)) == [ACCEPTED]
