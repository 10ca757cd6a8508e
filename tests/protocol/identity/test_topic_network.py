"""Nodes made of the tables alone: topics and domains over links that are cut, and restarts.

A signature is a mark in front of what is signed: the tables leave it to their caller to verify one.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import combinations, permutations
from random import Random

import cbor2
import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.identity import (
    SCOPE_ANY,
    BadRecord,
    DeliverEvent,
    Destination,
    DestinationKind,
    DomainAction,
    DomainAdvert,
    DomainEnded,
    DomainRecord,
    DomainRefusal,
    DomainRequest,
    DomainRequests,
    DomainResponse,
    DomainTable,
    Event,
    EventRecord,
    EventsLost,
    FanOut,
    Identity,
    Protocol,
    Publication,
    PublicationLimits,
    PublisherRestarted,
    ResendEvents,
    ResultCode,
    RoutingTable,
    SendDomainRecord,
    SendTopicRecord,
    ServeDomainRequest,
    SubscribeTopic,
    Subscription,
    SubscriptionAction,
    SubscriptionEnded,
    SubscriptionLimits,
    SubscriptionState,
    ToPeer,
    TopicIdle,
    TopicRecord,
    TopicSubscribed,
    TopicTable,
    TopicUnsubscribed,
    UnsubscribeTopic,
    first_number,
    identity_of_key,
    parse_domain_record,
    parse_event,
    parse_topic_record,
    serialize_domain_record,
    serialize_event,
    serialize_topic_record,
)
from tests.support.counts import times

WORDS = Protocol("words", 1)
NODE, TOPIC = DestinationKind.NODE, DestinationKind.TOPIC
ENGINES = 2
MOST_FRAMES = 3 * 2 * 8
"""Three members that are tried, over a path of at most eight nodes and back."""


def identity(group: int, number: int) -> Identity:
    return identity_of_key(bytes(30) + bytes((group, number)))


DOMAIN = identity(9, 0)


class Node:
    """A node: its tables, the topic of which it is the publisher, and what it has seen."""

    def __init__(self, network: Network, number: int) -> None:
        self.network = network
        self.number = number
        self.identity = identity(1, number)
        self.pubsub = identity(2, number)
        self.topic = identity(3, number)
        self.engines = [identity(4 + number, each) for each in range(ENGINES)]
        self.routing = RoutingTable(self.identity)
        self.topics = TopicTable()
        self.subscriptions: dict[Identity, Subscription] = {}
        self.positions: dict[Identity, int] = {}
        self.received: list[tuple[Identity, Identity, int]] = []
        self.members = DomainTable()
        self.requests = DomainRequests(self.identity, self.members)
        assert self.topics.create(self.topic, self.engines[0], SCOPE_ANY, b"advert") == 0
        assert self.topics.subscribe(self.topic, self.pubsub) == 0
        self.routing.add_topic(self.topic, SCOPE_ANY)
        self.publication = Publication(
            self.topic,
            self.identity,
            network.instance,
            lambda event: event.publisher + serialize_event(event),
            PublicationLimits(ring_events=3),
        )

    def link(self, peer: Identity) -> None:
        self.routing.open_link(peer, 1)
        self.requests.open_link(peer)
        for topic, subscription in self.subscriptions.items():
            if self.network.publisher(topic) == peer:
                self.act(topic, subscription.join(self.network.clock))

    def cut(self, peer: Identity) -> None:
        self.routing.close_link(peer, 1)
        self.publication.drop(peer)
        self.act_on_domain(self.requests.close_link(peer))
        for topic, subscription in self.subscriptions.items():
            if self.network.publisher(topic) == peer:
                self.act(topic, subscription.cut())

    def send(self, peer: Identity, record: TopicRecord) -> None:
        self.send_bytes(peer, serialize_topic_record(record))

    def send_bytes(self, peer: Identity, data: bytes) -> None:
        decision = self.routing.decide(Destination(NODE, peer), self.pubsub, WORDS)
        if decision != ToPeer(peer, 1):
            return
        self.network.send(self.identity, peer, data)

    # Topics.

    def subscribe(self, topic: Identity, engine: Identity) -> None:
        publisher = self.network.publisher(topic)
        if self.topics.subscribe(topic, engine, SCOPE_ANY) is not ResultCode.UNKNOWN:
            return
        assert self.topics.follow(topic, SCOPE_ANY) == 0
        # The engine that brings the events is a subscriber, as on the page: no echo all the same.
        assert self.topics.subscribe(topic, self.pubsub) == 0
        assert self.topics.subscribe(topic, engine, SCOPE_ANY) == 0
        self.routing.add_topic(topic, SCOPE_ANY)
        subscription = Subscription(topic, publisher, SubscriptionLimits(first_wait=1, tries=50))
        self.subscriptions[topic] = subscription
        if self.network.is_up(self.identity, publisher):
            self.act(topic, subscription.join(self.network.clock))

    def unsubscribe(self, topic: Identity, engine: Identity) -> None:
        self.topics.unsubscribe(topic, engine)
        found = self.topics.topic(topic)
        if found is not None and found.creator is None and found.subscribers == (self.pubsub,):
            assert self.topics.unsubscribe(topic, self.pubsub)[1] == [TopicIdle(topic)]
            self.routing.remove_topic(topic)
            self.act(topic, self.subscriptions[topic].leave())
            del self.subscriptions[topic]
            self.positions.pop(topic, None)

    def publish(self, number: int) -> None:
        source = self.engines[0]
        decision = self.routing.decide(Destination(TOPIC, self.topic), source, WORDS)
        assert decision == FanOut(self.topic, SCOPE_ANY)
        self.fan_out(self.topic, source, number, source)

    def fan_out(self, topic: Identity, source: Identity, number: int, injector: Identity) -> None:
        for engine in self.topics.publish(topic, source, number, injector).subscribers:
            if engine != self.pubsub:
                self.received.append((engine, topic, number))
                continue
            assert topic == self.topic, "an event of the network is published again"
            copies = self.publication.publish(cbor2.dumps((source, number)))
            for node in copies.nodes:
                self.send(node, copies.record)

    def act(self, topic: Identity, actions: list[SubscriptionAction]) -> None:
        for action in actions:
            match action:
                case SendTopicRecord(record):
                    self.send(self.network.publisher(topic), record)
                case DeliverEvent(event):
                    self.advance(topic, event.number, event.number + 1)
                    source, number = cbor2.loads(event.body)
                    self.fan_out(topic, Identity(source), number, self.pubsub)
                case EventsLost(first, lost):
                    self.advance(topic, first, first + lost)
                case PublisherRestarted(instance):
                    self.positions[topic] = first_number(instance)
                case SubscriptionEnded(result):
                    pytest.fail(f"a subscription ended with {result.name}")

    def advance(self, topic: Identity, first: int, end: int) -> None:
        # Every event is delivered or reported as lost, without a hole.
        assert self.positions.setdefault(topic, first) == first
        self.positions[topic] = end

    def receive(self, peer: Identity, data: bytes) -> None:
        try:
            record = parse_topic_record(data)
        except BadRecord:
            self.receive_of_domain(peer, parse_domain_record(data))
            return
        now = self.network.clock
        match record:
            case SubscribeTopic() | UnsubscribeTopic() | ResendEvents():
                assert record.topic == self.topic
                for answer in self.publication.receive(peer, record, now):
                    self.send(peer, answer)
            case EventRecord(envelope):
                event = opened(envelope)
                if event.topic in self.subscriptions:
                    actions = self.subscriptions[event.topic].receive_event(event, now)
                    self.act(event.topic, actions)
            case _:
                if record.topic in self.subscriptions:
                    subscription = self.subscriptions[record.topic]
                    first = isinstance(record, TopicSubscribed) and (
                        record.topic not in self.positions
                    )
                    self.act(record.topic, subscription.receive(record, now))
                    if first and subscription.state is SubscriptionState.FOLLOWING:
                        assert isinstance(record, TopicSubscribed)
                        self.positions[record.topic] = record.next
                else:
                    assert not isinstance(record, TopicUnsubscribed) or record.request

    def tick(self) -> None:
        for topic, subscription in self.subscriptions.items():
            self.act(topic, subscription.handle_timer(self.network.clock))

    # Domains.

    def request(self, number: int, random: int) -> None:
        expiry = self.network.now + 1000
        self.act_on_domain(self.requests.send(DOMAIN, number, expiry, WORDS, b"", random))

    def receive_of_domain(self, peer: Identity, record: DomainRecord) -> None:
        match record:
            case DomainRequest():
                now = self.network.now
                self.act_on_domain(self.requests.receive_request(record, peer, now, record.id))
            case DomainResponse():
                self.act_on_domain(self.requests.receive_response(record, peer))
            case DomainRefusal():
                self.act_on_domain(self.requests.receive_refusal(record, peer, record.id))
            case _:
                pytest.fail(f"no {record} was sent")

    def act_on_domain(self, actions: list[DomainAction]) -> None:
        for action in actions:
            match action:
                case SendDomainRecord(node, DomainRequest() as request):
                    if self.network.is_up(self.identity, node):
                        self.send_bytes(node, serialize_domain_record(request))
                    else:
                        self.act_on_domain(self.requests.not_sent(request, request.id))
                case SendDomainRecord(node, record):
                    self.send_bytes(node, serialize_domain_record(record))
                case ServeDomainRequest(request):
                    self.network.served[request.src, request.id] += 1
                    answer = self.requests.answer(request, ResultCode.OK, WORDS, b"")
                    self.act_on_domain(answer)
                case DomainEnded() as ended:
                    self.network.ended.setdefault((self.identity, ended.id), []).append(ended)


def opened(envelope: bytes) -> Event:
    """Open what `Node` has sealed."""
    event = parse_event(envelope[33:])
    assert envelope[:33] == event.publisher
    return event


class Network:
    """Nodes with a link between each two, which is up or cut."""

    def __init__(self, size: int) -> None:
        self.clock = 0.0
        self.instance = 1000
        self.published = 0
        self.frames = 0
        self.served: Counter[tuple[Identity, int]] = Counter()
        self.ended: dict[tuple[Identity, int], list[DomainEnded]] = {}
        self.up: set[tuple[Identity, Identity]] = set()
        self.queues: dict[tuple[Identity, Identity], deque[bytes]] = {}
        self.nodes = {identity(1, number): Node(self, number) for number in range(size)}
        self.list = list(self.nodes)
        for one, two in permutations(self.list, 2):
            self.queues[one, two] = deque()
        for one, two in combinations(self.list, 2):
            self.heal(one, two)

    @property
    def now(self) -> int:
        return int(self.clock * 1000) + 10**12

    def publisher(self, topic: Identity) -> Identity:
        return identity(1, topic[-1])

    def is_up(self, one: Identity, two: Identity) -> bool:
        return (one, two) in self.up

    def send(self, one: Identity, two: Identity, data: bytes) -> None:
        assert self.is_up(one, two)
        self.frames += 1
        self.queues[one, two].append(data)

    def cut(self, one: Identity, two: Identity) -> None:
        if self.is_up(one, two):
            for pair in ((one, two), (two, one)):
                self.up.discard(pair)
                self.queues[pair].clear()
            self.nodes[one].cut(two)
            self.nodes[two].cut(one)

    def heal(self, one: Identity, two: Identity) -> None:
        if not self.is_up(one, two):
            self.up |= {(one, two), (two, one)}
            self.nodes[one].link(two)
            self.nodes[two].link(one)

    def restart(self, node: Identity) -> None:
        others = [each for each in self.list if self.is_up(node, each)]
        for other in others:
            self.cut(node, other)
        self.instance += 1
        before = self.nodes[node]
        assert len(before.received) == len(set(before.received))
        self.nodes[node] = Node(self, before.number)
        for other in others:
            self.heal(node, other)

    def carry(self, at: int) -> bool:
        waiting = [pair for pair in self.queues if self.queues[pair]]
        if not waiting:
            return False
        one, two = waiting[at % len(waiting)]
        self.nodes[two].receive(one, self.queues[one, two].popleft())
        return True

    def settle(self) -> None:
        """Carry all frames there are, and those that follow."""
        for _ in range(100_000):
            if not self.carry(0):
                return
        pytest.fail("frames without an end")

    def step(self, what: str, first: int, second: int, third: int) -> None:
        one = self.list[first % len(self.list)]
        two = self.list[second % len(self.list)]
        node, topic = self.nodes[one], self.nodes[two].topic
        match what:
            case "subscribe":
                node.subscribe(topic, node.engines[third % ENGINES])
            case "unsubscribe":
                node.unsubscribe(topic, node.engines[third % ENGINES])
            case "publish" | "burst":
                for _ in range(6 if what == "burst" else 1):
                    self.published += 1
                    node.publish(self.published)
            case "carry":
                self.carry(third)
            case "repeat" if one != two and self.queues[one, two]:
                # A peer that sends something again.
                self.queues[one, two].append(self.queues[one, two][0])
            case "cut" if one != two:
                self.cut(one, two)
            case "heal" if one != two:
                self.heal(one, two)
            case "restart":
                self.restart(one)
            case "tick":
                self.tick()
            case _:
                pass

    def tick(self) -> None:
        self.clock += 1
        for node in self.nodes.values():
            node.tick()


SIZES = st.integers(3, 6)
SEEDS = st.integers(0, 2**32)
TOPIC_STEPS = [
    *["carry"] * 12,
    *["publish"] * 5,
    *["subscribe", "heal"] * 2,
    *["burst", "cut", "repeat", "restart", "tick", "unsubscribe"],
]
DOMAIN_STEPS = ["request"] * 2 + ["carry"] * 4 + ["repeat", "cut", "heal"]


@given(SIZES, SEEDS)
@settings(max_examples=times(25, 500))
def test_each_subscriber_sees_each_publication_once_at_most_and_gaps_are_reported(
    size: int, seed: int
) -> None:
    random, network = Random(seed), Network(size)
    for _ in range(250):
        network.step(random.choice(TOPIC_STEPS), *(random.randrange(60) for _ in range(3)))
    for one, two in combinations(network.list, 2):
        network.heal(one, two)
    for _ in range(8):
        network.settle()
        network.tick()
        for node in network.nodes.values():
            for subscriber in node.publication.nodes:
                node.send(subscriber, node.publication.progress)
    network.settle()
    for node in network.nodes.values():
        assert len(node.received) == len(set(node.received))
        for topic, subscription in node.subscriptions.items():
            publication = network.nodes[network.publisher(topic)].publication
            assert subscription.state is SubscriptionState.FOLLOWING
            assert node.positions[topic] == publication.progress.next
            assert publication.nodes.count(node.identity) == 1


@given(SIZES, SEEDS)
@settings(max_examples=times(25, 500))
def test_threat_14_requests_to_a_domain_that_each_node_knows_otherwise_end(
    size: int, seed: int
) -> None:
    random, network = Random(seed), Network(size)
    for node in network.nodes.values():
        known = tuple(random.sample(network.list, random.randrange(size)))
        node.members.update(DomainAdvert(DOMAIN, known, 1, 0))
        if random.random() < 0.4:
            node.requests.serve(DOMAIN)
    requests = repeated = 0
    for _ in range(100):
        what, one, two = random.choice(DOMAIN_STEPS), random.randrange(60), random.randrange(60)
        if what == "request":
            requests += 1
            network.nodes[network.list[one % size]].request(requests, two)
        repeated += what == "repeat"
        network.step(what, one, two, random.randrange(60))
    network.settle()
    # What a peer repeats costs what one more request would.
    assert network.frames <= MOST_FRAMES * (requests + repeated)
    network.clock += 100
    for node in network.nodes.values():
        node.act_on_domain(node.requests.handle_timer(network.now))
        assert len(node.requests) == 0
    # Each request has one end, and was served once at most; what has a response was served.
    assert sum(len(ends) for ends in network.ended.values()) == requests
    assert all(count == 1 for count in network.served.values())
    for key, (ended,) in network.ended.items():
        if ended.result is ResultCode.OK:
            assert network.served[key] == 1
        elif not ended.in_doubt:
            assert network.served[key] == 0
