"""What another node may do to a node: to its router, its limits and its callers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import pytest

from onward.actors import Node, Worker
from onward.actors.identity import ROUTER, IdentityOptions, PeerRefused
from onward.actors.identity._carriage import ENGINE
from onward.actors.identity._outgoing import ONWARD
from onward.actors.identity.links._greetings import START_BURST, START_SECONDS
from onward.actors.identity.links._session import MAX_HANDSHAKE_MESSAGES, MAX_WAITING, Waiting
from onward.actors.testing import Probe
from onward.protocol import LinkDown, LinkLost, Message
from onward.protocol.identity import (
    AdvertEnvelope,
    AdvertRequest,
    AdvertResponse,
    AdvertSource,
    ControlContent,
    Destination,
    DestinationKind,
    EngineAdvert,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Greeting,
    LinkDialler,
    LinkRefusalCode,
    NodeAdvert,
    PutOutcome,
    ReservationRequest,
    Verifiers,
    derived_engine,
    parse_greeting,
    refuse_link,
    serialize_control,
    serialize_greeting,
    serialize_reservation_request,
    sign_advert,
    sign_engine_message,
)
from onward.protocol.ockam import encode_message
from tests.support.identities import (
    NOW,
    StrangeNode,
    attached,
    engine_text,
    joined,
    key_of,
    node_text,
)
from tests.support.transports import Echo, Recorder, eventually

STRANGE = key_of("strange")
SIGNED = int(NOW * 1000)
BANNED = PutOutcome.BANNED.value
LATEST = 2**42 - 1
"""The latest time that a greeting may have."""


def greeting(started: int, now: int, *adverts: AdvertEnvelope) -> ControlContent:
    return ControlContent(serialize_greeting(Greeting(started, now, adverts)))


@pytest.mark.parametrize("times", [(0, 2**64 - 1), (2**64 - 1, 0), (LATEST + 1, LATEST + 1)])
async def test_a_greeting_of_no_time_is_refused(a: Node, c: Node, times: tuple[int, int]) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE, greet=False)
    strange.say(greeting(*times))
    await eventually(lambda: ours.refused() == {"records that cannot be read": 1})
    assert ours.peers() == ()


@pytest.mark.parametrize("times", [(0, LATEST), (LATEST, 0), (LATEST, LATEST)])
async def test_a_node_with_a_wrong_clock_is_sent_messages(
    a: Node, c: Node, times: tuple[int, int]
) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE, greet=False)
    strange.say(greeting(*times))
    await eventually(ours.peers)
    for _ in range(3):
        c.send(f"{node_text(STRANGE.identity)} => x", b"hello")
        assert (await strange.said()).dst == STRANGE.identity
    assert ours.refused() == {}


async def test_nothing_is_taken_of_a_node_that_has_not_greeted(a: Node, c: Node) -> None:
    ours = await attached(c)
    recorder = await Recorder.on(c, "engine")
    engine = Destination(DestinationKind.ENGINE, ours.engine("engine"))
    strange = await StrangeNode.on(a, c, STRANGE, greet=False)
    body = encode_message(Message((ENGINE,), (), b"hi"))
    now = ours._router.milliseconds()
    begins, expires = now + 30_000 << 20, now + 60_000
    for number in range(3):
        message = EngineMessage(
            STRANGE.identity, engine, begins + number, ONWARD, body, expiry=expires
        )
        strange.say(EngineContent(sign_engine_message(message, STRANGE)))
        if number == 1:
            await eventually(lambda: ours.refused() == {"records before the greeting": 2})
            strange.say(greeting(0, 0))
    assert (await recorder.next()).payload == b"hi"
    assert len(recorder.messages) == 1


async def test_greetings_have_a_rate(a: Node, c: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.actors.identity.links._greetings.GREETING_BURST", 4)
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    for _ in range(9):
        strange.say(greeting(0, 0))
    await eventually(lambda: ours.refused() == {"greetings beyond those that a node may send": 6})
    await asyncio.sleep(1)  # of the virtual clock
    key = key_of("engine")
    advert = sign_advert(EngineAdvert(key.identity, STRANGE.identity, None, 7, SIGNED), key)
    strange.say(greeting(0, 0, advert))
    await eventually(lambda: ours._router.is_at(key.identity, STRANGE.identity))
    assert ours.peers() == (STRANGE.identity,)


async def test_a_node_is_not_started_anew_again_and_again(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    for number in range(1, 100):
        strange.say(greeting(number, 0))
    reason = "starts beyond those that a node may tell"
    await eventually(lambda: ours.refused() == {reason: 100 - START_BURST})
    # It goes by the last one that it was believed.
    assert ours._router.greetings.started(STRANGE.identity) == START_BURST - 1
    strange.say(greeting(START_BURST - 1, 0))
    await asyncio.sleep(START_SECONDS)  # of the virtual clock
    strange.say(greeting(1000, 0))
    await eventually(lambda: ours._router.greetings.started(STRANGE.identity) == 1000)
    assert ours.refused() == {reason: 100 - START_BURST}


async def test_a_greeting_looks_at_what_waits_for_its_node_alone(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    keys = [key_of(f"engine {number}") for number in range(20)]
    for key in keys:
        c.send(engine_text(key.identity), b"hi")
    decided: list[Destination] = []
    decide = ours._router.decide

    def watched(destination: Destination, *rest: Any) -> Any:
        decided.append(destination)
        return decide(destination, *rest)

    monkeypatch.setattr(ours._router, "decide", watched)
    for _ in range(3):
        strange.say(greeting(0, 0))
    advert = EngineAdvert(keys[0].identity, STRANGE.identity, None, 7, SIGNED)
    strange.say(greeting(0, 0, sign_advert(advert, keys[0])))
    while not isinstance((await strange.said()).content, EngineContent):
        pass
    assert {each.identity for each in decided} <= {keys[0].identity, STRANGE.identity}


async def test_a_banned_engine_does_not_unban_itself_by_its_advert(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    key = key_of("engine")
    advert = sign_advert(EngineAdvert(key.identity, STRANGE.identity, None, 7, SIGNED), key)
    ours.ban(key.identity)
    strange.say(greeting(0, 0, advert))
    await eventually(lambda: ours.refused() == {f"adverts that are refused: {BANNED}": 1})
    assert ours._router.table.is_banned(key.identity)


async def test_a_node_with_ever_new_engines_lets_go_of_its_own_alone(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.directory._heard_adverts._MOST_AT_NODE", 2)
    ours, theirs = await attached(c), await attached(b)
    await b.start(Echo, address="echo")
    engine = theirs.engine("echo", key_of("moved"))
    await joined((b, theirs), c)
    await c.request(engine_text(engine), b"hi")
    strange = await StrangeNode.on(a, c, STRANGE)
    keys = [key_of(f"engine {number}") for number in range(5)]
    for key in keys:
        advert = EngineAdvert(key.identity, STRANGE.identity, None, 7, SIGNED)
        strange.say(greeting(0, 0, sign_advert(advert, key)))
    reason = "engines that made room for others of their node"
    await eventually(lambda: ours.refused() == {reason: 3})
    assert {each.identity for each in ours._router.table.destinations()} == {
        engine,
        *(each.identity for each in keys[-2:]),
    }
    assert (await c.request(engine_text(engine), b"ho")).payload == b"ho"


async def test_a_node_that_sends_as_ever_new_engines_ends_its_own_links_alone(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity._router._LEAST_SHARE", 2)
    ours, theirs = await attached(c, max_correspondents=3), await attached(b)
    recorder = await Recorder.on(c, "recorder")
    engine = ours.engine("recorder")
    await joined((b, theirs), c)
    asked = asyncio.create_task(b.request(engine_text(engine), b"question", timeout=3600))
    question = await recorder.next()
    strange = await StrangeNode.on(a, c, STRANGE)
    names = [b"first", b"second", b"first", b"third", b"first", b"fourth"]
    for name in names:
        # Of the virtual clock: its share of the windows of ids is free again.
        await asyncio.sleep(100)
        now, src = ours._router.milliseconds(), derived_engine(STRANGE.identity, name)
        message = EngineMessage(
            src,
            Destination(DestinationKind.ENGINE, engine),
            now + 30_000 << 20,
            ONWARD,
            encode_message(Message((ENGINE,), (), name)),
            expiry=now + 60_000,
            origin=EngineOrigin(STRANGE.identity, name),
        )
        strange.say(EngineContent(sign_engine_message(message, STRANGE)))
        assert (await recorder.next()).payload == name
    # The one that was used is kept, of its own and of others.
    reason = "links of identities that made room for others of their node"
    assert ours.refused() == {reason: 2}
    assert [to for _, to in ours._router.links._links] == [
        theirs.own,
        *(derived_engine(STRANGE.identity, name) for name in names[-2:]),
    ]
    recorder.reply(question, b"answer")
    assert (await asked).payload == b"answer"
    ours.ban(STRANGE.identity)
    ours._router.links.end(engine)
    assert not ours._router.links._links_of
    assert not ours._router.links._sources


async def test_a_banned_node_ends_the_requests_to_its_engines(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = theirs.engine("recorder")
    await joined((a, ours), c)
    asked = asyncio.create_task(a.request(engine_text(engine), b"one"))
    await recorder.next()
    ours.ban(theirs.own)
    with pytest.raises(LinkLost, match="the link between the nodes has ended"):
        await asked


async def test_no_more_nodes_are_joined_than_may_be(a: Node, b: Node, c: Node) -> None:
    ours = await attached(a, max_peers=1)
    first = await attached(b)
    await attached(c)
    await joined((a, ours), b)
    with pytest.raises(PeerRefused, match="this node has as many links as it may"):
        await joined((a, ours), c)
    assert ours.peers() == (first.own,)


async def test_the_router_outlives_more_sessions_than_may_be(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await attached(c, max_peers=2)
    await StrangeNode.on(a, c, STRANGE)
    strange = await StrangeNode.on(b, c, key_of("second"), greet=False)
    # One that was joined in the same moment, so that there are more clocks than there may be.
    monkeypatch.setattr(ours._router.greetings, "_options", IdentityOptions(max_peers=1))
    strange.say(greeting(0, 0))
    await eventually(lambda: len(ours.peers()) == 2)
    assert len(ours._router.greetings._clocks) == 2


async def test_a_node_that_is_refused_by_the_other_one_is_not_joined(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    theirs.ban(ours.own)
    with pytest.raises(PeerRefused, match="the other node refuses"):
        await joined((a, ours), c)
    assert ours._router.peers._ways == {}


async def test_a_node_that_proves_its_key_and_never_greets_is_not_joined(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await attached(a, handshake_time=0.5)
    theirs = await attached(c)
    monkeypatch.setattr(theirs._router.greetings, "greet", ignored)
    with pytest.raises(PeerRefused, match="the other node has not greeted in time"):
        await joined((a, ours), c)
    assert ours._router.peers._ways == {}


async def test_each_caller_that_joins_gets_the_node_that_it_expects(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    listener = await c.listen("memory://expects", expose=[ROUTER])
    link = await a.connect(listener.uri, expose=[ROUTER])
    other = key_of("somebody").identity
    first, second = await asyncio.gather(
        ours.join(link), ours.join(link, identity=other), return_exceptions=True
    )
    assert first == theirs.own
    assert isinstance(second, PeerRefused)
    assert second.reason == "another node is there than was dialled"
    with pytest.raises(PeerRefused, match="another node is there than was dialled"):
        await ours.join(link, identity=other)
    # The first one is joined as before, and again after a loss.
    before = ours._router.peers.sessions[theirs.own]
    ours._router.peers._disconnect(before, "a test")
    await eventually(lambda: ours.peers() == (theirs.own,))
    assert ours._router.peers.sessions[theirs.own] is not before


async def test_a_link_of_identities_that_is_stopped_is_replaced(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    to = f"{node_text(theirs.own)} => echo"
    await a.request(to, b"one")
    ((_, address),) = ours._router.links._links.values()
    await a.stop_worker(address)
    assert (await a.request(to, b"two")).payload == b"two"


async def never() -> None:
    await asyncio.Event().wait()


def ignored(_: object) -> None:
    """Do nothing."""


def hello(number: int) -> bytes:
    """Return the first message of a handshake."""
    return LinkDialler(STRANGE, number.to_bytes(32), Verifiers(), 0.0).begin(0.0)


async def test_a_node_that_takes_no_answers_does_not_fill_the_queue(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    session = ours._router.peers.sessions[STRANGE.identity]
    way = ours._router.peers._way_of[session]
    session._pump = asyncio.create_task(never())
    session.waiting.extend([Waiting(b"", True, ignored)] * MAX_WAITING)
    for number in range(1, MAX_HANDSHAKE_MESSAGES + 3):
        ours._router.peers._handshake(way, hello(number))
    assert len(session.waiting) == MAX_WAITING + MAX_HANDSHAKE_MESSAGES
    # They do not wait for the records.
    assert [each.is_record for each in session.waiting][1 : 1 - MAX_WAITING] == [False] * 16
    assert ours.refused() == {"handshakes that a link did not take": 2}
    assert strange.key is STRANGE


async def test_a_node_that_asks_on_and_on_and_takes_no_answers_gets_none(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    session = ours._router.peers.sessions[STRANGE.identity]
    session._pump = asyncio.create_task(never())
    session.waiting.extend([Waiting(b"", True, ignored)] * (MAX_WAITING - 1))
    older = sign_advert(NodeAdvert(STRANGE.identity, (), bytes(32), 1, SIGNED), STRANGE)
    newer = sign_advert(NodeAdvert(STRANGE.identity, (), bytes(32), 2, SIGNED), STRANGE)
    ours.directory.put(newer, AdvertSource.LOCAL)
    asked = ControlContent(serialize_control(AdvertRequest(ours.own)))
    told = ControlContent(serialize_control(AdvertResponse(STRANGE.identity, (older,))))
    reserves = ControlContent(serialize_reservation_request(ReservationRequest(1, 1, 1)))
    for content in (asked, told, reserves, asked):
        strange.say(content)
    await eventually(lambda: sum(ours.refused().values()) == 4)
    assert ours.refused() == {
        "answers that a node did not take": 3,
        "requests for a reservation: permission denied": 1,
    }
    assert len(session.waiting) == MAX_WAITING
    assert len(session._room) <= 1


async def test_the_loss_of_a_node_with_many_engines_is_one_look_at_each_of_its_links(
    a: Node, c: Node
) -> None:
    ours = await attached(c)
    await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    links, looks = ours._router.links, 0

    class Counted(OrderedDict[Any, Any]):
        def items(self) -> Any:
            nonlocal looks
            looks += 1
            return super().items()

    engine = STRANGE.identity
    for number in range(50):
        engine = key_of(f"engine {number}").identity
        links.get((ours.own, engine))
        ours._router.heard_adverts.learn(engine, STRANGE.identity)
    links._links = Counted(links._links)  # type: ignore[misc]
    ours._router.peers.disconnect(STRANGE.identity, "a test")
    assert looks <= 1
    # A message may be of the engine that it is for, if two nodes have its key.
    links.get((engine, engine))
    links.end(engine)
    assert engine not in links.identities()


async def test_a_busy_link_does_not_fail_the_router(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await attached(c, max_peers=1)
    await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)

    def busy(self: Worker, *_: object) -> None:
        raise LinkDown("a link", "it takes no more")

    listener = await c.listen("memory://busy", expose=[ROUTER])
    link = await a.connect(listener.uri, expose=[ROUTER])
    monkeypatch.setattr(type(ours._worker), "send", busy)
    a.send([link, ROUTER], hello(1), return_route=[ROUTER])
    await eventually(lambda: "handshakes that a link did not take" in ours.refused())
    assert len(ours.peers()) == 1


async def test_a_node_ends_with_its_engines(a: Node) -> None:
    async with Node("engines") as node:
        ours = await attached(node)
        for name in ("one", "x" * 600):
            await node.start(Echo, address=name)
            ours.engine(name)
    assert len(ours._router.engines) == 0


async def test_one_link_leaves_half_of_the_room_to_others(a: Node, b: Node, c: Node) -> None:
    ours, theirs = await attached(c, max_peers=4), await attached(b)
    names = [f"router {number}" for number in range(3)]
    listener = await c.listen("memory://many-keys", expose=[ROUTER])
    link = await a.connect(listener.uri, expose=names)
    answers = list[bytes]()
    for name in names:
        probe = await Probe.on(a, name)
        dialler = LinkDialler(key_of(name), bytes(range(32)), Verifiers(), 0.0)
        probe.send([link, ROUTER], dialler.begin(0.0))
        answers.append((await probe.next()).payload)
        proof = dialler.receive(answers[-1], 0.0)
        if proof is not None:
            probe.send([link, ROUTER], proof)
            await probe.next()  # the greeting
    assert [each == refuse_link(LinkRefusalCode.BUSY) for each in answers] == [False, False, True]
    await joined((b, theirs), c)
    assert theirs.peers() == (ours.own,)


async def test_hellos_do_not_put_off_the_time_to_greet(a: Node, c: Node) -> None:
    ours = await attached(c, handshake_time=0.3)
    strange = await StrangeNode.on(a, c, STRANGE, greet=False)
    sessions = ours._router.peers.sessions
    assert list(sessions) == [STRANGE.identity]
    for number in range(4):  # at 0, 0.1, 0.2 and 0.3 seconds of the virtual clock
        strange.send(hello(number))
        await strange.probe.next()
        await asyncio.sleep(0.1)
    assert not sessions


async def test_the_advert_of_an_engine_is_signed_once(a: Node, b: Node, c: Node) -> None:
    ours = await attached(c)
    await c.start(Echo, address="echo")
    ours.engine("echo", key_of("echo"))
    adverts = list[object]()
    for node, name in ((a, "one"), (b, "two")):
        said = (await StrangeNode.on(node, c, key_of(name))).greeting.content
        assert isinstance(said, ControlContent)
        adverts += parse_greeting(said.record).adverts
    assert len(adverts) == 4  # that of the node is the first of each
    kept = ours._router.own_adverts._engines
    assert [ours._router.own_adverts.of_node(), *kept.values()] == adverts[:2] == adverts[2:]
    await c.stop_worker("echo")
    await eventually(lambda: not kept)
