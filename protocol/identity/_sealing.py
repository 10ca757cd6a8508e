"""What only one node can read: HPKE (RFC 9180) in base mode, with keys that may be rotated.

```
sealed    = key id (4) ‖ encapsulated key (32) ‖ ciphertext and tag
plaintext = inner kind (1) ‖ reply key (32) ‖ length (4) ‖ inner ‖ zeros
```

The suite is X25519, HKDF-SHA256 and ChaCha20-Poly1305. What surrounds a sealed text, such as
its sender and its expiry, is its `info`: with another it does not open. Whatever keeps it from
opening, the outcome is the same.

HPKE draws its own ephemeral key, as the interface of `cryptography` takes none; everything else
that is random is an argument.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from ._errors import BadKey
from ._freshness import MAX_TTL
from ._keys import SEED_SIZE
from ._padding import LENGTH_SIZE, padded, unpadded

__all__ = [
    "MAX_SEALING_KEYS",
    "NO_REPLY",
    "OLD_KEY_TIME",
    "REPLY_KEY_SIZE",
    "SEALED_OVERHEAD",
    "SEALING_KEY_SIZE",
    "InnerKind",
    "Opened",
    "SealingKey",
    "SealingKeys",
    "encapsulated_key",
    "key_id",
    "room_for",
    "seal",
]

SEALING_KEY_SIZE: Final = 32
"""Bytes of the public part of a sealing key."""
REPLY_KEY_SIZE: Final = 32
"""Bytes of a reply key."""
NO_REPLY: Final = bytes(REPLY_KEY_SIZE)
"""The reply key of what wants no answer."""
MAX_SEALING_KEYS: Final = 4
"""Most keys that a node opens with, the present one and older ones. The oldest is let go before its
time, and what is sealed to it is dropped."""
OLD_KEY_TIME: Final = MAX_TTL
"""Milliseconds that a key opens after its successor came: the longest time of a message."""

_KEY_ID_SIZE: Final = 4
_ENCAPSULATED_SIZE: Final = 32
_TAG_SIZE: Final = 16
_HEADER_SIZE: Final = 1 + REPLY_KEY_SIZE + LENGTH_SIZE
SEALED_OVERHEAD: Final = _KEY_ID_SIZE + _ENCAPSULATED_SIZE + _TAG_SIZE
"""Bytes that sealing adds to a plaintext."""

_KEY_ID: Final = b"onward/identity/1/sealing-key"
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class InnerKind(IntEnum):
    """The kind of the inner bytes of a sealed text; the number is the one on the wire."""

    ENGINE = 0
    RELAY = 1
    EXIT = 2
    """The message of an engine, as `ENGINE`, which may be let out if it is for another node."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The content of a sealed text.

    Attributes:
        kind: What the inner bytes are.
        reply_key: 32 bytes for the answer; `NO_REPLY` if none is wanted.
        inner: The envelope.
    """

    kind: InnerKind
    reply_key: bytes = field(repr=False)
    inner: bytes = field(repr=False)


def key_id(public: bytes) -> bytes:
    """Return the four bytes that say to a node which of its keys a text is sealed to."""
    return hashlib.sha256(_KEY_ID + public).digest()[:_KEY_ID_SIZE]


def encapsulated_key(sealed: bytes) -> bytes:
    """Return the key that was drawn for a sealed text, by which it is known."""
    return sealed[_KEY_ID_SIZE : _KEY_ID_SIZE + _ENCAPSULATED_SIZE]


def room_for(inner: bytes) -> int:
    """Return the bytes of the plaintext with `inner` alone, without zeros."""
    return _HEADER_SIZE + len(inner)


def seal(
    public: bytes, kind: InnerKind, reply_key: bytes, inner: bytes, *, room: int, info: bytes
) -> bytes:
    """Return `inner` as bytes that only the owner of a key can open.

    Args:
        public: The public part of the key.
        kind: What `inner` is.
        reply_key: 32 secret random bytes, or `NO_REPLY`.
        inner: What is sealed.
        room: Bytes of the plaintext, with zeros behind `inner`.
        info: What is known to both sides, and has to be the same to open it.

    Raises:
        BadKey: `public` or `reply_key` is no such key.
        MessageTooBig: There is no room for `inner`.
    """
    if len(reply_key) != REPLY_KEY_SIZE:
        raise BadKey(f"a reply key has {REPLY_KEY_SIZE} bytes, not {len(reply_key)}")
    text = bytes((kind,)) + reply_key + padded(inner, room - 1 - REPLY_KEY_SIZE)
    try:
        return key_id(public) + _SUITE.encrypt(
            text, X25519PublicKey.from_public_bytes(public), info=info
        )
    except ValueError:
        # RFC 9180, section 7.1.4: "recipients MUST check whether the Diffie-Hellman shared secret
        # is the all-zero value and abort if so." The sender aborts for the same points.
        raise BadKey("no public key of X25519, or one of small order") from None


class SealingKey:
    """An X25519 key that others seal to (RFC 7748).

    Args:
        seed: 32 secret random bytes.

    Attributes:
        public: Its public part, 32 bytes.
        key_id: The first bytes of what is sealed to it.

    Raises:
        BadKey: The seed has another size.
    """

    __slots__ = ("_key", "key_id", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_SIZE:
            raise BadKey(f"a seed has {SEED_SIZE} bytes, not {len(seed)}")
        self._key = X25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()
        self.key_id = key_id(self.public)

    def open(self, sealed: bytes, info: bytes) -> Opened | None:
        """Return what is in a sealed text, or `None` if it does not open for any reason.

        Such are another key, another `info`, a byte that was changed, a point of small order, a
        length over the room, and padding that is not zero.
        """
        try:
            text = _SUITE.decrypt(sealed[_KEY_ID_SIZE:], self._key, info=info)
        except InvalidTag:
            return None
        # The padding is checked before the kind, so that each text takes the same steps.
        inner = unpadded(text[1 + REPLY_KEY_SIZE :])
        if inner is None or text[0] not in _KINDS:
            return None
        return Opened(InnerKind(text[0]), text[1 : 1 + REPLY_KEY_SIZE], inner)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.public.hex()}>"


class SealingKeys:
    """The keys of a node: the one that it advertises, and older ones for what is under way.

    Times are Unix milliseconds.

    Args:
        seed: 32 secret random bytes of the first key.
        limit: Most keys with the present one.
        old_key_time: Milliseconds that a key opens after its successor came.

    Raises:
        BadKey: The seed has another size.
    """

    __slots__ = ("_old", "_old_key_time", "_present")

    def __init__(
        self, seed: bytes, *, limit: int = MAX_SEALING_KEYS, old_key_time: int = OLD_KEY_TIME
    ) -> None:
        self._present = SealingKey(seed)
        self._old: deque[tuple[int, SealingKey]] = deque(maxlen=limit - 1)
        self._old_key_time = old_key_time

    @property
    def public(self) -> bytes:
        """The public part of the present key, for the advert."""
        return self._present.public

    def __len__(self) -> int:
        return 1 + len(self._old)

    def rotate(self, seed: bytes, now: int) -> None:
        """Replace the present key, which opens for a while from now.

        Raises:
            BadKey: The seed has another size. The keys are as before.
        """
        following = SealingKey(seed)
        self._let_go(now)
        self._old.append((now + self._old_key_time, self._present))
        self._present = following

    def open(self, sealed: bytes, info: bytes, now: int) -> Opened | None:
        """Return what is in a text that is sealed to one of the keys, or `None` for any reason.

        One for a key that is not there takes as long as one that does not open: its time does not
        tell which older keys are left.
        """
        self._let_go(now)
        chosen = sealed[:_KEY_ID_SIZE]
        # An id of four bytes may be that of two keys, so all that have it are tried.
        keys = (self._present, *(old for _, old in self._old))
        named = [key for key in keys if key.key_id == chosen]
        if not named:
            self._present.open(sealed, info)
        for key in named:
            opened = key.open(sealed, info)
            if opened is not None:
                return opened
        return None

    def _let_go(self, now: int) -> None:
        while self._old and self._old[0][0] < now:
            self._old.popleft()


_KINDS: Final = frozenset(InnerKind)
