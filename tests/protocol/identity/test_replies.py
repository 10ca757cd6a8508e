"""Answers as they are encrypted: by the vectors of Wycheproof, and by the layers of a path."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.poly1305 import Poly1305
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    BUCKETS,
    REPLY_NONCE_SIZE,
    REPLY_SIZES,
    BadKey,
    MessageTooBig,
    _replies,
    open_answer,
    seal_answer,
    stream_xor,
)
from tests.support.onions import secret
from tests.support.wycheproof import Vector, wycheproof

NONCE = bytes(range(12))


def test_the_vectors_of_wycheproof_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_is(text: bytes, _: int = 0) -> bytes:
        return text

    # Without the padding, and with their associated data in place of ours.
    monkeypatch.setattr(_replies, "padded", as_it_is)
    monkeypatch.setattr(_replies, "unpadded", as_it_is)
    for vector in wycheproof("chacha20_poly1305"):
        key, nonce, text = vector["key"], vector["iv"], vector["msg"]
        reply = nonce + vector["ct"] + vector["tag"]
        monkeypatch.setattr(_replies, "_ANSWER", vector["aad"])
        monkeypatch.setattr(_replies, "REPLY_SIZES", {len(reply)})
        if "InvalidNonceSize" in vector.flags:
            with pytest.raises(BadKey):
                seal_answer(key, text, nonce)
            continue
        assert (seal_answer(key, text, nonce) == reply) is vector.is_taken(), vector
        assert open_answer([key], reply) == (text if vector.is_taken() else None), vector


def test_the_vectors_of_wycheproof_have_the_stream() -> None:
    # RFC 8439, sections 2.6 and 2.8: the first block of the stream is the key of Poly1305, and the
    # text begins at the second.
    for vector in filter(Vector.is_taken, wycheproof("chacha20_poly1305")):
        stream = stream_xor(vector["key"], bytes(64) + vector["msg"], vector["iv"])
        assert stream[64:] == vector["ct"], vector
        parts = vector["aad"], vector["ct"]
        padded = [each + bytes(-len(each) % 16) for each in parts]
        lengths = [len(each).to_bytes(8, "little") for each in parts]
        tag = Poly1305.generate_tag(stream[:32], b"".join((*padded, *lengths)))
        assert tag == vector["tag"], vector


def through(relays: list[bytes], far: bytes, data: bytes) -> list[bytes]:
    """Return an answer as it is on each link, from the far end."""
    on_links = [seal_answer(far, data, NONCE)]
    for key in reversed(relays):
        on_links.append(stream_xor(key, on_links[-1]))
    return on_links


@given(st.binary(max_size=3000), st.integers(0, 7))
def test_an_answer_comes_back_through_any_relays(data: bytes, count: int) -> None:
    keys = [secret(f"reply {number}") for number in range(count + 1)]
    on_links = through(keys[:-1], keys[-1], data)
    assert open_answer(keys, on_links[-1]) == data
    # The same size on each link, and another text.
    assert {len(each) for each in on_links} <= REPLY_SIZES
    assert len({len(each) for each in on_links}) == 1
    assert len(set(on_links)) == count + 1


@pytest.mark.parametrize("bucket", BUCKETS)
def test_answers_of_one_bucket_have_the_same_size(bucket: int) -> None:
    size = REPLY_NONCE_SIZE + bucket + 16
    assert len(seal_answer(secret("far"), bytes(bucket - 4), NONCE)) == size
    assert len(seal_answer(secret("far"), bytes(bucket // 2 - 3), NONCE)) == size
    assert size in REPLY_SIZES


def test_an_answer_over_the_greatest_bucket_is_an_error_of_its_sender() -> None:
    with pytest.raises(MessageTooBig) as raised:
        seal_answer(secret("far"), bytes(65533), NONCE)
    assert (raised.value.size, raised.value.limit) == (65537, 65536)
    with pytest.raises(BadKey, match="no key: a nonce has 12 bytes, not 11"):
        seal_answer(secret("far"), b"", NONCE[:11])


def test_each_byte_that_is_changed_is_found_at_the_end() -> None:
    keys = [secret("first"), secret("far")]
    reply = through(keys[:1], keys[1], b"hello")[-1]
    for at in range(len(reply)):
        changed = bytearray(reply)
        changed[at] ^= 1 << at % 8
        assert open_answer(keys, bytes(changed)) is None
    for size in range(0, len(reply), 7):
        assert open_answer(keys, reply[:size]) is None
    assert open_answer(keys, reply + b"\0") is None
    assert open_answer(keys[::-1], reply) is None


def test_an_answer_is_sealed_to_the_bytes_that_are_kept() -> None:
    reply = seal_answer(secret("far"), b"hello", NONCE)
    assert reply[:12] == NONCE
    # The beginning of the ciphertext, and the tag.
    assert reply[12:28].hex() == "342700a773175fd4ddab3d70c510a607"
    assert reply[-16:].hex() == "67dd54aad2f3fb8f375354081cfff00a"
