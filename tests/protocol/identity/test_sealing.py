"""What only one node can read, by the vectors of the RFCs and by another implementation."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import cryptography_vectors
import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from onward.protocol.identity import (
    MAX_SEALING_KEYS,
    NO_REPLY,
    OLD_KEY_TIME,
    SEALED_OVERHEAD,
    BadKey,
    InnerKind,
    MessageTooBig,
    Opened,
    SealingKey,
    SealingKeys,
    key_id,
    padded,
    room_for,
    seal,
)
from tests.support.wycheproof import points_of_small_order

KEY = SealingKey(bytes(range(32)))
OTHER = SealingKey(bytes(range(1, 33)))
REPLY_KEY = bytes(range(64, 96))
INFO = b"who and until when"
NOW = 1_800_000_000_000

HPKE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)
"""The same suite by another library, in Python."""

GOLDEN = (
    "f037f99e40c947e1d37c86e9b90682e3dde5dd5d2b314199a9694f49d534503fcd71391c271493bf"
    "2864155adbcb8481843d72c61bb36a11b5b9daf7679bd046fb4ec842f4856386fa82b78dec4c43d2"
    "2d8501d5b95858266929900d34713abe4faf7ce6740333c5ff70cb37969b33c87bab3657"
)
"""`seal(KEY.public, InnerKind.ENGINE, REPLY_KEY, b"hello", room=64, info=INFO)`, once."""
GOLDEN_EXIT = (
    "f037f99e359c7e1886431616dc22eb75bf3ba26238e18c0edf0165d07dc657a11a550f016728493c"
    "eb9d2a450af0b7e4aaa82dbf85f8c0d5e771505fd777679133f8fef57df2b1bae4e363e9f2f37e03"
    "351358c70ea32420cf5ddfeca47be9102f5bd2e8ffbd98e96860384fc2999e8a509641d0"
)
"""The same with `InnerKind.EXIT`, once."""


def sealed(inner: bytes = b"hello", room: int = 64, public: bytes = KEY.public) -> bytes:
    return seal(public, InnerKind.ENGINE, REPLY_KEY, inner, room=room, info=INFO)


def sealed_text(text: bytes) -> bytes:
    """Return a plaintext of any shape as something sealed to `KEY`, by the other library."""
    public = HPKE.kem.deserialize_public_key(KEY.public)
    encapsulated, context = HPKE.create_sender_context(public, INFO)
    return key_id(KEY.public) + encapsulated + context.seal(text)


@cache
def all_vectors() -> list[dict[str, Any]]:
    """Return the vectors of RFC 9180."""
    path = Path(cryptography_vectors.__file__).parent / "HPKE/test-vectors.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def vectors(**numbers: int) -> list[dict[str, Any]]:
    """Return those of some mode or suite, by the numbers of section 7."""
    return [each for each in all_vectors() if numbers.items() <= each.items()]


def test_the_vectors_of_rfc_9180_open() -> None:
    keys = vectors(kem_id=0x20)
    assert len(keys) >= 32
    for vector in keys:
        for side in "RE":
            key = SealingKey(bytes.fromhex(vector[f"sk{side}m"]))
            assert key.public.hex() == vector[f"pk{side}m"]
    # Their texts have associated data and another shape, so ours is sealed by the keys of each. It
    # opens in one mode and suite.
    for vector in vectors(kem_id=0x20, aead_id=3):
        nonce, info, encapsulated = (
            bytes.fromhex(vector[name]) for name in ("base_nonce", "info", "enc")
        )
        cipher, first = ChaCha20Poly1305(bytes.fromhex(vector["key"])), vector["encryptions"][0]
        theirs = cipher.encrypt(nonce, bytes.fromhex(first["pt"]), bytes.fromhex(first["aad"]))
        assert theirs.hex() == first["ct"]
        text = cipher.encrypt(nonce, b"\0" + REPLY_KEY + padded(b"hello", 31), None)
        key = SealingKey(bytes.fromhex(vector["skRm"]))
        is_ours = (vector["mode"], vector["kdf_id"]) == (0, 1)
        opened = Opened(InnerKind.ENGINE, REPLY_KEY, b"hello") if is_ours else None
        assert key.open(key.key_id + encapsulated + text, info) == opened


def test_the_vectors_of_rfc_9180_open_by_the_other_library() -> None:
    (vector,) = vectors(mode=0, kem_id=0x20, kdf_id=1, aead_id=3)
    key = HPKE.kem.deserialize_private_key(bytes.fromhex(vector["skRm"]))
    context = HPKE.create_recipient_context(
        bytes.fromhex(vector["enc"]), key, bytes.fromhex(vector["info"])
    )
    for each in vector["encryptions"][:3]:
        text = context.open(bytes.fromhex(each["ct"]), bytes.fromhex(each["aad"]))
        assert text.hex() == each["pt"]


def test_what_is_sealed_opens() -> None:
    assert KEY.open(sealed(), INFO) == Opened(InnerKind.ENGINE, REPLY_KEY, b"hello")


def test_the_sealed_bytes_that_are_kept_open() -> None:
    golden = bytes.fromhex(GOLDEN)
    assert len(golden) == 64 + SEALED_OVERHEAD
    assert golden[:4] == KEY.key_id
    assert KEY.open(golden, INFO) == Opened(InnerKind.ENGINE, REPLY_KEY, b"hello")
    golden = bytes.fromhex(GOLDEN_EXIT)
    assert KEY.open(golden, INFO) == Opened(InnerKind.EXIT, REPLY_KEY, b"hello")


def test_the_kinds_have_the_numbers_of_the_wire() -> None:
    for kind, number in ((InnerKind.ENGINE, 0), (InnerKind.RELAY, 1), (InnerKind.EXIT, 2)):
        text = bytes((number,)) + NO_REPLY + padded(b"hello", 31)
        assert KEY.open(sealed_text(text), INFO) == Opened(kind, NO_REPLY, b"hello")
    assert len(InnerKind) == 3


def test_the_other_library_opens_what_is_sealed() -> None:
    text = sealed(b"hello", 64)
    private = HPKE.kem.deserialize_private_key(bytes(range(32)))
    context = HPKE.create_recipient_context(text[4:36], private, INFO)
    assert context.open(text[36:]) == b"\0" + REPLY_KEY + padded(b"hello", 31)


def test_what_the_other_library_seals_opens() -> None:
    text = b"\1" + NO_REPLY + padded(b"hello", 31)
    assert KEY.open(sealed_text(text), INFO) == Opened(InnerKind.RELAY, NO_REPLY, b"hello")


def test_two_sealed_texts_have_nothing_in_common_but_the_key_id() -> None:
    first, second = sealed(), sealed()
    assert first[:4] == second[:4] == KEY.key_id
    assert first[4:36] != second[4:36]
    assert first[36:] != second[36:]


@pytest.mark.parametrize("bit", range(8))
def test_each_bit_that_is_changed_keeps_it_from_opening(bit: int) -> None:
    text = sealed(room=room_for(b"hello"))
    keys = SealingKeys(bytes(range(32)))
    for at in range(len(text)):
        changed = bytearray(text)
        changed[at] ^= 1 << bit
        assert keys.open(bytes(changed), INFO, NOW) is None


def test_each_cut_keeps_it_from_opening() -> None:
    text = sealed()
    for size in range(len(text)):
        assert KEY.open(text[:size], INFO) is None
    assert KEY.open(text + b"\0", INFO) is None


def test_another_key_or_another_info_opens_nothing() -> None:
    assert OTHER.open(sealed(), INFO) is None
    assert KEY.open(sealed(), INFO + b"\0") is None
    assert KEY.open(sealed(), b"") is None


def test_a_point_of_small_order_opens_nothing_and_takes_nothing() -> None:
    text = sealed()
    for point in points_of_small_order():
        assert KEY.open(text[:4] + point + text[36:], INFO) is None
        with pytest.raises(BadKey, match="no public key of X25519, or one of small order"):
            sealed(public=point)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\0" + REPLY_KEY[:31],
        b"\0" + REPLY_KEY + b"\0\0\0",
        b"\3" + REPLY_KEY + padded(b"hello", 31),  # no such kind
        b"\0" + REPLY_KEY + b"\0\0\0\6hello",  # over the room
        b"\0" + REPLY_KEY + b"\0\0\0\5hello\0\1",  # padding that is not zero
    ],
)
def test_a_plaintext_of_another_shape_has_the_outcome_of_another_key(text: bytes) -> None:
    assert KEY.open(sealed_text(text), INFO) is None


def test_an_empty_inner_is_one_as_well() -> None:
    assert KEY.open(sealed(b""), INFO) == Opened(InnerKind.ENGINE, REPLY_KEY, b"")


def test_the_room_is_a_limit_at_the_sender() -> None:
    inner = bytes(64 - room_for(b""))
    assert len(sealed(inner, 64)) == 64 + SEALED_OVERHEAD
    with pytest.raises(MessageTooBig):
        sealed(inner + b"\0", 64)


def test_keys_of_another_size_are_errors_that_do_not_show_them() -> None:
    with pytest.raises(BadKey, match="no key: a seed has 32 bytes, not 31"):
        SealingKey(bytes(31))
    with pytest.raises(BadKey, match="no public key of X25519"):
        sealed(public=KEY.public[:31])
    with pytest.raises(BadKey, match="no key: a reply key has 32 bytes, not 0"):
        seal(KEY.public, InnerKind.ENGINE, b"", b"", room=64, info=INFO)


def test_neither_secrets_nor_contents_are_in_a_repr() -> None:
    assert repr(KEY) == f"<SealingKey {KEY.public.hex()}>"
    assert repr(KEY.open(sealed(), INFO)) == "Opened(kind=<InnerKind.ENGINE: 0>)"


def test_an_older_key_opens_until_its_time() -> None:
    keys = SealingKeys(bytes(range(32)))
    text = sealed()
    keys.rotate(bytes(range(1, 33)), NOW)
    assert keys.public == OTHER.public
    assert keys.open(text, INFO, NOW) is not None
    assert keys.open(sealed(public=OTHER.public), INFO, NOW) is not None
    assert keys.open(text, INFO, NOW + OLD_KEY_TIME) is not None
    assert keys.open(text, INFO, NOW + OLD_KEY_TIME + 1) is None
    assert len(keys) == 1


def test_the_number_of_keys_has_a_limit() -> None:
    keys = SealingKeys(bytes(range(32)))
    text = sealed()
    for step in range(1, MAX_SEALING_KEYS):
        keys.rotate(bytes(range(step, step + 32)), NOW)
    assert len(keys) == MAX_SEALING_KEYS
    assert keys.open(text, INFO, NOW) is not None
    keys.rotate(bytes(range(9, 41)), NOW)
    assert len(keys) == MAX_SEALING_KEYS
    assert keys.open(text, INFO, NOW) is None


def test_a_rotation_to_no_key_changes_nothing() -> None:
    keys = SealingKeys(bytes(range(32)))
    with pytest.raises(BadKey):
        keys.rotate(b"", NOW)
    assert (keys.public, len(keys)) == (KEY.public, 1)


def test_two_keys_with_the_same_id_are_both_tried() -> None:
    keys = SealingKeys(bytes(range(32)))
    keys.rotate(bytes(range(1, 33)), NOW)
    keys._present.key_id = KEY.key_id
    assert keys.open(sealed(), INFO, NOW) == Opened(InnerKind.ENGINE, REPLY_KEY, b"hello")


@given(st.binary(max_size=200), st.integers(0, 40), st.sampled_from(InnerKind), st.binary())
def test_anything_comes_back(inner: bytes, more: int, kind: InnerKind, info: bytes) -> None:
    room = room_for(inner) + more
    text = seal(KEY.public, kind, REPLY_KEY, inner, room=room, info=info)
    assert len(text) == room + SEALED_OVERHEAD
    assert KEY.open(text, info) == Opened(kind, REPLY_KEY, inner)


@given(st.binary(max_size=120))
def test_any_bytes_open_to_nothing(data: bytes) -> None:
    assert KEY.open(KEY.key_id + data, INFO) is None
