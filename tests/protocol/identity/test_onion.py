"""Paths of relays: their layers, their sizes, and what a path may not be."""

from __future__ import annotations

from itertools import pairwise

import cbor2
import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.identity import (
    BUCKETS,
    MAX_HOPS,
    NO_REPLY,
    BadKey,
    BadPath,
    Hop,
    Identity,
    MessageTooBig,
    PeelOutcome,
    RelayContent,
    Security,
    TransportPrefs,
    Verifiers,
    build_onion,
    derived_engine,
    one_time_signers,
    open_relay_message,
    relay_info,
    room_for,
)
from tests.support.onions import EXPIRY, SENDER, OnionNode, message_to, secret

LAYER = 249
"""Bytes that a layer adds, up to 64 KiB; four more beyond."""


def path(count: int) -> list[OnionNode]:
    return [OnionNode(f"node {number}") for number in range(count)]


def onion(nodes: list[OnionNode], message: bytes, *, anonymous: bool = True) -> bytes:
    count = len(nodes)
    return build_onion(
        [node.hop for node in nodes],
        message,
        expiry=EXPIRY,
        signers=one_time_signers(secret("once", 32 * count)) if anonymous else [SENDER] * count,
        reply_keys=[secret(f"reply {number}") for number in range(count)],
    )


def sizes(nodes: list[OnionNode], message: bytes) -> list[int]:
    """Return the bytes of the envelope on each link of a path."""
    found: list[int] = []
    envelope, peer = onion(nodes, message), SENDER.identity
    for node in nodes:
        found.append(len(envelope))
        envelope, peer = node.take(RelayContent(envelope), peer).envelope, node.identity
    return found


def test_the_info_of_a_layer_is_a_text_and_a_record() -> None:
    prefs = TransportPrefs(security=Security.ONION, hops=3)
    src, dst = SENDER.identity, OnionNode("a").identity
    record = cbor2.dumps([src, dst, [0, 0, [1, 3]], EXPIRY])
    assert relay_info(src, dst, prefs, EXPIRY) == b"onward/identity/1/relay" + record
    assert relay_info(src, dst, None, EXPIRY).endswith(cbor2.dumps([src, dst, None, EXPIRY])[1:])


@given(
    st.integers(1, MAX_HOPS),
    st.one_of(st.binary(max_size=200), st.integers(0, 65_000).map(bytes)),
    st.booleans(),
)
@settings(max_examples=30)
def test_a_path_opened_hop_by_hop_gives_the_message(
    count: int, body: bytes, anonymous: bool
) -> None:
    nodes = path(count)
    message = message_to(nodes[-1], body)
    content, peer = RelayContent(onion(nodes, message, anonymous=anonymous)), SENDER.identity
    for node, following in pairwise(nodes):
        peeled = node.take(content, peer)
        assert (peeled.outcome, peeled.following) == (PeelOutcome.NEXT, following.identity)
        assert (peeled.expiry, peeled.reply_key) != (EXPIRY, NO_REPLY)
        content, peer = RelayContent(peeled.envelope), node.identity
    last = nodes[-1].take(content, peer)
    assert (last.outcome, last.envelope) == (PeelOutcome.DELIVER, message)
    assert last.message is not None
    assert last.message.body == body


@pytest.mark.parametrize("bucket", BUCKETS)
def test_messages_of_one_bucket_have_the_same_size_on_each_link(bucket: int) -> None:
    node = OnionNode("node 3")
    # The length of a body takes some more bytes in a greater message.
    most = next(
        size for size in range(bucket, 0, -1) if room_for(message_to(node, bytes(size))) <= bucket
    )
    least = 0 if bucket == BUCKETS[0] else bucket // 2
    found = {
        tuple(sizes(path(4), message_to(node, bytes(size)))) for size in (least, most - 1, most)
    }
    beyond = 4 if bucket == BUCKETS[-1] else 0
    # The innermost layer, then one layer more on each link before.
    assert found == {
        tuple(bucket + 212 + beyond + (LAYER + beyond) * layers for layers in (3, 2, 1, 0))
    }


def test_a_message_over_the_greatest_bucket_is_an_error_of_the_sender() -> None:
    nodes = path(1)
    with pytest.raises(MessageTooBig) as raised:
        onion(nodes, bytes(BUCKETS[-1] - 36))
    assert (raised.value.size, raised.value.limit) == (65537, 65536)


def test_one_time_sources_say_nothing_of_the_sender() -> None:
    nodes = path(3)
    envelope, peer = onion(nodes, message_to(nodes[-1])), SENDER.identity
    sources: set[Identity] = set()
    for node in nodes:
        layer = open_relay_message(envelope, Verifiers())
        assert layer is not None
        sources.add(layer.src)
        envelope, peer = node.take(RelayContent(envelope), peer).envelope, node.identity
    assert len(sources) == 3
    assert SENDER.identity not in sources


def test_all_layers_ask_for_the_same_carriage() -> None:
    nodes = path(2)
    prefs = TransportPrefs(security=Security.ONION, hops=2)
    envelope = build_onion(
        [node.hop for node in nodes],
        message_to(nodes[-1]),
        expiry=EXPIRY,
        signers=[SENDER, SENDER],
        tprefs=prefs,
    )
    for node in nodes:
        layer = open_relay_message(envelope, Verifiers())
        assert layer is not None
        assert (layer.src, layer.tprefs, layer.expiry) == (SENDER.identity, prefs, EXPIRY)
        peeled = node.take(RelayContent(envelope), SENDER.identity)
        assert peeled.reply_key == NO_REPLY
        envelope = peeled.envelope
    assert envelope == message_to(nodes[-1])


def test_what_is_no_path_is_an_error() -> None:
    a, b = path(2)
    message = message_to(b)

    def build(hops: list[OnionNode], signers: int, reply_keys: int = 0) -> None:
        build_onion(
            [node.hop for node in hops],
            message,
            expiry=EXPIRY,
            signers=[SENDER] * signers,
            reply_keys=[secret("reply")] * reply_keys,
        )

    with pytest.raises(BadPath, match="no path: it has 1 to 8 hops, not 0"):
        build([], 0)
    with pytest.raises(BadPath, match="no path: it has 1 to 8 hops, not 9"):
        build([a, b] * 4 + [a], 9)
    with pytest.raises(BadPath, match="no path: 2 hops need as many keys that sign, not 1"):
        build([a, b], 1)
    with pytest.raises(BadPath, match="no path: 2 hops need as many reply keys or none, not 1"):
        build([a, b], 2, 1)
    with pytest.raises(BadPath, match="no path: a node follows itself"):
        build([a, b, b], 3)
    with pytest.raises(BadPath, match="no path: a hop is a node, which has a key"):
        Hop(derived_engine(a.identity, b"printer"), a.keys.public)
    with pytest.raises(BadKey, match="no public key of X25519"):
        build_onion([Hop(a.identity, bytes(32))], message, expiry=EXPIRY, signers=[SENDER])


def test_keys_of_one_layer_are_made_of_32_bytes_each() -> None:
    random = secret("once", 64)
    first, second = one_time_signers(random)
    assert first.identity != second.identity
    assert one_time_signers(b"") == []
    with pytest.raises(BadKey, match="no key: each seed has 32 bytes, and there are 63"):
        one_time_signers(random[:63])
