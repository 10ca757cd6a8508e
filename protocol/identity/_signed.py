"""The envelope of what is signed: COSE_Sign1 (RFC 9052 section 4.2) in one spelling.

```
18([h'a10127', {}, payload, signature])    a10127 is {1: -8}, the algorithm EdDSA
```

The signature is over the bytes that are received, so nothing is encoded again to verify it. What it
is of stands in the external data: the kind of the payload, and for a link its session. So a
signature of one kind is none of another, and one of another session is none of this.

*Reading.* Nearly all payloads have 24 to 65,535 bytes. The size of the envelope tells where its
items are then, so they are compared with what they have to be; all others are read item by item.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ._errors import BadRecord, RecordTooBig
from ._identities import Identity
from ._keys import SIGNATURE_SIZE, SigningKey, Verifiers
from ._record_reader import MAX_RECORD, RecordReader, binary_head

__all__ = ["SIGNED_OVERHEAD", "Signed", "SignedKind", "is_signed_by", "parse_signed", "sign"]

SIGNED_OVERHEAD: Final = 78
"""Most bytes that an envelope adds to its payload, with the length of a payload of 1 MiB."""

_DOMAIN: Final = "onward/identity/1/"
_PROTECTED: Final = bytes.fromhex("a10127")
_HEAD: Final = bytes.fromhex("d28443") + _PROTECTED + bytes.fromhex("a0")
"""Tag 18, an array of four, the protected header, and the unprotected one, which is empty."""
_TAIL: Final = b"\x58\x40"
"""The head of a byte string of 64 bytes."""
_LEAST_OF_TWO: Final = 2 + 24
_LEAST_OF_THREE: Final = 3 + 0x100
_BEYOND_THREE: Final = 3 + 0x10000
"""Sizes of a byte string with its head, where that begins to take two bytes, three, and more."""


class SignedKind(StrEnum):
    """The kind of a signed payload; the text is part of what is signed."""

    ENGINE = "engine"
    RELAY = "relay"
    NODE_ADVERT = "node-advert"
    ENGINE_ADVERT = "engine-advert"
    TOPIC_ADVERT = "topic-advert"
    DOMAIN_ADVERT = "domain-advert"
    EVENT = "event"
    LINK = "link"
    RESERVATION = "reservation"
    JOIN_REQUEST = "join-request"
    JOIN_RESPONSE = "join-response"


@dataclass(frozen=True, slots=True)
class Signed:
    """A payload with a signature, which is not verified yet.

    Attributes:
        payload: The record.
        signature: 64 bytes.
    """

    payload: bytes
    signature: bytes


def sign(kind: SignedKind, payload: bytes, key: SigningKey, context: bytes = b"") -> bytes:
    """Return the envelope of a payload.

    Args:
        kind: What the payload is.
        payload: The record.
        key: The key of the identity that says so.
        context: What else the signature holds for, such as the session of a link.
    """
    signature = key.sign(_to_be_signed(kind, payload, context))
    return b"".join((_HEAD, binary_head(len(payload)), payload, _TAIL, signature))


def parse_signed(envelope: bytes, limit: int = MAX_RECORD) -> Signed:
    """Read an envelope; nothing is verified.

    Raises:
        RecordTooBig: It has more than `limit` bytes.
        BadRecord: It is no COSE_Sign1 of EdDSA in its one spelling.
    """
    if len(envelope) > limit:
        raise RecordTooBig(len(envelope), limit)
    if not envelope.startswith(_HEAD):
        raise BadRecord("it is no COSE_Sign1 of EdDSA without other headers")
    return _parse_usual(envelope) or _parse_any(envelope)


def _parse_usual(envelope: bytes) -> Signed | None:
    """Read an envelope of the usual shape; return `None` if it may be another one, or none."""
    rest = len(envelope) - len(_HEAD) - len(_TAIL) - SIGNATURE_SIZE
    if not _LEAST_OF_TWO <= rest < _BEYOND_THREE:
        return None
    width = 2 if rest < _LEAST_OF_THREE else 3
    head, start = binary_head(rest - width), len(_HEAD)
    end = start + rest
    if len(head) != width or not envelope.startswith(head, start):
        return None
    if not envelope.startswith(_TAIL, end):
        return None
    return Signed(envelope[start + width : end], envelope[-SIGNATURE_SIZE:])


def _parse_any(envelope: bytes) -> Signed:
    reader = RecordReader(envelope[len(_HEAD) :])
    payload = reader.binary("the payload")
    signature = reader.binary("the signature", SIGNATURE_SIZE, SIGNATURE_SIZE)
    reader.end()
    return Signed(payload, signature)


def is_signed_by(
    identity: Identity,
    kind: SignedKind,
    signed: Signed,
    verifiers: Verifiers,
    context: bytes = b"",
) -> bool:
    """Whether an envelope is signed by the key of an identity, as this kind and in this context."""
    to_be_signed = _to_be_signed(kind, signed.payload, context)
    return verifiers.is_signed_by(identity, signed.signature, to_be_signed)


def _to_be_signed(kind: SignedKind, payload: bytes, context: bytes) -> bytes:
    # RFC 9052, section 4.4: "Create a Sig_structure and populate it with the appropriate fields."
    if context:
        head = _structure_head(f"{_DOMAIN}{kind}".encode() + b"\x00" + context)
    else:
        head = _HEADS[kind]
    return b"".join((head, binary_head(len(payload)), payload))


def _structure_head(external: bytes) -> bytes:
    """Return a Sig_structure up to its payload."""
    return b"".join((b"\x84\x6aSignature1\x43", _PROTECTED, binary_head(len(external)), external))


_HEADS: Final = {each: _structure_head(f"{_DOMAIN}{each}".encode()) for each in SignedKind}
"""The Sig_structure of each kind up to its payload, without a context."""
