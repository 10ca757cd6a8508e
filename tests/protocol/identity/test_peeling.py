"""What a relay does with a layer: each step, and the same silence for each failure."""

from __future__ import annotations

import pytest

from onward.protocol.identity import (
    MAX_SKEW,
    MAX_TTL,
    Destination,
    DestinationKind,
    EngineMessage,
    InnerKind,
    LayerTags,
    Peeled,
    Peeler,
    PeelOutcome,
    Protocol,
    RelayContent,
    RelayMessage,
    SignedKind,
    SigningKey,
    TransportPrefs,
    Verifiers,
    build_onion,
    open_relay_message,
    relay_info,
    seal,
    serialize_engine_message,
    sign,
    sign_relay_message,
)
from tests.support.onions import EXPIRY, NOW, SENDER, OnionNode, message_to, secret

MALLORY = SigningKey(secret("mallory"))


def layers(
    *nodes: OnionNode,
    message: bytes | None = None,
    expiry: int = EXPIRY,
    lets_out: bool = False,
) -> RelayContent:
    """Return a message for the last node, sealed for each one; what they know, all of them."""
    last = nodes[-1]
    envelope = build_onion(
        [node.hop for node in nodes],
        message_to(last) if message is None else message,
        expiry=expiry,
        signers=[SENDER] * len(nodes),
        lets_out=lets_out,
    )
    return RelayContent(envelope)


def layer(content: RelayContent) -> RelayMessage:
    found = open_relay_message(content.envelope, Verifiers())
    assert found is not None
    return found


def sealed_for(node: OnionNode, kind: InnerKind, inner: bytes) -> RelayContent:
    """Return a layer for a node with anything in it."""
    info = relay_info(SENDER.identity, node.identity, None, EXPIRY)
    sealed = seal(node.keys.public, kind, bytes(32), inner, room=2048, info=info)
    message = RelayMessage(SENDER.identity, node.identity, EXPIRY, sealed)
    return RelayContent(sign_relay_message(message, SENDER))


def outcome(node: OnionNode, content: RelayContent, *, now: int = NOW) -> PeelOutcome:
    peeled = node.take(content, SENDER.identity, now)
    # Whatever the reason of a drop is, nothing goes on by which a peer could tell it.
    assert not peeled.outcome.is_drop or peeled == Peeled(peeled.outcome)
    return peeled.outcome


@pytest.fixture
def a() -> OnionNode:
    return OnionNode("a")


@pytest.fixture
def b() -> OnionNode:
    return OnionNode("b")


def test_a_drop_has_nothing_but_its_reason(a: OnionNode, b: OnionNode) -> None:
    a.rules.refused.add(b.identity)
    assert a.take(layers(a, b), SENDER.identity) == Peeled(PeelOutcome.REFUSED)
    drops = [each for each in PeelOutcome if each.is_drop]
    assert len(drops) == len(PeelOutcome) - 4


def test_each_outcome_is_counted(a: OnionNode, b: OnionNode) -> None:
    content = layers(a, b)
    assert outcome(a, content) is PeelOutcome.NEXT
    assert outcome(a, content) is PeelOutcome.REPLAYED
    assert outcome(a, content) is PeelOutcome.REPLAYED
    assert {key: count for key, count in a.peeler.outcomes.items() if count} == {
        PeelOutcome.NEXT: 1,
        PeelOutcome.REPLAYED: 2,
    }


def test_what_is_no_message_for_a_relay_is_dropped(a: OnionNode) -> None:
    for envelope in (b"x", message_to(a), sign(SignedKind.RELAY, b"\x80", SENDER)):
        assert outcome(a, RelayContent(envelope)) is PeelOutcome.BAD_RECORD


def test_a_signature_of_another_kind_or_key_is_dropped(a: OnionNode) -> None:
    content = layers(a)
    payload = content.envelope[10:-66]
    assert sign(SignedKind.RELAY, payload, SENDER) == content.envelope
    for kind in SignedKind:
        if kind is not SignedKind.RELAY:
            other = RelayContent(sign(kind, payload, SENDER))
            assert outcome(a, other) is PeelOutcome.BAD_SIGNATURE
    other = RelayContent(sign(SignedKind.RELAY, payload, MALLORY))
    assert outcome(a, other) is PeelOutcome.BAD_SIGNATURE


@pytest.mark.parametrize("count", [1, 3])
def test_each_byte_that_is_changed_at_each_hop_is_dropped(count: int) -> None:
    nodes = [OnionNode(f"node {number}") for number in range(count)]
    content, peer = layers(*nodes), SENDER.identity
    for node in nodes:
        # All of the header and the tail, and a part of what is sealed.
        size = len(content.envelope)
        for at in (*range(200), *range(200, size - 100, 37), *range(size - 100, size)):
            changed = bytearray(content.envelope)
            changed[at] ^= 1 << at % 8
            assert node.take(RelayContent(bytes(changed)), peer).outcome in {
                PeelOutcome.BAD_RECORD,
                PeelOutcome.BAD_SIGNATURE,
            }
        peeled = node.take(content, peer)
        assert not peeled.outcome.is_drop
        content, peer = RelayContent(peeled.envelope), node.identity


