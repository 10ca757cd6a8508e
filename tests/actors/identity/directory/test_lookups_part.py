"""Look-ups between nodes: which are asked, what they answer, and what then becomes of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from onward.actors import Node, Unresolved
from onward.actors.identity import ROUTER, Engine, LookupStep
from onward.actors.testing import Probe
from onward.protocol import LinkLost
from onward.protocol.identity import (
    AdvertEnvelope,
    AdvertRequest,
    AdvertResponse,
    AdvertSource,
    ControlContent,
    ControlRecord,
    Destination,
    DestinationKind,
    EngineAdvert,
    EngineContent,
    Identity,
    LookupFailure,
    LookupOutcome,
    NodeAdvert,
    PutOutcome,
    SigningKey,
    identity_text,
    parse_control,
    serialize_control,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.identities import StrangeNode, attached, engine_text, joined, key_of, node_text
from tests.support.transports import Echo, eventually

STRANGE, ENGINE = key_of("strange"), key_of("engine")
NOT_FOUND, TIMEOUT = LookupFailure.NOT_FOUND.value, LookupFailure.TIMEOUT.value
MISSING = LookupOutcome.MISSING.value


def control(record: ControlRecord) -> ControlContent:
    return ControlContent(serialize_control(record))


def advert(of: Identities, node: Identity, key: SigningKey = ENGINE) -> AdvertEnvelope:
    """Return the advert of an engine at a node."""
    now = of._router.milliseconds()
    return sign_advert(EngineAdvert(key.identity, node, None, now // 1000, now), key)


async def asked(strange: StrangeNode) -> Identity:
    """Return the identity that a node is asked for next."""
    said = (await strange.said()).content
    assert isinstance(said, ControlContent)
    request = parse_control(said.record)
    assert isinstance(request, AdvertRequest)
    return request.identity


async def test_an_engine_is_found_by_a_node_that_knows_it(a: Node, b: Node, c: Node) -> None:
    ours, between, theirs = await attached(a), await attached(b), await attached(c)
    await c.start(Echo, address="echo")
    engine = theirs.engine("echo")
    await joined((c, theirs), b)
    await joined((a, ours), b)
    # The one between passes nothing on: there has to be a way to the node of the engine, too.
    with pytest.raises(Unresolved, match="it is known, and not reached: its node has no link"):
        await a.request(engine_text(engine), b"hi")
    await joined((a, ours), c)
    assert (await a.request(engine_text(engine), b"hi")).payload == b"hi"
    record = await ours.lookup(between.own)
    assert record is not None
    assert ours.refused() == between.refused() == theirs.refused() == {}


async def test_the_steps_of_look_ups_are_watched(a: Node, b: Node, c: Node) -> None:
    ours, between, theirs = await attached(a), await attached(b), await attached(c)
    await joined((c, theirs), b)
    await joined((a, ours), b)
    steps: list[LookupStep] = []
    unwatch = ours.watch_lookups(steps.append)
    missing = key_of("nobody").identity
    await ours.lookup(theirs.own)
    await ours.lookup(missing)
    assert steps == [
        LookupStep(theirs.own, between.own, answered=False),
        LookupStep(theirs.own, between.own, answered=True),
        LookupStep(missing, between.own, answered=False),
    ]
    # What is looked up again is answered by what is known; what is told unasked is no answer.
    ours._router.lookups.ask(theirs.own)
    await eventually(lambda: len(steps) == 5)
    assert steps[3:] == steps[:2]
    ours._router.lookups._answered(between.own, theirs.own, ours.directory.adverts_for(theirs.own))
    assert len(steps) == 5
    unwatch()
    ours._router.lookups.ask(theirs.own)
    assert len(steps) == 5


async def test_what_is_of_another_kind_is_refused_at_once(a: Node, b: Node, c: Node) -> None:
    ours, between, theirs = await attached(a), await attached(b), await attached(c)
    await b.start(Echo, address="echo")
    await c.start(Echo, address="echo")
    engine, far = between.engine("echo"), theirs.engine("echo")
    await joined((c, theirs), b)
    await joined((a, ours), b)
    started = a.loop.time()
    # That of the third node is not known yet: it is looked up once.
    for node in (theirs, between, ours):
        for kind in ("engine", "topic", "domain"):
            with pytest.raises(Unresolved, match=r"\(it is a node: write 36#node:…\)"):
                await a.request(f"36#{kind}:{identity_text(node.own)}", b"")
    await a.start(Echo, address="mine")
    for each in (engine, far, ours.engine("mine")):
        for route in (f"{node_text(each)} => echo", f"{node_text(each)}?hops=1 => echo"):
            with pytest.raises(Unresolved, match=r"\(it is an engine: write 36#engine:…\)"):
                await a.request(route, b"")
    assert a.loop.time() - started < 0.1
    assert a.statistics().pending == ours._router.awaited.messages == 0


async def test_adverts_of_an_identity_are_looked_up_by_programs(a: Node, b: Node, c: Node) -> None:
    ours, between, theirs = await attached(a), await attached(b), await attached(c)
    await joined((c, theirs), b)
    await joined((a, ours), b)
    record = await ours.lookup(theirs.own)
    assert record is not None
    assert record.advert == theirs._router.own_adverts.of_node()
    assert await ours.lookup(key_of("nobody").identity) is None
    assert await ours.lookup(key_of("nobody").identity) is None  # it is missing for a while
    told = advert(ours, key_of("elsewhere").identity)
    assert ours.put_advert(told) is PutOutcome.STORED
    record = await ours.lookup(ENGINE.identity)
    assert record is not None
    assert record.advert == told
    assert ours._router.lookups.table.statistics().asked == 2
    assert between.refused() == {}


async def test_callers_wait_for_one_look_up_until_the_router_ends(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    one, two = (asyncio.create_task(ours.lookup(ENGINE.identity)) for _ in range(2))
    assert await asked(strange) == ENGINE.identity
    one.cancel()
    strange.say(control(AdvertResponse(ENGINE.identity, (advert(ours, STRANGE.identity),))))
    record = await two
    assert record is not None
    assert record.advert is not None
    third = asyncio.create_task(ours.lookup(key_of("third").identity))
    await asked(strange)
    await c.stop_worker(ROUTER)
    assert await third is None


async def test_messages_go_on_with_the_first_answer_of_use(a: Node, b: Node, c: Node) -> None:
    ours = await attached(c)
    one, two = await StrangeNode.on(a, c, STRANGE), await StrangeNode.on(b, c, key_of("two"))
    await eventually(lambda: len(ours.peers()) == 2)
    c.send(engine_text(ENGINE.identity), b"hello")
    for each in (one, two):
        assert await asked(each) == ENGINE.identity
    forged = advert(ours, STRANGE.identity)
    wrong = forged.envelope[:-1] + bytes((forged.envelope[-1] ^ 1,))
    one.say(control(AdvertResponse(ENGINE.identity, (AdvertEnvelope(forged.kind, wrong),))))
    bad = f"adverts that are refused: {PutOutcome.BAD_SIGNATURE.value}"
    await eventually(lambda: ours.refused() == {bad: 1})
    assert c.statistics().pending == 1
    # The other one has it at the first node, which has a link.
    two.say(control(AdvertResponse(ENGINE.identity, (forged,))))
    said = await one.said()
    assert isinstance(said.content, EngineContent)
    assert ours._router.lookups.table.statistics().found == 1


async def test_adverts_of_others_do_not_end_a_look_up(a: Node, b: Node, c: Node) -> None:
    ours = await attached(c)
    one, two = await StrangeNode.on(a, c, STRANGE), await StrangeNode.on(b, c, key_of("two"))
    await eventually(lambda: len(ours.peers()) == 2)
    looks = asyncio.create_task(ours.lookup(ENGINE.identity))
    for each in (one, two):
        assert await asked(each) == ENGINE.identity
    other = advert(ours, STRANGE.identity, key_of("another engine"))
    one.say(control(AdvertResponse(ENGINE.identity, (other,))))
    await eventually(lambda: other in ours.directory.adverts_for(key_of("another engine").identity))
    assert ours._router.lookups.table.statistics().lookups == 1
    told = advert(ours, STRANGE.identity)
    two.say(control(AdvertResponse(ENGINE.identity, (told,))))
    record = await looks
    assert record is not None
    assert record.advert == told


async def test_an_answer_that_comes_before_leads_on(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    node = key_of("node")
    c.send(engine_text(ENGINE.identity), b"hello")
    assert await asked(strange) == ENGINE.identity
    strange.say(control(AdvertResponse(ENGINE.identity, (advert(ours, node.identity),))))
    # Its node is looked up next, and no other message is needed for that.
    assert await asked(strange) == node.identity
    strange.say(control(AdvertResponse(node.identity, ())))
    await eventually(lambda: c.dead_letters.by_reason == {"unresolved": 1})
    with pytest.raises(Unresolved, match=MISSING):
        c.send(node_text(node.identity), b"")


async def test_threat_8_what_is_unknown_costs_one_look_up(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    to = engine_text(ENGINE.identity)
    refused = 0
    for _ in range(10_000):
        try:
            c.send(to, b"")
        except Unresolved:
            refused += 1
    assert (c.statistics().pending, refused) == (64, 10_000 - 64)
    assert await asked(strange) == ENGINE.identity
    figures = ours._router.lookups.table.statistics()
    assert (figures.lookups, figures.asked) == (1, 1)
    strange.say(control(AdvertResponse(ENGINE.identity, ())))
    await eventually(lambda: c.dead_letters.by_reason == {"unresolved": 64})
    # Nor is it asked for again at once.
    for _ in range(100):
        with pytest.raises(Unresolved, match=MISSING):
            c.send(to, b"")
    assert ours._router.lookups.table.statistics().asked == 1
    await asyncio.sleep(3)
    c.send(to, b"")
    assert await asked(strange) == ENGINE.identity
    # An advert that comes unasked is as good as an answer.
    strange.say(control(AdvertResponse(STRANGE.identity, (advert(ours, STRANGE.identity),))))
    assert isinstance((await strange.said()).content, EngineContent)


async def test_threat_8_a_node_that_does_not_answer_is_not_waited_for(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    started = c.loop.time()
    with pytest.raises(Unresolved, match=f"{TIMEOUT}|not in time"):
        await c.request(engine_text(ENGINE.identity), b"")
    assert 4.9 < c.loop.time() - started < 5.1
    assert await asked(strange) == ENGINE.identity
    await asyncio.sleep(0.1)
    with pytest.raises(Unresolved, match=MISSING):
        await c.request(engine_text(ENGINE.identity), b"")
    # What it says later makes it known all the same.
    strange.say(control(AdvertResponse(ENGINE.identity, (advert(ours, STRANGE.identity),))))
    await eventually(lambda: ours._router.is_at(ENGINE.identity, STRANGE.identity))
    c.send(engine_text(ENGINE.identity), b"")
    assert isinstance((await strange.said()).content, EngineContent)


async def test_a_node_that_is_lost_is_not_waited_for(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    failing = asyncio.create_task(c.request(engine_text(ENGINE.identity), b""))
    assert await asked(strange) == ENGINE.identity
    await a.stop_worker(strange.route[0])
    with pytest.raises(Unresolved, match=NOT_FOUND):
        await failing


async def test_a_node_that_joins_is_asked_for_what_waits(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await attached(c)
    theirs = await attached(b)
    await b.start(Echo, address="echo")
    engine = theirs.engine("echo", ENGINE)

    def not_told(_: object) -> Iterator[Engine]:
        return iter(())

    monkeypatch.setattr(type(theirs._router.engines), "__iter__", not_told)
    answering = asyncio.create_task(c.request(engine_text(engine), b"hi"))
    await eventually(lambda: c.statistics().pending == 1)
    await asyncio.sleep(4)
    await joined((b, theirs), c)
    assert (await answering).payload == b"hi"


async def test_so_many_identities_are_looked_up_at_a_time(a: Node, c: Node) -> None:
    ours = await attached(c)
    await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    for number in range(1024):
        assert ours._router.lookups.wanted(key_of(f"e{number}").identity) is None
    with pytest.raises(Unresolved, match="as many look-ups as may be under way"):
        c.send(engine_text(ENGINE.identity), b"")


async def test_threat_13_an_answer_is_worth_its_signatures(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    now = ours._router.milliseconds()
    other = key_of("other")

    def said(version: int, kx: int) -> AdvertEnvelope:
        node = NodeAdvert(other.identity, (), bytes((kx,)) * 32, version, now)
        return sign_advert(node, other)

    looking = asyncio.create_task(ours.lookup(ENGINE.identity))
    await asked(strange)
    # Adverts of others than what was asked for are adverts as any.
    strange.say(control(AdvertResponse(ENGINE.identity, (said(2, 1), said(1, 0), said(2, 2)))))
    assert await looking is None
    record = ours.directory.peek(other.identity)
    assert record is not None
    assert (record.advert, record.equivocated) == (said(2, 1), True)
    assert ours.refused() == {
        f"adverts that are refused: {PutOutcome.OLDER.value}": 1,
        f"adverts that are refused: {PutOutcome.EQUIVOCATION.value}": 1,
    }


async def test_threat_21_a_banned_engine_that_is_looked_up_stays_banned(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    failing = asyncio.create_task(c.request(engine_text(ENGINE.identity), b""))
    await asked(strange)
    ours.ban(ENGINE.identity)
    strange.say(control(AdvertResponse(ENGINE.identity, (advert(ours, STRANGE.identity),))))
    with pytest.raises(Unresolved):
        await failing
    assert ours._router.table.is_banned(ENGINE.identity)
    # What was put in the directory before is not used either.
    ours.directory.put(advert(ours, STRANGE.identity), AdvertSource.LOCAL)
    with pytest.raises(Unresolved, match="banned"):
        c.send(engine_text(ENGINE.identity), b"")


async def test_an_engine_that_is_not_at_its_node_any_more_is_looked_up_again(
    a: Node, b: Node, c: Node
) -> None:
    ours, first, second = await attached(a), await attached(b), await attached(c)
    await asyncio.sleep(1)  # so that it tells each of the two another time for its ids
    await joined((a, ours), b)
    await joined((a, ours), c)
    await b.start(Echo, address="echo")
    engine = first.engine("echo", ENGINE)
    assert (await a.request(engine_text(engine), b"here")).payload == b"here"
    # What is told of it meanwhile is refused.
    ours.ban(engine)
    await b.stop_worker("echo")
    await asyncio.sleep(2)
    await c.start(Echo, address="echo")
    assert second.engine("echo", ENGINE) == engine
    await asyncio.sleep(1)
    ours.unban(engine)
    ours.directory.forget(engine)
    ours._router.heard_adverts.learn(engine, first.own)
    # The node where it was says that it is not there: the request ends at once, in doubt.
    with pytest.raises(LinkLost, match="not at its node any more"):
        await a.request(engine_text(engine), b"lost", timeout=5)
    assert (await a.request(engine_text(engine), b"there")).payload == b"there"
    assert first.refused() == {"messages that the router refuses: not-here": 1}


async def test_an_engine_that_has_ended_is_not_known_there(a: Node, b: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    await b.start(Echo, address="echo")
    engine = theirs.engine("echo", ENGINE)
    assert (await a.request(engine_text(engine), b"here")).payload == b"here"
    await b.stop_worker("echo")
    with pytest.raises(LinkLost):
        await a.request(engine_text(engine), b"lost", timeout=5)
    # No other node knows it, and its advert is not believed any more.
    with pytest.raises(Unresolved):
        await a.request(engine_text(engine), b"unknown", timeout=5)
    # It is back, with a newer advert.
    await b.start(Echo, address="echo")
    assert theirs.engine("echo", ENGINE) == engine
    await asyncio.sleep(4)
    assert (await a.request(engine_text(engine), b"back")).payload == b"back"


async def test_another_node_cannot_say_that_an_engine_is_not_at_its_node(
    a: Node, b: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    await b.start(Echo, address="echo")
    engine = theirs.engine("echo", ENGINE)
    strange = await StrangeNode.on(c, a, key_of("strange"))
    assert (await a.request(engine_text(engine), b"1")).payload == b"1"
    strange.say(ControlContent(serialize_control(AdvertResponse(engine, ()))))
    await asyncio.sleep(1)
    assert (await a.request(engine_text(engine), b"2")).payload == b"2"
    assert ours._router.is_at(engine, theirs.own)


async def test_an_engine_that_was_banned_is_believed_again_once_it_sends(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    await a.start(Echo, address="echo")
    echo = ours.engine("echo")
    await eventually(theirs.peers)
    ours.ban(ENGINE.identity)
    asks = await Probe.on(c, "asks")
    theirs.engine("asks", ENGINE)
    await asyncio.sleep(1)
    ours.unban(ENGINE.identity)
    # It is looked up, and this comes before the answer.
    asks.send(engine_text(echo), b"refused, as nothing was heard of it")
    await asyncio.sleep(1)
    reason = "messages of an engine that has not said to be at the node"
    assert ours.refused()[reason] == 1
    asks.send(engine_text(echo), b"answered")
    assert (await asks.next()).payload == b"answered"


async def test_an_engine_that_is_banned_no_longer_is_heard_of_before_it_sends(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    await a.start(Echo, address="echo")
    echo = ours.engine("echo")
    await eventually(theirs.peers)
    ours.ban(ENGINE.identity)
    asks = await Probe.on(c, "asks")
    theirs.engine("asks", ENGINE)  # what is told of it is refused
    await asyncio.sleep(1)
    ours.unban(ENGINE.identity)
    await asyncio.sleep(1)
    asks.send(engine_text(echo), b"answered")
    assert (await asks.next()).payload == b"answered"


async def test_an_engine_here_that_was_banned_here_is_found_by_others_again(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    ours.ban(ENGINE.identity)
    await a.start(Echo, address="echo")
    engine = ours.engine("echo", ENGINE)
    await eventually(lambda: theirs._router.is_at(engine, ours.own))
    theirs._router.lookups.ask(engine)
    await eventually(lambda: not theirs._router.is_at(engine, ours.own))
    ours.unban(engine)
    await asyncio.sleep(1)
    assert (await c.request(engine_text(engine), b"here")).payload == b"here"


async def test_an_engine_is_answered_of_which_only_the_directory_knows_the_node(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    await a.start(Echo, address="echo")
    echo = ours.engine("echo")
    asks = await Probe.on(c, "asks")
    engine = theirs.engine("asks", ENGINE)
    await asyncio.sleep(1)
    # The route has made room for others.
    ours._router.table.update(Destination(DestinationKind.ENGINE, engine), None)
    asks.send(engine_text(echo), b"answered")
    assert (await asks.next()).payload == b"answered"


async def test_an_engine_that_has_moved_from_here_is_looked_up(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    await a.start(Echo, address="echo")
    engine = ours.engine("echo", ENGINE)
    assert (await a.request(engine_text(engine), b"here")).payload == b"here"
    await a.stop_worker("echo")
    await asyncio.sleep(2)
    await c.start(Echo, address="echo")
    # It is signed there, and not told.
    sign = theirs._router.own_adverts.of_engine

    def tell(engines: Sequence[Engine] = ()) -> None:
        for each in engines:
            sign(each)

    monkeypatch.setattr(theirs._router.greetings, "tell", tell)
    assert theirs.engine("echo", ENGINE) == engine
    assert (await a.request(engine_text(engine), b"there", timeout=5)).payload == b"there"
