"""Identities and destinations: what may be addressed by a key, as bytes and as text.

An identity is 33 bytes: its kind, then an Ed25519 public key or the digest of an engine. Its text
has 56 characters: the base32 (RFC 4648, in lower case) of these and of a checksum of two bytes, as
the names of onion services have. A destination is a kind and an identity, in text `engine:` and the
text of the identity.
"""

from __future__ import annotations

import base64
import hashlib
from enum import IntEnum
from typing import Final, NamedTuple, NewType

from ._errors import BadIdentity

__all__ = [
    "IDENTITY_SIZE",
    "IDENTITY_TEXT_SIZE",
    "MAX_ENGINE_NAME",
    "Destination",
    "DestinationKind",
    "Identity",
    "derived_engine",
    "destination_text",
    "identity_of_key",
    "identity_text",
    "is_derived",
    "parse_destination",
    "parse_identity",
    "parse_identity_bytes",
    "public_key_of",
    "short_text",
]

IDENTITY_SIZE: Final = 33
"""Bytes of an identity."""
IDENTITY_TEXT_SIZE: Final = 56
"""Characters of the text of an identity."""
MAX_ENGINE_NAME: Final = 1024
"""Most bytes of the name of an engine: those of the value of an address."""

_KEY: Final = 1
_DERIVED: Final = 2
_KEY_SIZE: Final = 32
_CHECKSUM_SIZE: Final = 2
_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_CHECKSUM: Final = b"onward/identity/checksum/1"
_ENGINE: Final = b"onward/identity/engine/1"

Identity = NewType("Identity", bytes)
"""The identity of a node, an engine, a topic or a domain: 33 bytes, its kind first."""


class DestinationKind(IntEnum):
    """The kind of a destination; the number is the one on the wire."""

    ENGINE = 0
    NODE = 1
    TOPIC = 2
    RELAY = 3
    DOMAIN = 4


_KINDS: Final = {each.name.lower(): each for each in DestinationKind}


class Destination(NamedTuple):
    """A destination of a message.

    Attributes:
        kind: What it is.
        identity: Its identity; that of the relay for `RELAY`.
    """

    kind: DestinationKind
    identity: Identity


def identity_of_key(public_key: bytes) -> Identity:
    """Return the identity that an Ed25519 public key of 32 bytes is.

    Raises:
        BadIdentity: It has another size.
    """
    return parse_identity_bytes(bytes((_KEY,)) + public_key)


def derived_engine(node: Identity, name: bytes) -> Identity:
    """Return the identity of an engine without a key of its own.

    It is the digest of the node, which vouches for it, and of the name of the engine there: the
    value of the address of its worker. Both have a length that cannot be mistaken, as an identity
    has always the same.

    Raises:
        BadIdentity: The name is empty, or over `MAX_ENGINE_NAME` bytes.
    """
    if not 0 < len(name) <= MAX_ENGINE_NAME:
        raise BadIdentity(name, f"the name of an engine has 1 to {MAX_ENGINE_NAME} bytes")
    digest = hashlib.sha256(_ENGINE + node + name).digest()
    return Identity(bytes((_DERIVED,)) + digest)


def is_derived(identity: Identity) -> bool:
    """Whether an identity is of an engine without a key of its own."""
    return identity[0] == _DERIVED


def public_key_of(identity: Identity) -> bytes:
    """Return the Ed25519 public key of an identity.

    Raises:
        BadIdentity: It is derived, and has none.
    """
    if identity[0] != _KEY:
        raise BadIdentity(identity, "an engine that is derived has no key")
    return identity[1:]


def parse_identity_bytes(data: bytes) -> Identity:
    """Read an identity.

    Raises:
        BadIdentity: It has another size, or is of no kind.
    """
    if len(data) != IDENTITY_SIZE:
        raise BadIdentity(data, f"it has {IDENTITY_SIZE} bytes, not {len(data)}")
    if data[0] not in {_KEY, _DERIVED}:
        raise BadIdentity(data, f"there is no kind {data[0]}")
    return Identity(data)


def identity_text(identity: Identity) -> str:
    """Return the text of an identity, with its checksum."""
    return base64.b32encode(identity + _checksum(identity)).decode().lower()


def short_text(identity: Identity) -> str:
    """Return the first characters of the text of an identity, for a table. It is not unique."""
    return identity_text(identity)[:12]


def parse_identity(text: str) -> Identity:
    """Read the text of an identity; upper case and space around it do not matter.

    Raises:
        BadIdentity: It is no such text, or the checksum differs, as after a slip of a key.
    """
    written = text.strip()
    if len(written) != IDENTITY_TEXT_SIZE:
        raise BadIdentity(text, f"one has {IDENTITY_TEXT_SIZE} characters, not {len(written)}")
    # Before the case is changed: a dotless i and a long s are of the alphabet in upper case.
    if not _CHARACTERS.issuperset(written):
        raise BadIdentity(text, "its characters are a to z and 2 to 7")
    # 56 characters are 35 bytes without a bit left over, so there is one spelling.
    data = base64.b32decode(written.upper())
    identity = parse_identity_bytes(data[:IDENTITY_SIZE])
    if data[IDENTITY_SIZE:] != _checksum(identity):
        raise BadIdentity(text, "the checksum differs: a character is wrong")
    return identity


def destination_text(destination: Destination) -> str:
    """Return the text of a destination, as `engine:` and the text of the identity."""
    return f"{destination.kind.name.lower()}:{identity_text(destination.identity)}"


def parse_destination(text: str) -> Destination:
    """Read the text of a destination.

    Raises:
        BadIdentity: There is no such kind, or the rest is no identity.
    """
    kind, colon, rest = text.strip().partition(":")
    found = _KINDS.get(kind.lower())
    if not colon or found is None:
        raise BadIdentity(text, f"it begins with one of {', '.join(_KINDS)}, and a colon")
    return Destination(found, parse_identity(rest))


def _checksum(identity: Identity) -> bytes:
    return hashlib.sha256(_CHECKSUM + identity).digest()[:_CHECKSUM_SIZE]
