"""A subscriber's end of a topic: each event once, in order, or reported as lost."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    RING_EVENTS,
    DeliverEvent,
    Event,
    EventRecord,
    EventsLost,
    Identity,
    Publication,
    PublicationLimits,
    PublisherRestarted,
    ResendEvents,
    ResultCode,
    SendTopicRecord,
    SubscribeTopic,
    Subscription,
    SubscriptionAction,
    SubscriptionEnded,
    SubscriptionLimits,
    SubscriptionState,
    TopicProgress,
    TopicRecord,
    TopicSubscribed,
    TopicUnsubscribed,
    UnsubscribeTopic,
    first_number,
    identity_of_key,
    parse_event,
    serialize_event,
)


def identity(number: int) -> Identity:
    return identity_of_key(bytes(31) + bytes((number,)))


TOPIC, PUBLISHER, ME = (identity(number) for number in range(3))
START = first_number(1000)
OK = ResultCode.OK


def event(offset: int, body: bytes = b"", start: int = START) -> Event:
    return Event(TOPIC, PUBLISHER, start + offset, body)


def deliver(*offsets: int, start: int = START) -> list[SubscriptionAction]:
    return [DeliverEvent(event(each, start=start)) for each in offsets]


def resend(offset: int, count: int, start: int = START) -> SendTopicRecord:
    return SendTopicRecord(ResendEvents(TOPIC, start + offset, count))


def subscribe(request: int) -> list[SubscriptionAction]:
    return [SendTopicRecord(SubscribeTopic(TOPIC, request))]


def state_of(subscription: Subscription) -> SubscriptionState:
    return subscription.state


def following(limits: SubscriptionLimits | None = None) -> Subscription:
    subscription = Subscription(TOPIC, PUBLISHER, limits)
    assert subscription.join(0) == subscribe(1)
    assert subscription.receive(TopicSubscribed(TOPIC, 1, OK, START), 0) == []
    assert subscription.state is SubscriptionState.FOLLOWING
    assert subscription.get_timer() is None
    return subscription


def test_events_in_order_are_delivered_and_nothing_is_asked() -> None:
    subscription = following()
    for offset in range(3):
        assert subscription.receive_event(event(offset), 0) == deliver(offset)
    assert subscription.counters.delivered == 3
    assert subscription.handle_timer(99) == []


def test_an_event_that_came_before_is_dropped() -> None:
    subscription = following()
    subscription.receive_event(event(0), 0)
    assert subscription.receive_event(event(0), 0) == []
    subscription.receive_event(event(2), 0)
    assert subscription.receive_event(event(2), 0) == []
    assert subscription.counters.duplicates == 2


def test_an_event_of_another_topic_or_publisher_is_dropped() -> None:
    subscription = following()
    for topic, publisher in ((ME, PUBLISHER), (TOPIC, ME)):
        assert subscription.receive_event(Event(topic, publisher, START, b""), 0) == []
    assert subscription.counters.foreign == 2


def test_an_event_before_the_answer_or_after_the_end_is_dropped() -> None:
    subscription = Subscription(TOPIC, PUBLISHER)
    assert subscription.receive_event(event(0), 0) == []
    subscription.join(0)
    assert subscription.receive_event(event(0), 0) == []
    subscription.receive(TopicSubscribed(TOPIC, 1, OK, START), 0)
    subscription.leave()
    assert subscription.receive_event(event(0), 0) == []
    assert subscription.counters.unexpected == 3


def test_a_gap_is_asked_for_and_filled_in_order() -> None:
    subscription = following()
    assert subscription.receive_event(event(2), 0) == [resend(0, 2)]
    assert subscription.state is SubscriptionState.MISSING
    assert subscription.receive_event(event(5), 0) == []
    assert subscription.receive_event(event(1), 0) == []
    # The first gap is filled: now the second is asked for.
    assert subscription.receive_event(event(0), 0) == [*deliver(0, 1, 2), resend(3, 2)]
    assert subscription.receive_event(event(3), 0) == deliver(3)
    assert subscription.receive_event(event(4), 0) == deliver(4, 5)
    assert state_of(subscription) is SubscriptionState.FOLLOWING
    assert subscription.get_timer() is None


def test_a_gap_is_asked_for_again_after_times_that_double_and_then_lost() -> None:
    subscription = following(SubscriptionLimits(first_wait=1, max_wait=3, tries=3))
    assert subscription.receive_event(event(2), 10) == [resend(0, 2)]
    assert subscription.get_timer() == 11
    assert subscription.handle_timer(10.9) == []
    assert subscription.handle_timer(11) == [resend(0, 2)]
    assert subscription.get_timer() == 13
    assert subscription.handle_timer(13) == [resend(0, 2)]
    assert subscription.get_timer() == 16
    assert subscription.handle_timer(16) == [EventsLost(START, 2), *deliver(2)]
    assert subscription.get_timer() is None
    assert subscription.counters.lost == 2
    assert subscription.receive_event(event(1), 17) == []
    assert subscription.counters.duplicates == 1


def test_after_a_gap_that_is_lost_the_next_one_is_asked_for() -> None:
    subscription = following(SubscriptionLimits(first_wait=1, tries=1))
    subscription.receive_event(event(1), 0)
    subscription.receive_event(event(3), 0)
    assert subscription.handle_timer(1) == [EventsLost(START, 1), *deliver(1), resend(2, 1)]


def test_what_is_beyond_the_ring_of_the_publisher_is_lost() -> None:
    subscription = following()
    assert subscription.receive_event(event(9), 0) == [resend(0, 9)]
    progress = TopicProgress(TOPIC, START + 4, START + 10)
    assert subscription.receive(progress, 0) == [EventsLost(START, 4)]
    assert subscription.receive_event(event(4), 0) == deliver(4)
    assert subscription.counters.lost == 4


def test_the_loss_of_the_last_event_is_seen_by_the_progress() -> None:
    subscription = following()
    assert subscription.receive(TopicProgress(TOPIC, START, START), 0) == []
    assert subscription.receive(TopicProgress(TOPIC, START, START + 2), 0) == [resend(0, 2)]
    assert subscription.receive_event(event(0), 0) == deliver(0)
    assert subscription.receive_event(event(1), 0) == deliver(1)


def test_what_is_further_ahead_than_a_ring_moves_the_window() -> None:
    subscription = following()
    assert subscription.receive_event(event(3), 0) == [resend(0, 3)]
    assert subscription.receive_event(event(RING_EVENTS + 5), 0) == [
        EventsLost(START, 3),
        *deliver(3),
        EventsLost(START + 4, 2),
        resend(6, RING_EVENTS - 1),
    ]
    assert subscription.receive_event(event(RING_EVENTS + 5), 0) == []


def test_held_bytes_have_a_limit_and_what_is_dropped_is_asked_for() -> None:
    subscription = following(SubscriptionLimits(held_bytes=5))
    assert subscription.receive_event(event(1, b"12345"), 0) == [resend(0, 1)]
    assert subscription.receive_event(event(2, b"1"), 0) == []
    assert subscription.counters.overflowed == 1
    # The next one to deliver is never held.
    assert subscription.receive_event(event(0, bytes(99)), 0) == [
        DeliverEvent(event(0, bytes(99))),
        DeliverEvent(event(1, b"12345")),
        resend(2, 1),
    ]


def test_a_request_is_sent_again_until_it_times_out() -> None:
    subscription = Subscription(TOPIC, PUBLISHER, SubscriptionLimits(first_wait=1, tries=2))
    assert subscription.join(0) == subscribe(1)
    assert subscription.join(0) == []
    assert subscription.handle_timer(1) == subscribe(2)
    # The answer to the first one comes late.
    assert subscription.receive(TopicSubscribed(TOPIC, 1, OK, START), 1) == []
    assert subscription.state is SubscriptionState.ASKING
    assert subscription.handle_timer(3) == [SubscriptionEnded(ResultCode.TIMEOUT)]
    assert subscription.get_timer() is None
    assert subscription.join(4) == []


def test_a_refusal_ends_it() -> None:
    subscription = Subscription(TOPIC, PUBLISHER)
    subscription.join(0)
    refused = TopicSubscribed(TOPIC, 1, ResultCode.SCOPE)
    assert subscription.receive(refused, 0) == [SubscriptionEnded(ResultCode.SCOPE)]
    assert subscription.receive(refused, 0) == []
    assert subscription.leave() == []


NONE = ResultCode.UNKNOWN
"""The result of a publisher that has no such topic."""


def test_a_publisher_that_has_no_such_topic_yet_is_asked_again_for_a_while() -> None:
    subscription = Subscription(TOPIC, PUBLISHER)
    subscription.join(0)
    asked: list[float] = []
    now, request, actions = 0.0, 1, subscribe(1)
    while not subscription.receive(TopicSubscribed(TOPIC, request, NONE), now):
        assert subscription.is_absent
        assert state_of(subscription) is SubscriptionState.ASKING
        # The same answer again is none.
        assert subscription.receive(TopicSubscribed(TOPIC, request, NONE), now) == []
        now = subscription.get_timer() or 0.0
        request += 2
        actions = subscription.handle_timer(now)
        if actions != subscribe(request):
            break
        asked.append(now)
    # The time doubles, up to 30 seconds.
    assert asked == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5]
    assert (now, actions) == (60, [SubscriptionEnded(NONE)])
    assert subscription.get_timer() is None
    assert state_of(subscription) is SubscriptionState.ENDED
    assert subscription.is_absent
    assert subscription.counters.absences == 7


def test_a_publisher_that_has_its_topic_again_is_followed_where_it_was() -> None:
    subscription = following()
    subscription.receive_event(event(0), 0)
    subscription.cut()
    subscription.join(10)
    assert subscription.receive(TopicSubscribed(TOPIC, 2, NONE), 10) == []
    assert subscription.handle_timer(10.5) == subscribe(4)
    anew = first_number(2000)
    answer = TopicSubscribed(TOPIC, 4, OK, anew + 1)
    assert subscription.receive(answer, 11) == [PublisherRestarted(2000), resend(0, 1, anew)]
    assert not subscription.is_absent
    # For the next time there is as much time again.
    subscription.cut()
    subscription.join(100)
    assert subscription.receive(TopicSubscribed(TOPIC, 5, NONE), 100) == []
    assert subscription.get_timer() == 100.5


def test_a_publisher_without_its_topic_that_answers_no_more_ends_it_as_unknown() -> None:
    limits = SubscriptionLimits(first_wait=1, tries=2, absence=10)
    subscription = Subscription(TOPIC, PUBLISHER, limits)
    subscription.join(0)
    subscription.receive(TopicSubscribed(TOPIC, 1, NONE), 0)
    assert subscription.handle_timer(1) == subscribe(3)
    assert subscription.handle_timer(2) == subscribe(4)
    assert subscription.handle_timer(4) == [SubscriptionEnded(NONE)]
    # It is not waited for longer than for one that answers.
    subscription = Subscription(TOPIC, PUBLISHER, SubscriptionLimits(first_wait=8, absence=10))
    subscription.join(0)
    subscription.receive(TopicSubscribed(TOPIC, 1, NONE), 0)
    assert subscription.handle_timer(8) == subscribe(3)
    assert subscription.get_timer() == 10
    assert subscription.handle_timer(10) == [SubscriptionEnded(NONE)]


def test_the_end_of_the_topic_ends_it() -> None:
    subscription = following()
    assert subscription.receive(TopicUnsubscribed(TOPIC, 7, OK), 0) == []
    gone = TopicUnsubscribed(TOPIC, 0, ResultCode.UNKNOWN)
    assert subscription.receive(gone, 0) == [SubscriptionEnded(ResultCode.UNKNOWN)]
    assert subscription.receive(gone, 0) == []
    assert subscription.receive(TopicProgress(TOPIC, START, START + 2), 0) == []


def test_to_leave_tells_the_publisher_if_there_is_a_link() -> None:
    subscription = following()
    assert subscription.leave() == [SendTopicRecord(UnsubscribeTopic(TOPIC, 2))]
    assert subscription.state is SubscriptionState.ENDED
    without = Subscription(TOPIC, PUBLISHER)
    assert without.leave() == []
    assert without.cut() == []


def test_after_a_cut_it_goes_on_where_it_was() -> None:
    subscription = following()
    subscription.receive_event(event(0), 0)
    subscription.receive_event(event(2), 0)
    assert subscription.cut() == []
    assert (subscription.state, subscription.get_timer()) == (SubscriptionState.IDLE, None)
    assert subscription.receive_event(event(1), 0) == []
    assert subscription.join(5) == subscribe(2)
    # Events that overtake the answer count.
    assert subscription.receive_event(event(3), 5) == []
    assert subscription.receive(TopicProgress(TOPIC, START, START + 4), 5) == []
    answer = TopicSubscribed(TOPIC, 2, OK, START + 6)
    assert subscription.receive(answer, 5) == [resend(1, 1)]
    assert subscription.receive_event(event(1), 5) == [*deliver(1, 2, 3), resend(4, 2)]


@pytest.mark.parametrize("by_event", [True, False])
def test_a_publisher_that_started_anew_is_seen(by_event: bool) -> None:
    subscription = following()
    subscription.receive_event(event(1), 0)
    anew = first_number(2000)
    if by_event:
        actions = subscription.receive_event(event(1, start=anew), 0)
    else:
        actions = subscription.receive(TopicProgress(TOPIC, anew, anew + 2), 0)
    assert actions == [
        EventsLost(START, 1),
        *deliver(1),
        PublisherRestarted(2000),
        resend(0, 1 if by_event else 2, anew),
    ]
    assert subscription.counters.restarts == 1
    # What comes late of the one before is not taken.
    assert subscription.receive_event(event(2), 0) == []
    assert subscription.receive_event(event(0, start=anew), 0)[0] == deliver(0, start=anew)[0]


def test_a_new_start_without_events_is_seen_at_the_answer() -> None:
    subscription = following()
    subscription.cut()
    subscription.join(0)
    anew = first_number(1001)
    answer = TopicSubscribed(TOPIC, 2, OK, anew)
    assert subscription.receive(answer, 0) == [PublisherRestarted(1001)]
    assert subscription.receive_event(event(0, start=anew), 0) == deliver(0, start=anew)


def test_a_publisher_with_a_clock_that_went_back_is_believed_at_the_answer_only() -> None:
    subscription = following()
    back = first_number(500)
    assert subscription.receive(TopicProgress(TOPIC, back, back + 1), 0) == []
    assert subscription.receive_event(event(0, start=back), 0) == []
    subscription.cut()
    subscription.join(0)
    assert subscription.receive(TopicSubscribed(TOPIC, 2, OK, back + 1), 0) == [
        PublisherRestarted(500),
        resend(0, 1, back),
    ]


class Line:
    """A publisher and a subscriber with a line between them that loses, repeats and reorders."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.instance = 1000
        self.published: list[int] = []
        self.limits = PublicationLimits(ring_events=4)
        self.publication: Publication = self.start()
        self.subscription = Subscription(
            TOPIC, PUBLISHER, SubscriptionLimits(first_wait=1, max_wait=1, tries=100)
        )
        self.delivered: list[int] = []
        self.lost: set[int] = set()
        self.up: list[TopicRecord] = []
        self.down: list[TopicRecord] = []

    def start(self) -> Publication:
        return Publication(TOPIC, PUBLISHER, self.instance, serialize_event, self.limits)

    def act(self, actions: Iterable[SubscriptionAction]) -> None:
        for action in actions:
            match action:
                case SendTopicRecord(record):
                    self.up.append(record)
                case DeliverEvent(found):
                    self.delivered.append(found.number)
                case EventsLost(first, lost):
                    self.lost.update(range(first, first + lost))
                case PublisherRestarted() | SubscriptionEnded():
                    pass

    def publish(self) -> None:
        copies = self.publication.publish(b"")
        self.published.append(copies.number)
        self.down += [copies.record] * len(copies.nodes)

    def carry(self, at: int) -> None:
        if self.up:
            record = self.up.pop(at % len(self.up))
            assert isinstance(record, SubscribeTopic | UnsubscribeTopic | ResendEvents)
            self.down += self.publication.receive(ME, record, self.clock)
        if self.down:
            self.take(self.down.pop(at % len(self.down)))

    def take(self, record: TopicRecord) -> None:
        if isinstance(record, EventRecord):
            found = parse_event(record.envelope)
            self.act(self.subscription.receive_event(found, self.clock))
        else:
            assert isinstance(record, TopicSubscribed | TopicUnsubscribed | TopicProgress)
            self.act(self.subscription.receive(record, self.clock))

    def cut(self, *, restart: bool) -> None:
        self.up, self.down = [], []
        self.publication.drop(ME)
        self.act(self.subscription.cut())
        if restart:
            self.instance += 1
            self.publication = self.start()
        self.act(self.subscription.join(self.clock))

    def step(self, what: str, at: int) -> None:
        match what:
            case "publish":
                self.publish()
            case "carry":
                self.carry(at)
            case "lose" if self.down:
                self.down.pop(at % len(self.down))
            case "repeat" if self.down:
                self.down.append(self.down[at % len(self.down)])
            case "wait":
                self.clock += 1
                self.act(self.subscription.handle_timer(self.clock))
            case "cut" | "restart":
                self.cut(restart=what == "restart")
            case _:
                pass


LINE_STEPS = st.tuples(
    st.sampled_from(
        ["publish"] * 4 + ["carry"] * 5 + ["lose", "repeat", "wait", "cut", "restart", "publish"]
    ),
    st.integers(0, 20),
)


@given(st.lists(LINE_STEPS, max_size=80))
def test_each_event_is_delivered_once_in_order_or_reported_as_lost(
    steps: list[tuple[str, int]],
) -> None:
    line = Line()
    line.act(line.subscription.join(0))
    for _ in range(2):
        line.carry(0)
    for what, at in steps:
        line.step(what, at)
    # The trouble is over: in the end nothing is missing that the publisher knows of.
    line.cut(restart=False)
    for _ in range(200):
        line.carry(0)
        line.step("wait", 0)
    assert line.delivered == sorted(set(line.delivered))
    assert line.subscription.state is SubscriptionState.FOLLOWING
    assert set(line.delivered) <= set(line.published)
    assert not set(line.delivered) & line.lost
    of_this_start = [each for each in line.published if each >= first_number(line.instance)]
    if line.instance > 1000:
        # What the subscriber knew of is in one of both sets, from the first event on.
        assert set(of_this_start) <= set(line.delivered) | line.lost
