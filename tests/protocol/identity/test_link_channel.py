"""Sessions: each frame is opened once, by the other end, and in no other session; their keys."""

from __future__ import annotations

from functools import partial

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    LINK_FRAME_OVERHEAD,
    MAX_FORGED_FRAMES,
    MAX_LINK_FRAME,
    MAX_LINK_FRAMES,
    MAX_RECORD,
    BadKey,
    LinkChannel,
    LinkEnded,
    LinkFailure,
    LinkSecret,
    RecordTooBig,
    SessionKeys,
    _link_channel,
    transcript,
)
from tests.support.wycheproof import wycheproof

SEEDS = bytes((1,)) * 32, bytes((2,)) * 32


def session_keys(said: bytes = b"said") -> SessionKeys:
    one, two = map(LinkSecret, SEEDS)
    assert one.agrees(two.public)
    return one.session_keys(transcript(said))


def pair(
    window: int | None = None, limit: int = MAX_LINK_FRAMES
) -> tuple[LinkChannel, LinkChannel]:
    keys = session_keys()
    one = LinkChannel(keys, dialled=True, window=window, limit=limit)
    return one, LinkChannel(keys, dialled=False, window=window, limit=limit)


def test_frames_go_both_ways_in_order() -> None:
    one, two = pair()
    for count in range(5):
        record = bytes((count,)) * count
        frame = one.seal(record)
        assert frame[:8] == count.to_bytes(8)
        assert len(frame) == len(record) + LINK_FRAME_OVERHEAD
        assert two.open(frame) == record
        assert one.open(two.seal(record)) == record
    assert one.session == two.session
    assert one.failure is two.failure is None


@pytest.mark.parametrize("window", [None, 64])
def test_each_byte_that_is_changed_is_found(window: int | None) -> None:
    one, _ = pair(window)
    frame = one.seal(b"record")
    for at in range(len(frame)):
        _, two = pair(window)
        changed = frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :]
        assert isinstance(two.open(changed), LinkFailure)
        assert two.forged == 1
        if window is None:
            assert two.failure is not None
            assert two.open(frame) is two.failure
        else:
            assert two.open(frame) == b"record"


@pytest.mark.parametrize("size", [0, LINK_FRAME_OVERHEAD - 1, MAX_LINK_FRAME + 1])
def test_a_frame_of_another_size_is_not_opened(size: int) -> None:
    _, two = pair()
    assert two.open(bytes(size)) is LinkFailure.BAD_MESSAGE
    assert two.failure is LinkFailure.BAD_MESSAGE


def test_a_frame_is_not_opened_by_its_sender_or_in_another_session() -> None:
    one, _ = pair()
    frame = one.seal(b"record")
    assert one.open(frame) is LinkFailure.FORGED
    for said in (b"other", b""):
        other = LinkChannel(session_keys(said), dialled=False)
        assert other.session != one.session
        assert other.open(frame) is LinkFailure.FORGED


def test_on_an_ordered_route_numbers_rise() -> None:
    one, two = pair()
    frames = [one.seal(bytes((each,))) for each in range(4)]
    assert two.open(frames[0]) == b"\x00"
    # A route may lose a message where it says so.
    assert two.open(frames[2]) == b"\x02"
    assert two.open(frames[1]) is LinkFailure.REPEATED
    assert two.failure is LinkFailure.REPEATED
    assert two.open(frames[3]) is LinkFailure.REPEATED
    with pytest.raises(LinkEnded) as raised:
        two.seal(b"")
    assert str(raised.value) == "the session of the link has ended: a frame that came before"


def test_on_an_unordered_route_a_frame_is_opened_once_within_the_window() -> None:
    one, two = pair(window=64)
    frames = [one.seal(each.to_bytes(2)) for each in range(66)]
    assert two.open(frames[64]) == (64).to_bytes(2)
    assert two.open(frames[0]) is LinkFailure.REPEATED
    for each in range(1, 64):
        assert two.open(frames[each]) == each.to_bytes(2)
        assert two.open(frames[each]) is LinkFailure.REPEATED
    assert two.repeated == 64
    assert two.failure is None
    assert two.open(frames[65]) == (65).to_bytes(2)


def test_forged_frames_move_no_window_and_end_a_session_at_their_limit() -> None:
    one, two = pair(window=64)
    ahead = (1_000_000).to_bytes(8) + bytes(16)
    for _ in range(MAX_FORGED_FRAMES):
        assert two.open(ahead) is LinkFailure.FORGED
    assert two.open(one.seal(b"record")) == b"record"
    assert two.failure is None
    assert two.open(ahead) is LinkFailure.FORGED
    assert two.failure is LinkFailure.FORGED