@pytest.mark.parametrize("bit", [0, 7])
def test_each_byte_of_a_layer_that_is_changed_and_signed_anew_does_not_open(
    a: OnionNode, bit: int
) -> None:
    message = layer(layers(a))
    for at in range(0, len(message.sealed), 1 if bit else 17):
        changed = bytearray(message.sealed)
        changed[at] ^= 1 << bit
        again = RelayMessage(SENDER.identity, a.identity, EXPIRY, bytes(changed))
        content = RelayContent(sign_relay_message(again, SENDER))
        assert outcome(a, content) is PeelOutcome.NOT_OPENED
    # None of them has used up the layer.
    assert outcome(a, RelayContent(sign_relay_message(message, SENDER))) is PeelOutcome.DELIVER


def test_a_stolen_layer_does_not_open(a: OnionNode, b: OnionNode) -> None:
    message = layer(layers(a))
    for stolen, key in [
        (RelayMessage(MALLORY.identity, a.identity, EXPIRY, message.sealed), MALLORY),
        (RelayMessage(SENDER.identity, a.identity, EXPIRY + 1, message.sealed), SENDER),
        (
            RelayMessage(SENDER.identity, a.identity, EXPIRY, message.sealed, TransportPrefs()),
            SENDER,
        ),
    ]:
        content = RelayContent(sign_relay_message(stolen, key))
        assert outcome(a, content) is PeelOutcome.NOT_OPENED
    elsewhere = RelayMessage(SENDER.identity, b.identity, EXPIRY, message.sealed)
    assert outcome(b, RelayContent(sign_relay_message(elsewhere, SENDER))) is PeelOutcome.NOT_OPENED


def test_an_observer_cannot_use_up_a_layer_of_another(a: OnionNode) -> None:
    content = layers(a)
    sealed = layer(content).sealed
    garbage = RelayMessage(MALLORY.identity, a.identity, EXPIRY, sealed[:36] + bytes(400))
    burnt = RelayContent(sign_relay_message(garbage, MALLORY))
    assert outcome(a, burnt) is PeelOutcome.NOT_OPENED
    assert outcome(a, content) is PeelOutcome.DELIVER


def test_a_layer_is_taken_until_its_expiry_and_not_from_too_far_away(a: OnionNode) -> None:
    content = layers(a)
    assert outcome(a, content, now=EXPIRY + MAX_SKEW + 1) is PeelOutcome.NOT_FRESH
    assert outcome(a, content, now=EXPIRY - MAX_TTL - MAX_SKEW - 1) is PeelOutcome.NOT_FRESH
    assert outcome(a, content, now=EXPIRY - MAX_TTL - MAX_SKEW) is PeelOutcome.DELIVER
    assert outcome(a, layers(a), now=EXPIRY + MAX_SKEW) is PeelOutcome.DELIVER


def test_a_source_that_is_refused_has_nothing_opened(a: OnionNode) -> None:
    content = layers(a)
    a.rules.refused.add(SENDER.identity)
    assert outcome(a, content) is PeelOutcome.REFUSED
    a.rules.refused.clear()
    assert outcome(a, content) is PeelOutcome.DELIVER


def test_a_message_leaves_the_path_where_the_rules_allow_it(a: OnionNode, b: OnionNode) -> None:
    message = message_to(b)
    assert outcome(a, layers(a, message=message, lets_out=True)) is PeelOutcome.REFUSED
    a.rules.exits = True
    peeled = a.take(layers(a, message=message, lets_out=True), SENDER.identity)
    assert (peeled.outcome, peeled.envelope) == (PeelOutcome.EXIT, message)
    assert peeled.message is not None
    assert peeled.message.dst.identity == b.engine.identity
    a.rules.refused.add(b.engine.identity)
    assert outcome(a, layers(a, message=message, lets_out=True)) is PeelOutcome.REFUSED


def test_a_message_leaves_the_path_only_if_its_sender_asks_for_that(
    a: OnionNode, b: OnionNode
) -> None:
    a.rules.exits = True
    assert outcome(a, layers(a, message=message_to(b))) is PeelOutcome.REFUSED
    # It asks the last hop, and what is of that node is delivered there as anything else.
    c = OnionNode("c")
    content = layers(c, a, message=message_to(b), lets_out=True)
    peeled = c.take(content, SENDER.identity)
    assert peeled.outcome is PeelOutcome.NEXT
    assert outcome(a, RelayContent(peeled.envelope)) is PeelOutcome.EXIT
    assert outcome(a, layers(a, lets_out=True)) is PeelOutcome.DELIVER


