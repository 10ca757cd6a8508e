"""The topics of a node, against a naive model and by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    SCOPE_ANY,
    SCOPE_LOCAL,
    CreatorEnd,
    FanOutCopies,
    Identity,
    ResultCode,
    RoutingScope,
    ScopeKind,
    TopicDeleted,
    TopicHandedOver,
    TopicIdle,
    TopicLimits,
    TopicTable,
    identity_of_key,
)

OK = ResultCode.OK


def identity(number: int) -> Identity:
    return identity_of_key(bytes(31) + bytes((number,)))


TOPIC, OTHER, DOMAIN = identity(1), identity(2), identity(3)
A, B, C = identity(11), identity(12), identity(13)
IN_DOMAIN = RoutingScope(ScopeKind.DOMAIN, DOMAIN)


def table_with(*subscribers: Identity, creator: Identity = A) -> TopicTable:
    table = TopicTable()
    assert table.create(TOPIC, creator) is OK
    for each in subscribers:
        assert table.subscribe(TOPIC, each) is OK
    return table


def test_threat_12_a_topic_is_created_once_and_deleted_once_by_its_creator() -> None:
    table = TopicTable()
    assert table.create(TOPIC, A) is OK
    assert table.create(TOPIC, B) is ResultCode.EXISTS
    assert table.create(TOPIC, A) is ResultCode.EXISTS
    assert table.subscribe(TOPIC, B) is OK
    assert table.delete(TOPIC, B) is ResultCode.NOT_OWNER
    assert len(table) == 1
    assert table.delete(TOPIC, A) is OK
    assert table.delete(TOPIC, A) is ResultCode.UNKNOWN
    assert table.topic(TOPIC) is None
    assert table.end_engine(B) == []


def test_threats_12_and_16_a_sender_of_the_network_changes_nothing() -> None:
    table = table_with(B)
    before = table.topic(TOPIC)
    denied = ResultCode.DENIED
    assert table.create(OTHER, None) is denied
    assert table.delete(TOPIC, None) is denied
    assert table.subscribe(TOPIC, None) is denied
    assert table.unsubscribe(TOPIC, None) == (denied, [])
    assert table.topic(TOPIC) == before
    assert len(table) == 1


def test_subscriptions_are_made_and_ended_once() -> None:
    table = table_with(B)
    assert table.subscribe(TOPIC, B) is ResultCode.ALREADY_SUBSCRIBED
    assert table.subscribe(OTHER, B) is ResultCode.UNKNOWN
    assert table.unsubscribe(OTHER, B) == (ResultCode.UNKNOWN, [])
    assert table.unsubscribe(TOPIC, C) == (ResultCode.NOT_SUBSCRIBED, [])
    assert table.unsubscribe(TOPIC, B) == (OK, [])
    assert table.unsubscribe(TOPIC, B) == (ResultCode.NOT_SUBSCRIBED, [])


def test_threat_13_a_topic_that_leaves_the_node_needs_an_advert() -> None:
    table = TopicTable()
    assert table.create(TOPIC, A, SCOPE_ANY) is ResultCode.BAD_ADVERT
    assert table.create(TOPIC, A, IN_DOMAIN) is ResultCode.BAD_ADVERT
    assert table.create(TOPIC, A, IN_DOMAIN, b"advert", frozenset({A})) is OK
    topic = table.topic(TOPIC)
    assert topic is not None
    assert (topic.creator, topic.scope, topic.advert) == (A, IN_DOMAIN, b"advert")
    assert topic.publishers == frozenset({A})


def test_a_subscription_of_another_domain_is_out_of_scope() -> None:
    table = TopicTable()
    assert table.create(TOPIC, A, IN_DOMAIN, b"advert") is OK
    other = RoutingScope(ScopeKind.DOMAIN, OTHER)
    assert table.subscribe(TOPIC, B, other) is ResultCode.SCOPE
    assert table.subscribe(TOPIC, B, IN_DOMAIN) is OK
    assert table.subscribe(TOPIC, C, SCOPE_ANY) is OK
    assert table.subscribe(TOPIC, A, SCOPE_LOCAL) is OK


def test_a_followed_topic_goes_with_its_last_subscriber() -> None:
    table = TopicTable(TopicLimits(topics=1))
    assert table.follow(TOPIC, SCOPE_LOCAL) is ResultCode.SCOPE
    assert table.follow(TOPIC, SCOPE_ANY) is OK
    assert table.follow(TOPIC, SCOPE_ANY) is ResultCode.EXISTS
    assert table.follow(OTHER, SCOPE_ANY) is ResultCode.OVERFLOW
    assert table.subscribe(TOPIC, A) is OK
    assert table.subscribe(TOPIC, B) is OK
    assert table.delete(TOPIC, A) is ResultCode.NOT_OWNER
    assert table.unsubscribe(TOPIC, A) == (OK, [])
    assert table.end_engine(B) == [TopicIdle(TOPIC)]
    assert len(table) == 0


def test_a_followed_topic_goes_with_its_publisher() -> None:
    table = table_with(B)
    assert table.follow(OTHER, SCOPE_ANY) is OK
    assert table.subscribe(OTHER, B) is OK
    assert table.unfollow(TOPIC) is None
    assert table.unfollow(OTHER) == TopicDeleted(OTHER, (B,))
    assert table.unfollow(OTHER) is None
    assert table.unsubscribe(TOPIC, B) == (OK, [])


def test_copies_go_in_the_order_of_subscriptions_and_not_to_the_injector() -> None:
    table = table_with(C, A, B)
    assert table.publish(TOPIC, A, 1).subscribers == (C, A, B)
    assert table.publish(TOPIC, A, 2, A).subscribers == (C, B)
    # The source is another than the engine that brings the events of the network.
    assert table.publish(TOPIC, identity(99), 1, C).subscribers == (A, B)


def test_threat_14_a_publication_that_comes_back_is_dropped() -> None:
    table = table_with(B)
    assert table.publish(TOPIC, A, 1, A) == FanOutCopies(OK, (B,))
    assert table.publish(TOPIC, A, 1, B) == FanOutCopies(OK, (), duplicate=True)
    assert table.publish(TOPIC, B, 1, B) == FanOutCopies(OK, ())
    assert table.counters.duplicates == 1


def test_only_what_may_publish_does() -> None:
    table = TopicTable()
    assert table.create(TOPIC, A, publishers=frozenset({A})) is OK
    assert table.publish(TOPIC, B, 1) == FanOutCopies(ResultCode.DENIED)
    assert table.publish(OTHER, A, 1) == FanOutCopies(ResultCode.UNKNOWN)
    assert table.publish(TOPIC, A, 1) == FanOutCopies(OK)
    assert (table.counters.denied, table.counters.unknown) == (1, 1)


def test_a_topic_says_how_far_it_goes_and_who_may_publish() -> None:
    table = table_with(B, C)
    assert table.create(OTHER, A, IN_DOMAIN, b"advert", frozenset({A})) is OK
    assert list(table) == [TOPIC, OTHER]
    assert (table.scope(TOPIC), table.scope(OTHER)) == (SCOPE_LOCAL, IN_DOMAIN)
    assert (table.subscribers(TOPIC), table.subscribers(OTHER)) == ((B, C), ())
    assert [table.may_publish(TOPIC, each) for each in (A, B)] == [True, True]
    assert [table.may_publish(OTHER, each) for each in (A, B)] == [True, False]
    table.restrict(OTHER, frozenset({B}))
    table.restrict(DOMAIN, None)
    assert [table.may_publish(OTHER, each) for each in (A, B)] == [False, True]
    assert table.scope(DOMAIN) is None
    assert table.subscribers(DOMAIN) == ()
    assert not table.may_publish(DOMAIN, A)


def test_the_oldest_publication_is_forgotten_at_the_limit() -> None:
    table = TopicTable(TopicLimits(remembered=2))
    assert table.create(TOPIC, A) is OK
    for number in (1, 2, 3):
        assert not table.publish(TOPIC, A, number).duplicate
    assert table.publish(TOPIC, A, 2).duplicate
    assert not table.publish(TOPIC, A, 1).duplicate
    assert table.counters.forgotten == 2


def test_a_publication_of_this_node_is_not_remembered() -> None:
    table = TopicTable(TopicLimits(remembered=1))
    assert table.create(TOPIC, A) is OK
    assert table.subscribe(TOPIC, C) is OK
    assert not table.publish(TOPIC, B, 1).duplicate
    for _ in range(2):
        assert table.publish(TOPIC, A, None) == FanOutCopies(OK, (C,))
    assert table.publish(TOPIC, B, 1).duplicate
    assert table.counters.forgotten == 0


def test_each_limit_refuses_one_more() -> None:
    table = TopicTable(TopicLimits(topics=2, subscribers=1, topics_of_engine=1))
    overflow = ResultCode.OVERFLOW
    assert table.create(TOPIC, A) is OK
    assert table.create(OTHER, A) is overflow
    assert table.create(OTHER, B) is OK
    assert table.create(DOMAIN, C) is overflow
    assert table.subscribe(TOPIC, A) is OK
    assert table.subscribe(TOPIC, B) is overflow
    assert table.subscribe(OTHER, A) is overflow
    assert len(table) == 2


def test_an_engine_that_ends_is_removed_everywhere() -> None:
    table = table_with(A, B)
    assert table.create(OTHER, B) is OK
    assert table.subscribe(OTHER, A) is OK
    assert table.end_engine(A) == [TopicDeleted(TOPIC, (B,))]
    assert table.end_engine(A) == []
    topic = table.topic(OTHER)
    assert topic is not None
    assert topic.subscribers == ()


def test_a_topic_can_be_handed_over() -> None:
    table = TopicTable(TopicLimits(topics_of_engine=2), CreatorEnd.HAND_OVER)
    for topic, creator in ((TOPIC, A), (OTHER, B), (DOMAIN, B)):
        assert table.create(topic, creator) is OK
    for engine in (A, B, C):
        assert table.subscribe(TOPIC, engine) is OK
    # B has as many as an engine may create, so C inherits.
    assert table.end_engine(A) == [TopicHandedOver(TOPIC, C)]
    assert table.delete(TOPIC, B) is ResultCode.NOT_OWNER
    assert table.end_engine(B) == [TopicDeleted(OTHER, ()), TopicDeleted(DOMAIN, ())]
    assert table.delete(TOPIC, C) is OK


def test_threat_22_a_topic_of_a_thousand_subscribers_has_a_snapshot() -> None:
    table = TopicTable()
    assert table.create(TOPIC, A) is OK
    engines = [identity_of_key(number.to_bytes(32)) for number in range(1000)]
    for engine in engines:
        assert table.subscribe(TOPIC, engine) is OK
    copies = table.publish(TOPIC, A, 1).subscribers
    for engine in engines:
        table.end_engine(engine)
    assert copies == tuple(engines)
    assert table.publish(TOPIC, A, 2).subscribers == ()


@dataclass
class NaiveTopic:
    creator: Identity | None
    subscribers: list[Identity] = field(default_factory=list[Identity])


class NaiveTopics:
    """Topics in lists that are searched whole."""

    def __init__(self) -> None:
        self.topics: dict[Identity, NaiveTopic] = {}
        self.seen: list[tuple[Identity, Identity, int]] = []

    def create(self, topic: Identity, engine: Identity) -> ResultCode:
        if topic in self.topics:
            return ResultCode.EXISTS
        self.topics[topic] = NaiveTopic(engine)
        return OK

    def follow(self, topic: Identity) -> ResultCode:
        if topic in self.topics:
            return ResultCode.EXISTS
        self.topics[topic] = NaiveTopic(None)
        return OK

    def delete(self, topic: Identity, engine: Identity) -> ResultCode:
        if topic not in self.topics:
            return ResultCode.UNKNOWN
        if self.topics[topic].creator != engine:
            return ResultCode.NOT_OWNER
        del self.topics[topic]
        return OK

    def subscribe(self, topic: Identity, engine: Identity) -> ResultCode:
        if topic not in self.topics:
            return ResultCode.UNKNOWN
        if engine in self.topics[topic].subscribers:
            return ResultCode.ALREADY_SUBSCRIBED
        self.topics[topic].subscribers.append(engine)
        return OK

    def unsubscribe(self, topic: Identity, engine: Identity) -> ResultCode:
        if topic not in self.topics:
            return ResultCode.UNKNOWN
        if engine not in self.topics[topic].subscribers:
            return ResultCode.NOT_SUBSCRIBED
        self.topics[topic].subscribers.remove(engine)
        if self.topics[topic].creator is None and not self.topics[topic].subscribers:
            del self.topics[topic]
        return OK

    def end(self, engine: Identity) -> None:
        for topic in list(self.topics):
            self.unsubscribe(topic, engine)
        for topic, entry in list(self.topics.items()):
            if entry.creator == engine:
                del self.topics[topic]

    def publish(
        self, topic: Identity, engine: Identity, number: int, injector: Identity
    ) -> list[Identity]:
        if topic not in self.topics or (engine, topic, number) in self.seen:
            return []
        self.seen.append((engine, topic, number))
        return [each for each in self.topics[topic].subscribers if each != injector]


ENGINES = st.sampled_from([identity(number) for number in range(20, 24)])
TOPICS = st.sampled_from([identity(number) for number in range(30, 33)])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["create", "delete", "subscribe", "unsubscribe"]), TOPICS, ENGINES),
    st.tuples(st.sampled_from(["follow", "unfollow"]), TOPICS, ENGINES),
    st.tuples(st.just("end"), TOPICS, ENGINES),
    st.tuples(st.just("publish"), TOPICS, ENGINES, st.integers(0, 2), ENGINES),
)


@given(st.lists(STEPS, max_size=60))
def test_topics_are_those_of_a_naive_model(steps: list[tuple[object, ...]]) -> None:
    table, naive = TopicTable(), NaiveTopics()
    for step in steps:
        match step:
            case ("create", bytes() as topic, bytes() as engine):
                one, two = Identity(topic), Identity(engine)
                assert table.create(one, two) is naive.create(one, two)
            case ("follow", bytes() as topic, _):
                one = Identity(topic)
                assert table.follow(one, SCOPE_ANY) is naive.follow(one)
            case ("unfollow", bytes() as topic, _):
                one = Identity(topic)
                followed = one in naive.topics and naive.topics[one].creator is None
                if followed:
                    del naive.topics[one]
                assert (table.unfollow(one) is not None) == followed
            case ("delete", bytes() as topic, bytes() as engine):
                one, two = Identity(topic), Identity(engine)
                assert table.delete(one, two) is naive.delete(one, two)
            case ("subscribe", bytes() as topic, bytes() as engine):
                one, two = Identity(topic), Identity(engine)
                assert table.subscribe(one, two) is naive.subscribe(one, two)
            case ("unsubscribe", bytes() as topic, bytes() as engine):
                one, two = Identity(topic), Identity(engine)
                assert table.unsubscribe(one, two)[0] is naive.unsubscribe(one, two)
            case ("end", _, bytes() as engine):
                table.end_engine(Identity(engine))
                naive.end(Identity(engine))
            case ("publish", bytes() as topic, bytes() as engine, int() as number, bytes() as by):
                one, two, three = Identity(topic), Identity(engine), Identity(by)
                copies = table.publish(one, two, number, three).subscribers
                assert list(copies) == naive.publish(one, two, number, three)
            case _:
                pytest.fail(f"no step {step}")
        assert len(table) == len(naive.topics)
        for topic, entry in naive.topics.items():
            found = table.topic(topic)
            assert found is not None
            assert (found.creator, list(found.subscribers)) == (entry.creator, entry.subscribers)