def test_both_ends_know_when_a_new_handshake_is_due() -> None:
    one, two = pair(limit=16)
    for count in range(16):
        assert one.is_due is two.is_due is (count >= 14)
        assert two.open(one.seal(b"")) == b""
    with pytest.raises(LinkEnded, match="as many frames as it may"):
        one.seal(b"")
    assert one.failure is None
    assert one.open(two.seal(b"back")) == b"back"
    assert two.open((16).to_bytes(8) + bytes(16)) is LinkFailure.EXHAUSTED
    assert two.failure is LinkFailure.EXHAUSTED


def test_a_record_over_the_limit_is_not_sealed() -> None:
    one, two = pair()
    record = bytes(MAX_RECORD)
    assert two.open(one.seal(record)) == record
    with pytest.raises(RecordTooBig):
        one.seal(bytes(MAX_RECORD + 1))


@given(st.lists(st.integers(0, 90), max_size=150))
def test_an_unordered_session_opens_what_a_set_would(order: list[int]) -> None:
    one, two = pair(window=64)
    frames = [one.seal(bytes((each,))) for each in range(91)]
    seen = set[int]()
    for number in order:
        fresh = number not in seen and number > max(seen, default=number) - 64
        opened = two.open(frames[number])
        assert opened == (bytes((number,)) if fresh else LinkFailure.REPEATED)
        if fresh:
            seen.add(number)


def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(BadKey, match="a seed has 32 bytes, not 31"):
        LinkSecret(bytes(31))


# RFC 7748, section 5: "Implementations MUST accept non-canonical values and process them as if they
# had been reduced modulo the field prime." It has no rule against points of the twist.
ACCEPTABLE = {
    "EdgeCaseMultiplication": True,
    "EdgeCaseShared": True,
    "Ktv": True,
    "LowOrderPublic": False,
    "NonCanonicalPublic": True,
    "SmallPublicKey": False,
    "SpecialPublicKey": True,
    "Twist": True,
    "ZeroSharedSecret": False,
}
"""Whether a key is accepted on which implementations may differ, by its flag."""


def test_the_vectors_of_wycheproof_are_agreed_on() -> None:
    for vector in wycheproof("x25519"):
        secret = LinkSecret(vector["private"])
        taken = vector.is_taken(ACCEPTABLE)
        assert secret.agrees(vector["public"]) is taken, vector
        assert secret._shared == (vector["shared"] if taken else b""), vector


def test_the_vectors_of_wycheproof_are_derived() -> None:
    for vector in wycheproof("hkdf_sha256"):
        secret = LinkSecret(SEEDS[0])
        secret._shared = vector["ikm"]
        derived = partial(secret._derived, vector["salt"], vector["info"], vector.values["size"])
        if vector.is_taken():
            assert derived() == vector["okm"], vector
        else:  # The sizes of what is derived are constants, below what is refused here.
            with pytest.raises(ValueError, match="larger"):
                derived()


def test_the_vectors_of_wycheproof_are_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = 0
    for vector in wycheproof("chacha20_poly1305"):
        # A frame has no associated data, and a number of one size.
        if vector["aad"] or "InvalidNonceSize" in vector.flags:
            continue
        head, number = vector["iv"][:4], vector["iv"][4:]
        monkeypatch.setattr(_link_channel, "_NONCE_HEAD", head)
        key = ChaCha20Poly1305(vector["key"])
        one, two = (
            LinkChannel(SessionKeys(key, key, b""), dialled=dialled, limit=2**64)
            for dialled in (True, False)
        )
        one._next = int.from_bytes(number)
        frame = number + vector["ct"] + vector["tag"]
        assert (one.seal(vector["msg"]) == frame) is vector.is_taken(), vector
        opened = vector["msg"] if vector.is_taken() else LinkFailure.FORGED
        assert two.open(frame) == opened, vector
        checked += 1
    assert checked >= 45


def test_no_secret_is_agreed_on_with_the_own_key() -> None:
    secret = LinkSecret(SEEDS[0])
    assert not secret.agrees(secret.public)
    # The highest bit of a key is ignored: this is the same one.
    assert not secret.agrees(secret.public[:-1] + bytes((secret.public[-1] | 0x80,)))
    assert secret.agrees(LinkSecret(SEEDS[1]).public)


def test_the_parts_of_a_transcript_have_their_lengths() -> None:
    assert transcript(b"ab", b"c") != transcript(b"a", b"bc") != transcript(b"abc")