def test_what_cannot_be_used_is_dropped_after_it_was_opened(a: OnionNode, b: OnionNode) -> None:
    destination = Destination(DestinationKind.ENGINE, a.engine.identity)
    message = EngineMessage(SENDER.identity, destination, 7, Protocol("wire", 1), b"")
    forged = sign(SignedKind.ENGINE, serialize_engine_message(message), MALLORY)
    for kind, inner in [
        (InnerKind.RELAY, b""),
        (InnerKind.RELAY, message_to(a)),
        (InnerKind.RELAY, layers(a).envelope),  # this node again
        (InnerKind.ENGINE, layers(b).envelope),
        (InnerKind.ENGINE, forged),
        (InnerKind.EXIT, layers(b).envelope),
        (InnerKind.EXIT, forged),
    ]:
        content = sealed_for(a, kind, inner)
        assert outcome(a, content) is PeelOutcome.BAD_INNER
        assert outcome(a, content) is PeelOutcome.REPLAYED


def test_a_layer_for_another_node_passes_unchanged_where_the_rules_allow_it(
    a: OnionNode, b: OnionNode
) -> None:
    content = layers(b)
    a.rules.refused.add(b.identity)
    assert outcome(a, content) is PeelOutcome.REFUSED
    a.rules.refused.clear()
    assert outcome(a, content, now=EXPIRY + MAX_SKEW + 1) is PeelOutcome.NOT_FRESH
    peeled = a.take(content, SENDER.identity)
    assert peeled.outcome is PeelOutcome.UNCHANGED
    assert (peeled.envelope, peeled.following) == (content.envelope, b.identity)
    assert peeled.expiry == EXPIRY
    assert outcome(b, content) is PeelOutcome.DELIVER


def test_nothing_goes_back_to_the_peer_that_it_is_for(a: OnionNode, b: OnionNode) -> None:
    assert a.take(layers(b), b.identity).outcome is PeelOutcome.REFUSED


def test_two_nodes_that_take_each_other_for_the_way_pass_it_once(
    a: OnionNode, b: OnionNode
) -> None:
    content = layers(OnionNode("c"))
    nodes = [(a, b), (b, a)]
    passes = 0
    while nodes[passes % 2][0].take(content, nodes[passes % 2][1].identity).outcome is (
        PeelOutcome.UNCHANGED
    ):
        passes += 1
    assert passes == 2


def test_a_path_that_comes_back_to_a_node_ends(a: OnionNode, b: OnionNode) -> None:
    content, peer = layers(a, b, a), SENDER.identity
    found: list[PeelOutcome] = []
    for node in (a, b, a):
        peeled = node.take(content, peer)
        found.append(peeled.outcome)
        content, peer = RelayContent(peeled.envelope), node.identity
    assert found == [PeelOutcome.NEXT, PeelOutcome.NEXT, PeelOutcome.DELIVER]


def test_without_room_for_tags_nothing_is_passed_or_delivered(a: OnionNode, b: OnionNode) -> None:
    tags = LayerTags(limit=1)
    peeler = Peeler(a.identity, a.keys, tags, a.rules, Verifiers())
    first, second, other = layers(a), layers(a), layers(b)
    assert peeler.peel(first.envelope, SENDER.identity, NOW).outcome is PeelOutcome.DELIVER
    assert peeler.peel(second.envelope, SENDER.identity, NOW).outcome is PeelOutcome.NO_ROOM
    assert peeler.peel(other.envelope, SENDER.identity, NOW).outcome is PeelOutcome.NO_ROOM
    later = NOW + 60_000 + MAX_SKEW + 1
    third = layers(a, expiry=later)
    assert peeler.peel(third.envelope, SENDER.identity, later).outcome is PeelOutcome.DELIVER


def test_a_source_behind_a_peer_leaves_room_for_tags(a: OnionNode, b: OnionNode) -> None:
    tags, relay = LayerTags(share=4), OnionNode("relay").identity
    peeler = Peeler(a.identity, a.keys, tags, a.rules, Verifiers())
    found = [peeler.peel(layers(a).envelope, relay, NOW) for _ in range(3)]
    assert [each.outcome for each in found] == [PeelOutcome.DELIVER] * 2 + [PeelOutcome.NO_ROOM]
    assert found[0].source == SENDER.identity
    assert peeler.peel(layers(a, b).envelope, relay, NOW).outcome is PeelOutcome.NO_ROOM
    # The source next to this node has the share of a peer.
    assert peeler.peel(layers(a).envelope, SENDER.identity, NOW).outcome is PeelOutcome.DELIVER


def test_a_layer_for_the_key_before_opens_after_a_rotation(a: OnionNode) -> None:
    content = layers(a)
    a.keys.rotate(secret("new"), NOW)
    assert outcome(a, layers(a)) is PeelOutcome.DELIVER
    assert outcome(a, content) is PeelOutcome.DELIVER


def test_nothing_but_sizes_and_nodes_is_in_the_repr_of_a_result(a: OnionNode) -> None:
    shown = repr(a.take(layers(a), SENDER.identity))
    assert "hello" not in shown
    assert "reply_key" not in shown
