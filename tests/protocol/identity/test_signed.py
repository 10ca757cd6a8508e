"""The envelope of what is signed, beside another implementation of COSE."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import cbor2
import pytest

from onward.protocol.identity import (
    MAX_RECORD,
    SIGNED_OVERHEAD,
    BadRecord,
    RecordTooBig,
    Signed,
    SignedKind,
    SigningKey,
    Verifiers,
    derived_engine,
    is_signed_by,
    parse_signed,
    sign,
)

# It has no types that fit it.
ALGORITHM: Any = import_module("pycose.headers").Algorithm
OKP_KEY: Any = import_module("pycose.keys").OKPKey
SIGN1: Any = import_module("pycose.messages").Sign1Message

SEED = bytes(range(32))
KEY = SigningKey(SEED)
OTHER = SigningKey(bytes(32))
PAYLOAD = b"\x82\x01\x02"
ENVELOPE = sign(SignedKind.EVENT, PAYLOAD, KEY)


def external(kind: SignedKind, context: bytes = b"") -> bytes:
    """Return the external data, as the page has it."""
    return b"onward/identity/1/" + kind.value.encode() + (b"\x00" + context if context else b"")


def key_of_pycose() -> Any:
    return OKP_KEY(crv="ED25519", d=SEED, x=KEY.identity[1:])


def written_by_pycose(payload: bytes, external_data: bytes) -> bytes:
    message = SIGN1(phdr={ALGORITHM: "EDDSA"}, payload=payload, key=key_of_pycose())
    message.external_aad = external_data
    written: bytes = message.encode()
    return written


def is_right_to_pycose(envelope: bytes, external_data: bytes) -> bool:
    # Its `decode` is of an older cbor2.
    tagged = cbor2.loads(envelope)
    assert tagged.tag == 18
    protected, unprotected, payload, signature = tagged.value
    items = [protected, dict(unprotected), payload, signature]
    message = SIGN1.from_cose_obj(items, allow_unknown_attributes=False)
    message.key = key_of_pycose()
    message.external_aad = external_data
    right: bool = message.verify_signature()
    return right


def is_right(envelope: bytes, kind: SignedKind = SignedKind.EVENT, context: bytes = b"") -> bool:
    return is_signed_by(KEY.identity, kind, parse_signed(envelope), Verifiers(), context)


def test_an_envelope_has_the_bytes_of_the_page() -> None:
    signature = KEY.sign(
        b"\x84\x6aSignature1\x43\xa1\x01\x27\x57onward/identity/1/event\x43" + PAYLOAD
    )
    whole = bytes.fromhex("d28443a10127a043") + PAYLOAD + b"\x58\x40" + signature
    assert whole == ENVELOPE
    assert parse_signed(ENVELOPE) == Signed(PAYLOAD, signature)
    assert is_right(ENVELOPE)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 65_535, 65_536])
def test_another_implementation_writes_the_same_bytes(size: int) -> None:
    payload = bytes(each % 251 for each in range(size))
    for kind in SignedKind:
        for context in (b"", b"c", bytes(32)):
            envelope = sign(kind, payload, KEY, context)
            assert envelope == written_by_pycose(payload, external(kind, context))
            assert is_right_to_pycose(envelope, external(kind, context))
            assert is_right(envelope, kind, context)


def test_another_implementation_refuses_what_is_refused_here() -> None:
    for kind, context in [(SignedKind.ENGINE, b""), (SignedKind.EVENT, b"c")]:
        assert not is_right_to_pycose(ENVELOPE, external(kind, context))
        assert not is_right(ENVELOPE, kind, context)
    changed = ENVELOPE[:-1] + bytes((ENVELOPE[-1] ^ 1,))
    assert not is_right_to_pycose(changed, external(SignedKind.EVENT))
    assert not is_right(changed)


def test_each_bit_of_an_envelope_counts() -> None:
    for bit in range(8 * len(ENVELOPE)):
        changed = bytearray(ENVELOPE)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            assert not is_right(bytes(changed)), bit
        except BadRecord:
            # It is in a head: before the payload, or between it and the signature.
            assert bit < 64 or 88 <= bit < 104, bit


def test_an_envelope_is_read_whole() -> None:
    for size in range(len(ENVELOPE)):
        with pytest.raises(BadRecord):
            parse_signed(ENVELOPE[:size])
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        parse_signed(ENVELOPE + b"\x00")


def test_a_signature_of_one_kind_is_none_of_another() -> None:
    for made in SignedKind:
        envelope = sign(made, PAYLOAD, KEY)
        for asked in SignedKind:
            assert is_right(envelope, asked) is (made is asked)


def test_a_signature_of_one_context_is_none_of_another() -> None:
    contexts = [b"", b"one", b"two", b"\x00", b"\x00\x00", b"one\x00", b"\x00one"]
    for made in contexts:
        envelope = sign(SignedKind.LINK, PAYLOAD, KEY, made)
        for asked in contexts:
            assert is_right(envelope, SignedKind.LINK, asked) is (made == asked)


def test_no_kind_with_a_context_is_another_kind() -> None:
    # The text of a kind has no zero byte, so what is signed tells where the context begins.
    texts = {external(kind, context) for kind in SignedKind for context in (b"", b"-advert")}
    assert len(texts) == 2 * len(SignedKind)
    assert not any("\x00" in kind for kind in SignedKind)


def test_a_signature_is_of_one_identity() -> None:
    signed = parse_signed(ENVELOPE)
    derived = derived_engine(KEY.identity, b"printer")
    for identity in (OTHER.identity, derived):
        assert not is_signed_by(identity, SignedKind.EVENT, signed, Verifiers())


def test_a_payload_with_the_signature_of_another_is_refused() -> None:
    other = parse_signed(sign(SignedKind.EVENT, b"\x82\x01\x03", KEY))
    mixed = Signed(PAYLOAD, other.signature)
    assert not is_signed_by(KEY.identity, SignedKind.EVENT, mixed, Verifiers())


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        # Other spellings of the same, all of which a general reader of COSE takes.
        ("8443a10127a0 43820102 5840{}", "it is no COSE_Sign1 of EdDSA without other headers"),
        ("d8128443a10127a0 43820102 5840{}", "it is no COSE_Sign1 of EdDSA"),
        ("d29f43a10127a0 43820102 5840{}ff", "it is no COSE_Sign1 of EdDSA"),
        ("d28443a10126a0 43820102 5840{}", "it is no COSE_Sign1 of EdDSA"),
        ("d28443a10132a0 43820102 5840{}", "it is no COSE_Sign1 of EdDSA"),
        ("d28444a1013807a0 43820102 5840{}", "it is no COSE_Sign1 of EdDSA"),
        ("d28443a10127a10442aabb 43820102 5840{}", "it is no COSE_Sign1 of EdDSA"),
        ("d28443a10127a0 5803820102 5840{}", "the payload is not in the shortest form"),
        ("d28443a10127a0 5f43820102ff 5840{}", "the payload is of indefinite length"),
        ("d28443a10127a0 f6 5840{}", "the payload is a simple value, not a byte string"),
        ("d28443a10127a0 820102 5840{}", "the payload is an array, not a byte string"),
        ("d28443a10127a0 43820102 590040{}", "the signature is not in the shortest form"),
        ("d28443a10127a0 43820102 583f{}", "the signature has 63 bytes, not 64"),
        ("d28443a10127a0 43820102 5841{}00", "the signature has 65 bytes, not 64"),
        ("d28443a10127a0 43820102 7840{}", "the signature is a text, not a byte string"),
    ],
)
def test_another_spelling_of_an_envelope_is_refused(pieces: str, reason: str) -> None:
    signature = parse_signed(ENVELOPE).signature
    envelope = bytes.fromhex(pieces.format(signature.hex()))
    with pytest.raises(BadRecord, match=reason):
        parse_signed(envelope)


def test_an_envelope_has_a_limit() -> None:
    with pytest.raises(RecordTooBig) as raised:
        parse_signed(ENVELOPE, len(ENVELOPE) - 1)
    assert (raised.value.size, raised.value.limit) == (len(ENVELOPE), len(ENVELOPE) - 1)
    assert parse_signed(ENVELOPE, len(ENVELOPE)).payload == PAYLOAD


def test_an_envelope_adds_at_most_its_overhead() -> None:
    payload = bytes(MAX_RECORD - SIGNED_OVERHEAD)
    envelope = sign(SignedKind.EVENT, payload, KEY)
    assert len(envelope) == MAX_RECORD
    assert parse_signed(envelope).payload == payload
    with pytest.raises(RecordTooBig):
        parse_signed(sign(SignedKind.EVENT, payload + b"\x00", KEY))
    assert len(ENVELOPE) - len(PAYLOAD) == SIGNED_OVERHEAD - 4
