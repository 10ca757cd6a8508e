"""The adverts that nodes tell each other, of themselves and of others."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import LimitReached, Node
from onward.actors.identity import ROUTER
from onward.protocol import LinkLost
from onward.protocol.identity import (
    MAX_ADVERT_ADDRESSES,
    MAX_SKEW,
    Advert,
    AdvertAddress,
    AdvertEnvelope,
    AdvertKind,
    AdvertRequest,
    AdvertResponse,
    ControlContent,
    ControlRecord,
    EngineAdvert,
    Greeting,
    Identity,
    LookupIdentityRequest,
    NodeAdvert,
    PutOutcome,
    SigningKey,
    parse_control,
    read_advert,
    serialize_control,
    serialize_greeting,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.identities import NOW, StrangeNode, attached, engine_text, joined, key_of
from tests.support.transports import Echo, Recorder, eventually

STRANGE = key_of("strange")
SIGNED = int(NOW * 1000)
OLD, AHEAD = PutOutcome.EXPIRED.value, PutOutcome.AHEAD.value


def node_advert(key: SigningKey, version: int = 1, *routes: str, kx: bytes = bytes(32)) -> Advert:
    addresses = tuple(AdvertAddress(each, 128) for each in routes)
    return NodeAdvert(key.identity, addresses, kx, version, SIGNED)


def engine_advert(key: SigningKey, node: Identity, version: int = 1) -> AdvertEnvelope:
    return sign_advert(EngineAdvert(key.identity, node, None, version, SIGNED), key)


def control(record: ControlRecord) -> ControlContent:
    return ControlContent(serialize_control(record))


def told(*adverts: AdvertEnvelope) -> ControlContent:
    return control(AdvertResponse(STRANGE.identity, adverts))


def known_of(identities: Identities, identity: Identity) -> Advert | None:
    record = identities.directory.peek(identity)
    return None if record is None or record.advert is None else read_advert(record.advert).advert


async def test_nodes_tell_each_other_where_they_are_and_what_is_sealed_for_them(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    ours._router.own_adverts.advertise("tcp://192.0.2.1:4000", 7)
    await joined((a, ours), c)
    advert = known_of(theirs, ours.own)
    assert isinstance(advert, NodeAdvert)
    assert advert.addresses == (AdvertAddress("tcp://192.0.2.1:4000", 7),)
    assert advert.kx == ours._router.sealing_keys.public
    # It is told again when it is another one, and not otherwise.
    own, relay = ours._router.own_adverts, key_of("relay").identity
    own.advertise("tcp://192.0.2.1:4000", 7)
    own.reserved = lambda: (relay,)
    own.changed()
    await eventually(lambda: known_of(theirs, ours.own) != advert)
    advert = known_of(theirs, ours.own)
    assert isinstance(advert, NodeAdvert)
    assert [each.weight for each in advert.addresses] == [64, 7]
    assert advert.addresses[0].route.startswith("36#relay:")
    assert own.withdraw("tcp://192.0.2.1:4000")
    assert not own.withdraw("tcp://192.0.2.1:4000")
    await eventually(lambda: known_of(theirs, ours.own) == own._node[0])  # type: ignore[index]
    assert advert.version + 1 == own._node[0].version  # type: ignore[index]
    assert (ours.refused(), theirs.refused()) == ({}, {})


async def test_a_node_has_so_many_addresses(a: Node) -> None:
    own = (await attached(a))._router.own_adverts
    for bad in ("", "x" * 256):
        with pytest.raises(ValueError, match="an address has 1 to 255 bytes"):
            own.advertise(bad)
    with pytest.raises(ValueError, match="a weight is from 0 to 255, not 256"):
        own.advertise("tcp://192.0.2.1:4000", 256)
    for number in range(MAX_ADVERT_ADDRESSES):
        own.advertise(f"tcp://192.0.2.1:{number}", number)
    with pytest.raises(LimitReached):
        own.advertise("tcp://192.0.2.2:4000")
    own.advertise("tcp://192.0.2.1:0", 255)
    own.reserved = lambda: (STRANGE.identity,)
    advert = read_advert(own.of_node()).advert
    assert isinstance(advert, NodeAdvert)
    # Of one more than there may be, that with the least weight is left out.
    assert [each.weight for each in advert.addresses] == [255, 64, *range(15, 1, -1)]


async def test_what_others_tell_is_known_and_leads_nowhere_until_it_is_needed(
    a: Node, c: Node
) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    engine, node = key_of("engine"), key_of("node")
    strange.say(told(engine_advert(engine, node.identity), sign_advert(node_advert(node), node)))
    await eventually(lambda: known_of(ours, node.identity) is not None)
    assert known_of(ours, engine.identity) is not None
    assert ours._router.table.destinations() == ()
    assert ours.refused() == {}


async def test_a_message_of_this_node_uses_what_others_have_told(a: Node, b: Node, c: Node) -> None:
    ours, theirs = await attached(c), await attached(b)
    recorder = await Recorder.on(b, "recorder")
    engine = theirs.engine("recorder", key_of("engine"))
    strange = await StrangeNode.on(a, c, STRANGE)
    strange.say(told(engine_advert(key_of("engine"), theirs.own)))
    await eventually(lambda: known_of(ours, engine) is not None)
    await joined((b, theirs), c)
    c.send(engine_text(engine), b"hello")
    assert (await recorder.next()).payload == b"hello"


async def test_threat_16_other_requests_of_the_network_are_denied(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    strange.say(control(LookupIdentityRequest(ours.own)))
    await eventually(lambda: ours.refused() == {"requests that are refused: DENIED": 1})
    strange.say(ControlContent(bytes((0x82, 13, 0))))
    strange.say(ControlContent(bytes((0x82, 31 - 8, 0))))
    await eventually(lambda: ours.refused().get("records that cannot be read") == 2)


async def test_a_node_answers_by_what_it_knows(a: Node, c: Node) -> None:
    ours = await attached(c)
    await c.start(Echo, address="echo")
    engine = ours.engine("echo")
    strange = await StrangeNode.on(a, c, STRANGE)
    for asked, kinds in (
        (ours.own, [AdvertKind.NODE]),
        (engine, [AdvertKind.ENGINE, AdvertKind.NODE]),
        (key_of("somebody").identity, []),
    ):
        strange.say(control(AdvertRequest(asked)))
        said = (await strange.said()).content
        assert isinstance(said, ControlContent)
        response = parse_control(said.record)
        assert isinstance(response, AdvertResponse)
        assert response.identity == asked
        assert [each.kind for each in response.adverts] == kinds
    # An engine that has ended is what others have heard of it, as they cannot be told otherwise.
    await c.stop_worker("echo")
    await eventually(lambda: not ours._router.own_adverts._engines)
    assert known_of(ours, engine) is not None


async def test_threat_8_requests_and_adverts_have_a_rate(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.directory._lookups_part._BURST", 3)
    monkeypatch.setattr("onward.actors.identity.directory._heard_adverts._BURST", 3)
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    keys = [key_of(f"node {number}") for number in range(5)]
    for key in keys:
        strange.say(control(AdvertRequest(ours.own)))
        strange.say(told(sign_advert(node_advert(key), key)))
    await eventually(
        lambda: (
            ours.refused()
            == {
                "requests beyond those that a node may make": 2,
                "adverts beyond those that a node may tell": 2,
            }
        )
    )
    assert [known_of(ours, each.identity) is not None for each in keys] == [1, 1, 1, 0, 0]


async def test_threat_7_adverts_of_a_clock_that_is_wrong(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    engine, other = key_of("engine"), key_of("other")
    hour = 3_600_000

    def say(ahead: int, key: SigningKey, node: Identity, by: int) -> None:
        """Tell of an engine, as at a clock that is ahead."""
        now = SIGNED + int(c.loop.time() * 1000) + ahead
        advert = EngineAdvert(key.identity, node, None, now // 1000, now + by)
        strange.say(
            ControlContent(serialize_greeting(Greeting(0, now, (sign_advert(advert, key),))))
        )

    # By its own clock, up to ten minutes; what it tells of others is of the clock here.
    say(hour, engine, STRANGE.identity, 0)
    say(MAX_SKEW * 2, other, other.identity, 0)
    await eventually(lambda: ours.refused() == {f"adverts that are refused: {AHEAD}": 2})
    say(MAX_SKEW * 2, engine, STRANGE.identity, 0)
    await eventually(lambda: ours._router.is_at(engine.identity, STRANGE.identity))
    # Forged: of a time to come for its own clock, and of one long past.
    say(0, key_of("third"), STRANGE.identity, hour)
    say(0, key_of("fourth"), STRANGE.identity, -366 * 24 * hour)
    expected = {f"adverts that are refused: {AHEAD}": 3, f"adverts that are refused: {OLD}": 1}
    await eventually(lambda: ours.refused() == expected)


async def test_a_node_that_is_started_again_in_no_time_makes_a_newer_advert(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await a.start(Echo, address="echo")
    engine = ours.engine("echo", key_of("echo"))
    link = await joined((a, ours), c)
    await a.stop_worker(ROUTER)
    link.cut()
    ours = await attached(a)
    assert ours.engine("echo", key_of("echo")) == engine
    await joined((a, ours), c)

    def kx(advert: Advert | None) -> bytes:
        return advert.kx if isinstance(advert, NodeAdvert) else b""

    await eventually(lambda: kx(known_of(theirs, ours.own)) == ours._router.sealing_keys.public)
    record = theirs.directory.peek(ours.own)
    assert record is not None
    assert not record.equivocated
    assert (ours.refused(), theirs.refused()) == ({}, {})


async def test_what_others_know_of_this_node_makes_it_go_above_once_a_second(
    a: Node, c: Node
) -> None:
    ours, strange = await attached(c), await StrangeNode.on(a, c, STRANGE)
    key, worker = key_of("c"), key_of("echo")
    await c.start(Echo, address="echo")
    ours.engine("echo", worker)
    own, seconds = ours._router.own_adverts, ours._router.milliseconds() // 1000

    def version(envelope: AdvertEnvelope) -> int:
        return read_advert(envelope).advert.version

    first = own.of_node()
    strange.say(told(first, sign_advert(node_advert(key, 1), key)))  # nothing is newer
    forged = sign_advert(node_advert(key, seconds + 90), key)
    wrong = forged.envelope[:-1] + bytes((forged.envelope[-1] ^ 1,))
    strange.say(told(AdvertEnvelope(forged.kind, wrong)))
    bad = f"adverts that are refused: {PutOutcome.BAD_SIGNATURE.value}"
    await eventually(lambda: ours.refused() == {bad: 1})
    assert own.of_node() == first
    strange.say(told(sign_advert(node_advert(key, seconds + 100), key)))
    await eventually(lambda: version(own.of_node()) == seconds + 101)
    # Another node with its key would do the same.
    strange.say(told(sign_advert(node_advert(key, seconds + 200), key)))
    again = "newer adverts of this node, again within a second"
    await eventually(lambda: ours.refused() == {bad: 1, again: 1})
    await asyncio.sleep(1)
    # An engine that has moved here is at this node by an advert above that of before.
    strange.say(told(engine_advert(worker, ours.own, seconds + 300)))
    engine = ours._router.engines.of(worker.identity)
    assert engine is not None
    await eventually(lambda: version(own.of_engine(engine)) == seconds + 301)
    # What the engine says of another node long after is no advert of this one.
    strange.say(told(engine_advert(worker, STRANGE.identity, seconds + 400)))
    await asyncio.sleep(1)
    assert version(own.of_engine(engine)) == seconds + 301


async def test_an_engine_that_moves_within_a_second_is_reached_where_it_is(
    a: Node, b: Node, c: Node
) -> None:
    ours, before, after = await attached(c), await attached(a), await attached(b)
    await asyncio.sleep(1)  # so that it tells each of the two another time for its ids
    key = key_of("moves")
    await a.start(Echo, address="echo")
    await b.start(Echo, address="echo")
    engine = before.engine("echo", key)
    await joined((a, before), c)
    await joined((b, after), c)
    assert (await c.request(engine_text(engine), b"one")).payload == b"one"
    await a.stop_worker("echo")
    after.engine("echo", key)  # its advert has the version that the one before has
    await eventually(lambda: ours._router.is_at(engine, after.own))
    assert (await c.request(engine_text(engine), b"two")).payload == b"two"
    record = ours.directory.peek(engine)
    assert record is not None
    assert not record.equivocated


async def test_an_engine_at_two_nodes_goes_above_the_other_one_a_few_times(
    a: Node, c: Node
) -> None:
    ours, strange = await attached(c), await StrangeNode.on(a, c, STRANGE)
    key, own = key_of("echo"), ours._router.own_adverts
    await c.start(Echo, address="echo")
    ours.engine("echo", key)
    engine = ours._router.engines.of(key.identity)
    assert engine is not None
    first = read_advert(own.of_engine(engine)).advert.version
    for above in (30, 61, 92, 110):
        strange.say(told(engine_advert(key, STRANGE.identity, first + above)))
    reason = "newer adverts of an engine here that say another node"
    await eventually(lambda: ours.refused() == {reason: 1})
    assert read_advert(own.of_engine(engine)).advert.version == first + 93
    # After ten minutes it may have moved again.
    await asyncio.sleep(600)
    defended = engine
    strange.say(told(engine_advert(key, STRANGE.identity, first + 123)))
    await eventually(lambda: read_advert(own.of_engine(defended)).advert.version > first + 123)
    # One that has started again begins anew.
    await c.stop_worker("echo")
    await eventually(lambda: not ours._router.engines)
    await c.start(Echo, address="echo")
    ours.engine("echo", key)
    engine = ours._router.engines.of(key.identity)
    assert engine is not None
    again = read_advert(own.of_engine(engine)).advert.version
    strange.say(told(engine_advert(key, STRANGE.identity, again)))
    await eventually(lambda: read_advert(own.of_engine(engine)).advert.version == again + 1)
    assert ours.refused() == {reason: 1}


async def test_threat_21_requests_to_an_engine_that_moves_end(a: Node, b: Node, c: Node) -> None:
    await attached(c)
    before, after = await attached(a), await attached(b)
    recorder = await Recorder.on(a, "recorder")
    await b.start(Echo, address="echo")
    key = key_of("moves")
    engine = before.engine("recorder", key)
    await joined((a, before), c)
    await joined((b, after), c)
    asked = asyncio.create_task(c.request(engine_text(engine), b"one"))
    await recorder.next()
    await asyncio.sleep(1)  # of the virtual clock: its advert is newer
    after.engine("echo", key)
    with pytest.raises(LinkLost, match="the engine is at another node now"):
        await asked
    assert (await c.request(engine_text(engine), b"two")).payload == b"two"


async def test_routes_follow_when_changes_of_the_directory_are_lost(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    engine, other = key_of("engine"), key_of("other").identity
    strange.say(told(engine_advert(engine, STRANGE.identity)))
    await eventually(lambda: ours._router.is_at(engine.identity, STRANGE.identity))
    c.send(engine_text(key_of("waits").identity), b"")
    ours.directory.on_update.clear()
    strange.say(told(engine_advert(engine, other, 2)))
    await eventually(lambda: getattr(known_of(ours, engine.identity), "node", None) == other)
    assert ours._router.is_at(engine.identity, STRANGE.identity)
    for on_lost in ours.directory.on_lost:
        on_lost(1)
    assert ours._router.is_at(engine.identity, other)
    assert c.statistics().pending == 1
