"""Unsettled deliveries: the matrix of losses, and random producers, consumers, links and losses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MODIFIED,
    RECEIVED,
    RELEASED,
    Chooser,
    ConsumerQueue,
    ConsumerTarget,
    CopyEnd,
    CopyEnded,
    Decided,
    Deliveries,
    Delivery,
    DeliveryEvent,
    DeliveryLimits,
    DeliveryState,
    Disposition,
    LinkTarget,
    Modified,
    Outcome,
    Reforward,
    Rejected,
    Released,
    RemoteNode,
    Tally,
    Target,
    decode_disposition,
    encode_disposition,
)
from tests.support.counts import times

IDENTITY = ("a", b"instance", b"12345678")
ONE, TWO = ConsumerTarget(1), ConsumerTarget(2)
LINK = LinkTarget("x")
REJECTED = Rejected("amqp:not-allowed", "no")
Table = Deliveries[int, str]
Event = DeliveryEvent[int, str]


def tokens() -> Callable[[], bytes]:
    random = Random(1)
    return lambda: random.randbytes(8)


def table(limits: DeliveryLimits | None = None) -> Table:
    return Deliveries(tokens(), limits)


def bound(
    made: Table,
    *targets: Target,
    kept: str | None = None,
    accepts: int | None = None,
    early: bool = True,
    token: bytes | None = None,
    deadline: float | None = None,
) -> tuple[Delivery[int, str], list[bytes]]:
    if accepts is None and len(targets) > 1:
        accepts = 1
    delivery = made.bind(
        "in",
        7,
        IDENTITY,
        targets,
        1.0,
        token=token,
        kept=kept,
        accepts=accepts,
        early=early,
        deadline=deadline,
    )
    assert delivery is not None
    return delivery, list(delivery.copies)


def outcomes(events: Sequence[Event]) -> list[Outcome]:
    return [each.outcome for each in events if isinstance(each, Decided)]


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
    assert made.way_of(token) == delivery.way
    events = made.disposition(token, state, target, 4.0)
    seconds = None if state == RELEASED else 2.0
    assert events == [
        CopyEnded(token, target, CopyEnd.TOLD, True, seconds),
        Decided(delivery, state),
    ]
    assert delivery.outcome == state
    assert delivery.tally is None
    assert made.way_of(token) is None
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
    assert outcomes(events) == [outcome]
    assert ends(events) == [(target, CopyEnd.LOST, sent)]
    assert made.target_lost(target, 3.0) == []


def test_ten_are_sent_six_are_taken_and_the_consumer_leaves() -> None:
    made = table()
    for number in range(10):
        _, (token,) = bound(made, ONE)
        if number < 6:
            made.sent(token, 2.0)
    assert Counter(outcomes(made.target_lost(ONE, 3.0))) == {MODIFIED: 6, RELEASED: 4}
    taken = table()
    for number in range(10):
        _, (token,) = bound(taken, ONE)
        if number < 6:
            taken.sent(token, 2.0)
            assert outcomes(taken.disposition(token, ACCEPTED, ONE, 2.5)) == [ACCEPTED]
    assert outcomes(taken.target_lost(ONE, 3.0)) == [RELEASED] * 4


@pytest.mark.parametrize(
    ("sent", "end"), [(True, CopyEnd.ABANDONED), (False, CopyEnd.WITHDRAWN)], ids=["sent", "unsent"]
)
def test_the_targets_are_told_when_the_link_before_is_lost(sent: bool, end: CopyEnd) -> None:
    made = table()
    _, (token,) = bound(made, ONE)
    if sent:
        made.sent(token, 2.0)
    events = made.source_lost("in")
    assert outcomes(events) == []
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
    assert outcomes(events) == []
    assert made.sender_settled(delivery) == []
    assert made.statistics().unsettled == 0


def test_a_delivery_that_has_its_outcome_is_not_counted_as_unreturned() -> None:
    made = table()
    _, (first, _) = bound(made, ONE, TWO)
    made.sent(first, 2.0)
    assert outcomes(made.disposition(first, REJECTED, ONE, 3.0)) == [REJECTED]
    assert ends(made.source_lost("in")) == [(TWO, CopyEnd.WITHDRAWN, False)]
    assert made.statistics().unreturned == 0


# --- several copies -------------------------------------------------------------------------


def test_a_delivery_with_copies_is_told_once_and_late_copies_are_information() -> None:
    made = table()
    delivery, (first, second, third) = bound(made, ONE, TWO, LINK)
    for token in (first, second, third):
        made.sent(token, 2.0)
    assert outcomes(made.disposition(first, ACCEPTED, ONE, 3.0)) == []
    assert outcomes(made.disposition(second, REJECTED, TWO, 3.0)) == [REJECTED]
    assert made.statistics().unsettled == 1
    assert outcomes(made.disposition(third, ACCEPTED, LINK, 3.0, Tally(accepted=4))) == []
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
    assert outcomes(events) == [ACCEPTED]
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
    assert outcomes(made.target_lost(TWO, 4.0)) == [outcome]


def test_acceptances_that_one_copy_cannot_give_make_doubt() -> None:
    made = table()
    _, (token,) = bound(made, ONE, accepts=2)
    made.sent(token, 2.0)
    assert outcomes(made.disposition(token, ACCEPTED, ONE, 3.0)) == [MODIFIED]


@pytest.mark.parametrize(("accepts", "outcome"), [(1, ACCEPTED), (3, MODIFIED), (ALL, MODIFIED)])
def test_the_copies_behind_the_only_link_are_counted(accepts: int, outcome: Outcome) -> None:
    made = table()
    delivery, (token,) = bound(made, LINK, accepts=accepts)
    made.sent(token, 2.0)
    tally = Tally(accepted=2, released=1)
    assert outcomes(made.disposition(token, ACCEPTED, LINK, 3.0, tally)) == [outcome]
    assert delivery.tally == tally


def test_a_node_between_waits_for_all_copies_and_has_the_outcome_in_its_tally() -> None:
    made = table()
    delivery, (first, second) = bound(made, ONE, LINK, accepts=1, early=False)
    made.sent(first, 2.0)
    made.sent(second, 2.0)
    assert outcomes(made.disposition(first, REJECTED, ONE, 3.0)) == []
    assert outcomes(made.disposition(second, ACCEPTED, LINK, 3.0, Tally(2))) == [REJECTED]
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
    assert outcomes(events) == []
    made.sent(kept, 2.0)
    assert outcomes(made.disposition(kept, ACCEPTED, TWO, 3.0)) == [ACCEPTED]
    assert made.source_ended("in", b"different", settled=False) == []


def test_a_node_that_uses_a_token_twice_is_refused() -> None:
    made = table()
    bound(made, ONE, token=b"upstream")
    assert made.bind("in", 7, IDENTITY, [ONE], 1.0, token=b"upstream") is None
    assert made.statistics().refused == 1
    made.source_ended("in", b"upstream", settled=False)
    bound(made, ONE, token=b"upstream")


# --- another target -------------------------------------------------------------------------


def test_a_released_delivery_goes_to_another_target_once() -> None:
    made = table()
    delivery, (token,) = bound(made, ONE, kept="payload")
    made.sent(token, 2.0)
    events = made.disposition(token, RELEASED, ONE, 3.0)
    assert events[-1] == Reforward(delivery)
    assert delivery.tried == {ONE}
    assert delivery.kept == "payload"
    again = made.rebind(delivery, TWO)
    made.sent(again, 4.0)
    assert outcomes(made.disposition(again, ACCEPTED, TWO, 5.0)) == [ACCEPTED]
    assert made.statistics().reforwarded == 1
    other, (token,) = bound(made, ONE, kept="payload")
    assert made.target_lost(ONE, 3.0)[-1] == Reforward(other)
    assert outcomes(made.give_up(other)) == [RELEASED]
    assert made.statistics().unsettled == 0


def test_what_is_in_doubt_or_received_is_not_sent_again() -> None:
    made = table()
    _, (token,) = bound(made, ONE, kept="payload")
    made.sent(token, 2.0)
    assert outcomes(made.target_lost(ONE, 3.0)) == [MODIFIED]
    _, (token,) = bound(made, ONE, kept="payload")
    made.sent(token, 2.0)
    assert made.disposition(token, RECEIVED, ONE, 3.0) == []
    assert outcomes(made.disposition(token, RELEASED, ONE, 3.0)) == [RELEASED]


def test_tries_are_bounded_in_number_and_time() -> None:
    made = table(DeliveryLimits(max_tries=2, try_time=10.0))
    delivery, (token,) = bound(made, ONE, kept="payload")
    assert made.target_lost(ONE, 2.0)[-1] == Reforward(delivery)
    token = made.rebind(delivery, TWO)
    made.sent(token, 3.0)
    assert outcomes(made.disposition(token, RELEASED, TWO, 3.0)) == [RELEASED]
    bound(made, ONE, kept="payload")
    assert outcomes(made.target_lost(ONE, 11.0)) == [RELEASED]
    bound(made, ONE, kept="payload", deadline=5.0)
    assert outcomes(made.due(5.0)) == [RELEASED]


# --- bad input ------------------------------------------------------------------------------


def test_bad_dispositions_are_counted_and_change_nothing() -> None:
    made = table(DeliveryLimits(finished_tokens=1))
    _, (token,) = bound(made, ONE)
    assert made.disposition(token, ACCEPTED, ONE, 1.5) == []  # it was not sent
    made.sent(token, 2.0)
    for target in (TWO, LINK):
        assert made.disposition(token, ACCEPTED, target, 3.0) == []
    assert made.disposition(b"nonsense", ACCEPTED, ONE, 3.0) == []
    assert outcomes(made.disposition(token, ACCEPTED, ONE, 3.0)) == [ACCEPTED]
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
    assert made.bind("in", 7, IDENTITY, [ONE], 1.0) is None
    assert made.statistics().refused == 1


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
    assert len(made._deadlines) < 100  # pyright: ignore[reportPrivateUsage]
    assert made.due(100.0) == []
    assert made.get_timer() is None


# --- random trouble -------------------------------------------------------------------------


class World:
    """A node with producers, consumers and links, and a model of what was handed over.

    Args:
        random: Decides what happens.
        deliveries: The table under test.
        queue: Makes the queue of a consumer.
    """

    def __init__(
        self,
        random: Random,
        deliveries: Table,
        queue: Callable[[], ConsumerQueue[int]],
    ) -> None:
        self.random = random
        self.deliveries = deliveries
        self.make_queue = queue
        self.chooser = Chooser()
        self.chooser.set_remotes([RemoteNode("x", "x", b"x", 3, frozenset("a"))])
        self.queues: dict[int, ConsumerQueue[int]] = {}
        self.open: dict[bytes, tuple[Target, int]] = {}
        self.unsettled: dict[int, Delivery[int, str]] = {}
        self.outcomes: dict[int, list[Outcome]] = {}
        self.doubt = Counter[int]()
        self.asked: dict[int, list[Target]] = {}
        self.finished: list[bytes] = []
        self.now = 0.0
        self.number = 0

    def run(self, steps: int) -> None:
        """Take random steps, then let all come to its end."""
        actions = [self.send] * 6 + [self.credit, self.answer, self.answer, self.join]
        actions += [self.leave, self.lose_source, self.settle_first, self.forge, self.tick]
        self.join()
        for _ in range(steps):
            self.random.choice(actions)()
            self.check()
        while self.open:
            self.lose(next(iter(self.open.values()))[0])
        self.check()
        assert self.deliveries.statistics().unsettled == 0
        assert self.deliveries.statistics().copies == 0
        for number, told in self.outcomes.items():
            assert len(told) == 1 or number not in self.unsettled, (number, told)

    def check(self) -> None:
        """Hold what is true at any time."""
        figures = self.deliveries.statistics()
        assert figures.unsettled <= 8
        assert figures.copies == len(self.open)
        for queue in self.queues.values():
            waiting = [each for each in queue._waiting.values() if each.token is None]  # pyright: ignore[reportPrivateUsage]
            assert len(waiting) <= 8 + 2  # two may wait, and those that were settled first

    def send(self) -> None:
        """Send a message, pre-settled or not, to one target or to several."""
        self.number += 1
        number = self.number
        several, settled = self.random.random() < 0.3, self.random.random() < 0.3
        one = self.chooser.balanced("a")
        targets = self.chooser.multicast("a") if several else ((one,) if one else ())
        if not targets:
            return
        if settled:
            for target in targets:
                self.hand(target, number, None)
            return
        delivery = self.deliveries.bind(
            self.random.choice(["in", "on"]),
            number,
            ("a", b"instance", number.to_bytes(8)),
            targets,
            self.now,
            kept=None if several else "kept",
            accepts=self.random.choice([1, 2, ALL]) if several else None,
            early=self.random.random() < 0.5,
            deadline=self.now + 10.0 if self.random.random() < 0.5 else None,
        )
        if delivery is None:
            return
        self.unsettled[number] = delivery
        self.outcomes[number] = []
        for token, target in list(delivery.copies.items()):
            self.hand(target, number, token)

    def hand(self, target: Target, number: int, token: bytes | None) -> None:
        """Give a message to a target: a link takes it at once."""
        self.chooser.bound(target)
        if token is not None:
            assert target not in self.asked.setdefault(number, [])
            self.asked[number].append(target)
            self.open[token] = target, number
        if isinstance(target, ConsumerTarget):
            self.queues[target.consumer].put(number, token)
            self.flush(target.consumer)
        elif token is not None:
            self.hand_over(token, number)

    def hand_over(self, token: bytes, number: int) -> None:
        """Hand a message over."""
        self.deliveries.sent(token, self.now)
        self.doubt[number] += 1

    def flush(self, consumer: int) -> None:
        """Hand over what the credit of a consumer allows."""
        for each in self.queues[consumer].take(self.now):
            if each.token is None:
                self.chooser.settled(ConsumerTarget(consumer))
            else:
                self.hand_over(each.token, each.message)

    def credit(self) -> None:
        """Give credit to a consumer."""
        for consumer, queue in self.queues.items():
            queue.credit += self.random.randrange(3)
            self.flush(consumer)

    def answer(self) -> None:
        """Have a target tell a state of a copy that it was handed."""
        sent = [token for token, (target, _) in self.open.items() if self.is_sent(token, target)]
        if not sent:
            return
        token = self.random.choice(sent)
        target, number = self.open[token]
        states: list[DeliveryState] = [ACCEPTED, REJECTED, RELEASED, MODIFIED, RECEIVED]
        state = self.random.choice(states)
        if state == RELEASED:
            self.doubt[number] -= 1
        self.handle(self.deliveries.disposition(token, state, target, self.now))

    def is_sent(self, token: bytes, target: Target) -> bool:
        """Whether a copy does not wait in the queue of a consumer."""
        if isinstance(target, LinkTarget):
            return True
        return token not in self.queues[target.consumer]._of_token  # pyright: ignore[reportPrivateUsage]

    def join(self) -> None:
        """Add a consumer."""
        consumer = self.random.randrange(3)
        if consumer not in self.queues:
            self.queues[consumer] = self.make_queue()
            self.chooser.add_consumer(consumer, 4)

    def leave(self) -> None:
        """Lose a consumer or a link."""
        if self.random.random() < 0.3:
            self.lose(LINK)
        elif self.queues:
            self.lose(ConsumerTarget(self.random.choice(list(self.queues))))

    def lose(self, target: Target) -> None:
        """Lose a target."""
        if isinstance(target, ConsumerTarget):
            self.chooser.remove_consumer(target.consumer)
        lost = self.deliveries.target_lost(target, self.now)
        self.handle(lost)
        if isinstance(target, ConsumerTarget):
            del self.queues[target.consumer]

    def lose_source(self) -> None:
        """Lose the link that deliveries came by, or the producer."""
        source = self.random.choice(["in", "on"])
        gone = [n for n, each in self.unsettled.items() if each.source == source]
        for number in gone:
            del self.unsettled[number]
        if self.random.random() < 0.5:
            self.handle(self.deliveries.source_lost(source))
        else:
            self.deliveries.producer_lost(source)

    def settle_first(self) -> None:
        """Have a producer settle."""
        if self.unsettled:
            number = self.random.choice(list(self.unsettled))
            delivery = self.unsettled[number]
            if delivery.outcome is None:
                del self.unsettled[number]
            self.handle(self.deliveries.sender_settled(delivery))

    def forge(self) -> None:
        """Send dispositions that are forged, repeated or unknown: nothing comes of them."""
        known: list[tuple[bytes, Target]] = [(token, ConsumerTarget(99)) for token in self.open]
        known += [(token, LINK) for token in self.finished[-3:]]
        for token, target in known:
            assert self.deliveries.disposition(token, ACCEPTED, target, self.now) == []

    def tick(self) -> None:
        """Let time pass."""
        self.now += self.random.choice([0.1, 5.0])
        self.handle(self.deliveries.due(self.now))
        timer = self.deliveries.get_timer()
        assert timer is None or timer > self.now

    def handle(self, events: Sequence[Event]) -> None:
        """Handle events as a node does."""
        for event in events:
            if isinstance(event, CopyEnded):
                self.ended(event)
            elif isinstance(event, Reforward):
                self.reforward(event.delivery)
            else:
                number = event.delivery.way
                self.outcomes[number].append(event.outcome)
                assert len(self.outcomes[number]) == 1, "told twice"
                if isinstance(event.outcome, Released):
                    assert self.doubt[number] <= 0, "released, and handed over"

    def ended(self, event: CopyEnded) -> None:
        """Handle the end of a copy."""
        target, _ = self.open.pop(event.token)
        assert target == event.target
        self.finished.append(event.token)
        self.chooser.settled(target, event.seconds)
        if isinstance(target, ConsumerTarget):
            queue = self.queues[target.consumer]
            if event.end is CopyEnd.SETTLED:
                queue.settle(event.token)
            else:
                queue.withdraw(event.token)

    def reforward(self, delivery: Delivery[int, str]) -> None:
        """Send a released delivery to another target."""
        target = self.chooser.balanced("a", (), delivery.tried)
        if target is None:
            self.handle(self.deliveries.give_up(delivery))
        else:
            self.hand(target, delivery.way, self.deliveries.rebind(delivery, target))


LIMITS = DeliveryLimits(max_unsettled=8, max_tries=3, try_time=20.0)


def walk(
    random: Random,
    variant: type[Deliveries[int, str]] = Deliveries,
    queue: Callable[[], ConsumerQueue[int]] = lambda: ConsumerQueue(2),
) -> None:
    World(random, variant(tokens(), LIMITS), queue).run(80)


@given(random=st.randoms(use_true_random=False))
def test_each_unsettled_delivery_has_one_outcome_whatever_happens(random: Random) -> None:
    walk(random)
    walk(random, queue=lambda: ConsumerQueue(2, newest=True))


def walk_many(seeds: int, variant: type[Table] = Deliveries) -> None:
    for seed in range(seeds):
        walk(Random(seed), variant)


def test_many_random_runs() -> None:
    walk_many(times(100, 3000))


class SaysReleasedOfLost(Table):
    def target_lost(self, target: Target, now: float) -> list[Event]:
        for copy in self._of_target.get(target, {}).values():
            copy.sent = None
        return super().target_lost(target, now)


class TellsTwice(Table):
    def _decide(self, delivery: Delivery[int, str], outcome: Outcome, events: list[Event]) -> None:
        events.append(Decided(delivery, outcome))
        super()._decide(delivery, outcome, events)


class TriesAgainInDoubt(Table):
    def disposition(
        self,
        token: bytes,
        state: DeliveryState,
        target: Target,
        now: float,
        tally: Tally | None = None,
    ) -> list[Event]:
        state = RELEASED if isinstance(state, Modified) else state
        return super().disposition(token, state, target, now, tally)


class ForgetsTheTried(Table):
    def _may_try_again(self, delivery: Delivery[int, str], now: float) -> bool:
        delivery.tried.clear()
        return super()._may_try_again(delivery, now)


class BelievesAnyTarget(Table):
    def disposition(
        self,
        token: bytes,
        state: DeliveryState,
        target: Target,
        now: float,
        tally: Tally | None = None,
    ) -> list[Event]:
        copy = self._copies.get(token)
        target = target if copy is None else copy.target
        return super().disposition(token, state, target, now, tally)


class ForgetsNothing(Table):
    def _forget(self, delivery: Delivery[int, str]) -> None:
        pass


class HasNoBound(Table):
    def __init__(self, make_token: Callable[[], bytes], limits: DeliveryLimits) -> None:
        super().__init__(make_token, DeliveryLimits())


class KeepsQuietWhenTimeIsOver(Table):
    def due(self, now: float) -> list[Event]:
        return []


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "variant",
    [
        SaysReleasedOfLost,
        TellsTwice,
        TriesAgainInDoubt,
        ForgetsTheTried,
        BelievesAnyTarget,
        ForgetsNothing,
        HasNoBound,
        KeepsQuietWhenTimeIsOver,
    ],
)
def test_a_broken_variant_is_caught(variant: type[Table]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        walk_many(200, variant)
