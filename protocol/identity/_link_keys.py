"""The keys of a session of a link, out of a fresh secret and all that was said."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ._errors import BadKey
from ._link_frames import LINK_KEY_SIZE

__all__ = ["SESSION_SIZE", "LinkSecret", "SessionKeys", "transcript"]

SESSION_SIZE: Final = 32
"""Bytes of the id of a session, which are the same at both ends and in no other session."""

_DOMAIN: Final = b"onward/link/1"
_SEALING: Final = _DOMAIN + b"/handshake"
_SESSION: Final = _DOMAIN + b"/session"


def transcript(*parts: bytes) -> bytes:
    """Return the digest of the parts of a handshake, each with its length."""
    digest = hashlib.sha256(_DOMAIN)
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of a session.

    Attributes:
        of_dialling: That of the frames of the node that has dialled.
        of_dialled: That of the frames of the other one.
        session: The id of the session.
    """

    of_dialling: ChaCha20Poly1305
    of_dialled: ChaCha20Poly1305
    session: bytes


class LinkSecret:
    """A fresh X25519 key, and what is derived of it and the other one.

    Args:
        seed: 32 secret random bytes, for this handshake only.

    Attributes:
        public: The public key.

    Raises:
        BadKey: The seed has another size.
    """

    __slots__ = ("_key", "_shared", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != LINK_KEY_SIZE:
            raise BadKey(f"a seed has {LINK_KEY_SIZE} bytes, not {len(seed)}")
        self._key = X25519PrivateKey.from_private_bytes(seed)
        self._shared = b""
        self.public = self._key.public_key().public_bytes_raw()

    def agrees(self, public: bytes) -> bool:
        """Return whether a secret could be agreed on with the other key.

        It is not for this key itself, and for a point of small order, with which the secret is
        known to all.
        """
        # RFC 7748, section 5: "implementations of X25519 (but not X448) MUST mask the most
        # significant bit in the final byte." So this key has two spellings.
        if int.from_bytes(public, "little") % 2**255 == int.from_bytes(self.public, "little"):
            return False
        try:
            self._shared = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            return False
        return True

    def sealing_keys(self, said: bytes) -> tuple[ChaCha20Poly1305, ChaCha20Poly1305]:
        """Return the keys that seal the reply and the proof, by the digest of what was said."""
        keys = self._derived(said, _SEALING, 2 * LINK_KEY_SIZE)
        return ChaCha20Poly1305(keys[:LINK_KEY_SIZE]), ChaCha20Poly1305(keys[LINK_KEY_SIZE:])

    def session_keys(self, said: bytes) -> SessionKeys:
        """Return the keys of the session, by the digest of the whole handshake."""
        keys = self._derived(said, _SESSION, 2 * LINK_KEY_SIZE + SESSION_SIZE)
        return SessionKeys(
            ChaCha20Poly1305(keys[:LINK_KEY_SIZE]),
            ChaCha20Poly1305(keys[LINK_KEY_SIZE : 2 * LINK_KEY_SIZE]),
            keys[2 * LINK_KEY_SIZE :],
        )

    def _derived(self, said: bytes, purpose: bytes, size: int) -> bytes:
        # RFC 5869: the secret is the input, the transcript the salt, and the purpose the info.
        return HKDF(hashes.SHA256(), size, said, purpose).derive(self._shared)
