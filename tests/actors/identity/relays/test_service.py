"""What a node does with messages for relays, whatever a node next to it sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors import Node
from onward.actors.identity import ROUTER, PassedOn
from onward.actors.identity._carriage import ENGINE
from onward.actors.identity._outgoing import ONWARD, record_of
from onward.actors.identity.links._dialling import IDLE_TIME
from onward.actors.identity.links._session import Failed
from onward.actors.identity.relays._queues import RelayQueues
from onward.protocol import LinkDown, Message
from onward.protocol.identity import (
    HANDLE_SIZE,
    NO_REPLY,
    REPLY_KEY_SIZE,
    AdvertAddress,
    AdvertSource,
    ControlContent,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Hop,
    Identity,
    InnerKind,
    NodeAdvert,
    P2PContent,
    PeelOutcome,
    RelayContent,
    RelayLoadLimits,
    RelayMessage,
    RelayPolicy,
    RelayStatus,
    ReplyContent,
    SignedKind,
    SigningKey,
    TransportPrefs,
    Verifiers,
    build_onion,
    derived_engine,
    open_relay_message,
    parse_p2p_message,
    parse_signed,
    relay_info,
    seal,
    sign,
    sign_advert,
    sign_engine_message,
    sign_relay_message,
)
from onward.protocol.ockam import encode_message
from tests.support.identities import StrangeNode, key_of, node_text
from tests.support.relays import OPEN, Member, Tap, advert_of, chain, introduce, member, relay_text
from tests.support.transports import Echo, Recorder, eventually

STRANGE = key_of("strange")
BODY = encode_message(Message((ENGINE,), (), b"hi"))


def now_of(member: Member) -> int:
    return member.identities._router.milliseconds()


class Sender:
    """A strange node next to a relay, which seals for other nodes as any sender may."""

    def __init__(self, strange: StrangeNode, to: Member) -> None:
        self.strange = strange
        self.to = to
        self.number = 0

    def message(
        self, engine: Identity, *, expires: int = 60_000, key: SigningKey = STRANGE
    ) -> bytes:
        """Return the message of an engine with a right signature."""
        self.number += 1
        now = now_of(self.to)
        message = EngineMessage(
            key.identity,
            Destination(DestinationKind.ENGINE, engine),
            (now << 20) + self.number,
            ONWARD,
            BODY,
            expiry=now + expires,
        )
        return sign_engine_message(message, key)

    def layers(
        self,
        *hops: Member,
        inner: bytes,
        expires: int = 60_000,
        key: SigningKey = STRANGE,
        reply_keys: tuple[bytes, ...] = (),
        lets_out: bool = False,
    ) -> bytes:
        """Return a message that is sealed for each of these."""
        return build_onion(
            [Hop(each.own, each.identities.sealing_key) for each in hops],
            inner,
            expiry=now_of(self.to) + expires,
            signers=[key] * len(hops),
            reply_keys=reply_keys,
            lets_out=lets_out,
        )

    def say(self, content: P2PContent) -> None:
        self.strange.say(content)


@pytest.fixture
async def three() -> AsyncIterator[tuple[Node, Node, Node]]:
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        yield a, r, b


@pytest.fixture
async def pair(three: tuple[Node, Node, Node]) -> tuple[Member, Member]:
    """An open relay, and a node with an engine behind it."""
    _, r, b = three
    pair = await member(r, relay=OPEN), await member(b)
    await chain(*pair)
    introduce(*pair)
    await asyncio.sleep(40)
    return pair


@pytest.fixture
async def recorder(pair: tuple[Member, Member]) -> Recorder:
    recorder = await Recorder.on(pair[1].node, "engine")
    pair[1].identities.engine("engine", key_of("engine"))
    return recorder


ENGINE_THERE = key_of("engine").identity


@pytest.fixture
async def sender(three: tuple[Node, Node, Node], pair: tuple[Member, Member]) -> Sender:
    return Sender(await StrangeNode.on(three[0], three[1], STRANGE), pair[0])


def refused(one: Member) -> dict[str, int]:
    """Return what was refused for relays, by its reason."""
    mark = "messages for relays: "
    return {
        each.removeprefix(mark): number
        for each, number in one.identities.refused().items()
        if each.startswith(mark)
    }


async def test_a_message_is_passed_on_and_delivered(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE))))
    assert (await recorder.next()).payload == b"hi"
    assert r.relays.service.queues.relayed == 1


async def test_threat_1_a_layer_with_a_byte_that_was_changed_is_dropped(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    envelope = sender.layers(r, b, inner=sender.message(ENGINE_THERE))
    flips = range(0, len(envelope), 11)
    for at in flips:
        changed = bytearray(envelope)
        changed[at] ^= 1
        sender.say(RelayContent(bytes(changed)))
    sender.say(RelayContent(envelope))
    assert (await recorder.next()).payload == b"hi"
    assert len(recorder.messages) == 1
    assert sum(refused(r).values()) == len(flips)
    assert set(refused(r)) <= {PeelOutcome.BAD_RECORD, PeelOutcome.BAD_SIGNATURE}


async def test_threat_1_what_a_relay_changes_is_dropped_by_the_next_node(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    at = iter(range(0, 2000, 37))

    def change(_: Identity, record: bytes) -> list[bytes]:
        content = parse_p2p_message(record).content
        changed = bytearray(record)
        if isinstance(content, RelayContent):
            place = record.index(content.envelope) + next(at) % len(content.envelope)
            changed[place] ^= 0x80
        return [bytes(changed)]

    b.tap.change = change
    for _ in range(40):
        sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE))))
    await eventually(lambda: sum(refused(b).values()) == 40)
    assert recorder.messages == []
    assert b.identities.peers() == (r.own,)


async def test_threat_2_a_signature_of_another_kind_is_refused(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    message = sender.message(ENGINE_THERE)
    envelope = sender.layers(r, inner=message)
    sender.say(RelayContent(message))
    sender.say(EngineContent(envelope))
    sender.say(RelayContent(sign(SignedKind.ENGINE, parse_signed(envelope).payload, STRANGE)))
    await eventually(lambda: sum(r.identities.refused().values()) == 3)
    assert r.identities.refused() == {
        "messages that cannot be read": 1,
        "messages for relays: it is no message for a relay": 1,
        "messages for relays: its signature is wrong": 1,
    }
    assert recorder.messages == []
    del b


async def test_threat_3_a_layer_or_a_message_by_another_signer_is_dropped(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    mallory = key_of("mallory")
    envelope = sender.layers(r, b, inner=sender.message(ENGINE_THERE))
    sender.say(RelayContent(sign(SignedKind.RELAY, parse_signed(envelope).payload, mallory)))
    forged = sign(SignedKind.ENGINE, parse_signed(sender.message(ENGINE_THERE)).payload, mallory)
    sender.say(RelayContent(sender.layers(r, b, inner=forged)))
    await eventually(lambda: refused(b) == {PeelOutcome.BAD_INNER: 1})
    assert refused(r) == {PeelOutcome.BAD_SIGNATURE: 1}
    assert recorder.messages == []


async def test_threat_4_a_layer_that_a_hop_signs_anew_or_changes_does_not_open(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    mallory = key_of("mallory")
    found = open_relay_message(sender.layers(r, b, inner=sender.message(ENGINE_THERE)), Verifiers())
    assert found is not None
    for changed, key in (
        (RelayMessage(mallory.identity, r.own, found.expiry, found.sealed), mallory),
        (RelayMessage(found.src, r.own, found.expiry + 1, found.sealed), STRANGE),
        (RelayMessage(found.src, r.own, found.expiry, found.sealed, TransportPrefs()), STRANGE),
    ):
        sender.say(RelayContent(sign_relay_message(changed, key)))
    await eventually(lambda: refused(r) == {PeelOutcome.NOT_OPENED: 3})
    # For another node it is passed on as it is, and does not open there.
    moved = RelayMessage(found.src, b.own, found.expiry, found.sealed)
    sender.say(RelayContent(sign_relay_message(moved, STRANGE)))
    await eventually(lambda: refused(b) == {PeelOutcome.NOT_OPENED: 1})
    assert recorder.messages == []
    # Whatever was tried takes nothing from the layer itself.
    sender.say(RelayContent(sign_relay_message(found, STRANGE)))
    await recorder.next()


async def test_threat_5_the_message_of_an_engine_is_delivered_once_whatever_its_way(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    message = sender.message(ENGINE_THERE)
    for _ in range(3):
        # Each time in other layers, as its sender alone can do.
        sender.say(RelayContent(sender.layers(r, b, inner=message)))
    await recorder.next()
    stale = {"messages that are not fresh: it was received before": 2}
    await eventually(lambda: b.identities.refused() == stale)
    assert len(recorder.messages) == 1


async def test_threat_21_an_engine_of_a_node_that_is_banned_is_refused_over_relays(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    mallory = key_of("mallory")
    origin = EngineOrigin(mallory.identity, b"name")
    now = now_of(b)
    message = EngineMessage(
        derived_engine(mallory.identity, b"name"),
        Destination(DestinationKind.ENGINE, ENGINE_THERE),
        now << 20,
        ONWARD,
        BODY,
        expiry=now + 60_000,
        origin=origin,
    )
    b.identities.ban(mallory.identity)
    inner = sign_engine_message(message, mallory)
    sender.say(RelayContent(sender.layers(r, b, inner=inner)))
    reason = "messages that the router refuses: banned"
    await eventually(lambda: b.identities.refused() == {reason: 1})
    b.identities.unban(mallory.identity)
    sender.say(RelayContent(sender.layers(r, b, inner=inner)))
    assert (await recorder.next()).payload == b"hi"


async def test_threat_6_a_layer_is_opened_once_and_by_its_own_node(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    envelope = sender.layers(r, b, inner=sender.message(ENGINE_THERE))
    b.tap.change = lambda _, record: [record, record]
    sender.say(RelayContent(envelope))
    sender.say(RelayContent(envelope))
    await recorder.next()
    await eventually(lambda: refused(r) == {PeelOutcome.REPLAYED: 1})
    assert refused(b) == {PeelOutcome.REPLAYED: 1}
    b.tap.change = Tap().change
    # At another node: it is not for that one, and its policy passes nothing on.
    for _, _, message in list(r.tap.seen):
        if isinstance(message.content, RelayContent):
            b.identities._router.received(
                b.identities._router.peers.sessions[r.own],
                record_of(r.own, b.own, message.content),
            )
    assert refused(b) == {PeelOutcome.REPLAYED: 1, PeelOutcome.REFUSED: 2}
    assert len(recorder.messages) == 1


async def test_threat_7_what_has_expired_or_expires_too_late_is_dropped_at_a_relay(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    for expires in (-30_001, 630_001):
        message = sender.message(ENGINE_THERE)
        sender.say(RelayContent(sender.layers(r, b, inner=message, expires=expires)))
    await eventually(lambda: refused(r) == {PeelOutcome.NOT_FRESH: 2})
    for expires in (-30_000, 630_000):
        message = sender.message(ENGINE_THERE)
        sender.say(RelayContent(sender.layers(r, b, inner=message, expires=expires)))
        await recorder.next()
    # It waits at the relay while there is no link, and expires there.
    await leave(b, r)
    late = sender.layers(r, b, inner=sender.message(ENGINE_THERE), expires=5_000)
    sender.say(RelayContent(late))
    await eventually(lambda: r.relays.service.queues.holdings.messages == 1)
    await asyncio.sleep(6)
    assert r.relays.service.queues.holdings.messages == 0
    reason = "relayed messages that have expired while they were held"
    assert r.identities.refused()[reason] == 1
    assert len(recorder.messages) == 2


async def leave(one: Member, other: Member) -> None:
    """End the link of two nodes, and have neither dial again."""
    for each, node in ((one, other.own), (other, one.own)):
        each.identities._router.peers.disconnect(node, "a test")
    await asyncio.sleep(1)
    assert other.own not in one.identities.peers()


async def test_what_waits_for_a_link_is_sent_once_there_is_one(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    await leave(b, r)
    for expires in (2_000, 60_000, 30_000):
        inner = sender.message(ENGINE_THERE)
        sender.say(RelayContent(sender.layers(r, b, inner=inner, expires=expires)))
    queues = r.relays.service.queues
    await eventually(lambda: queues.holdings.messages == 3)
    assert queues.holdings.size > 3 * 1024
    await asyncio.sleep(3)
    assert queues.holdings.messages == 2
    await chain(r, b)
    await recorder.next()
    await recorder.next()
    assert (queues.holdings.messages, queues.holdings.size) == (0, 0)


async def test_what_expires_one_after_the_other_is_looked_at_now_and_then(
    pair: tuple[Member, Member],
    sender: Sender,
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    r, b = pair
    await leave(b, r)
    sweeps: list[int] = []
    sweep = RelayQueues._sweep

    def counted(queues: RelayQueues) -> None:
        sweeps.append(queues.holdings.messages)
        sweep(queues)

    monkeypatch.setattr(RelayQueues, "_sweep", counted)
    for later in range(50):
        inner = sender.message(ENGINE_THERE)
        sender.say(RelayContent(sender.layers(r, b, inner=inner, expires=2_000 + later)))
    queues = r.relays.service.queues
    await eventually(lambda: queues.holdings.messages == 50)
    await asyncio.sleep(3)
    assert (queues.holdings.messages, recorder.messages) == (0, [])
    assert len(sweeps) <= 2


async def test_a_node_with_an_address_is_dialled_for_what_is_relayed_to_it(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = three
    relay, far = await member(r, relay=OPEN, dials=("memory",)), await member(b)
    recorder = await Recorder.on(b, "engine")
    far.identities.engine("engine", key_of("engine"))
    listener = await b.listen("memory://dialled-by-a-relay", expose=[ROUTER])
    relay.identities.directory.put(advert_of(far, listener.uri), AdvertSource.LOCAL)
    sender = Sender(await StrangeNode.on(a, r, STRANGE), relay)
    await asyncio.sleep(40)
    sender.say(RelayContent(sender.layers(relay, far, inner=sender.message(ENGINE_THERE))))
    assert (await recorder.next()).payload == b"hi"
    # What is relayed keeps the link, which ends once nothing is.
    for _ in range(3):
        await asyncio.sleep(IDLE_TIME * 0.75)
        sender.say(RelayContent(sender.layers(relay, far, inner=sender.message(ENGINE_THERE))))
        await recorder.next()
    assert far.own in relay.identities.peers()
    await asyncio.sleep(2 * IDLE_TIME)
    assert far.own not in relay.identities.peers()


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_node_is_dialled_for_what_is_held_once_its_address_is_known(
    three: tuple[Node, Node, Node], is_lost: bool
) -> None:
    a, r, b = three
    relay, far = await member(r, relay=OPEN, dials=("memory",)), await member(b)
    recorder = await Recorder.on(b, "engine")
    far.identities.engine("engine", key_of("engine"))
    listener = await b.listen("memory://held-for", expose=[ROUTER])
    relay.identities.directory.put(advert_of(far), AdvertSource.LOCAL)
    sender = Sender(await StrangeNode.on(a, r, STRANGE), relay)
    await asyncio.sleep(40)  # its ids begin after the start of the node that it is for
    sender.say(RelayContent(sender.layers(relay, far, inner=sender.message(ENGINE_THERE))))
    queues = relay.relays.service.queues
    await eventually(lambda: queues.holdings.messages == 1)
    directory = relay.identities.directory
    if is_lost:  # the change is one of more than are kept until the next turn
        directory.on_update.clear()
    directory.put(advert_of(far, listener.uri, version=2), AdvertSource.LOCAL)
    if is_lost:
        for each in directory.on_lost:
            each(1)
    assert (await recorder.next()).payload == b"hi"
    assert relay.identities._router.dialling.counts == {"opened": 1}


async def test_what_a_link_has_no_room_for_is_held_until_it_has(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    queues, peers = r.relays.service.queues, r.identities._router.peers
    send = peers.send
    rooms: list[asyncio.Future[None]] = []

    def send_to_full(
        node: Identity, record: bytes, failed: Failed, expiry: int | None = None
    ) -> asyncio.Future[None]:
        assert send(node, record, failed, expiry) is None
        rooms.append(r.node.loop.create_future())
        return rooms[-1]

    peers.send = send_to_full  # type: ignore[method-assign]
    for _ in range(4):
        sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE))))
    await eventually(lambda: queues.holdings.messages == 3)
    assert len(recorder.messages) == 1
    # For each that goes there is room for one more.
    rooms[0].set_result(None)
    await eventually(lambda: len(recorder.messages) == 2)
    assert (len(rooms), queues.holdings.messages) == (2, 2)
    peers.send = send  # type: ignore[method-assign]
    rooms[1].set_result(None)
    await eventually(lambda: len(recorder.messages) == 4)
    assert queues.holdings.messages == 0
    sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE))))
    await eventually(lambda: len(recorder.messages) == 5)


async def test_what_is_held_stays_so_if_the_link_ends_as_it_is_sent(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    queues, peers = r.relays.service.queues, r.identities._router.peers
    send = peers.send
    room: asyncio.Future[None] = r.node.loop.create_future()

    def send_to_full(*given: object) -> asyncio.Future[None]:
        assert send(*given) is None  # type: ignore[arg-type]
        return room

    def end(node: Identity, _record: bytes, failed: Failed, _expiry: int | None = None) -> None:
        peers.send = send  # type: ignore[method-assign]
        peers._disconnect(peers.sessions[node], "a test")
        failed(LinkDown("b", "a test"))

    peers.send = send_to_full  # type: ignore[method-assign,assignment]
    for _ in range(4):
        sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE))))
    await eventually(lambda: queues.holdings.messages == 3)
    peers.send = end  # type: ignore[method-assign,assignment]
    room.set_result(None)
    reason = "relayed messages that no link has taken"
    await eventually(lambda: r.identities.refused() == {reason: 1})
    await eventually(lambda: queues.holdings.messages == 2)
    # They go over the next link.
    await chain(r, b)
    await eventually(lambda: len(recorder.messages) == 3)


async def test_what_has_been_given_to_a_link_that_ends_is_counted(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair

    def not_sent(_node: Identity, _record: bytes, failed: Failed, _expiry: int) -> None:
        failed(LinkDown("b", "a test"))

    r.identities._router.peers.send = not_sent  # type: ignore[method-assign,assignment]
    sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE))))
    reason = "relayed messages that no link has taken"
    await eventually(lambda: r.identities.refused() == {reason: 1})
    assert recorder.messages == []
    found = r.identities.relay_statistics()
    assert (found.relayed, found.relayed_size) == (0, 0)


async def test_what_a_link_has_taken_and_not_sent_is_counted_as_both(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    taken: list[Failed] = []

    def take(_node: Identity, _record: bytes, failed: Failed, _expiry: int) -> None:
        taken.append(failed)

    r.identities._router.peers.send = take  # type: ignore[method-assign,assignment]
    sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE)), bytes(16)))
    await eventually(lambda: taken)
    before = r.identities.relay_statistics()
    assert (before.relayed, r.identities.refused()) == (1, {})
    taken[0](LinkDown("b", "a test"))
    # A counter that fell would look like one of a node that was started anew.
    found = r.identities.relay_statistics()
    assert (found.relayed, found.relayed_size) == (1, before.relayed_size)
    assert r.identities.refused() == {"relayed messages that a link has not sent": 1}
    assert recorder.messages == []


async def test_what_is_held_is_told_of_once_a_link_has_taken_it(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    seen: list[PassedOn] = []
    r.identities.watch_relay(seen.append)
    await leave(b, r)
    for expires in (2_000, 60_000):
        inner = sender.message(ENGINE_THERE)
        sender.say(RelayContent(sender.layers(r, b, inner=inner, expires=expires)))
    queues = r.relays.service.queues
    await eventually(lambda: queues.holdings.messages == 2)
    await asyncio.sleep(3)
    assert (queues.holdings.messages, queues.relayed, seen) == (1, 0, [])
    await chain(r, b)
    await recorder.next()
    assert [(each.previous, each.following) for each in seen] == [(STRANGE.identity, b.own)]


async def test_what_is_held_when_the_node_ends_is_counted(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    await leave(b, r)
    for _ in range(2):
        sender.say(RelayContent(sender.layers(r, b, inner=sender.message(ENGINE_THERE))))
    await eventually(lambda: r.relays.service.queues.holdings.messages == 2)
    await r.node.stop()
    assert r.identities.refused()["messages held when the node ended"] == 2
    assert r.identities.relay_statistics().held == 0
    assert recorder.messages == []


async def test_what_is_held_has_limits(three: tuple[Node, Node, Node]) -> None:
    # Of what is held for one node, another one may have sent half.
    r = await member(three[1], relay=OPEN, relay_limits=RelayLoadLimits(peer_messages=4))
    b = await member(three[2])
    sender = Sender(await StrangeNode.on(three[0], three[1], STRANGE), r)
    await asyncio.sleep(40)
    for _ in range(3):
        inner = sender.message(ENGINE_THERE)
        sender.say(RelayContent(sender.layers(r, b, inner=inner), bytes(16)))
    service = r.relays.service
    await eventually(lambda: service.refused == {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 1})
    assert service.queues.holdings.messages == 2
    assert len(service.handles) == 0
    share = "relayed messages: the node before has used its share of what is held"
    assert r.identities.refused() == {share: 1}
    r.identities.ban(b.own)
    assert service.queues.holdings.messages == 0
    assert r.identities.refused()["messages held for a node that is banned"] == 2


async def test_no_way_back_is_kept_for_a_message_without_a_route(
    pair: tuple[Member, Member], sender: Sender
) -> None:
    r, _ = pair
    to, now = Destination(DestinationKind.NODE, r.own), now_of(r)
    body = encode_message(Message((), (), b"hi"))
    message = EngineMessage(STRANGE.identity, to, now << 20, ONWARD, body, expiry=now + 60_000)
    inner = sign_engine_message(message, STRANGE)
    layer = sender.layers(r, inner=inner, reply_keys=(bytes(range(REPLY_KEY_SIZE)),))
    sender.say(RelayContent(layer, bytes(HANDLE_SIZE)))
    await eventually(lambda: r.identities.refused() == {"messages without a route": 1})
    assert r.identities.relay_statistics().handles == 0


async def test_a_peer_that_sends_too_often_is_refused(three: tuple[Node, Node, Node]) -> None:
    r = await member(three[1], relay=OPEN, relay_limits=RelayLoadLimits(rate=1, burst=2))
    sender = Sender(await StrangeNode.on(three[0], three[1], STRANGE), r)
    for _ in range(5):
        sender.say(RelayContent(b"x"))
    service = r.relays.service
    await eventually(lambda: service.refused == {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 3})
    assert refused(r) == {PeelOutcome.BAD_RECORD: 2}
    await asyncio.sleep(2)
    sender.say(RelayContent(b"x"))
    await eventually(lambda: refused(r) == {PeelOutcome.BAD_RECORD: 3})


def sealed_for(to: Member, kind: InnerKind, inner: bytes) -> RelayContent:
    """Return a layer for a node with anything in it."""
    expiry = now_of(to) + 60_000
    info = relay_info(STRANGE.identity, to.own, None, expiry)
    sealed = seal(to.identities.sealing_key, kind, NO_REPLY, inner, room=2048, info=info)
    layer = RelayMessage(STRANGE.identity, to.own, expiry, sealed)
    return RelayContent(sign_relay_message(layer, STRANGE))


async def test_threat_9_what_is_in_a_layer_and_cannot_be_used_is_dropped(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, _ = pair
    for kind in InnerKind:
        for inner in (b"", b"x", bytes(64)):
            sender.say(sealed_for(r, kind, inner))
    await eventually(lambda: refused(r) == {PeelOutcome.BAD_INNER: 9})
    own = sender.layers(r, inner=sender.message(ENGINE_THERE))
    sender.say(sealed_for(r, InnerKind.RELAY, own))
    await eventually(lambda: refused(r) == {PeelOutcome.BAD_INNER: 10})
    assert recorder.messages == []


async def test_threat_10_a_peer_cannot_tell_the_reasons_apart(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    good = sender.layers(r, b, inner=sender.message(ENGINE_THERE))
    found = open_relay_message(good, Verifiers())
    assert found is not None
    flipped = found.sealed[:-1] + bytes((found.sealed[-1] ^ 1,))
    closed = RelayMessage(found.src, r.own, found.expiry, flipped)
    late = sender.layers(r, b, inner=sender.message(ENGINE_THERE), expires=-60_000)
    elsewhere = RelayMessage(found.src, STRANGE.identity, found.expiry, found.sealed)
    for content in (
        RelayContent(b"x", bytes(16)),
        RelayContent(good[:-1] + bytes((good[-1] ^ 1,)), bytes(16)),
        RelayContent(sign_relay_message(closed, STRANGE), bytes(16)),
        RelayContent(late, bytes(16)),
        RelayContent(sign_relay_message(elsewhere, STRANGE), bytes(16)),
        sealed_for(r, InnerKind.ENGINE, b"x"),
        ReplyContent(bytes(16), bytes(1052)),
    ):
        sender.say(content)
    await eventually(lambda: len(refused(r)) == 6)
    # Nothing came back and the session is as before: what follows is passed on.
    sender.say(RelayContent(good))
    await recorder.next()
    assert sender.strange.key.identity in r.identities.peers()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await sender.strange.said()


async def test_threat_14_a_path_that_comes_back_ends(
    pair: tuple[Member, Member], sender: Sender, recorder: Recorder
) -> None:
    r, b = pair
    b.relays.service.admission.policy = OPEN
    inner = sender.message(ENGINE_THERE)
    sender.say(RelayContent(sender.layers(r, b, r, b, r, b, inner=inner)))
    await recorder.next()
    assert r.relays.service.queues.relayed == 3
    assert b.relays.service.queues.relayed == 2
    # A layer that passes unchanged is not sent back to the node that it came from.
    elsewhere = open_relay_message(sender.layers(b, inner=inner), Verifiers())
    assert elsewhere is not None
    nowhere = RelayMessage(
        STRANGE.identity, key_of("nowhere").identity, elsewhere.expiry, elsewhere.sealed
    )
    content = RelayContent(sign_relay_message(nowhere, STRANGE))
    for _ in range(3):
        sender.say(content)
    await eventually(lambda: refused(r) == {PeelOutcome.REPLAYED: 2})
    assert r.relays.service.queues.holdings.messages == 1


async def test_threat_14_tables_that_point_at_each_other_pass_nothing_to_and_fro(
    asker: tuple[Member, Member, Member],
) -> None:
    a, r, _ = asker
    a.relays.service.admission.policy = OPEN
    nowhere = key_of("nowhere")
    for one, via in ((a, r), (r, a)):
        address = AdvertAddress(relay_text(via), 1)
        sealing = a.identities.sealing_key
        advert = NodeAdvert(nowhere.identity, (address,), sealing, 1, now_of(a))
        one.identities.directory.put(sign_advert(advert, nowhere), AdvertSource.LOCAL)
    seen = len(a.tap.seen), len(r.tap.seen)
    a.node.send(f"{node_text(nowhere.identity)} => echo", b"x")
    a.node.send(f"{node_text(r.own)} => {node_text(nowhere.identity)} => echo", b"x")
    await eventually(lambda: r.relays.service.queues.holdings.messages == 1)
    await eventually(lambda: r.node.dead_letters.by_reason == {"not exposed": 1})
    await asyncio.sleep(100)
    # Each has crossed the link once, and the sealed one has expired where it was held.
    assert len([each for each in a.tap.seen[seen[0] :] if not is_told(each[1])]) == 0
    assert len([each for each in r.tap.seen[seen[1] :] if not is_told(each[1])]) == 2
    assert r.relays.service.queues.holdings.messages == 0


def is_told(record: bytes) -> bool:
    """Whether a record is of what nodes tell each other: no message of a worker."""
    return isinstance(parse_p2p_message(record).content, ControlContent)


async def test_a_relay_that_delays_changes_nothing_but_the_time(
    asker: tuple[Member, Member, Member],
) -> None:
    a, r, b = asker
    kept: list[bytes] = []

    def keep(_: Identity, record: bytes) -> list[bytes]:
        if is_told(record):
            return [record]
        kept.append(record)
        return []

    b.tap.change = keep
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    asked = [asyncio.ensure_future(a.node.request(route, bytes((each,)))) for each in range(3)]
    await eventually(lambda: len(kept) == 3)
    await asyncio.sleep(20)
    b.tap.change = Tap().change
    session = b.identities._router.peers.sessions[r.own]
    for record in reversed(kept):
        b.identities._router.received(session, record)
    answers = [(await each).payload for each in asked]
    assert answers == [b"\0", b"\1", b"\2"]
    # One that comes after its expiry is dropped.
    b.tap.change = keep
    a.node.send(route, b"late")
    await eventually(lambda: len(kept) == 4)
    await asyncio.sleep(100)
    b.tap.change = Tap().change
    b.identities._router.received(session, kept[3])
    assert refused(b) == {PeelOutcome.NOT_FRESH: 1}


@pytest.mark.parametrize(
    ("policy", "relayed"),
    [
        (RelayPolicy(), False),
        (RelayPolicy(sources=frozenset({STRANGE.identity})), True),
        (RelayPolicy(sources=frozenset({key_of("b").identity})), False),
        (RelayPolicy(destinations=frozenset({key_of("b").identity})), True),
        (RelayPolicy(destinations=frozenset({STRANGE.identity})), False),
        (RelayPolicy(to_reserved=True), False),
        (RelayPolicy(from_any=True), True),
    ],
)
async def test_threat_15_what_the_policy_does_not_allow_is_dropped(
    three: tuple[Node, Node, Node], policy: RelayPolicy, relayed: bool
) -> None:
    a, r, b = three
    relay, far = await member(r, relay=policy), await member(b)
    recorder = await Recorder.on(b, "engine")
    far.identities.engine("engine", key_of("engine"))
    await chain(relay, far)
    await asyncio.sleep(40)
    sender = Sender(await StrangeNode.on(a, r, STRANGE), relay)
    sender.say(RelayContent(sender.layers(relay, far, inner=sender.message(ENGINE_THERE))))
    if relayed:
        await recorder.next()
        assert refused(relay) == {}
    else:
        await eventually(lambda: refused(relay) == {PeelOutcome.REFUSED: 1})
        assert relay.relays.service.queues.relayed == 0
        assert recorder.messages == []


@pytest.mark.parametrize("banned", ["sender", "next"])
async def test_what_is_held_and_its_handle_end_when_either_end_is_banned(
    three: tuple[Node, Node, Node], banned: str
) -> None:
    a, r, b = three
    line = sender, relay, far = await member(a), await member(r, relay=OPEN), await member(b, "rec")
    recorder = await Recorder.on(b, "rec")
    asks = await Recorder.on(a, "asks")
    await chain(sender, relay)
    introduce(*line)
    await asyncio.sleep(40)
    for _ in range(5):
        asks.send(f"{relay_text(relay)} => {node_text(far.own)} => rec", b"x")
    await eventually(lambda: relay.identities.relay_statistics().held == 5)
    assert relay.identities.relay_statistics().handles == 5
    relay.identities.ban(sender.own if banned == "sender" else far.own)
    found = relay.identities.relay_statistics()
    assert (found.held, found.held_size, found.handles) == (0, 0, 0)
    reasons = {
        "sender": "messages held of what is banned",
        "next": "messages held for a node that is banned",
    }
    assert relay.identities.refused()[reasons[banned]] == 5
    assert recorder.messages == []


async def test_the_handle_of_what_expires_while_it_is_held_ends_with_it(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = three
    line = sender, relay, far = await member(a), await member(r, relay=OPEN), await member(b)
    asks = await Recorder.on(a, "asks")
    await chain(sender, relay)
    introduce(*line)
    await asyncio.sleep(40)
    asks.send(f"{relay_text(relay)} => {node_text(far.own)} => rec", b"x")
    await eventually(lambda: relay.identities.relay_statistics().held)
    (held,) = relay.relays.service.queues._held[far.own]
    await asyncio.sleep((held.expiry - now_of(relay)) / 1000 + 1)
    found = relay.identities.relay_statistics()
    assert (found.held, found.handles) == (0, 0)


@pytest.mark.parametrize("exits", [False, True])
async def test_threat_15_a_message_leaves_its_layers_for_another_node_where_that_is_allowed(
    three: tuple[Node, Node, Node], exits: bool
) -> None:
    a, r, b = three
    relay, far = await member(r, relay=RelayPolicy(from_any=True, exits=exits)), await member(b)
    recorder = await Recorder.on(b, "engine")
    far.identities.engine("engine", key_of("engine"))
    await chain(relay, far)
    await asyncio.sleep(40)
    sender = Sender(await StrangeNode.on(a, r, STRANGE), relay)
    for engine in (ENGINE_THERE, key_of("no").identity):
        layer = sender.layers(relay, inner=sender.message(engine), lets_out=True)
        sender.say(RelayContent(layer))
    dropped = {PeelOutcome.REFUSED: 1 if exits else 2}
    await eventually(lambda: refused(relay) == dropped)
    await eventually(lambda: relay.relays.service.queues.relayed == exits)
    if exits:
        # Sealed for the node there, by the relay, it is believed by its own signature.
        assert (await recorder.next()).payload == b"hi"
    else:
        assert recorder.messages == []
    assert far.identities.refused() == {}


# --- answers ----------------------------------------------------------------------------------


@pytest.fixture
async def asker(three: tuple[Node, Node, Node]) -> tuple[Member, Member, Member]:
    """A node that asks, an open relay, and an echo behind it."""
    a, r, b = three
    line = await member(a), await member(r, relay=OPEN), await member(b, "echo")
    await b.start(Echo, address="echo")
    await chain(*line)
    introduce(*line)
    await asyncio.sleep(40)
    return line


def is_reply(record: bytes) -> bool:
    return isinstance(parse_p2p_message(record).content, ReplyContent)


async def test_threat_20_an_answer_that_a_relay_changes_is_found_by_the_sender(
    asker: tuple[Member, Member, Member],
) -> None:
    a, r, b = asker
    a.tap.change = lambda _, record: [_changed(record) if is_reply(record) else record]
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"x", timeout=5)
    reason = "answers over relays: the answer was changed on its way"
    assert a.identities.refused() == {reason: 1}


def _changed(record: bytes) -> bytes:
    content = parse_p2p_message(record).content
    assert isinstance(content, ReplyContent)
    at = record.index(content.reply) + 100
    return record[:at] + bytes((record[at] ^ 1,)) + record[at + 1 :]


async def test_threat_20_a_handle_is_for_one_use_of_one_peer_until_its_expiry(
    asker: tuple[Member, Member, Member],
) -> None:
    a, r, b = asker
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    # Twice at each hop on the way back: one answer comes.
    for each in (a, r):
        each.tap.change = lambda _, record: [record] * (1 + is_reply(record))
    assert (await a.node.request(route, b"x")).payload == b"x"
    unknown = "answers over relays: there is no such handle, or it was used"
    await eventually(lambda: a.identities.refused() == {unknown: 1})
    assert r.identities.refused() == {unknown: 1}
    # By another peer, which has learned a handle: it is refused, and stays for the right one.
    async with Node("d") as another:
        strange = await StrangeNode.on(another, r.node, STRANGE)
        waiting: list[bytes] = []

        def keep_replies(_: Identity, record: bytes) -> list[bytes]:
            if not is_reply(record):
                return [record]
            waiting.append(record)
            return []

        r.tap.change = keep_replies
        asked = asyncio.ensure_future(a.node.request(route, b"y"))
        await eventually(lambda: waiting)
        r.tap.change = Tap().change
        stolen = parse_p2p_message(waiting[0]).content
        strange.say(stolen)
        foreign = "answers over relays: the handle is for another peer"
        await eventually(lambda: r.identities.refused().get(foreign) == 1)
        r.identities._router.received(r.identities._router.peers.sessions[b.own], waiting[0])
        assert (await asked).payload == b"y"
        # Too late.
        waiting.clear()
        r.tap.change = keep_replies
        with pytest.raises(TimeoutError):
            await a.node.request(route, b"z", timeout=5)
        await asyncio.sleep(100)
        r.tap.change = Tap().change
        r.identities._router.received(r.identities._router.peers.sessions[b.own], waiting[0])
        expired = "answers over relays: the handle has expired"
        assert r.identities.refused()[expired] == 1
