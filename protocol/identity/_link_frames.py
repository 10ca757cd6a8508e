"""The messages of the handshake of a link, and what is signed in it.

```
hello   = [1, [version+], key]              key: a fresh X25519 key, 32 bytes
reply   = [2, version, key, sealed]
proof   = [3, sealed]
refusal = [4, code]
sealed  : the envelope of [role, signer, peer or null], kind "link", by ChaCha20-Poly1305
frame   : number, 8 bytes ‖ ciphertext      the first bit is 0, that of a message above is 1
```
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from cbor2 import dumps

from ._errors import BadRecord
from ._identities import Identity, is_derived
from ._link_states import LinkRefusalCode
from ._record_reader import RecordReader

__all__ = [
    "LINK_KEY_SIZE",
    "LINK_VERSIONS",
    "MAX_HANDSHAKE",
    "MAX_LINK_VERSION",
    "MAX_LINK_VERSIONS",
    "HandshakeMessage",
    "LinkClaim",
    "LinkHello",
    "LinkProof",
    "LinkRefusal",
    "LinkReply",
    "LinkRole",
    "is_link_frame",
    "parse_handshake",
    "parse_link_claim",
    "serialize_handshake",
    "serialize_link_claim",
]

LINK_VERSIONS: Final = (1,)
"""Versions of the link that this node knows, in rising order."""
MAX_HANDSHAKE: Final = 512
"""Most bytes of a message of the handshake."""
MAX_LINK_VERSIONS: Final = 8
"""Most versions in a hello."""
MAX_LINK_VERSION: Final = 255
"""Greatest version of a link; the least is 1."""
LINK_KEY_SIZE: Final = 32
"""Bytes of an X25519 key."""

_MAX_SEALED: Final = 256
_MIN_SEALED: Final = 16
_HELLO, _REPLY, _PROOF, _REFUSAL = 1, 2, 3, 4
_LENGTHS: Final = {_HELLO: 3, _REPLY: 4, _PROOF: 2, _REFUSAL: 2}


class LinkRole(IntEnum):
    """The role of a node in a handshake; the number is the one on the wire."""

    DIALS = 1
    IS_DIALLED = 2


@dataclass(frozen=True, slots=True)
class LinkHello:
    """The first message, of the node that dials.

    Attributes:
        versions: The versions that it knows, in rising order.
        key: Its fresh X25519 public key.
    """

    versions: tuple[int, ...]
    key: bytes


@dataclass(frozen=True, slots=True)
class LinkReply:
    """The second message, of the node that is dialled.

    Attributes:
        version: The version that it has chosen.
        key: Its fresh X25519 public key.
        sealed: Its claim with its signature, sealed.
    """

    version: int
    key: bytes
    sealed: bytes


@dataclass(frozen=True, slots=True)
class LinkProof:
    """The third message, of the node that dials.

    Attributes:
        sealed: Its claim with its signature, sealed.
    """

    sealed: bytes


@dataclass(frozen=True, slots=True)
class LinkRefusal:
    """The refusal of a link.

    Attributes:
        code: The reason, as far as the other node is told.
    """

    code: LinkRefusalCode


HandshakeMessage: TypeAlias = LinkHello | LinkReply | LinkProof | LinkRefusal
"""A message of the handshake of a link."""


@dataclass(frozen=True, slots=True)
class LinkClaim:
    """The claim that a node signs in a handshake.

    Attributes:
        role: Its role.
        signer: Its identity.
        peer: The identity of the other node; `None` if it is not known yet.
    """

    role: LinkRole
    signer: Identity
    peer: Identity | None


def is_link_frame(data: bytes) -> bool:
    """Whether bytes are a frame of a session, if anything; else a message of a handshake."""
    return data[:1] < b"\x80"


def parse_handshake(data: bytes) -> HandshakeMessage:
    """Read a message of a handshake.

    Raises:
        RecordTooBig: It has more than `MAX_HANDSHAKE` bytes.
        BadRecord: It is none.
    """
    reader = RecordReader(data, MAX_HANDSHAKE)
    length = reader.enter("a handshake", 2, 4)
    kind = reader.number("its kind", _REFUSAL)
    if _LENGTHS.get(kind) != length:
        raise BadRecord(f"a handshake of kind {kind} has not {length} items")
    message: HandshakeMessage
    if kind == _HELLO:
        message = LinkHello(_versions(reader), _key(reader))
    elif kind == _REPLY:
        message = LinkReply(_version(reader), _key(reader), _sealed(reader))
    elif kind == _PROOF:
        message = LinkProof(_sealed(reader))
    else:
        code = reader.number("the code", max(LinkRefusalCode))
        if not code:
            raise BadRecord("there is no code 0")
        message = LinkRefusal(LinkRefusalCode(code))
    reader.leave()
    reader.end()
    return message


def serialize_handshake(message: HandshakeMessage) -> bytes:
    """Write a message of a handshake."""
    if isinstance(message, LinkHello):
        return dumps((_HELLO, message.versions, message.key))
    if isinstance(message, LinkReply):
        return dumps((_REPLY, message.version, message.key, message.sealed))
    if isinstance(message, LinkProof):
        return dumps((_PROOF, message.sealed))
    return dumps((_REFUSAL, int(message.code)))


def parse_link_claim(data: bytes) -> LinkClaim:
    """Read the claim that is signed in a handshake.

    Raises:
        BadRecord: It is none; the node that dials names the other one, which does not.
    """
    reader = RecordReader(data, MAX_HANDSHAKE)
    reader.enter("a claim", 3)
    role = reader.number("its role", max(LinkRole))
    if not role:
        raise BadRecord("there is no role 0")
    signer = _node(reader, "the signer")
    dialled = role == LinkRole.IS_DIALLED
    if reader.is_null("the peer") is not dialled:
        raise BadRecord("the node that dials names the other one, which does not")
    peer = None if dialled else _node(reader, "the peer")
    reader.leave()
    reader.end()
    return LinkClaim(LinkRole(role), signer, peer)


def serialize_link_claim(claim: LinkClaim) -> bytes:
    """Write the claim that is signed in a handshake."""
    return dumps((int(claim.role), claim.signer, claim.peer))


def _versions(reader: RecordReader) -> tuple[int, ...]:
    count = reader.enter("the versions", 1, MAX_LINK_VERSIONS)
    versions = tuple(_version(reader) for _ in range(count))
    reader.leave()
    if list(versions) != sorted(set(versions)):
        raise BadRecord("the versions do not rise")
    return versions


def _version(reader: RecordReader) -> int:
    version = reader.number("a version", MAX_LINK_VERSION)
    if not version:
        raise BadRecord("there is no version 0")
    return version


def _key(reader: RecordReader) -> bytes:
    return reader.binary("the key", LINK_KEY_SIZE, LINK_KEY_SIZE)


def _sealed(reader: RecordReader) -> bytes:
    return reader.binary("what is sealed", _MAX_SEALED, _MIN_SEALED)


def _node(reader: RecordReader, what: str) -> Identity:
    identity = reader.identity(what)
    if is_derived(identity):
        raise BadRecord(f"{what} has no key")
    return identity
