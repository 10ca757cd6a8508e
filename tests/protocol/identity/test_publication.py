"""The publisher's end of a topic: subscribers, the ring, and what is sent again."""

from __future__ import annotations

import pytest

from onward.protocol.identity import (
    RING_EVENTS,
    BadRecord,
    EventRecord,
    Identity,
    Publication,
    PublicationLimits,
    ResendEvents,
    ResultCode,
    SubscribeTopic,
    TopicProgress,
    TopicSubscribed,
    TopicUnsubscribed,
    UnsubscribeTopic,
    first_number,
    identity_of_key,
    serialize_event,
)


def identity(number: int) -> Identity:
    return identity_of_key(bytes(31) + bytes((number,)))


TOPIC, ME, A, B, C = (identity(number) for number in range(5))
START = first_number(1000)
OK = ResultCode.OK


def publication(limits: PublicationLimits | None = None) -> Publication:
    return Publication(TOPIC, ME, 1000, serialize_event, limits)


def test_events_go_to_the_subscribers_of_that_moment_in_their_order() -> None:
    topic = publication()
    assert topic.publish(b"0").nodes == ()
    assert topic.receive(B, SubscribeTopic(TOPIC, 1), 0) == [
        TopicSubscribed(TOPIC, 1, OK, START + 1)
    ]
    assert topic.receive(A, SubscribeTopic(TOPIC, 9), 0) == [
        TopicSubscribed(TOPIC, 9, OK, START + 1)
    ]
    copies = topic.publish(b"1")
    assert (copies.number, copies.nodes) == (START + 1, (B, A))
    assert b"1" in copies.record.envelope
    topic.drop(B)
    topic.drop(B)
    assert topic.publish(b"2").nodes == topic.nodes == (A,)
    assert topic.counters.published == 3


def test_to_subscribe_again_is_answered_again() -> None:
    topic = publication()
    first = topic.receive(A, SubscribeTopic(TOPIC, 1), 0)
    assert topic.receive(A, SubscribeTopic(TOPIC, 1), 0) == first
    assert topic.nodes == (A,)


def test_a_node_that_may_not_subscribe_is_told_why_and_removed() -> None:
    topic = publication()
    topic.receive(A, SubscribeTopic(TOPIC, 1), 0)
    refused = topic.receive(A, SubscribeTopic(TOPIC, 2), 0, refusal=ResultCode.SCOPE)
    assert refused == [TopicSubscribed(TOPIC, 2, ResultCode.SCOPE)]
    assert topic.nodes == ()


def test_subscribers_have_a_limit() -> None:
    topic = publication(PublicationLimits(subscribers=1))
    topic.receive(A, SubscribeTopic(TOPIC, 1), 0)
    assert topic.receive(B, SubscribeTopic(TOPIC, 2), 0) == [
        TopicSubscribed(TOPIC, 2, ResultCode.OVERFLOW)
    ]
    assert topic.receive(A, UnsubscribeTopic(TOPIC, 3), 0) == [TopicUnsubscribed(TOPIC, 3, OK)]
    assert topic.receive(A, UnsubscribeTopic(TOPIC, 4), 0) == [
        TopicUnsubscribed(TOPIC, 4, ResultCode.NOT_SUBSCRIBED)
    ]
    assert topic.receive(B, SubscribeTopic(TOPIC, 5), 0) == [TopicSubscribed(TOPIC, 5, OK, START)]


def test_a_topic_that_ends_is_told_to_its_subscribers() -> None:
    topic = publication()
    for node in (B, A):
        topic.receive(node, SubscribeTopic(TOPIC, 1), 0)
    gone = TopicUnsubscribed(TOPIC, 0, ResultCode.UNKNOWN)
    assert topic.end() == [(B, gone), (A, gone)]
    assert topic.end() == []


def test_the_ring_keeps_the_last_events() -> None:
    topic = publication()
    assert topic.progress == TopicProgress(TOPIC, START, START)
    for number in range(RING_EVENTS):
        topic.publish(bytes((number,)))
    assert topic.progress == TopicProgress(TOPIC, START, START + RING_EVENTS)
    topic.publish(b"one more")
    assert topic.progress == TopicProgress(TOPIC, START + 1, START + RING_EVENTS + 1)


def test_the_ring_keeps_bytes_up_to_its_limit_and_the_last_event() -> None:
    topic = publication(PublicationLimits(ring_bytes=500))
    for _ in range(4):
        topic.publish(bytes(150))
    assert topic.progress == TopicProgress(TOPIC, START + 2, START + 4)
    topic.publish(bytes(1000))
    assert topic.progress == TopicProgress(TOPIC, START + 4, START + 5)


def test_an_event_over_its_limit_changes_nothing() -> None:
    topic = publication()
    with pytest.raises(BadRecord):
        topic.publish(bytes(2**20))
    assert topic.progress == TopicProgress(TOPIC, START, START)


def test_events_are_sent_again_as_far_as_they_are_kept() -> None:
    topic = publication(PublicationLimits(ring_events=3))
    topic.receive(A, SubscribeTopic(TOPIC, 1), 0)
    records = [topic.publish(bytes((number,))).record for number in range(5)]
    progress = TopicProgress(TOPIC, START + 2, START + 5)
    for first, count, expected in (
        (2, 3, records[2:]),
        (3, 1, records[3:4]),
        (0, 4, [progress, *records[2:4]]),
        (0, 1, [progress]),
        (4, 9, [progress, records[4]]),
        (5, 1, [progress]),
        (99, 1, [progress]),
    ):
        assert topic.receive(A, ResendEvents(TOPIC, START + first, count), 0) == expected
    assert (topic.counters.resent, topic.counters.passed) == (7, 3)


def test_a_node_without_a_subscription_gets_nothing_again() -> None:
    topic = publication()
    topic.publish(b"0")
    assert topic.receive(A, ResendEvents(TOPIC, START, 1), 0) == []
    assert topic.counters.strangers == 1


def test_what_is_sent_again_has_a_limit_for_each_subscriber_and_time() -> None:
    topic = publication(PublicationLimits(resends=3, resend_time=1.0))
    for node in (A, B):
        topic.receive(node, SubscribeTopic(TOPIC, 1), 0)
    for number in range(4):
        topic.publish(bytes((number,)))
    request = ResendEvents(TOPIC, START, 2)

    def sent(node: Identity, now: float) -> int:
        answer = topic.receive(node, request, now)
        assert all(isinstance(each, EventRecord) for each in answer)
        return len(answer)

    assert [sent(A, 10.0), sent(A, 10.9), sent(A, 10.9), sent(B, 10.9)] == [2, 1, 0, 2]
    assert sent(A, 11.0) == 2
    assert topic.counters.withheld == 3
