"""What a node may send that has proven its key, and what it sends before."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node
from onward.actors.identity import ROUTER
from onward.actors.identity._carriage import ENGINE
from onward.actors.identity._other_threads import OtherThreads
from onward.actors.identity._outgoing import ONWARD
from onward.actors.testing import Probe
from onward.protocol import Address, Message
from onward.protocol.identity import (
    SCOPE_LOCAL,
    AdvertEnvelope,
    AdvertKind,
    AdvertResponse,
    ControlContent,
    Destination,
    DestinationKind,
    EngineAdvert,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Greeting,
    Identity,
    NodeAdvert,
    P2PMessage,
    Protocol,
    PutOutcome,
    RelayContent,
    ReplyContent,
    RoutingPrefs,
    SigningKey,
    derived_engine,
    parse_control,
    parse_p2p_message,
    serialize_greeting,
    serialize_p2p_message,
    sign_advert,
    sign_engine_message,
)
from onward.protocol.ockam import encode_message
from onward.transports.identity import Identities
from tests.support.identities import StrangeNode, attached, engine_text, key_of
from tests.support.transports import Recorder, eventually

STRANGE = key_of("strange")
BODY = encode_message(Message((ENGINE,), (), b"hi"))


def now_of(identities: Identities) -> int:
    return identities._router.milliseconds()


def written(
    identities: Identities,
    engine: Identity,
    *,
    key: SigningKey = STRANGE,
    src: Identity | None = None,
    kind: DestinationKind = DestinationKind.ENGINE,
    number: int = 0,
    expires: int = 60_000,
    protocol: Protocol = ONWARD,
    body: bytes = BODY,
    rprefs: RoutingPrefs | None = None,
    origin: EngineOrigin | None = None,
) -> EngineContent:
    """Return a message to an engine as it should be, but for what is given."""
    now = now_of(identities)
    message = EngineMessage(
        key.identity if src is None else src,
        Destination(kind, engine),
        (now + 30_000 << 20) + number,
        protocol,
        body,
        expiry=now + expires,
        rprefs=rprefs,
        origin=origin,
    )
    return EngineContent(sign_engine_message(message, key))


@pytest.fixture
async def ours(c: Node) -> Identities:
    return await attached(c)


@pytest.fixture
async def recorder(c: Node) -> Recorder:
    return await Recorder.on(c, "engine")


async def test_a_message_as_it_should_be_is_delivered_once(
    a: Node, c: Node, ours: Identities, recorder: Recorder
) -> None:
    engine = ours.engine("engine")
    strange = await StrangeNode.on(a, c, STRANGE)
    message = written(ours, engine)
    strange.say(message)
    assert (await recorder.next()).payload == b"hi"
    strange.say(message)
    strange.say(written(ours, engine, number=1))
    await recorder.next()
    assert ours.refused() == {"messages that are not fresh: it was received before": 1}
    assert len(recorder.messages) == 2


STALE = "messages that are not fresh"
OTHER = key_of("other").identity


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"expires": -60_000}, f"{STALE}: it has expired"),
        ({"expires": 700_000}, f"{STALE}: its expiry is too late"),
        (
            {"number": -(60_000 << 20)},
            f"{STALE}: it may have been received before this node was started",
        ),
        ({"number": 60_000 << 20}, f"{STALE}: its id is of a time to come"),
        ({"protocol": Protocol("onward", 2)}, "messages of another protocol"),
        ({"protocol": Protocol("onward/router", 1)}, "messages of another protocol"),
        ({"rprefs": RoutingPrefs(SCOPE_LOCAL)}, "messages that the router refuses: scope"),
        ({"kind": DestinationKind.TOPIC}, "messages that the router refuses: not-here"),
        ({"kind": DestinationKind.DOMAIN}, "messages that the router refuses: not-here"),
        ({"kind": DestinationKind.RELAY}, "messages that the router refuses: not-here"),
        ({"kind": DestinationKind.NODE}, "messages that the router refuses: not-here"),
        ({"body": b"\xff"}, "messages that cannot be read"),
        ({"body": encode_message(Message((), (), b"hi"))}, "messages without a route"),
        (
            {
                "key": key_of("third"),
                "src": derived_engine(key_of("third").identity, b"w"),
                "origin": EngineOrigin(key_of("third").identity, b"w"),
            },
            "messages of an engine that is at another node",
        ),
    ],
)  # fmt: skip
async def test_a_message_that_is_not_as_it_should_be_is_refused_and_counted(
    a: Node,
    c: Node,
    ours: Identities,
    recorder: Recorder,
    given: dict[str, object],
    reason: str,
) -> None:
    if reason.endswith("not-here"):
        await a.start(Recorder, address="unused")
        key = key_of("topic")
        engine = key.identity
        ours.engine("engine")
    else:
        engine = ours.engine("engine", key_of("topic"))
    strange = await StrangeNode.on(a, c, STRANGE)
    strange.say(written(ours, engine, **given))  # type: ignore[arg-type]
    await eventually(lambda: ours.refused() == {reason: 1})
    assert recorder.messages == []
    # The link goes on: what an engine does is not the fault of its node.
    assert ours.peers() == (STRANGE.identity,)


async def test_what_the_node_itself_has_not_for_engines_is_for_the_node(
    a: Node, c: Node, ours: Identities
) -> None:
    strange = await StrangeNode.on(a, c, STRANGE)
    body = encode_message(Message((), (), b"hi"))
    strange.say(written(ours, ours.own, kind=DestinationKind.NODE, body=body))
    await eventually(lambda: ours.refused() == {"messages without a route": 1})
    # `self` is for engines: it is no route of the node itself.
    strange.say(written(ours, ours.own, kind=DestinationKind.NODE, number=1))
    await eventually(lambda: c.dead_letters.by_reason == {"not exposed": 1})


async def test_a_wrong_signature_is_refused_and_the_rest_goes_on(
    a: Node, c: Node, ours: Identities, recorder: Recorder
) -> None:
    engine = ours.engine("engine")
    strange = await StrangeNode.on(a, c, STRANGE)
    envelope = written(ours, engine).envelope
    flips = range(0, len(envelope), 7)
    for at in flips:
        flipped = bytearray(envelope)
        flipped[at] ^= 1
        strange.say(EngineContent(bytes(flipped)))
    strange.say(EngineContent(envelope))
    assert (await recorder.next()).payload == b"hi"
    refused = ours.refused()
    assert set(refused) == {"messages that cannot be read", "messages with a wrong signature"}
    assert sum(refused.values()) == len(flips)


async def test_what_is_between_other_nodes_is_refused(a: Node, c: Node, ours: Identities) -> None:
    strange = await StrangeNode.on(a, c, STRANGE)
    content = written(ours, ours.own)
    for src, dst in ((OTHER, ours.own), (STRANGE.identity, OTHER)):
        strange.say_record(serialize_p2p_message(P2PMessage(src, dst, content)))
    await eventually(lambda: ours.refused() == {"messages between other nodes": 2})


async def test_what_is_of_no_kind_that_is_served_is_refused(
    a: Node, c: Node, ours: Identities
) -> None:
    strange = await StrangeNode.on(a, c, STRANGE)
    strange.say(RelayContent(b"x"))
    strange.say(ReplyContent(bytes(16), b"x"))
    strange.say_record(b"\xff")
    strange.say(ControlContent(b"\xff"))
    bad = Greeting(0, 0, (AdvertEnvelope(AdvertKind.ENGINE, b"\xff"),))
    strange.say(ControlContent(serialize_greeting(bad)))
    expected = {
        "messages for relays: it is no message for a relay": 1,
        "answers over relays: no answer has this size": 1,
        "records that cannot be read": 3,
    }
    await eventually(lambda: ours.refused() == expected)
    assert ours.peers() == (STRANGE.identity,)


async def test_threat_3_an_engine_is_believed_of_itself_by_its_newest_advert(
    a: Node, c: Node, ours: Identities
) -> None:
    strange = await StrangeNode.on(a, c, STRANGE)
    key = key_of("engine")

    def advert(node: Identity, version: int, signer: SigningKey = key) -> AdvertEnvelope:
        return sign_advert(EngineAdvert(key.identity, node, None, version, now_of(ours)), signer)

    def say(*adverts: AdvertEnvelope) -> None:
        strange.say(ControlContent(serialize_greeting(Greeting(0, 0, adverts))))

    newest = advert(STRANGE.identity, 7)
    say(newest)
    say(advert(STRANGE.identity, 6))
    # The node is told the one that is known, as it may have been started anew.
    said = (await strange.said()).content
    assert isinstance(said, ControlContent)
    assert parse_control(said.record) == AdvertResponse(key.identity, (newest,))
    of_node = sign_advert(NodeAdvert(STRANGE.identity, (), bytes(32), 1, now_of(ours)), STRANGE)
    forged = advert(STRANGE.identity, 9)
    say(of_node)
    say(AdvertEnvelope(AdvertKind.DOMAIN, of_node.envelope))
    say(AdvertEnvelope(forged.kind, forged.envelope[:-1] + bytes((forged.envelope[-1] ^ 1,))))
    expected = {
        "records that cannot be read": 1,
        f"adverts that are refused: {PutOutcome.BAD_SIGNATURE.value}": 1,
    }
    await eventually(lambda: ours.refused() == expected)
    # The one that counts leads to the node.
    c.send(engine_text(key.identity), b"hello")
    assert isinstance((await strange.said()).content, EngineContent)
    # The engine has moved, by its own word, whichever node tells it: nothing goes there any more.
    say(advert(OTHER, 8))
    await eventually(lambda: not ours._router.is_at(key.identity, STRANGE.identity))
    assert ours._router.is_at(key.identity, OTHER)
    assert ours.refused() == expected


async def test_a_frame_that_cannot_be_opened_ends_the_link(
    a: Node, c: Node, ours: Identities
) -> None:
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    frame = bytearray(strange.channel.seal(b"\x80"))
    frame[-1] ^= 1
    strange.send(bytes(frame))
    await eventually(lambda: ours.peers() == ())
    assert ours.refused() == {"frames refused: a frame that cannot be opened": 1}
    strange.send(strange.channel.seal(b"\x80"))
    await eventually(lambda: ours.refused().get("frames of no session") == 1)


async def test_a_frame_that_comes_twice_ends_the_link(a: Node, c: Node, ours: Identities) -> None:
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    frame = strange.channel.seal(b"\x80")
    strange.send(frame)
    strange.send(frame)
    await eventually(lambda: ours.peers() == ())
    assert ours.refused()["frames refused: a frame that came before"] == 1


async def test_a_node_that_does_not_greet_is_given_up(a: Node, c: Node) -> None:
    ours = await attached(c, handshake_time=0.5)
    await StrangeNode.on(a, c, STRANGE, greet=False)
    await eventually(lambda: not ours._router.peers.sessions)
    assert ours.peers() == ()


async def test_what_is_no_handshake_is_refused_without_a_word(
    a: Node, c: Node, ours: Identities
) -> None:
    listener = await c.listen("memory://no-handshake", expose=[ROUTER])
    link = await a.connect(listener.uri, expose=[ROUTER])
    probe = await Probe.on(a, ROUTER)
    for data in (b"", b"\x00" * 23, b"\x84\x02", b"\x82\x03", b"\x82\x04\x01", b"\xff"):
        probe.send([link, ROUTER], data)
    probe.send([link, ROUTER], b"\x83\x01\x00")
    refusal = await probe.next()
    assert refusal.payload == bytes.fromhex("820403")
    refused = ours.refused()
    assert refused["frames of no session"] == 2
    assert refused["messages of no handshake"] == 4
    # Nothing is kept of it.
    assert ours._router.peers._ways == {}


async def test_a_local_worker_is_no_link(c: Node, ours: Identities) -> None:
    probe = await Probe.on(c, "probe")
    probe.send([ROUTER], b"\x83\x01")
    c.send([ROUTER], b"\x83\x01")
    await eventually(lambda: ours.refused().get("frames that came over no link") == 1)
    await eventually(lambda: ours.refused().get("messages of no handshake", 0) <= 1)


async def test_so_many_handshakes_are_under_way_over_one_link(
    a: Node, c: Node, ours: Identities
) -> None:
    listener = await c.listen("memory://many-hellos", expose=[ROUTER])
    link = await a.connect(listener.uri, expose=[ROUTER])
    probe = await Probe.on(a, ROUTER)
    hello = bytes.fromhex("8301810158 20".replace(" ", "")) + bytes(range(32))
    for number in range(12):
        a.send([link, ROUTER], hello, return_route=[ROUTER, Address(0, bytes([65 + number]))])
    replies = [(await probe.next()).payload for _ in range(12)]
    assert sum(each == bytes.fromhex("820402") for each in replies) == 4
    reason = "handshakes beyond those that may be under way"
    assert ours.refused() == {reason: 4}


async def test_what_was_resolved_for_an_engine_ends_with_it(a: Node) -> None:
    ours = await attached(a)
    await Recorder.on(a, "recorder")
    near = ours.engine("recorder")
    links = ours._router.links
    for name in ("one", "two"):
        probe = await Probe.on(a, name)
        ours.engine(name)
        probe.send(engine_text(near), b"hi")
    a.send(engine_text(near), b"hi")
    assert len(links._owners) == len(links._values[near]) == 3
    await a.stop_worker("one")
    await eventually(lambda: len(links._owners) == len(links._values[near]) == 2)
    links.forget(near)
    assert (links._owners, links._values) == ({}, {})
    probe.send(engine_text(near), b"hi")
    assert len(links._owners) == 1
    await a.stop_worker("two")
    await eventually(lambda: (links._owners, links._values) == ({}, {}))


async def test_threat_11_records_of_one_bucket_have_one_length_on_a_link(a: Node, c: Node) -> None:
    await attached(c, padding=True)
    strange = await StrangeNode.on(a, c, STRANGE)
    lengths = set[int]()
    for size in (0, 1, 25, 258, 500):
        c.send(f"{engine_text(STRANGE.identity).replace('engine', 'node')} => x", bytes(size))
        frame = (await strange.probe.next()).payload
        lengths.add(len(frame))
        record = strange.channel.open(frame)
        assert isinstance(record, bytes)
        assert len(record) == 1024
        assert isinstance(parse_p2p_message(record).content, EngineContent)
    assert len(lengths) == 1
    c.send(f"{engine_text(STRANGE.identity).replace('engine', 'node')} => x", bytes(70_000))
    record = strange.channel.open((await strange.probe.next()).payload)
    assert isinstance(record, bytes)
    assert len(record) == 131_072


def test_another_thread_is_told_each_time_that_the_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    threads = OtherThreads(loop)
    loop.close()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            threads.pending()
