"""The topics of one node: who creates, publishes and subscribes, by calls and by messages."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from onward.actors import MailboxOptions, Node, Overflow, Unresolved
from onward.actors.identity import ROUTER, TopicRefused
from onward.actors.testing import Probe
from onward.protocol import IDENTITY, Address, Message, UnknownAddress
from onward.protocol.identity import (
    SCOPE_ANY,
    SCOPE_LOCAL,
    AdvertEnvelope,
    AdvertSource,
    ControlRecord,
    CreatorEnd,
    Destination,
    DestinationKind,
    Identity,
    IdentityUpdated,
    NodeAdvert,
    Result,
    ResultCode,
    RoutingScope,
    SigningKey,
    TopicAdvert,
    TopicCreateRequest,
    TopicCreateResponse,
    TopicDeleteRequest,
    TopicDeleteResponse,
    TopicSubRequest,
    TopicSubResponse,
    TopicUnsubRequest,
    TopicUnsubResponse,
    destination_text,
    identity_text,
    parse_control,
    serialize_control,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.identities import NOW, StrangeNode, attached, key_of
from tests.support.transports import Echo, Recorder, Relay, Stuck, eventually

TOPIC_KEY = key_of("topic")
TOPIC = TOPIC_KEY.identity
MILLISECONDS = int(NOW * 1000)


def topic_text(topic: Identity = TOPIC) -> str:
    return f"36#{destination_text(Destination(DestinationKind.TOPIC, topic))}"


def advert_of(
    *publishers: Identity,
    key: SigningKey = TOPIC_KEY,
    topic: Identity = TOPIC,
    scope: RoutingScope = SCOPE_ANY,
    version: int = 1,
) -> AdvertEnvelope:
    told = TopicAdvert(topic, (), publishers or None, scope, version, MILLISECONDS)
    return sign_advert(told, key)


@pytest.fixture
async def ours(a: Node) -> Identities:
    """A node with a topic of the worker `owner`."""
    ours = await attached(a)
    await Recorder.on(a, "owner")
    ours.create_topic(TOPIC, engine="owner")
    return ours


async def subscribed(ours: Identities, *names: str) -> list[Recorder]:
    recorders = [await Recorder.on(ours.node, name) for name in names]
    for name in names:
        await ours.subscribe(TOPIC, name)
    return recorders


def payloads(recorder: Recorder) -> list[bytes]:
    return [message.payload for message in recorder.messages]


async def ask(probe: Probe, record: ControlRecord) -> ControlRecord:
    """Ask the router by a message, and return what it answers."""
    probe.send([ROUTER], serialize_control(record))
    return parse_control((await probe.next()).payload)


async def test_a_publication_goes_to_each_subscriber_once_and_in_order(
    a: Node, ours: Identities
) -> None:
    one, two = await subscribed(ours, "one", "two")
    for number in range(3):
        a.send(topic_text(), b"%d" % number)
    ours.publish(TOPIC, b"3")
    await eventually(lambda: len(two.messages) == 4)
    assert payloads(one) == payloads(two) == [b"0", b"1", b"2", b"3"]
    assert ours.refused() == {}
    (report,) = (each for each in ours.topics() if each.topic == TOPIC)
    assert (report.subscribers, report.nodes, report.node, report.published) == (2, (), None, 0)


async def test_the_rest_of_a_route_is_for_each_subscriber(a: Node, ours: Identities) -> None:
    await a.start(Relay, address="relay")
    end = await Recorder.on(a, "end")
    await ours.subscribe(TOPIC, "relay")
    a.send(f"{topic_text()} => end", b"x")
    assert (await end.next()).return_route == (Address(0, b"relay"),)


async def test_a_subscriber_answers_the_publisher(a: Node, ours: Identities) -> None:
    await a.start(Echo, address="echo")
    await ours.subscribe(TOPIC, "echo")
    assert (await a.request(topic_text(), b"hi")).payload == b"hi"
    publisher = await Recorder.on(a, "publisher")
    ours.publish(TOPIC, b"ho", source="publisher")
    assert (await publisher.next()).payload == b"ho"


async def test_threat_14_a_publisher_gets_no_copy_of_its_own(a: Node, ours: Identities) -> None:
    (one,) = await subscribed(ours, "one")
    probe = await Probe.on(a, "both")
    await ours.subscribe(TOPIC, "both")
    probe.send(topic_text(), b"mine")
    a.send(topic_text(), b"other")
    assert (await probe.next()).payload == b"other"
    assert payloads(one) == [b"mine", b"other"]


async def test_threat_14_two_topics_that_publish_to_each_other_end(
    a: Node, ours: Identities
) -> None:
    other = key_of("other topic").identity
    ours.create_topic(other, engine="owner")
    for name, to in (("to", other), ("back", TOPIC)):
        forward = topic_text(to)

        class Again(Recorder):
            def handle_message(self, message: Message) -> None:
                super().handle_message(message)
                self.route(message._replace(onward_route=(Address.parse(self.forward_to),)))

            forward_to = forward

        await a.start(Again, address=name)
        await ours.subscribe(TOPIC if name == "to" else other, name)
    a.send(topic_text(), b"round and round")
    await eventually(lambda: a.dead_letters.total)
    assert list(a.dead_letters.by_reason) == ["rerouted too often"]


@pytest.mark.parametrize(
    ("mailbox", "kept", "reason"),
    [
        (MailboxOptions(limit=2), [b"0", b"1", b"2"], "mailbox full"),
        (MailboxOptions(limit=2, overflow=Overflow.WAIT), [b"0", b"1", b"2"], "mailbox full"),
        (
            MailboxOptions(limit=2, overflow=Overflow.DROP_NEWEST),
            [b"0", b"1", b"2"],
            "dropped: mailbox full",
        ),
        (
            MailboxOptions(limit=2, overflow=Overflow.DROP_OLDEST),
            [b"0", b"8", b"9"],
            "dropped: mailbox full",
        ),
    ],
)
async def test_threat_22_a_slow_subscriber_holds_up_no_other(
    a: Node, ours: Identities, mailbox: MailboxOptions, kept: list[bytes], reason: str
) -> None:
    stuck = Stuck()
    await a.start(lambda: stuck, address="stuck", mailbox=mailbox)
    await ours.subscribe(TOPIC, "stuck")
    (quick,) = await subscribed(ours, "quick")
    a.send("stuck", b"0")
    for number in range(1, 10):
        a.send(topic_text(), b"%d" % number)
        await quick.next()
    assert a.dead_letters.total == 7
    stuck.go_on.set()
    await eventually(lambda: len(stuck.messages) == 3)
    assert payloads(stuck) == kept
    dropped = mailbox.overflow in {Overflow.DROP_NEWEST, Overflow.DROP_OLDEST}
    refused = {} if dropped else {"copies that a subscriber did not take": 7}
    assert ours.refused() == refused
    assert reason in str(a.dead_letters.by_reason) or dropped


async def test_a_subscriber_that_ends_is_one_no_more(a: Node, ours: Identities) -> None:
    one, two = await subscribed(ours, "one", "two")
    await a.stop_worker("one")
    a.send(topic_text(), b"x")
    await two.next()
    assert one.messages == []
    assert a.dead_letters.total == 0


async def test_a_topic_stays_here_if_a_publication_says_so(a: Node, ours: Identities) -> None:
    wide = key_of("wide")
    ours.create_topic(wide, engine="owner", scope=SCOPE_ANY, publishers=(ours.own,))
    one = await Recorder.on(a, "one")
    await ours.subscribe(wide.identity, "one")
    a.send(f"{topic_text(wide.identity)}?scope=local", b"here")
    assert (await one.next()).payload == b"here"
    club = key_of("club").identity
    with pytest.raises(Unresolved, match="as far as its topic"):
        a.send(f"{topic_text(wide.identity)}?scope={identity_text(club)}", b"x")


async def test_what_is_no_topic_here_is_refused(a: Node, ours: Identities) -> None:
    with pytest.raises(Unresolved, match="refuses it: unknown"):
        a.send(f"{topic_text(key_of('none').identity)}?scope=local", b"x")
    with pytest.raises(Unresolved, match="the router alone publishes to it"):
        a.send(topic_text(ours.updates), b"x")


async def test_only_the_publishers_of_an_advert_publish(a: Node, ours: Identities) -> None:
    wide = key_of("wide")
    probe, owner = await Probe.on(a, "probe"), await Recorder.on(a, "writer")
    writer = ours.engine("writer")
    ours.create_topic(
        wide.identity,
        engine="owner",
        advert=advert_of(writer, key=wide, topic=wide.identity, scope=SCOPE_LOCAL),
    )
    await ours.subscribe(wide.identity, "probe")
    with pytest.raises(Unresolved, match="may not publish"):
        a.send(topic_text(wide.identity), b"x")
    ours.publish(wide.identity, b"y", source="writer")
    message = await probe.next()
    assert message.payload == b"y"
    probe.reply(message, b"z")
    assert (await owner.next()).payload == b"z"
    # By the address of its worker, too.
    worker = ours._topics._workers._of[wide.identity]
    probe.send([worker], b"forged")
    await eventually(lambda: a.dead_letters.total == 1)
    assert ours.refused() == {"publications that were refused": 1}


async def test_threat_12_a_topic_is_deleted_by_its_owner_alone(a: Node, ours: Identities) -> None:
    (one,) = await subscribed(ours, "one")
    ended: list[ResultCode] = []
    await Recorder.on(a, "two")
    await ours.subscribe(TOPIC, "two", on_end=ended.append)
    for worker, code in (("one", ResultCode.NOT_OWNER), ("nobody", ResultCode.DENIED)):
        with pytest.raises(TopicRefused) as refused:
            ours.delete_topic(TOPIC, engine=worker)
        assert refused.value.code is code
    with pytest.raises(TopicRefused, match=f": {ResultCode.EXISTS.name}$"):
        ours.create_topic(TOPIC, engine="one")
    a.send(topic_text(), b"before")
    await one.next()
    ours.delete_topic(TOPIC, engine="owner")
    assert ended == [ResultCode.UNKNOWN]
    with pytest.raises(Unresolved):
        a.send(f"{topic_text()}?scope=local", b"after")
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        ours.delete_topic(TOPIC, engine="owner")
    ours.create_topic(TOPIC, engine="one")
    a.send(topic_text(), b"anew")
    await eventually(lambda: ours._topics.table.counters.unknown == 0)
    assert payloads(one) == [b"before"]


async def test_what_waits_for_a_topic_that_is_deleted_is_refused(a: Node, ours: Identities) -> None:
    (one,) = await subscribed(ours, "one")
    a.send(topic_text(), b"x")
    ours.delete_topic(TOPIC, engine="owner")
    await eventually(lambda: a.dead_letters.total == 1)
    assert ours.refused() == {"publications that were refused": 1}
    assert one.messages == []


async def test_subscriptions_are_made_and_ended_once(a: Node, ours: Identities) -> None:
    (one,) = await subscribed(ours, "one")
    with pytest.raises(TopicRefused, match=": ALREADY_SUBSCRIBED"):
        await ours.subscribe(TOPIC, "one")
    ours.unsubscribe(TOPIC, "one")
    with pytest.raises(TopicRefused, match=": NOT_SUBSCRIBED"):
        ours.unsubscribe(TOPIC, "one")
    with pytest.raises(TopicRefused, match=": DENIED"):
        ours.unsubscribe(TOPIC, "nobody")
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        await ours.subscribe(key_of("none").identity, "one", scope=SCOPE_LOCAL)
    with pytest.raises(UnknownAddress):
        await ours.subscribe(TOPIC, "nobody")
    a.send(topic_text(), b"x")
    await Recorder.on(a, "two")
    await ours.subscribe(TOPIC, "two")
    assert one.messages == []


@pytest.mark.parametrize("heir", [True, False])
async def test_a_topic_whose_owner_ends_is_deleted_or_handed_over(a: Node, heir: bool) -> None:
    end = CreatorEnd.HAND_OVER if heir else CreatorEnd.DELETE
    ours = await attached(a, creator_end=end)  # type: ignore[arg-type]
    await Recorder.on(a, "owner")
    ours.create_topic(TOPIC, engine="owner")
    (one,) = await subscribed(ours, "one")
    await a.stop_worker("owner")
    await eventually(lambda: len(ours.topics()) == 1 + heir)
    if heir:
        a.send(topic_text(), b"x")
        await one.next()
        ours.delete_topic(TOPIC, engine="one")
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        ours.delete_topic(TOPIC, engine="one")


async def test_each_limit_refuses_one_more(a: Node) -> None:
    ours = await attached(a, max_topics=2, max_subscribers=1)
    for name in ("owner", "one", "two"):
        await Recorder.on(a, name)
    ours.create_topic(TOPIC, engine="owner")
    ours.create_topic(key_of("second").identity, engine="owner")
    with pytest.raises(TopicRefused, match=": OVERFLOW"):
        ours.create_topic(key_of("third").identity, engine="owner")
    await ours.subscribe(TOPIC, "one")
    with pytest.raises(TopicRefused, match=": OVERFLOW"):
        await ours.subscribe(TOPIC, "two")


BAD: list[tuple[str, Callable[[Identities], AdvertEnvelope | None]]] = [
    ("the advert cannot be read", lambda ours: AdvertEnvelope(advert_of().kind, b"\x80")),
    (
        "not signed by the topic",
        lambda ours: advert_of(key=key_of("wrong"), topic=key_of("wrong").identity),
    ),
    ("another scope", lambda ours: advert_of(ours.own, scope=SCOPE_LOCAL)),
    ("no engine of this node", lambda ours: advert_of()),
    ("no engine of this node", lambda ours: advert_of(key_of("far").identity, ours.own)),
    ("the directory: ", lambda ours: advert_of(ours.own, version=0)),
    ("", lambda ours: None),
]


@pytest.mark.parametrize(("detail", "advert"), BAD)
async def test_threat_13_a_topic_beyond_the_node_needs_a_right_advert(
    a: Node,
    detail: str,
    advert: Callable[[Identities], AdvertEnvelope | None],
) -> None:
    ours = await attached(a)
    await Recorder.on(a, "owner")
    ours.directory.put(advert_of(ours.own), AdvertSource.LOCAL)
    given = advert(ours)
    with pytest.raises(TopicRefused, match=f": BAD_ADVERT.*{detail}"):
        ours.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=given)
    assert [each.topic for each in ours.topics()] == [ours.updates]
    ours.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=advert_of(ours.own, version=2))


async def test_an_advert_is_made_by_the_key_of_a_topic(a: Node) -> None:
    ours = await attached(a)
    await Recorder.on(a, "owner")
    assert ours.create_topic(TOPIC_KEY, engine="owner", scope=SCOPE_ANY) == TOPIC
    record = ours.directory.lookup(TOPIC)
    assert record is not None
    assert record.advert is not None


async def test_requests_come_as_messages(a: Node, ours: Identities) -> None:
    probe = await Probe.on(a, "engine")
    ours.engine("engine")
    topic = key_of("asked").identity
    ok = Result(ResultCode.OK)
    assert await ask(probe, TopicCreateRequest(topic, SCOPE_LOCAL)) == TopicCreateResponse(
        topic, ok
    )
    assert await ask(probe, TopicSubRequest(topic, SCOPE_LOCAL)) == TopicSubResponse(topic, ok)
    a.send(topic_text(topic), b"x")
    assert (await probe.next()).payload == b"x"
    assert await ask(probe, TopicUnsubRequest(topic, SCOPE_LOCAL)) == TopicUnsubResponse(topic, ok)
    assert await ask(probe, TopicUnsubRequest(topic, SCOPE_LOCAL)) == TopicUnsubResponse(
        topic, Result(ResultCode.NOT_SUBSCRIBED)
    )
    await ask(probe, TopicSubRequest(topic, SCOPE_LOCAL))
    gone = await ask(probe, TopicDeleteRequest(topic, SCOPE_LOCAL))
    # First the end of its own subscription, then the answer.
    assert gone == TopicUnsubResponse(topic, Result(ResultCode.UNKNOWN, "the topic is gone"))
    assert parse_control((await probe.next()).payload) == TopicDeleteResponse(topic, ok)


REQUESTS: list[ControlRecord] = [
    TopicCreateRequest(key_of("new").identity, SCOPE_LOCAL),
    TopicDeleteRequest(TOPIC, SCOPE_LOCAL),
    TopicSubRequest(TOPIC, SCOPE_LOCAL),
    TopicUnsubRequest(TOPIC, SCOPE_LOCAL),
]


@pytest.mark.parametrize("record", REQUESTS)
async def test_threats_12_and_16_what_is_no_engine_of_this_node_is_denied(
    a: Node, c: Node, ours: Identities, record: ControlRecord
) -> None:
    probe = await Probe.on(a, "worker")
    before = ours.topics()
    denied = await ask(probe, record)
    assert denied.result == Result(ResultCode.DENIED)  # type: ignore[union-attr]
    answer = await a.request([ROUTER], serialize_control(record))
    assert parse_control(answer.payload) == denied
    # From another node, by an exposed worker that passes it on, which is an engine.
    await a.start(Relay, address="relay")
    ours.engine("relay")
    listener = await a.listen("memory://topics", expose=[ROUTER, "relay"])
    link = await c.connect(listener.uri)
    answer = await c.request([link, Address(0, b"relay"), ROUTER], serialize_control(record))
    assert parse_control(answer.payload) == denied
    # And directly, where it is no message of a handshake.
    strange = await StrangeNode.on(c, a, key_of("strange"))
    strange.send(serialize_control(record))
    await eventually(lambda: ours.refused() == {"messages of no handshake": 1})
    assert ours.topics() == before


async def test_a_response_that_finds_no_way_is_counted(a: Node, ours: Identities) -> None:
    a.send([ROUTER], serialize_control(REQUESTS[0]))
    a.send([ROUTER], b"\x82\x18\x20\x00")
    await eventually(lambda: len(ours.refused()) == 2)
    assert ours.refused() == {
        "responses that a worker did not take": 1,
        "frames that came over no link": 1,
    }


async def test_the_changes_of_the_directory_are_a_topic(a: Node, ours: Identities) -> None:
    probe = await Probe.on(a, "probe")
    stuck = Stuck()
    await a.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
    for name in ("probe", "stuck"):
        ours.engine(name)
    await eventually(lambda: not ours.directory.directory.has_updates)  # of these engines
    await ours.subscribe(ours.updates, "stuck")
    await ours.subscribe(ours.updates, "probe")
    for number in range(3):
        key = key_of(f"node {number}")
        told = NodeAdvert(key.identity, (), bytes(32), 1, MILLISECONDS)
        ours.directory.put(sign_advert(told, key), AdvertSource.LOCAL)
        message = await probe.next()
        update = parse_control(message.payload)
        assert isinstance(update, IdentityUpdated)
        assert update.identity == key.identity
        assert message.return_route == ()
    assert ours.refused() == {"copies that a subscriber did not take": 1}
    with pytest.raises(TopicRefused, match=": NOT_OWNER"):
        ours.delete_topic(ours.updates, engine="owner")
    ours.ban(ours.updates)
    assert ours.topics()[0].topic == ours.updates
    stuck.go_on.set()


async def test_functions_subscribe(
    a: Node, ours: Identities, caplog: pytest.LogCaptureFixture
) -> None:
    topic = ours.topic(TOPIC)
    seen: list[bytes] = []

    @topic.subscriber
    def one(message: Message) -> None:
        seen.append(message.payload)

    @topic.subscriber
    async def two(message: Message) -> None:
        seen.append(message.payload + b"!")

    await topic.ready()
    topic.publish(b"hi")
    await eventually(lambda: sorted(seen) == [b"hi", b"hi!"])
    assert {one.__name__, two.__name__} == {"one", "two"}
    none = ours.topic(key_of("none").identity, scope=SCOPE_LOCAL)
    none.subscriber(one)
    with caplog.at_level(logging.ERROR), pytest.raises(TopicRefused):
        await none.ready()
    assert "a function is not subscribed" in caplog.text


async def test_a_ban_ends_a_topic(a: Node, ours: Identities) -> None:
    ended: list[ResultCode] = []
    await Recorder.on(a, "three")
    await ours.subscribe(TOPIC, "three", on_end=ended.append)
    ours.ban(TOPIC)
    assert ended == [ResultCode.DENIED]
    with pytest.raises(TopicRefused, match=": DENIED"):
        ours.create_topic(TOPIC, engine="owner")


async def test_a_hook_that_raises_is_logged(
    a: Node, ours: Identities, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(code: ResultCode) -> None:
        raise ValueError(code)

    await Recorder.on(a, "one")
    await ours.subscribe(TOPIC, "one", on_end=fails)
    with caplog.at_level(logging.ERROR):
        ours.delete_topic(TOPIC, engine="owner")
    assert "what is called for a subscriber" in caplog.text


async def test_a_subscriber_that_writes_what_the_router_alone_writes_is_refused(
    a: Node, ours: Identities
) -> None:
    (recorder,) = await subscribed(ours, "one")
    a.send(topic_text(), b"event")
    copy = await recorder.next()
    assert copy.source is not None
    a.send([copy.source, Address(IDENTITY, b"by:x")], b"event")
    await eventually(lambda: ours.refused() == {"publications that were refused": 1})
    assert a.statistics(workers=False).failed == 0


async def test_a_topic_is_created_again_at_once_for_others(a: Node) -> None:
    ours = await attached(a)
    await Recorder.on(a, "owner")
    for publishers in ((), (ours.own,), ()):
        ours.create_topic(TOPIC_KEY, engine="owner", scope=SCOPE_ANY, publishers=publishers)
        ours.delete_topic(TOPIC, engine="owner")
    record = ours.directory.lookup(TOPIC)
    assert record is not None
    assert not record.equivocated
