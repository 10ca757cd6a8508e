"""The envelopes of adverts: how they are signed, opened, and carried.

An envelope does not say what it is of, as its kind is in the external data of the signature. So an
advert travels as an `AdvertEnvelope`, which has the number of the kind beside the envelope. A wrong
number makes the signature a wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from cbor2 import dumps

from ._adverts import (
    MAX_ADVERT,
    Advert,
    AdvertKind,
    DomainAdvert,
    EngineAdvert,
    NodeAdvert,
    TopicAdvert,
    parse_advert,
    serialize_advert,
    signer_of,
)
from ._errors import BadRecord
from ._keys import SigningKey, Verifiers
from ._record_reader import RecordReader
from ._signed import SIGNED_OVERHEAD, Signed, SignedKind, is_signed_by, parse_signed, sign

__all__ = [
    "MAX_ADVERT_ENVELOPE",
    "AdvertEnvelope",
    "UnverifiedAdvert",
    "advert_envelope_items",
    "is_advert_signed",
    "open_advert",
    "parse_advert_envelope",
    "read_advert",
    "read_advert_envelope",
    "serialize_advert_envelope",
    "sign_advert",
]

MAX_ADVERT_ENVELOPE: Final = MAX_ADVERT + SIGNED_OVERHEAD
"""Most bytes of an advert in its envelope."""

_ENVELOPE_FRAME: Final = 5
"""Most bytes around an envelope: the head of an array, a kind, a length of two bytes."""


@dataclass(frozen=True, slots=True)
class AdvertEnvelope:
    """An advert in its envelope, with its kind, as it travels. Nothing is verified yet.

    Attributes:
        kind: What it is said to be.
        envelope: The signed advert.
    """

    kind: AdvertKind
    envelope: bytes


class UnverifiedAdvert(NamedTuple):
    """An advert that is read, and not verified yet.

    Attributes:
        advert: What it says.
        signed: Its payload and its signature.
    """

    advert: Advert
    signed: Signed


def read_advert_envelope(reader: RecordReader) -> AdvertEnvelope:
    """Read an advert in its envelope, as a part of a record; nothing is verified.

    Raises:
        BadRecord: It is none, or of no kind that there is.
    """
    reader.enter("the advert", 2)
    number = reader.number("the kind of the advert")
    kind = _KINDS.get(number)
    if kind is None:
        raise BadRecord(f"there is no kind {number} of adverts")
    envelope = reader.binary("the envelope", MAX_ADVERT_ENVELOPE)
    reader.leave()
    return AdvertEnvelope(kind, envelope)


def advert_envelope_items(envelope: AdvertEnvelope) -> tuple[object, ...]:
    """Return the items of an advert in its envelope, for `cbor2.dumps`."""
    return envelope.kind, envelope.envelope


def parse_advert_envelope(data: bytes) -> AdvertEnvelope:
    """Read an advert in its envelope; nothing is verified.

    Raises:
        BadRecord: It is none, or of no kind that there is.
    """
    reader = RecordReader(data, MAX_ADVERT_ENVELOPE + _ENVELOPE_FRAME)
    envelope = read_advert_envelope(reader)
    reader.end()
    return envelope


def serialize_advert_envelope(envelope: AdvertEnvelope) -> bytes:
    """Return the bytes of an advert in its envelope."""
    return dumps(advert_envelope_items(envelope))


def sign_advert(advert: Advert, key: SigningKey) -> AdvertEnvelope:
    """Sign an advert.

    It is read once as its receivers will read it, so that none is signed that they refuse.

    Raises:
        BadRecord: It is over a limit, or the key is not that of `signer_of(advert)`.
    """
    kind = _KIND_OF[type(advert)]
    payload = serialize_advert(advert)
    if signer_of(parse_advert(kind, payload)) != key.identity:
        raise BadRecord("an advert is signed by the identity that it is about, or by its node")
    return AdvertEnvelope(kind, sign(_SIGNED_KINDS[kind], payload, key))


def read_advert(envelope: AdvertEnvelope) -> UnverifiedAdvert:
    """Read an advert; nothing is verified.

    Raises:
        BadRecord: It is no advert of this kind.
    """
    signed = parse_signed(envelope.envelope, MAX_ADVERT_ENVELOPE)
    return UnverifiedAdvert(parse_advert(envelope.kind, signed.payload), signed)


def is_advert_signed(unverified: UnverifiedAdvert, verifiers: Verifiers) -> bool:
    """Whether an advert is signed by `signer_of` it, as its kind."""
    advert, signed = unverified
    kind = _SIGNED_KINDS[_KIND_OF[type(advert)]]
    return is_signed_by(signer_of(advert), kind, signed, verifiers)


def open_advert(envelope: AdvertEnvelope, verifiers: Verifiers) -> Advert | None:
    """Read an advert and verify it.

    Returns:
        The advert; `None` if it is not signed by `signer_of` it, as this kind.

    Raises:
        BadRecord: It is no advert of this kind.
    """
    unverified = read_advert(envelope)
    return unverified.advert if is_advert_signed(unverified, verifiers) else None


_SIGNED_KINDS: Final = {
    AdvertKind.ENGINE: SignedKind.ENGINE_ADVERT,
    AdvertKind.NODE: SignedKind.NODE_ADVERT,
    AdvertKind.TOPIC: SignedKind.TOPIC_ADVERT,
    AdvertKind.DOMAIN: SignedKind.DOMAIN_ADVERT,
}
_KIND_OF: Final[dict[type[Advert], AdvertKind]] = {
    EngineAdvert: AdvertKind.ENGINE,
    NodeAdvert: AdvertKind.NODE,
    TopicAdvert: AdvertKind.TOPIC,
    DomainAdvert: AdvertKind.DOMAIN,
}
_KINDS: Final = {int(each): each for each in AdvertKind}
