"""Topics between nodes: where they are found, in which order events come, and what is refused."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from random import Random

import pytest

from onward.actors import MailboxOptions, Node, Unresolved
from onward.actors.identity import ROUTER, TopicRefused
from onward.actors.identity._carriage import ENGINE, Carriage, reply_address
from onward.actors.identity._outgoing import ONWARD
from onward.actors.identity.links._session import Waiting
from onward.actors.testing import Probe
from onward.actors.testing._virtual import EPOCH
from onward.protocol import Address, Message, OnwardError
from onward.protocol.identity import (
    RING_EVENTS,
    SCOPE_ANY,
    SCOPE_LOCAL,
    AdvertSource,
    BadRecord,
    ControlContent,
    Destination,
    DestinationKind,
    DomainAdvert,
    EngineAdvert,
    EngineContent,
    EngineMessage,
    Event,
    EventRecord,
    Greeting,
    Identity,
    NodeAdvert,
    Protocol,
    ResendEvents,
    ResultCode,
    RoutingScope,
    ScopeKind,
    SigningKey,
    SubscribeTopic,
    TopicAdvert,
    TopicProgress,
    TopicRecord,
    TopicSubscribed,
    TopicUnsubscribed,
    UnsubscribeTopic,
    first_number,
    identity_text,
    parse_topic_record,
    serialize_greeting,
    serialize_topic_record,
    sign_advert,
    sign_engine_message,
    sign_event,
)
from onward.protocol.ockam import encode_message
from onward.transports.identity import Identities
from tests.support.counts import times
from tests.support.identities import NOW, StrangeNode, attached, joined, key_of, node_text
from tests.support.transports import Echo, Recorder, Stuck, eventually

TOPIC_KEY = key_of("topic")
TOPIC = TOPIC_KEY.identity
STRANGE = key_of("strange")
MILLISECONDS = int((NOW + EPOCH) * 1000)
TEXT = f"36#topic:{identity_text(TOPIC)}"
CLUB = key_of("club")
IN_CLUB = RoutingScope(ScopeKind.DOMAIN, CLUB.identity)


def ignore(error: OnwardError) -> None:
    """Take no notice of a frame that is not handed over."""


async def came(recorder: Recorder, number: int) -> None:
    """Wait until so many messages have come."""
    await eventually(lambda: len(recorder.messages) == number)


async def is_alone(identities: Identities) -> None:
    """Wait until a node has no link to another one."""
    await eventually(lambda: not identities.peers())


async def is_followed(ours: Identities) -> None:
    """Wait until another node is subscribed to the topic."""
    await eventually(lambda: ours.topics()[1].nodes)


def payloads(recorder: Recorder) -> list[bytes]:
    return [message.payload for message in recorder.messages]


async def publishing(a: Node, scope: RoutingScope = SCOPE_ANY, *more: Identity) -> Identities:
    """Give a node an identity and a topic of the worker `owner`, to which the node publishes."""
    ours = await attached(a)
    await Recorder.on(a, "owner")
    owner = ours.engine("owner")
    told = TopicAdvert(TOPIC, (), (owner, ours.own, *more), scope, 1, MILLISECONDS)
    advert = sign_advert(told, TOPIC_KEY)
    ours.create_topic(TOPIC, engine="owner", scope=scope, advert=advert)
    return ours


def tell(ours: Identities, *others: Identities) -> None:
    """Put the advert of the topic into the directories of other nodes."""
    record = ours.directory.lookup(TOPIC)
    assert record is not None
    assert record.advert is not None
    for each in others:
        each.directory.put(record.advert, AdvertSource.LOCAL)


async def subscribed(theirs: Identities, name: str) -> Recorder:
    recorder = await Recorder.on(theirs.node, name)
    await theirs.subscribe(TOPIC, name)
    return recorder


async def test_events_go_to_subscribers_at_all_nodes_in_one_order(
    a: Node, b: Node, c: Node
) -> None:
    ours = await publishing(a)
    second, third = await attached(b), await attached(c)
    for each in (b, c):
        await joined((a, ours), each)
    tell(ours, second, third)
    here = await subscribed(ours, "here")
    there = [await subscribed(second, f"there {number}") for number in range(2)]
    there.append(await subscribed(third, "there"))
    for number in range(5):
        a.send(TEXT, b"%d" % number)
    for recorder in there:
        await came(recorder, 5)
        assert payloads(recorder) == [b"0", b"1", b"2", b"3", b"4"]
    assert payloads(here) == payloads(there[0])
    (report,) = (each for each in ours.topics() if each.topic == TOPIC)
    assert set(report.nodes) == {second.own, third.own}
    assert (report.published, report.subscribers) == (5, 1)
    (report,) = (each for each in second.topics() if each.topic == TOPIC)
    assert (report.node, report.subscribers, report.published, report.lost) == (ours.own, 2, 5, 0)
    assert report.creator is None
    assert [each.refused() for each in (ours, second, third)] == [{}, {}, {}]


async def test_an_engine_elsewhere_publishes_by_the_node_of_the_topic(
    a: Node, b: Node, c: Node
) -> None:
    second, third = await attached(b), await attached(c)
    await Recorder.on(b, "writer")
    ours = await publishing(a, SCOPE_ANY, second.engine("writer"))
    for each in (b, c):
        await joined((a, ours), each)
    tell(ours, second, third)
    here, there = await subscribed(ours, "here"), await subscribed(third, "there")
    beside = await subscribed(second, "beside")
    await second.subscribe(TOPIC, "writer")  # it gets no copy of its own
    for number in range(3):
        a.send(TEXT, b"a%d" % number)
        second.publish(TOPIC, b"b%d" % number, source="writer")
    for recorder in (here, there, beside):
        await came(recorder, 6)
    assert payloads(here) == payloads(there) == payloads(beside)
    assert sorted(payloads(here)) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    # The node itself may not: it is refused by the node of the topic.
    third.publish(TOPIC, b"x")
    await eventually(lambda: ours.refused() == {"publications that were refused": 1})


async def test_a_subscriber_elsewhere_answers_the_publisher(a: Node, b: Node, c: Node) -> None:
    second, third = await attached(b), await attached(c)
    asks = await Probe.on(b, "asks")
    ours = await publishing(a, SCOPE_ANY, second.engine("asks"))
    for each in (b, c):
        await joined((a, ours), each)
    tell(ours, second, third)
    await c.start(Echo, address="far echo")
    await third.subscribe(TOPIC, "far echo")
    own = await Probe.on(a, "own")
    with pytest.raises(Unresolved):
        ours.publish(TOPIC, b"x", source="own")
    await a.start(Echo, address="echo")
    await ours.subscribe(TOPIC, "echo")
    asks.send(TEXT, b"hi")
    assert (await asks.next()).payload == b"hi"  # of the echo at the node of the topic
    del own
    owner = ours.node.parts.table.worker_at(Address(0, b"owner"))
    assert isinstance(owner, Recorder)
    ours.publish(TOPIC, b"ho", source="owner")
    answers = {(await owner.next()).payload, (await owner.next()).payload}
    assert answers == {b"ho"}


@pytest.mark.parametrize("dials", [True, False])
async def test_a_node_that_has_lost_its_session_alone_is_subscribed_to_again(
    a: Node, c: Node, *, dials: bool
) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await joined(*(((a, ours), c) if dials else ((c, theirs), a)))
    tell(ours, theirs)
    recorder = await subscribed(theirs, "there")
    a.send(TEXT, b"0")
    await came(recorder, 1)
    sessions, others = ours._router.peers.sessions, theirs._router.peers.sessions
    before = sessions[theirs.own], others[ours.own]
    ours._router.peers._disconnect(before[0], "of this test")  # the other node hears nothing of it
    a.send(TEXT, b"1")
    c.send(f"{node_text(ours.own)} => nothing", b"")  # so it hears that there is no session
    await eventually(lambda: sessions.get(theirs.own) not in {None, before[0]})
    assert others[ours.own] is before[1]
    a.send(TEXT, b"2")
    await came(recorder, 3)
    assert payloads(recorder) == [b"0", b"1", b"2"]


async def test_events_that_were_cut_off_are_sent_again(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    link = await joined((a, ours), c)
    tell(ours, theirs)
    lost: list[int | None] = []
    await Recorder.on(c, "there")
    there = c.parts.table.worker_at(Address(0, b"there"))
    assert isinstance(there, Recorder)
    await theirs.subscribe(TOPIC, "there", on_lost=lost.append)
    a.send(TEXT, b"before")
    await there.next()
    link.cut()
    await eventually(lambda: not ours.peers() and not theirs.peers())
    for number in range(10):
        a.send(TEXT, b"%d" % number)
    link = await joined((a, ours), c)
    await eventually(lambda: len(there.messages) == 11)
    assert payloads(there)[1:] == [b"%d" % number for number in range(10)]
    link.cut()
    await eventually(lambda: not ours.peers() and not theirs.peers())
    for number in range(RING_EVENTS + 5):
        a.send(TEXT, b"again %d" % number)
    await joined((a, ours), c)
    await eventually(lambda: len(there.messages) == 11 + RING_EVENTS)
    assert lost == [5]
    assert theirs.refused()["events of topics that were lost"] == 5


async def test_a_node_that_publishes_and_starts_anew_is_followed_again(b: Node, c: Node) -> None:
    theirs = await attached(c)
    lost: list[int | None] = []
    there = await Recorder.on(c, "there")
    for number in range(2):
        async with Node("a") as a:
            ours = await publishing(a)
            await joined((c, theirs), a)
            tell(ours, theirs)
            if not number:
                await theirs.subscribe(TOPIC, "there", on_lost=lost.append)
            else:
                await is_followed(ours)
            a.send(TEXT, b"of %d" % number)
            await there.next()
        await asyncio.sleep(1)  # ids are of the time
    assert payloads(there) == [b"of 0", b"of 1"]
    assert lost == [None]
    assert theirs.refused()["restarts of nodes that publish topics"] == 1


@pytest.mark.parametrize("late", [20, 100])
async def test_a_node_that_starts_anew_has_a_minute_to_create_its_topic_again(
    c: Node, late: int, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = await attached(c)
    lost, ended = list[int | None](), list[ResultCode]()
    there = await Recorder.on(c, "there")
    async with Node("a") as a:
        ours = await publishing(a)
        await joined((c, theirs), a)
        tell(ours, theirs)
        await theirs.subscribe(TOPIC, "there", on_lost=lost.append, on_end=ended.append)
    async with Node("a") as a:
        anew = await attached(a)
        await joined((c, theirs), a)
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(late)
        await Recorder.on(a, "owner")
        owner = anew.engine("owner")
        told = TopicAdvert(TOPIC, (), (owner, anew.own), SCOPE_ANY, 1, MILLISECONDS)
        advert = sign_advert(told, TOPIC_KEY)
        anew.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=advert)
        if late > 60:
            assert ended == [ResultCode.UNKNOWN]
            reason = "topics that their node did not have again in time"
            assert theirs.refused() == {reason: 1}
            assert "has ended here: UNKNOWN" in caplog.text
            assert len(theirs.topics()) == 1
            return
        assert ended == []
        a.send(TEXT, b"kept")  # before any node is subscribed no event has a number
        await asyncio.sleep(20)
        a.send(TEXT, b"again")
        assert (await there.next()).payload == b"again"
        assert (ended, lost) == ([], [None])


async def test_a_subscriber_that_is_early_has_the_topic_once_it_is_created(
    a: Node, c: Node
) -> None:
    theirs, ours = await attached(c), await attached(a)
    await joined((c, theirs), a)
    there = await Recorder.on(c, "there")
    await Recorder.on(a, "owner")
    told = TopicAdvert(TOPIC, (), (ours.engine("owner"), ours.own), SCOPE_ANY, 1, MILLISECONDS)
    advert = sign_advert(told, TOPIC_KEY)
    theirs.directory.put(advert, AdvertSource.LOCAL)
    asked = c.loop.create_task(theirs.subscribe(TOPIC, "there"))
    await asyncio.sleep(10)
    assert not asked.done()
    ours.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=advert)
    await asyncio.sleep(10)
    await asked
    a.send(TEXT, b"first")
    assert (await there.next()).payload == b"first"


async def test_a_topic_that_its_node_never_creates_is_unknown(a: Node, c: Node) -> None:
    theirs, ours = await attached(c), await attached(a)
    await joined((c, theirs), a)
    await Recorder.on(c, "there")
    told = TopicAdvert(TOPIC, (), (ours.own,), SCOPE_ANY, 1, MILLISECONDS)
    theirs.directory.put(sign_advert(told, TOPIC_KEY), AdvertSource.LOCAL)
    began = c.loop.time()
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        await theirs.subscribe(TOPIC, "there")
    assert c.loop.time() - began == pytest.approx(30.0, abs=0.1)
    assert len(theirs.topics()) == 1


async def test_a_topic_that_others_learn_of_later_is_asked_for_again(
    a: Node, b: Node, c: Node
) -> None:
    ours, between, theirs = await attached(a), await attached(b), await attached(c)
    await joined((a, ours), b)
    await joined((c, theirs), b)
    await joined((c, theirs), a)
    del between
    await Recorder.on(c, "there")
    asked = c.loop.create_task(theirs.subscribe(TOPIC, "there"))
    await asyncio.sleep(10)
    # It hears of it by no node that tells it.
    await Recorder.on(a, "owner")
    told = TopicAdvert(TOPIC, (), (ours.own,), SCOPE_ANY, 1, MILLISECONDS)
    advert = sign_advert(told, TOPIC_KEY)
    sessions = ours._router.peers.sessions
    for session in sessions.values():
        session.is_greeted = False
    ours.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=advert)
    for session in sessions.values():
        session.is_greeted = True
    await asyncio.sleep(10)
    await asked


async def dialled_topic(a: Node, c: Node) -> tuple[Identities, Identities]:
    """Have a node publish a topic that another one knows by adverts alone, and may dial."""
    ours, theirs = await publishing(a), await attached(c, dials=("memory",))
    listener = await a.listen("memory://publisher", expose=[ROUTER])
    ours.advertise(listener.uri)
    for each in (*ours.directory.adverts_for(TOPIC), ours._router.own_adverts.of_node()):
        theirs.directory.put(each, AdvertSource.LOCAL)
    return ours, theirs


async def test_a_subscription_dials_the_node_of_its_topic(a: Node, c: Node) -> None:
    ours, theirs = await dialled_topic(a, c)
    there = await subscribed(theirs, "there")
    assert theirs.peers() == (ours.own,)
    a.send(TEXT, b"near")
    assert (await there.next()).payload == b"near"
    assert theirs._router.dialling.counts == {"opened": 1}


async def test_a_node_of_topics_that_is_lost_is_dialled_again(a: Node, c: Node) -> None:
    ours, theirs = await dialled_topic(a, c)
    there = await subscribed(theirs, "there")
    peers = theirs._router.peers
    for _ in range(2):
        peers._disconnect(peers.sessions[ours.own], "a test")
        await is_alone(ours)
        a.send(TEXT, b"missed")
        await asyncio.sleep(3)
        assert theirs.peers() == (ours.own,)
    await came(there, 2)
    theirs.unsubscribe(TOPIC, "there")
    peers._disconnect(peers.sessions[ours.own], "a test")
    await asyncio.sleep(100)
    assert theirs.peers() == ()
    assert theirs._router.dialling.counts == {"opened": 3}


async def test_a_subscription_dials_a_node_again_that_it_cannot_reach(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c, dials=("memory",))
    ours.advertise("memory://late publisher")
    for each in (*ours.directory.adverts_for(TOPIC), ours._router.own_adverts.of_node()):
        theirs.directory.put(each, AdvertSource.LOCAL)
    await Recorder.on(c, "there")
    asked = c.loop.create_task(theirs.subscribe(TOPIC, "there"))
    await asyncio.sleep(5)
    assert not asked.done()
    await a.listen("memory://late publisher", expose=[ROUTER])
    await asyncio.sleep(20)
    await asked
    assert theirs.peers() == (ours.own,)


async def test_a_topic_that_is_deleted_ends_at_other_nodes(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await joined((a, ours), c)
    tell(ours, theirs)
    ended: list[ResultCode] = []
    await Recorder.on(c, "there")
    await theirs.subscribe(TOPIC, "there", on_end=ended.append)
    ours.delete_topic(TOPIC, engine="owner")
    await eventually(lambda: ended == [ResultCode.UNKNOWN])
    assert len(theirs.topics()) == 1
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        await theirs.subscribe(TOPIC, "there")


async def test_the_last_subscriber_takes_the_subscription_of_its_node_with_it(
    a: Node, c: Node
) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await joined((a, ours), c)
    tell(ours, theirs)
    for name in ("one", "two"):
        await subscribed(theirs, name)
    theirs.unsubscribe(TOPIC, "one")
    assert len(theirs.topics()) == 2
    await c.stop_worker("two")
    await eventually(lambda: not ours.topics()[1].nodes)
    assert len(theirs.topics()) == 1


async def test_a_subscription_waits_until_its_topic_is_reached(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await Recorder.on(c, "there")
    tell(ours, theirs)
    asked = c.loop.create_task(theirs.subscribe(TOPIC, "there"))
    await asyncio.sleep(1)
    with pytest.raises(TopicRefused, match=": ALREADY_SUBSCRIBED"):
        await theirs.subscribe(TOPIC, "there")
    await joined((a, ours), c)
    await asked
    assert ours.topics()[1].nodes == (theirs.own,)


@pytest.mark.parametrize("early", [False, True])
async def test_other_nodes_are_asked_for_a_topic(a: Node, c: Node, early: bool) -> None:
    theirs = await attached(c)
    ours = await publishing(a, SCOPE_ANY, theirs.own)
    there, here = await Recorder.on(c, "there"), await subscribed(ours, "here")
    if not early:
        await joined((a, ours), c)
    c.send(TEXT, b"x")
    asked = c.loop.create_task(theirs.subscribe(TOPIC, "there"))
    await asyncio.sleep(1)
    if early:
        await joined((a, ours), c)
    await asked
    a.send(TEXT, b"y")
    await came(there, 1)
    await came(here, 2)
    assert (ours.refused(), theirs.refused()) == ({}, {})


async def test_the_nodes_that_are_linked_are_told_of_a_topic(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    await Recorder.on(a, "owner")
    ours.create_topic(TOPIC_KEY, engine="owner", scope=SCOPE_ANY)
    await eventually(lambda: theirs.directory.peek(TOPIC))


async def test_a_subscription_does_not_wait_for_ever(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await Recorder.on(c, "there")
    began = c.loop.time()
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        await theirs.subscribe(TOPIC, "there")
    assert c.loop.time() - began == pytest.approx(30.0, abs=0.1)
    link = await joined((a, ours), c)
    tell(ours, theirs)
    await asyncio.sleep(1)
    link.cut()
    await eventually(lambda: not theirs.peers())
    with pytest.raises(TopicRefused, match=": TIMEOUT"):
        await theirs.subscribe(TOPIC, "there")
    assert [each.topic for each in theirs.topics()] == [theirs.updates]


async def test_a_worker_that_ends_waits_for_no_topic(c: Node) -> None:
    theirs = await attached(c)
    await Recorder.on(c, "there")
    asked = c.loop.create_task(theirs.subscribe(TOPIC, "there"))
    await asyncio.sleep(1)
    await c.stop_worker("there")
    with pytest.raises(TopicRefused, match=": DENIED"):
        await asked


async def test_a_publication_waits_until_its_topic_is_found(a: Node, c: Node) -> None:
    theirs = await attached(c)
    ours = await publishing(a, SCOPE_ANY, theirs.own)
    here = await subscribed(ours, "here")
    c.send(TEXT, b"early")
    await joined((a, ours), c)
    c.send(TEXT, b"later")
    tell(ours, theirs)
    await eventually(lambda: payloads(here) == [b"early", b"later"])
    with pytest.raises(Unresolved, match="refuses it: unknown"):
        c.send(f"{TEXT}?scope=local", b"x")


async def test_a_topic_of_a_domain_is_for_its_members_alone(a: Node, b: Node, c: Node) -> None:
    ours = await publishing(a, IN_CLUB)
    member, other = await attached(b), await attached(c)
    for each in (b, c):
        await joined((a, ours), each)

    def members(version: int, *nodes: Identity) -> None:
        told = DomainAdvert(CLUB.identity, nodes, version, MILLISECONDS)
        for each in (ours, member, other):
            each.directory.put(sign_advert(told, CLUB), AdvertSource.LOCAL)

    tell(ours, member, other)
    await Recorder.on(b, "early")
    with pytest.raises(TopicRefused, match=": SCOPE"):
        await member.subscribe(TOPIC, "early")
    members(1, ours.own, member.own)
    await asyncio.sleep(1)
    ended: list[ResultCode] = []
    there = await Recorder.on(b, "there")
    await member.subscribe(TOPIC, "there", on_end=ended.append)
    await Recorder.on(c, "outside")
    with pytest.raises(TopicRefused, match=": SCOPE"):
        await other.subscribe(TOPIC, "outside")
    a.send(TEXT, b"x")
    await there.next()
    members(2, ours.own)
    await eventually(lambda: ended == [ResultCode.SCOPE])
    assert ours.topics()[1].nodes == ()


async def test_a_ban_ends_subscriptions_at_both_ends(a: Node, b: Node, c: Node) -> None:
    ours = await publishing(a)
    second, third = await attached(b), await attached(c)
    for each in (b, c):
        await joined((a, ours), each)
    tell(ours, second, third)
    ended: list[ResultCode] = []
    await Recorder.on(b, "there")
    await second.subscribe(TOPIC, "there", on_end=ended.append)
    await subscribed(third, "there")
    second.ban(ours.own)
    assert ended == [ResultCode.DENIED]
    ours.ban(third.own)
    # A ban says nothing to the other node.
    await eventually(lambda: ours.topics()[1].nodes == (second.own,))
    third.ban(TOPIC)
    await eventually(lambda: len(third.topics()) == 1)
    with pytest.raises(TopicRefused, match=": DENIED"):
        await third.subscribe(TOPIC, "there")


async def test_a_topic_that_moves_is_followed_at_its_new_node(a: Node, b: Node, c: Node) -> None:
    ours, second, third = await publishing(a), await attached(b), await attached(c)
    for each in ((a, ours), (b, second)):
        await joined(each, c)
    tell(ours, third)
    lost: list[int | None] = []
    there = await Recorder.on(c, "there")
    await third.subscribe(TOPIC, "there", on_lost=lost.append)
    await Recorder.on(b, "owner")
    told = TopicAdvert(TOPIC, (), (second.own,), SCOPE_ANY, 2, MILLISECONDS)
    advert = sign_advert(told, TOPIC_KEY)
    second.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=advert)
    third.directory.put(advert, AdvertSource.LOCAL)
    await eventually(lambda: second.topics()[1].nodes == (third.own,))
    assert ours.topics()[1].nodes == ()
    b.send(TEXT, b"moved")
    assert (await there.next()).payload == b"moved"
    assert lost == [None]


# --- hostile nodes ----------------------------------------------------------------------------


def written(
    key: SigningKey = STRANGE,
    number: int = 0,
    *,
    topic: Identity = TOPIC,
    kind: DestinationKind = DestinationKind.TOPIC,
    protocol: Protocol = ONWARD,
    expiry: int = MILLISECONDS + 60_000,
    body: bytes | None = None,
) -> bytes:
    """Return the signed message of a source."""
    message = Message((ENGINE,), (), b"hi")
    return sign_engine_message(
        EngineMessage(
            key.identity,
            Destination(kind, topic),
            (MILLISECONDS + 30_000 << 20) + number,
            protocol,
            encode_message(message) if body is None else body,
            expiry=expiry,
        ),
        key,
    )


class StrangePublisher:
    """A node that publishes a topic as a test says."""

    def __init__(self, strange: StrangeNode) -> None:
        self.strange = strange
        self.next = first_number(MILLISECONDS)

    def say(self, record: TopicRecord) -> None:
        self.strange.say(ControlContent(serialize_topic_record(record)))

    async def hear(self) -> TopicRecord:
        """Return the next record about topics; what else the router says is none."""
        while True:
            content = (await self.strange.said()).content
            if isinstance(content, ControlContent) and b"\x20" <= content.record[2:3] < b"\x30":
                with suppress(BadRecord):
                    return parse_topic_record(content.record)

    def event(
        self,
        body: bytes,
        *,
        topic: Identity = TOPIC,
        key: SigningKey = STRANGE,
        number: int | None = None,
    ) -> EventRecord:
        if number is None:
            number, self.next = self.next, self.next + 1
        return EventRecord(sign_event(Event(topic, key.identity, number, body), key))


async def strange_topic(a: Node, theirs: Identities, recorder: str) -> StrangePublisher:
    """Have a worker subscribed to a topic of a node that says what a test says."""
    strange = StrangePublisher(await StrangeNode.on(a, theirs.node, STRANGE))
    told = TopicAdvert(TOPIC, (), (STRANGE.identity,), SCOPE_ANY, 1, MILLISECONDS)
    theirs.directory.put(sign_advert(told, TOPIC_KEY), AdvertSource.LOCAL)
    await eventually(theirs.peers)
    asked = theirs.node.loop.create_task(theirs.subscribe(TOPIC, recorder))
    asks = await strange.hear()
    assert isinstance(asks, SubscribeTopic)
    strange.say(TopicSubscribed(TOPIC, asks.request, ResultCode.OK, strange.next))
    await asked
    return strange


async def test_an_event_as_it_should_be_is_delivered_once(a: Node, c: Node) -> None:
    theirs = await attached(c)
    there = await Recorder.on(c, "there")
    strange = await strange_topic(a, theirs, "there")
    event = strange.event(written())
    strange.say(event)
    strange.say(event)
    strange.say(strange.event(written(number=0)))  # the same message in another event
    strange.say(strange.event(written(number=1)))
    await eventually(lambda: len(there.messages) == 2)
    assert theirs.refused() == {"publications that came again": 1}
    report = theirs.topics()[1]
    assert report.published == 3
    assert report.dropped == {"came before, or are older than the next one": 1}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"key": key_of("other")}, "events of sources that may not publish"),
        (
            {"kind": DestinationKind.ENGINE},
            "events with a message to another destination",
        ),
        (
            {"topic": key_of("other topic").identity},
            "events with a message to another destination",
        ),
        ({"protocol": Protocol("onward", 2)}, "messages of another protocol"),
        ({"expiry": MILLISECONDS - 700_000}, "events that are too old"),
        ({"body": b"\xff"}, "events without a message that can be read"),
        (
            {"body": encode_message(Message((Address(36, b"by:x"),), (), b""))},
            "messages with an address of the router",
        ),
        (
            {"body": encode_message(Message((ENGINE,), (Address(36, b"reply:x"),), b""))},
            "messages with an address of the router",
        ),
    ],
)
async def test_an_event_with_a_message_that_is_not_as_it_should_be_is_dropped(
    a: Node, c: Node, given: dict[str, object], reason: str
) -> None:
    theirs = await attached(c)
    there = await Recorder.on(c, "there")
    strange = await strange_topic(a, theirs, "there")
    strange.say(strange.event(written(**given)))  # type: ignore[arg-type]
    strange.say(strange.event(written(number=9)))
    await there.next()
    assert theirs.refused() == {reason: 1}


async def test_events_of_strangers_and_forged_ones_are_dropped(a: Node, b: Node, c: Node) -> None:
    theirs = await attached(c)
    there = await Recorder.on(c, "there")
    strange = await strange_topic(a, theirs, "there")
    other = StrangePublisher(await StrangeNode.on(b, c, key_of("other")))
    await eventually(lambda: len(theirs.peers()) == 2)
    foreign = "records of topics that are not followed there"
    # Of a node that publishes nothing: no signature is looked at.
    other.say(EventRecord(b"\x00"))
    other.say(strange.event(written()))
    other.say(TopicProgress(TOPIC, 0, 2**60))
    other.say(TopicUnsubscribed(TOPIC, 0, ResultCode.UNKNOWN))
    await eventually(lambda: theirs.refused() == {foreign: 4})
    # Of the right node: another topic, another publisher, a forged event, no event.
    strange.next -= 1
    strange.say(strange.event(written(), topic=key_of("third").identity, number=strange.next))
    strange.say(strange.event(written(), key=key_of("other"), number=strange.next))
    envelope = strange.event(written(), number=strange.next).envelope
    strange.say(EventRecord(envelope[:-1] + bytes((envelope[-1] ^ 1,))))
    strange.say(EventRecord(b"\x00"))
    forged = written()
    strange.say(strange.event(forged[:-1] + bytes((forged[-1] ^ 1,))))
    strange.strange.say(ControlContent(b"\x82\x18\x28\x00"))
    strange.say(strange.event(written(number=5)))
    await there.next()
    assert len(there.messages) == 1
    assert theirs.refused() == {
        foreign: 5,
        "events with a wrong signature": 1,
        "events with a wrong signature of their source": 1,
        "records that cannot be read": 2,
    }


async def test_a_node_that_starts_anew_and_keeps_its_link_is_asked_again(a: Node, c: Node) -> None:
    theirs = await attached(c)
    await Recorder.on(c, "there")
    strange = await strange_topic(a, theirs, "there")
    strange.strange.say(ControlContent(serialize_greeting(Greeting(1, MILLISECONDS))))
    assert isinstance(await strange.hear(), SubscribeTopic)


async def test_gaps_are_asked_for_and_given_up_in_the_end(
    a: Node, c: Node, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = await attached(c)
    there = await Recorder.on(c, "there")
    strange = await strange_topic(a, theirs, "there")
    missed = strange.event(written(number=0))
    strange.say(strange.event(written(number=1)))
    asks = await strange.hear()
    assert asks == ResendEvents(TOPIC, first_number(MILLISECONDS), 1)
    assert there.messages == []
    strange.say(missed)
    await eventually(lambda: len(there.messages) == 2)
    strange.event(written(number=2))
    strange.say(strange.event(written(number=3)))
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(60)
    assert len(there.messages) == 3
    assert "were lost: 1" in caplog.text
    assert theirs.topics()[1].lost == 1


async def test_what_is_not_published_here_is_refused_to_other_nodes(a: Node, c: Node) -> None:
    ours = await publishing(c)
    ours.create_topic(key_of("near").identity, engine="owner")
    strange = StrangePublisher(await StrangeNode.on(a, c, STRANGE))
    for topic in (key_of("none").identity, key_of("near").identity):
        strange.say(SubscribeTopic(topic, 7))
        assert await strange.hear() == TopicSubscribed(topic, 7, ResultCode.UNKNOWN)
        strange.say(UnsubscribeTopic(topic, 8))
        assert await strange.hear() == TopicUnsubscribed(topic, 8, ResultCode.NOT_SUBSCRIBED)
    strange.say(ResendEvents(key_of("none").identity, 0, 1))
    strange.say(ResendEvents(TOPIC, 0, 1))
    strange.say(SubscribeTopic(TOPIC, 9))
    answer = await strange.hear()
    assert isinstance(answer, TopicSubscribed)
    assert answer.result is ResultCode.OK
    assert ours.refused() == {"records of topics that are not here": 1}
    assert ours.topics()[1].dropped == {"asked for by a node that is not subscribed": 1}


async def test_threats_5_and_14_a_publication_that_comes_again_goes_out_once(
    a: Node, c: Node
) -> None:
    ours = await publishing(c, SCOPE_ANY, STRANGE.identity)
    here = await subscribed(ours, "here")
    strange = StrangePublisher(await StrangeNode.on(a, c, STRANGE))
    strange.say(SubscribeTopic(TOPIC, 1))
    answer = await strange.hear()
    assert isinstance(answer, TopicSubscribed)
    strange.strange.say(EngineContent(written()))
    event = await strange.hear()
    assert isinstance(event, EventRecord)
    assert written() in event.envelope
    strange.strange.say(EngineContent(written()))
    strange.strange.say(EngineContent(written(number=1)))
    await strange.hear()
    # An event is no publication: what a node sends as one goes nowhere.
    strange.say(event)
    strange.strange.say(EngineContent(written(number=2, kind=DestinationKind.ENGINE)))
    await eventually(lambda: len(ours.refused()) == 3)
    assert len(here.messages) == 2
    assert ours.refused() == {
        "messages that are not fresh: it was received before": 1,
        "records of topics that are not followed there": 1,
        "messages that the router refuses: not-here": 1,
    }


async def test_a_node_publishes_only_as_its_topic_allows(a: Node, c: Node) -> None:
    ours = await publishing(c)
    ours.create_topic(key_of("near").identity, engine="owner")
    here = await subscribed(ours, "here")
    strange = await StrangeNode.on(a, c, STRANGE)
    strange.say(EngineContent(written()))
    strange.say(EngineContent(written(topic=key_of("near").identity)))
    await eventually(lambda: len(ours.refused()) == 2)
    assert ours.refused() == {
        "publications that were refused": 1,
        "messages that the router refuses: not-here": 1,
    }
    assert here.messages == []


async def test_threat_22_a_node_that_takes_no_frames_holds_up_no_other(
    a: Node, b: Node, c: Node
) -> None:
    ours = await publishing(a)
    second, third = await attached(b), await attached(c)
    slow = await joined((a, ours), b)
    await joined((a, ours), c)
    tell(ours, second, third)
    late, there = await subscribed(second, "there"), await subscribed(third, "there")
    del slow
    session = ours._router.peers.sessions[second.own]
    session.waiting.extend([Waiting(b"", True, ignore)] * 1000)
    for number in range(3):
        a.send(TEXT, b"%d" % number)
        await there.next()
    assert late.messages == []
    assert ours.refused() == {"records of topics that a node did not take": 3}
    session.waiting.clear()
    a.send(TEXT, b"3")
    await eventually(lambda: payloads(late) == [b"0", b"1", b"2", b"3"])


async def test_the_loss_of_the_last_event_is_seen(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await joined((a, ours), c)
    tell(ours, theirs)
    there = await subscribed(theirs, "there")
    session = ours._router.peers.sessions[theirs.own]
    session.waiting.extend([Waiting(b"", True, ignore)] * 1000)
    a.send(TEXT, b"last")
    await eventually(ours.refused)
    session.waiting.clear()
    await asyncio.sleep(11)
    assert payloads(there) == [b"last"]


async def test_a_topic_of_this_node_alone_is_found_nowhere(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    told = TopicAdvert(TOPIC, (), (ours.own,), SCOPE_LOCAL, 1, MILLISECONDS)
    theirs.directory.put(sign_advert(told, TOPIC_KEY), AdvertSource.LOCAL)
    await Recorder.on(c, "there")
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        await theirs.subscribe(TOPIC, "there")


# --- limits, and what ends in between ---------------------------------------------------------


async def test_a_subscription_that_is_given_up_is_none(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await Recorder.on(c, "there")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await theirs.subscribe(TOPIC, "there")
    await joined((a, ours), c)
    tell(ours, theirs)
    await asyncio.sleep(1)
    assert ours.topics()[1].nodes == ()
    assert len(theirs.topics()) == 1


async def test_a_subscription_that_is_given_up_while_it_is_asked_for_is_left(
    a: Node, c: Node
) -> None:
    theirs = await attached(c)
    await Recorder.on(c, "there")
    strange = StrangePublisher(await StrangeNode.on(a, c, STRANGE))
    await eventually(theirs.peers)
    told = TopicAdvert(TOPIC, (), (STRANGE.identity,), SCOPE_ANY, 1, MILLISECONDS)
    theirs.directory.put(sign_advert(told, TOPIC_KEY), AdvertSource.LOCAL)
    with pytest.raises(TopicRefused, match=": TIMEOUT"):
        await theirs.subscribe(TOPIC, "there")
    asked: list[TopicRecord] = []
    while not isinstance(record := await strange.hear(), UnsubscribeTopic):
        asked.append(record)
    assert len(asked) == 6
    strange.say(TopicSubscribed(TOPIC, 1, ResultCode.OK, 0))
    reason = "records of topics that are not followed there"
    await eventually(lambda: theirs.refused() == {reason: 1})


@pytest.mark.parametrize("result", [ResultCode.UNKNOWN, ResultCode.SCOPE, ResultCode.OVERFLOW])
async def test_a_node_that_refuses_ends_what_waits(a: Node, c: Node, result: ResultCode) -> None:
    theirs = await attached(c)
    for name in ("one", "two"):
        await Recorder.on(c, name)
    strange = StrangePublisher(await StrangeNode.on(a, c, STRANGE))
    await eventually(theirs.peers)
    told = TopicAdvert(TOPIC, (), (STRANGE.identity,), SCOPE_ANY, 1, MILLISECONDS)
    theirs.directory.put(sign_advert(told, TOPIC_KEY), AdvertSource.LOCAL)
    asked = [c.loop.create_task(theirs.subscribe(TOPIC, name)) for name in ("one", "two")]
    asks = await strange.hear()
    assert isinstance(asks, SubscribeTopic)
    strange.say(TopicSubscribed(TOPIC, asks.request, result))
    for each in asked:
        with pytest.raises(TopicRefused, match=f": {result.name}"):
            await each


async def test_a_topic_beyond_the_limit_is_not_followed(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c, max_topics=1)
    await joined((a, ours), c)
    await Recorder.on(c, "there")
    theirs.create_topic(key_of("mine").identity, engine="there")
    with pytest.raises(TopicRefused, match=": OVERFLOW"):
        await theirs.subscribe(TOPIC, "there")
    await eventually(lambda: ours.topics()[1].nodes == ())


async def test_a_topic_that_its_subscribers_may_not_have_is_left(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a, IN_CLUB), await attached(c)
    await joined((a, ours), c)
    told = DomainAdvert(CLUB.identity, (ours.own, theirs.own), 1, MILLISECONDS)
    other = key_of("other club")
    for each in (ours, theirs):
        each.directory.put(sign_advert(told, CLUB), AdvertSource.LOCAL)
    both = DomainAdvert(other.identity, (ours.own, theirs.own), 1, MILLISECONDS)
    theirs.directory.put(sign_advert(both, other), AdvertSource.LOCAL)
    tell(ours, theirs)
    await asyncio.sleep(1)
    await Recorder.on(c, "there")
    with pytest.raises(TopicRefused, match=": SCOPE"):
        await theirs.subscribe(TOPIC, "there", scope=RoutingScope(ScopeKind.DOMAIN, other.identity))
    await eventually(lambda: ours.topics()[1].nodes == ())
    assert len(theirs.topics()) == 1
    await theirs.subscribe(TOPIC, "there", scope=IN_CLUB)


async def test_more_subscriptions_than_may_wait_are_refused(
    c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.topics._subscriptions._MOST_WAITING", 1)
    monkeypatch.setattr("onward.actors.identity.topics._followings._MOST_SOUGHT", 1)
    monkeypatch.setattr("onward.actors.identity.topics._places._MOST_WATCHED", 2)
    theirs = await attached(c)
    for name in ("one", "two"):
        await Recorder.on(c, name)
    asked = c.loop.create_task(theirs.subscribe(TOPIC, "one"))
    await asyncio.sleep(0)
    for topic in (TOPIC, key_of("other topic").identity):
        with pytest.raises(TopicRefused, match=": OVERFLOW"):
            await theirs.subscribe(topic, "two")
    for number in range(3):
        c.send(f"36#topic:{identity_text(key_of(str(number)).identity)}", b"x")
    await asyncio.sleep(1)
    followings = theirs._topics.network.followings
    assert len(followings._sought) == 1
    assert len(followings.places.watched) <= 4
    with pytest.raises(TopicRefused, match=": UNKNOWN"):
        await asked


async def test_a_publication_to_a_part_of_a_topic_is_refused(a: Node, c: Node) -> None:
    theirs = await attached(c)
    ours = await publishing(a, SCOPE_ANY, theirs.own)
    await joined((a, ours), c)
    here = await subscribed(ours, "here")
    told = DomainAdvert(CLUB.identity, (ours.own, theirs.own), 1, MILLISECONDS)
    theirs.directory.put(sign_advert(told, CLUB), AdvertSource.LOCAL)
    c.send(TEXT, b"all")
    await here.next()
    c.send(f"{TEXT}?scope={identity_text(CLUB.identity)}", b"some")
    await eventually(lambda: ours.refused() == {"publications for a part of their topic": 1})
    assert payloads(here) == [b"all"]


async def test_a_publication_too_big_for_an_event_is_refused_for_all(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await joined((a, ours), c)
    here, there = await subscribed(ours, "here"), await subscribed(theirs, "there")
    a.send(TEXT, bytes(1024 * 1024))
    a.send(TEXT, b"small")
    await came(there, 1)
    assert payloads(here) == [b"small"]
    assert ours.refused() == {"publications that were refused": 1}


async def test_a_source_at_a_node_that_is_banned_is_heard_no_more(
    a: Node, b: Node, c: Node
) -> None:
    second, third = await attached(b), await attached(c)
    await Recorder.on(b, "writer")
    writer = second.engine("writer")
    ours = await publishing(a, SCOPE_ANY, writer)
    for each in (b, c):
        await joined((a, ours), each)
    there = await subscribed(third, "there")
    second.publish(TOPIC, b"before", source="writer")
    await came(there, 1)
    third.ban(second.own)
    second.publish(TOPIC, b"after", source="writer")
    a.send(TEXT, b"other")
    await came(there, 2)
    assert payloads(there) == [b"before", b"other"]
    assert third.refused() == {"events of sources that are banned": 1}


async def test_a_source_that_is_banned_is_heard_no_more(a: Node, b: Node, c: Node) -> None:
    second, third = await attached(b), await attached(c)
    await Recorder.on(b, "writer")
    writer = second.engine("writer", key_of("writer"))
    ours = await publishing(a, SCOPE_ANY, writer)
    for each in (b, c):
        await joined((a, ours), each)
    there = await subscribed(third, "there")
    second.publish(TOPIC, b"before", source="writer")
    await came(there, 1)
    third.ban(writer)
    second.publish(TOPIC, b"after", source="writer")
    a.send(TEXT, b"other")
    await came(there, 2)
    assert payloads(there) == [b"before", b"other"]
    assert third.refused() == {"events of sources that are banned": 1}


async def test_a_newer_advert_says_which_sources_publish(a: Node, b: Node, c: Node) -> None:
    second, third = await attached(b), await attached(c)
    ours = await publishing(a)
    for each in (b, c):
        await joined((a, ours), each)
    tell(ours, third)
    there = await subscribed(third, "there")
    told = TopicAdvert(TOPIC, (), (ours.own,), SCOPE_ANY, 2, MILLISECONDS)
    third.directory.put(sign_advert(told, TOPIC_KEY), AdvertSource.LOCAL)
    await asyncio.sleep(1)
    ours.publish(TOPIC, b"owner", source="owner")
    ours.publish(TOPIC, b"node")
    await came(there, 1)
    assert payloads(there) == [b"node"]
    assert third.refused() == {"events of sources that may not publish": 1}
    assert second.refused() == {}


async def test_what_the_router_alone_writes_leads_to_no_topic(a: Node, c: Node) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await joined((a, ours), c)
    _, link = ours._router.links.get((ours.own, theirs.own))
    a.send([link, Carriage(DestinationKind.TOPIC).address], b"x")
    a.send([link, reply_address(DestinationKind.TOPIC, b"x")], b"x")
    await eventually(lambda: a.dead_letters.total == 2)
    assert a.dead_letters.by_reason == {"not exposed": 2}


async def test_a_full_mailbox_costs_a_copy_of_an_event_of_ones_own(a: Node, c: Node) -> None:
    theirs = await attached(c)
    await Recorder.on(c, "writer")
    ours = await publishing(a, SCOPE_ANY, theirs.engine("writer"))
    await joined((a, ours), c)
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
    await theirs.subscribe(TOPIC, "stuck")
    there = await subscribed(theirs, "there")
    for number in range(4):
        theirs.publish(TOPIC, b"%d" % number, source="writer")
        await came(there, number + 1)
    assert theirs.refused() == {"copies that a subscriber did not take": 2}
    stuck.go_on.set()
    await came(stuck, 2)


async def test_threat_22_copies_for_a_subscriber_that_is_stuck_do_not_pile_up(
    a: Node, c: Node
) -> None:
    ours, theirs = await publishing(a), await attached(c)
    await joined((a, ours), c)
    tell(ours, theirs)
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
    await theirs.subscribe(TOPIC, "stuck")
    there = await subscribed(theirs, "there")
    a.send(TEXT, b"first")
    await came(there, 1)
    await asyncio.sleep(1)
    for number in range(49):
        a.send(TEXT, b"%d" % number)
    await came(there, 50)
    # One is handled, and one waits; the others are dead letters, and no publisher is told.
    assert theirs.refused() == {"copies that a subscriber did not take": 48}
    assert c.dead_letters.by_reason == {"mailbox full": 48}
    assert a.dead_letters.total == 0
    stuck.go_on.set()
    await came(stuck, 2)


async def test_a_publication_waits_for_a_link_to_its_node(a: Node, c: Node) -> None:
    theirs = await attached(c)
    ours = await publishing(a, SCOPE_ANY, theirs.own)
    here = await subscribed(ours, "here")
    tell(ours, theirs)
    for each in ours.directory.adverts_for(TOPIC):
        theirs.directory.put(each, AdvertSource.LOCAL)
    c.send(TEXT, b"early")
    assert c.statistics().pending == 1
    await joined((a, ours), c)
    assert (await here.next()).payload == b"early"


@pytest.mark.parametrize("seed", range(times(few=8, many=200)))
async def test_subscribers_of_a_random_network_see_one_order(seed: int) -> None:
    """Publications of three nodes, with links that are cut and made again, and restarts of none."""
    random = Random(seed)
    async with Node("a") as a, Node("b") as b, Node("c") as c:
        second, third = await attached(b), await attached(c)
        ours = await publishing(a, SCOPE_ANY, second.own, third.own)
        links = {each: await joined((a, ours), each.node) for each in (second, third)}
        tell(ours, second, third)
        lost: list[int | None] = []
        recorders: list[Recorder] = []
        for there in (ours, second, second, third):
            name = f"subscriber {len(recorders)}"
            recorders.append(await Recorder.on(there.node, name))
            await there.subscribe(TOPIC, name, on_lost=lost.append)
        of: list[Identities] = []
        for number in range(60):
            there = random.choice((ours, second, third))
            of.append(there)
            if there is not ours and random.random() < 0.15:
                links[there].cut()
                await is_alone(there)
                await eventually(lambda: len(ours.peers()) == 1)
                links[there] = await joined((a, ours), there.node)
            there.publish(TOPIC, b"%d" % number)
            await asyncio.sleep(random.choice((0, 0.001, 0.1)))
        await asyncio.sleep(30)
        assert len({tuple(payloads(each)) for each in recorders}) == 1
        assert lost == []
        seen = [int(each) for each in payloads(recorders[0])]
        assert len(set(seen)) == len(seen)
        # A publication on its way to the node of the topic is lost with the link, and none else.
        assert set(seen) >= {number for number, there in enumerate(of) if there is ours}
        for there in (ours, second, third):
            ones = [number for number in seen if of[number] is there]
            assert ones == sorted(ones)


def any_record(random: Random, strange: StrangePublisher) -> TopicRecord:
    """Return a record with numbers at their ends, about a topic that is here, or is not."""
    topic = random.choice((TOPIC, key_of("mine").identity, key_of("none").identity))
    number = random.choice((0, 1, strange.next, strange.next + 255, 2**63, 2**64 - 1))
    other = random.choice((0, strange.next, 2**64 - 1))
    result = random.choice((ResultCode.OK, ResultCode.UNKNOWN))
    match random.randrange(7):
        case 0:
            return SubscribeTopic(topic, number)
        case 1:
            return TopicSubscribed(topic, number, result, other)
        case 2:
            return UnsubscribeTopic(topic, number)
        case 3:
            return TopicUnsubscribed(topic, max(1, number), result)
        case 4:
            return TopicProgress(topic, min(number, other), max(number, other))
        case 5:
            return ResendEvents(topic, number, random.choice((1, RING_EVENTS)))
        case _:
            body = random.choice((b"", written(number=random.randrange(99))))
            return strange.event(body, topic=topic, number=min(number, 2**64 - 2))


@pytest.mark.parametrize("seed", range(times(few=8, many=300)))
async def test_whatever_a_node_says_about_topics_the_router_stays_up(
    a: Node, c: Node, seed: int
) -> None:
    random = Random(seed)
    theirs = await attached(c)
    await Recorder.on(c, "there")
    mine = key_of("mine")
    theirs.create_topic(mine, engine="there", scope=SCOPE_ANY)
    strange = await strange_topic(a, theirs, "there")
    for _ in range(60):
        record = serialize_topic_record(any_record(random, strange))
        if random.random() < 0.2:
            at = random.randrange(3, len(record))
            record = record[:at] + random.randbytes(1) + record[at + 1 :]
        strange.strange.say(ControlContent(record))
        if random.random() < 0.1:
            theirs.publish(mine.identity, b"x", source="there")
            await asyncio.sleep(random.choice((0, 1, 20)))
    await asyncio.sleep(120)
    assert theirs.peers()
    assert c.statistics(workers=False).failed == 0
    # Whatever became of the subscription, the topics of the node itself go on.
    here = await Recorder.on(c, "here")
    await theirs.subscribe(mine.identity, "here")
    theirs.publish(mine.identity, b"after", source="there")
    assert (await here.next()).payload == b"after"


async def test_what_waits_is_not_looked_at_for_each_greeting(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await Recorder.on(c, "screen")
    asked = asyncio.create_task(ours.subscribe(TOPIC, "screen"))
    followings = ours._topics.network.followings
    await eventually(lambda: len(followings.waiting) and followings._look_at is None)
    before = c.statistics().handled
    for _ in range(10):
        strange.say(ControlContent(serialize_greeting(Greeting(0, 0))))
    await eventually(lambda: c.statistics().handled >= before + 10)
    assert followings._look_at is None
    asked.cancel()


async def test_what_is_published_follows_the_publisher_to_its_new_node(
    a: Node, b: Node, c: Node
) -> None:
    own, owner = key_of("a").identity, key_of("owner")
    ours, before, after = await attached(a), await attached(b), await attached(c)
    await joined((a, ours), b)
    await joined((a, ours), c)
    told = TopicAdvert(TOPIC, (), (owner.identity, own), SCOPE_ANY, 1, MILLISECONDS)
    advert = sign_advert(told, TOPIC_KEY)

    async def take(there: Identities, name: str) -> Recorder:
        await Recorder.on(there.node, "owner")
        there.engine("owner", owner)
        there.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=advert)
        recorder = await Recorder.on(there.node, name)
        await there.subscribe(TOPIC, name)
        return recorder

    old = await take(before, "old")
    await eventually(lambda: ours._router.is_at(owner.identity, before.own))
    a.send(TEXT, b"there")
    await came(old, 1)
    await b.stop_worker("owner")
    await asyncio.sleep(1)  # of the virtual clock: its advert is newer
    new = await take(after, "new")
    await eventually(lambda: ours._router.is_at(owner.identity, after.own))
    await eventually(lambda: not ours.directory.directory.has_updates)  # routes follow it
    a.send(TEXT, b"here")
    await came(new, 1)
    assert before.refused() == {}
    # An advert of the publisher without a node of use leads nowhere.
    told_of = EngineAdvert(owner.identity, ours.own, None, 2**32 - 1, MILLISECONDS)
    ours.directory.put(sign_advert(told_of, owner), AdvertSource.LOCAL)
    await eventually(lambda: not ours.directory.directory.has_updates)
    a.send(TEXT, b"nowhere")
    await asyncio.sleep(1)
    assert payloads(new) == [b"here"]
    assert ours._router.table.route(Destination(DestinationKind.TOPIC, TOPIC)) is None


async def test_places_of_topics_have_a_limit(c: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.actors.identity.topics._places._MOST_PLACED", 2)
    theirs = await attached(c)
    router, places = theirs._router, theirs._topics.network.followings.places
    keys = [key_of(f"topic {number}") for number in range(3)]
    node = sign_advert(NodeAdvert(STRANGE.identity, (), bytes(32), 1, MILLISECONDS), STRANGE)
    theirs.directory.put(node, AdvertSource.LOCAL)

    def at(key: SigningKey) -> object:
        return router.table.route(Destination(DestinationKind.TOPIC, key.identity))

    for key in keys:
        told = TopicAdvert(key.identity, (), (STRANGE.identity,), SCOPE_ANY, 1, MILLISECONDS)
        theirs.directory.put(sign_advert(told, key), AdvertSource.LOCAL)
        assert places.learn(key.identity) is not None
    # The oldest one is found anew when it is needed.
    assert [at(key) is None for key in keys] == [True, False, False]
    assert places.learn(keys[0].identity) is not None
    assert [at(key) is None for key in keys] == [False, True, False]


async def test_what_is_published_to_a_topic_that_has_moved_goes_to_its_node(
    a: Node, b: Node, c: Node
) -> None:
    own = key_of("a").identity
    before, ours = await publishing(b, SCOPE_ANY, own), await attached(a)
    after = await attached(c)
    await joined((a, ours), b)
    await joined((a, ours), c)
    old, new = await subscribed(before, "old"), await Recorder.on(c, "new")
    tell(before, ours)
    a.send(TEXT, b"there")
    await came(old, 1)
    await Recorder.on(c, "owner")
    told = TopicAdvert(TOPIC, (), (after.engine("owner"), own), SCOPE_ANY, 2, MILLISECONDS)
    advert = sign_advert(told, TOPIC_KEY)
    after.create_topic(TOPIC, engine="owner", scope=SCOPE_ANY, advert=advert)
    await after.subscribe(TOPIC, "new")
    await eventually(lambda: advert in ours.directory.adverts_for(TOPIC))
    await eventually(lambda: not ours.directory.directory.has_updates)  # routes follow it
    a.send(TEXT, b"here")
    await came(new, 1)
    assert payloads(old) == [b"there"]
