"""Keys that sign for an identity.

A key is made of 32 bytes that are an argument: `os.urandom` at its maker, fixed ones in a test.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
except ImportError as error:  # this module is the first of all that need it
    raise ModuleNotFoundError(
        "identities need the extra: install onward[identity]", name="cryptography"
    ) from error

from ._errors import BadKey
from ._identities import Identity, identity_of_key, is_derived, public_key_of

__all__ = ["MAX_VERIFIERS", "SEED_SIZE", "SIGNATURE_SIZE", "SigningKey", "Verifiers"]

SEED_SIZE: Final = 32
"""Bytes that a key is made of."""
SIGNATURE_SIZE: Final = 64
"""Bytes of a signature."""
MAX_VERIFIERS: Final = 4096
"""Most public keys that are kept ready to verify. The one that was used longest ago is let go."""

_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
"""Order of the group of Ed25519 (RFC 8032, section 5.1)."""
_PRIME: Final = 2**255 - 19


class SigningKey:
    """An Ed25519 key of an identity (RFC 8032).

    Args:
        seed: 32 secret random bytes.

    Attributes:
        identity: The identity that it signs for.

    Raises:
        BadKey: The seed has another size.
    """

    __slots__ = ("_key", "identity")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_SIZE:
            raise BadKey(f"a seed has {SEED_SIZE} bytes, not {len(seed)}")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.identity = identity_of_key(self._key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the signature of 64 bytes over `data`; the same data has the same one."""
        return self._key.sign(data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.identity.hex()}>"


class Verifiers:
    """Public keys that are ready to verify, the last ones that were used.

    Args:
        limit: Most keys that are kept.
    """

    __slots__ = ("_keys", "_limit")

    def __init__(self, limit: int = MAX_VERIFIERS) -> None:
        self._limit = limit
        self._keys: OrderedDict[Identity, Ed25519PublicKey] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def is_signed_by(self, identity: Identity, signature: bytes, data: bytes) -> bool:
        """Whether a signature over `data` is by the key of an identity.

        It is not for an identity that is derived, for a signature or a key in another spelling than
        the one of RFC 8032, and for a key of small order, which has signatures that fit any data.

        A signature of the right form that is wrong takes the same steps whether the key was kept or
        not: its time does not tell which identities were verified here before.
        """
        # RFC 8032, section 5.1.7: "decode the second half as an integer S, in the range 0 <= s < L.
        # [...] If any of the decodings fail (including S being out of range), the signature is
        # invalid." OpenSSL refuses it as well; another engine need not.
        if len(signature) != SIGNATURE_SIZE or int.from_bytes(signature[32:], "little") >= _ORDER:
            return False
        kept = self._keys.get(identity)
        key = _key_of(identity) if kept is None else kept
        if key is None:
            return False
        try:
            key.verify(signature, data)
        except InvalidSignature:
            if kept is not None:
                _key_of(identity)
            return False
        # Kept once it has verified something: what an observer makes up takes no place of another.
        self._keys[identity] = key
        self._keys.move_to_end(identity)
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)
        return True


def _key_of(identity: Identity) -> Ed25519PublicKey | None:
    """Return the key of an identity, if it has one that verifies."""
    if is_derived(identity) or not _is_proper(public_key_of(identity)):
        return None
    try:
        return Ed25519PublicKey.from_public_bytes(public_key_of(identity))
    except ValueError:
        return None


def _is_proper(key: bytes) -> bool:
    """Whether a public key is in its one spelling, and not of small order."""
    y = int.from_bytes(key, "little") & (2**255 - 1)
    return y < _PRIME and y not in _SMALL_ORDER


_SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        _PRIME - 1,
        2707385501144840649318225287225658788936804267575313519463743609750303402022,
        55188659117513257062467267217118295137698188065244968500265048394206261417927,
    }
)
"""The y of all points of order 1, 2, 4 and 8: of what has such a key, a signature says nothing."""
