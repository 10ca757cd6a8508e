"""Keys: what RFC 8032 signs, what it does not, and what else Wycheproof has found accepted."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import cryptography_vectors
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from onward.protocol.identity import (
    MAX_VERIFIERS,
    SEED_SIZE,
    SIGNATURE_SIZE,
    BadKey,
    Identity,
    SigningKey,
    Verifiers,
    _keys,
    derived_engine,
    identity_of_key,
)
from tests.support.edwards import (
    BASE,
    NEUTRAL,
    ORDER,
    PRIME,
    add,
    challenge,
    encoded,
    multiply,
    other_spellings,
    point_of,
    scalar_of,
    signature_of,
    small_points,
    spelled,
)
from tests.support.wycheproof import Vector, wycheproof

SEED = bytes(range(32))
KEY = SigningKey(SEED)
DATA = b"some data"
SMALL = small_points()


class AnyTaken:
    """An engine that takes each signature of each key, to see what is refused before it."""

    @classmethod
    def from_public_bytes(cls, data: bytes) -> AnyTaken:
        assert len(data) == 32
        return cls()

    def verify(self, signature: bytes, data: bytes) -> None:
        assert signature is not data


@pytest.fixture(params=[False, True], ids=["strict engine", "lax engine"])
def verifiers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Verifiers:
    """Verifiers over OpenSSL, and over what takes anything."""
    if request.param:
        monkeypatch.setattr(_keys, "Ed25519PublicKey", AnyTaken)
    return Verifiers()


def vectors_of_rfc() -> list[list[str]]:
    """Return the reference list that section 7.1 of RFC 8032 draws on, in hex.

    The lines are of: the key of a signer and its public key, this again, data, and a signature with
    this data.
    """
    path = Path(cryptography_vectors.__file__).parent / "asymmetric/Ed25519/sign.input"
    return [line.split(":")[:4] for line in path.read_text().splitlines()]


def test_the_vectors_of_the_rfc_are_signed_and_verified() -> None:
    vectors = vectors_of_rfc()
    assert len(vectors) == 1024
    verifiers = Verifiers()
    # A vector has as many bytes of data as vectors are before it.
    for secret, public, data, signed in vectors:
        key = SigningKey(bytes.fromhex(secret)[:32])
        message = bytes.fromhex(data)
        signature = bytes.fromhex(signed)[:64]
        assert key.identity == b"\x01" + bytes.fromhex(public)
        assert key.sign(message) == signature
        assert verifiers.is_signed_by(key.identity, signature, message)
        assert not verifiers.is_signed_by(key.identity, signature, message + b"\x00")
        assert not verifiers.is_signed_by(KEY.identity, signature, message)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_seed_has_one_size_and_is_in_no_error(size: int) -> None:
    with pytest.raises(BadKey) as raised:
        SigningKey(b"s" * size)
    assert str(raised.value) == f"no key: a seed has {SEED_SIZE} bytes, not {size}"
    assert raised.value.reason == f"a seed has {SEED_SIZE} bytes, not {size}"


def test_the_seed_is_in_no_representation() -> None:
    assert repr(KEY) == f"<SigningKey of {KEY.identity.hex()}>"
    assert SEED.hex() not in repr(KEY)


def test_each_bit_of_a_signature_and_of_the_data_counts() -> None:
    signature = KEY.sign(DATA)
    verifiers = Verifiers()
    assert verifiers.is_signed_by(KEY.identity, signature, DATA)
    assert len(signature) == SIGNATURE_SIZE
    for bit in range(8 * SIGNATURE_SIZE):
        assert not verifiers.is_signed_by(KEY.identity, flipped(signature, bit), DATA)
    for bit in range(8 * len(DATA)):
        assert not verifiers.is_signed_by(KEY.identity, signature, flipped(DATA, bit))


def test_an_engine_without_a_key_has_no_signature(verifiers: Verifiers) -> None:
    derived = derived_engine(KEY.identity, b"printer")
    assert not verifiers.is_signed_by(derived, KEY.sign(DATA), DATA)
    # Nor if its digest is a key: the kind of an identity comes first.
    same = Identity(b"\x02" + KEY.identity[1:])
    assert not verifiers.is_signed_by(same, KEY.sign(DATA), DATA)


def test_a_key_that_is_no_point_has_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    y = next(y for y in range(2, 100) if point_of(y) is None)
    identity = identity_of_key(spelled(y, 0))
    assert not Verifiers().is_signed_by(identity, KEY.sign(DATA), DATA)

    # Another engine may find this when it reads the key.
    def refused(_: bytes) -> Ed25519PublicKey:
        raise ValueError("no point")

    monkeypatch.setattr(AnyTaken, "from_public_bytes", refused)
    monkeypatch.setattr(_keys, "Ed25519PublicKey", AnyTaken)
    assert not Verifiers().is_signed_by(identity, KEY.sign(DATA), DATA)


def test_the_curve_of_these_tests_is_the_right_one() -> None:
    number, prefix = scalar_of(SEED)
    key = encoded(multiply(number, BASE))
    assert key == KEY.identity[1:]
    nonce = challenge(b"", prefix, DATA)
    commitment = encoded(multiply(nonce, BASE))
    answer = (nonce + challenge(commitment, key, DATA) * number) % ORDER
    assert signature_of(commitment, answer) == KEY.sign(DATA)
    assert multiply(ORDER, BASE) == NEUTRAL


ACCEPTABLE = {
    "SmallOrderPublicKey": False,
    # OpenSSL decides, by the equation without a factor of 8. It holds for all of these.
    "MixedOrderPublicKey": True,
}
"""Whether a signature is accepted on which implementations may differ, by its flag."""


def is_accepted(vector: Vector) -> bool:
    return Verifiers().is_signed_by(identity_of_key(vector["pk"]), vector["sig"], vector["msg"])


def test_the_vectors_of_wycheproof_are_verified() -> None:
    for vector in wycheproof("ed25519"):
        assert is_accepted(vector) is vector.is_taken(ACCEPTABLE), vector


def test_what_has_another_form_is_refused_before_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_keys, "Ed25519PublicKey", AnyTaken)
    checked = 0
    for vector in wycheproof("ed25519"):
        signature = vector["sig"]
        # RFC 8032, section 5.1.7: "decode the second half as an integer S, in the range 0 <= s <
        # L."
        if (
            len(signature) != SIGNATURE_SIZE
            or int.from_bytes(signature[32:], "little") >= ORDER
            or "SmallOrderPublicKey" in vector.flags
        ):
            assert not is_accepted(vector), vector
            checked += 1
    assert checked >= 37


# The signatures below go beyond that file, in the classes that it has and those of "Taming the Many
# EdDSAs" (Chalkias, Garillot, Nikolaenko, 2020). They are made by the formulas of the curve.


@pytest.mark.parametrize("key", [*map(encoded, SMALL), *other_spellings(SMALL)], ids=bytes.hex)
def test_a_key_of_small_order_signs_nothing(key: bytes, verifiers: Verifiers) -> None:
    # If 8 divides the challenge, any key of small order fits the neutral commitment and a zero.
    commitment = encoded(NEUTRAL)
    datas = [b"%d" % number for number in range(200)]
    fitting = [data for data in datas if challenge(commitment, key, data) % 8 == 0]
    assert fitting
    for data in fitting:
        signature = signature_of(commitment, 0)
        assert not verifiers.is_signed_by(identity_of_key(key), signature, data)
    assert len(verifiers) == 0


def test_openssl_alone_takes_such_signatures() -> None:
    # This is what the test above is about: the key of the neutral point has signed everything.
    key = encoded(NEUTRAL)
    taken = Ed25519PublicKey.from_public_bytes(key)
    taken.verify(signature_of(key, 0), DATA)
    taken.verify(signature_of(key, 0), b"other data")


def test_the_points_of_small_order_are_the_known_ones() -> None:
    assert len(SMALL) == 8
    assert {multiply(8, each) for each in SMALL} == {NEUTRAL}
    assert {each.y for each in SMALL} == _keys._SMALL_ORDER
    assert len(other_spellings(SMALL)) == 6


@pytest.mark.parametrize("y", range(PRIME, 2**255))
@pytest.mark.parametrize("sign", [0, 1])
def test_a_key_that_is_not_below_the_prime_signs_nothing(
    y: int, sign: int, verifiers: Verifiers
) -> None:
    # RFC 8032, section 5.1.3: "If the resulting value is >= p, decoding fails."
    identity = identity_of_key(spelled(y, sign))
    assert not verifiers.is_signed_by(identity, KEY.sign(DATA), DATA)


def test_the_greatest_key_below_the_prime_is_not_refused_for_that() -> None:
    assert _keys._is_proper(spelled(PRIME - 2, 1))
    assert not _keys._is_proper(spelled(PRIME - 1, 1))  # it is of order 2
    assert not _keys._is_proper(spelled(PRIME, 1))


def test_a_commitment_in_another_spelling_is_refused() -> None:
    # The owner of a key can make a signature with the neutral commitment, though that gives the
    # key away; there are three more spellings of it, each of which answers a challenge of its own.
    number, _ = scalar_of(SEED)
    key = KEY.identity[1:]
    spellings = other_spellings([NEUTRAL])
    assert len(spellings) == 3
    for commitment in spellings:
        answer = challenge(commitment, key, DATA) * number % ORDER
        signature = signature_of(commitment, answer)
        assert not Verifiers().is_signed_by(KEY.identity, signature, DATA)


def test_what_only_a_check_times_eight_takes_is_refused() -> None:
    # A key with a part of small order: some verifiers multiply by 8, which takes that away, and
    # others do not. One of these, OpenSSL, decides here, for all nodes in the same way.
    number, prefix = scalar_of(SEED)
    key = encoded(add(multiply(number, BASE), next(p for p in SMALL if p != NEUTRAL)))
    nonce = challenge(b"", prefix, DATA)
    commitment = encoded(multiply(nonce, BASE))
    taken = 0
    for data in (b"%d" % number for number in range(64)):
        asked = challenge(commitment, key, data)
        signature = signature_of(commitment, (nonce + asked * number) % ORDER)
        right = Verifiers().is_signed_by(identity_of_key(key), signature, data)
        assert right is (asked % 8 == 0)
        taken += right
    assert 0 < taken < 64


def test_verifiers_keep_the_keys_that_were_used_last() -> None:
    verifiers = Verifiers(2)
    one, two, three = (SigningKey(bytes((each,)) * 32) for each in (1, 2, 3))
    for key in (one, two, one, three):
        assert verifiers.is_signed_by(key.identity, key.sign(DATA), DATA)
        assert len(verifiers) <= 2
    assert list(verifiers._keys) == [one.identity, three.identity]
    # What is let go is read again.
    assert verifiers.is_signed_by(two.identity, two.sign(DATA), DATA)
    assert list(verifiers._keys) == [three.identity, two.identity]


def test_keys_that_an_observer_makes_up_take_no_place() -> None:
    verifiers = Verifiers(2)
    assert verifiers.is_signed_by(KEY.identity, KEY.sign(DATA), DATA)
    for number in range(100):
        other = SigningKey(number.to_bytes(32)).identity
        assert not verifiers.is_signed_by(other, KEY.sign(DATA), DATA)
        assert not verifiers.is_signed_by(identity_of_key(number.to_bytes(32)), bytes(64), DATA)
    assert list(verifiers._keys) == [KEY.identity]


def test_a_signature_that_is_wrong_lets_no_key_go() -> None:
    verifiers = Verifiers(1)
    assert verifiers.is_signed_by(KEY.identity, KEY.sign(DATA), DATA)
    assert not verifiers.is_signed_by(KEY.identity, bytes(64), DATA)
    assert not verifiers.is_signed_by(KEY.identity, bytes(32) + b"\xff" * 32, DATA)
    assert len(verifiers) == 1
    assert verifiers.is_signed_by(KEY.identity, KEY.sign(DATA), DATA)


def test_the_limit_of_verifiers_is_the_one_of_the_page() -> None:
    assert Verifiers()._limit == MAX_VERIFIERS == 4096


def flipped(data: bytes, bit: int) -> bytes:
    """Return data with one other bit."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_without_the_extra_the_import_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.delitem(sys.modules, "cryptography.exceptions")
    spec = spec_from_file_location(f"{_keys.__name__}_again", _keys.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"install onward\[identity\]$") as caught:
        spec.loader.exec_module(module_from_spec(spec))
    assert caught.value.name == "cryptography"
