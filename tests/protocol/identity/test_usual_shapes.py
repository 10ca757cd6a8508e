"""What is read by its places, where it has the usual shape, beside the reading item by item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.identity import (
    MAX_ENGINE_NAME,
    SCOPE_LOCAL,
    BadRecord,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    P2PMessage,
    Protocol,
    RoutingPrefs,
    SignedKind,
    SigningKey,
    TransportPrefs,
    _messages,
    _p2p_message,
    _signed,
    derived_engine,
    serialize_engine_message,
    serialize_p2p_message,
    sign,
)
from tests.support.counts import times

NODE, OTHER = SigningKey(bytes(range(32))), SigningKey(bytes(range(1, 33)))
NOW = 1_800_000_000_000
SIZES = (0, 1, 23, 24, 25, 75, 76, 77, 255, 256, 257, 300, 65_535, 65_536, 65_537)
NUMBERS = (0, 23, 24, 2**32 - 1, 2**32, NOW, NOW << 20, 2**64 - 1)

USUAL = EngineMessage(
    NODE.identity,
    Destination(DestinationKind.ENGINE, derived_engine(OTHER.identity, b"printer")),
    NOW << 20,
    Protocol("onward", 1),
    bytes(100),
    expiry=NOW,
)
ORIGIN = EngineOrigin(NODE.identity, b"printer")

sizes = st.sampled_from(SIZES)
numbers = st.sampled_from(NUMBERS)
names = st.sampled_from((b"p", b"printer", bytes(24), bytes(MAX_ENGINE_NAME)))


@st.composite
def engine_messages(draw: st.DrawFn) -> bytes:
    origin = draw(st.none() | names.map(lambda name: EngineOrigin(NODE.identity, name)))
    source = NODE.identity if origin is None else derived_engine(NODE.identity, origin.name)
    message = EngineMessage(
        source,
        Destination(draw(st.sampled_from(DestinationKind)), OTHER.identity),
        draw(numbers),
        Protocol(draw(st.sampled_from(("onward", "w", "é" * 16, "x" * 24))), draw(numbers)),
        bytes(draw(sizes)),
        reply_to=draw(st.none() | numbers),
        expiry=draw(st.none() | numbers),
        rprefs=draw(st.sampled_from((None, None, RoutingPrefs(SCOPE_LOCAL)))),
        tprefs=draw(st.sampled_from((None, None, TransportPrefs()))),
        origin=origin,
    )
    return serialize_engine_message(message)


def p2p_message(size: int, pad: int) -> bytes:
    content = EngineContent(bytes(size))
    return serialize_p2p_message(P2PMessage(NODE.identity, OTHER.identity, content, pad))


def envelope(size: int) -> bytes:
    return sign(SignedKind.ENGINE, bytes(size), NODE)


p2p_messages = st.builds(p2p_message, sizes.filter(bool), st.sampled_from((0, 0, 1, 23, 24, 300)))
envelopes = st.builds(envelope, sizes)


class Change(NamedTuple):
    """Bytes in the place of some others, a bit that is changed, and bytes that follow."""

    place: float
    gone: int
    put: bytes
    bit: int
    behind: bytes

    def of(self, data: bytes) -> bytes:
        at = _at(data, self.place)
        changed = bytearray(data[:at] + self.put + data[at + self.gone :])
        if self.bit and at < len(changed):
            changed[at] ^= self.bit
        return bytes(changed) + self.behind


changes = st.builds(
    Change,
    st.floats(0, 1, exclude_max=True),
    st.sampled_from((0, 0, 1, 2, 2**20)),
    st.sampled_from((b"", b"")) | st.binary(max_size=2),
    st.sampled_from((0, 0, 1, 2, 4, 8, 16, 32, 64, 128)),
    st.sampled_from((b"", b"", b"", b"\x00", b"\xf6", b"\x40")),
)


def _at(data: bytes, place: float) -> int:
    """Return a place in a record, which is in its first or last bytes if it has many."""
    at = int(place * min(len(data), 300))
    return at if at < 150 else len(data) - 1 - (at - 150) % min(150, len(data))


def outcome(parse: Callable[[bytes], Any], data: bytes) -> object:
    try:
        return parse(data)
    except BadRecord as error:
        return str(error)


def check(module: Any, parse: Callable[[bytes], Any], data: bytes) -> bool:
    """Check that both readings agree, and return whether it was read by its places.

    What is read is written as the same bytes, by joining its items and otherwise.
    """
    careful = outcome(module._parse_any, data)
    if isinstance(careful, EngineMessage):
        assert serialize_engine_message(careful) == _messages._write_any(careful) == data
    elif isinstance(careful, P2PMessage):
        assert serialize_p2p_message(careful) == _p2p_message._write_any(careful) == data
    usual = outcome(module._parse_usual, data)
    assert usual is None or usual == careful
    assert outcome(parse, data) == careful
    return usual is not None and not isinstance(usual, str)


@settings(max_examples=times(200, 5000))
@given(engine_messages(), changes)
def test_a_message_of_an_engine_is_read_as_item_by_item(data: bytes, change: Change) -> None:
    check(_messages, _messages.parse_engine_message, change.of(data))


@settings(max_examples=times(200, 5000))
@given(p2p_messages, changes)
def test_a_message_between_nodes_is_read_as_item_by_item(data: bytes, change: Change) -> None:
    check(_p2p_message, _p2p_message.parse_p2p_message, change.of(data))


def parse_signed(envelope: bytes) -> object:
    return _signed.parse_signed(envelope)


@settings(max_examples=times(200, 5000))
@given(envelopes, changes)
def test_an_envelope_is_read_as_item_by_item(data: bytes, change: Change) -> None:
    changed = change.of(data)
    if changed.startswith(_signed._HEAD):  # without it, nothing of it is read
        check(_signed, parse_signed, changed)


@pytest.mark.parametrize(
    "message",
    [
        USUAL,
        replace(USUAL, reply_to=NOW << 20),
        replace(USUAL, body=bytes(20)),
        replace(USUAL, body=bytes(300)),
        replace(USUAL, src=derived_engine(NODE.identity, b"printer"), origin=ORIGIN),
    ],
)
def test_each_byte_of_a_usual_message_of_an_engine_counts(message: EngineMessage) -> None:
    data = serialize_engine_message(message)
    assert check(_messages, _messages.parse_engine_message, data)
    for changed in _near(data):
        check(_messages, _messages.parse_engine_message, changed)


@pytest.mark.parametrize("size", [256, 300])
def test_each_byte_of_a_usual_message_between_nodes_counts(size: int) -> None:
    data = p2p_message(size, 0)
    assert check(_p2p_message, _p2p_message.parse_p2p_message, data)
    for changed in _near(data):
        check(_p2p_message, _p2p_message.parse_p2p_message, changed)


@pytest.mark.parametrize("size", [24, 255, 256, 300, 65_535])
def test_each_byte_of_a_usual_envelope_counts(size: int) -> None:
    data = envelope(size)
    assert check(_signed, parse_signed, data)
    for changed in _near(data):
        if changed.startswith(_signed._HEAD):
            check(_signed, parse_signed, changed)


@pytest.mark.parametrize("size", [0, 23, 65_536])
def test_an_envelope_of_another_size_is_read_item_by_item(size: int) -> None:
    assert not check(_signed, parse_signed, envelope(size))


def _near(data: bytes) -> list[bytes]:
    """Return what differs in one bit, lacks one byte, or is cut; of many bytes, near the ends."""
    near = [at for at in range(len(data)) if at < 150 or at >= len(data) - 150]
    flipped = [
        data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]
        for at in near
        for bit in range(8)
    ]
    return [
        *flipped,
        *(data[:at] + data[at + 1 :] for at in near),
        *(data[:at] for at in near),
        data + b"\x00",
        data + b"\xf6",
    ]
