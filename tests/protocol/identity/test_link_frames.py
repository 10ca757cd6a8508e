"""The messages of a handshake: one spelling, and sizes before anything is made."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_HANDSHAKE,
    BadRecord,
    HandshakeMessage,
    LinkClaim,
    LinkHello,
    LinkProof,
    LinkRefusal,
    LinkRefusalCode,
    LinkReply,
    LinkRole,
    RecordTooBig,
    SigningKey,
    derived_engine,
    is_link_frame,
    parse_handshake,
    parse_link_claim,
    serialize_handshake,
    serialize_link_claim,
)

KEY = bytes(range(32))
ONE, TWO = (SigningKey(bytes((each,)) * 32).identity for each in (1, 2))
ENGINE = derived_engine(ONE, b"engine")

MESSAGES: list[HandshakeMessage] = [
    LinkHello((1,), KEY),
    LinkHello((1, 2, 3, 4, 5, 6, 7, 255), KEY),
    LinkReply(1, KEY, bytes(16)),
    LinkReply(255, KEY, bytes(256)),
    LinkProof(bytes(16)),
    LinkProof(bytes(256)),
    *map(LinkRefusal, LinkRefusalCode),
]


@pytest.mark.parametrize("message", MESSAGES, ids=str)
def test_a_message_is_read_whole_and_refused_when_it_is_cut(message: HandshakeMessage) -> None:
    data = serialize_handshake(message)
    assert parse_handshake(data) == message
    assert not is_link_frame(data)
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_handshake(data[:size])
    with pytest.raises(BadRecord, match="behind the end"):
        parse_handshake(data + b"\x00")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ((0, 1), "a handshake of kind 0 has not 2 items"),
        ((1, 2), "a handshake of kind 1 has not 2 items"),
        ((5, 1), "its kind is 5, over 4"),
        ((1, (), KEY), "the versions has 0 items, not 1 to 8"),
        ((1, tuple(range(1, 10)), KEY), "the versions has 9 items, not 1 to 8"),
        ((1, (0,), KEY), "there is no version 0"),
        ((1, (256,), KEY), "a version is 256, over 255"),
        ((1, (2, 1), KEY), "the versions do not rise"),
        ((1, (1, 1), KEY), "the versions do not rise"),
        ((1, (1,), KEY[1:]), "the key has 31 bytes, not 32"),
        ((2, 1, KEY, bytes(15)), "what is sealed has 15 bytes, not 16 to 256"),
        ((3, bytes(257)), "what is sealed has 257 bytes, not 16 to 256"),
        ((4, 0), "there is no code 0"),
        ((4, 5), "the code is 5, over 4"),
    ],
)
def test_another_message_is_refused(record: tuple[object, ...], reason: str) -> None:
    with pytest.raises(BadRecord) as raised:
        parse_handshake(cbor2.dumps(record))
    assert raised.value.reason == reason


def test_a_message_over_the_limit_is_not_read() -> None:
    with pytest.raises(RecordTooBig):
        parse_handshake(bytes(MAX_HANDSHAKE + 1))


def test_a_frame_begins_with_a_bit_that_no_message_has() -> None:
    assert is_link_frame(bytes(24))
    assert is_link_frame((2**63 - 1).to_bytes(8))
    assert not is_link_frame((2**63).to_bytes(8))


@pytest.mark.parametrize(
    "claim", [LinkClaim(LinkRole.DIALS, ONE, TWO), LinkClaim(LinkRole.IS_DIALLED, ONE, None)]
)
def test_a_claim_is_read_whole_and_refused_when_it_is_cut(claim: LinkClaim) -> None:
    data = serialize_link_claim(claim)
    assert parse_link_claim(data) == claim
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_link_claim(data[:size])
    with pytest.raises(BadRecord, match="behind the end"):
        parse_link_claim(data + b"\x00")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ((0, ONE, TWO), "there is no role 0"),
        ((3, ONE, None), "its role is 3, over 2"),
        ((1, ONE, None), "the node that dials names the other one, which does not"),
        ((2, ONE, TWO), "the node that dials names the other one, which does not"),
        ((2, ENGINE, None), "the signer has no key"),
        ((1, ONE, ENGINE), "the peer has no key"),
    ],
)
def test_another_claim_is_refused(record: tuple[object, ...], reason: str) -> None:
    with pytest.raises(BadRecord) as raised:
        parse_link_claim(cbor2.dumps(record))
    assert raised.value.reason == reason


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_in_its_spelling_or_refused(data: bytes) -> None:
    try:
        message = parse_handshake(data)
    except BadRecord:
        return
    assert serialize_handshake(message) == data
