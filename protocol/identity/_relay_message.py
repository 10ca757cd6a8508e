"""The messages for relays, which are sealed for one relay each.

```
relay = [src, dst, tprefs or null, expiry, sealed]
```

It is signed by the key in it, which may be of this message alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cbor2 import dumps

from ._checks import check_key, check_number, check_size
from ._errors import BadKey
from ._identities import Identity
from ._keys import SigningKey, Verifiers
from ._preferences import TransportPrefs, read_transport_prefs, transport_items
from ._record_reader import RecordReader
from ._signed import SignedKind, is_signed_by, parse_signed, sign

__all__ = [
    "MAX_SEALED",
    "RelayMessage",
    "open_relay_message",
    "parse_relay_message",
    "serialize_relay_message",
    "sign_relay_message",
]

MAX_SEALED: Final = 72 * 1024
"""Most sealed bytes: 64 KiB, and what eight layers add."""


@dataclass(frozen=True, slots=True)
class RelayMessage:
    """A sealed message for a relay.

    Attributes:
        src: The node that sends it, or a key of this message alone.
        dst: The relay that can open it.
        expiry: When it is of no use any more, in Unix milliseconds.
        sealed: 1 to `MAX_SEALED` bytes.
        tprefs: What it asks of its carriage, if anything.

    Raises:
        BadRecord: A value is over its limit, or an identity has no key.
    """

    src: Identity
    dst: Identity
    expiry: int
    sealed: bytes
    tprefs: TransportPrefs | None = None

    def __post_init__(self) -> None:
        check_key("the source", self.src)
        check_key("the relay", self.dst)
        check_number("the expiry", self.expiry)
        check_size("what is sealed", self.sealed, MAX_SEALED, 1)


def parse_relay_message(data: bytes) -> RelayMessage:
    """Read a message for a relay.

    Raises:
        BadRecord: It is none.
    """
    reader = RecordReader(data)
    reader.enter("the message", 5)
    src = reader.keyed("the source")
    dst = reader.keyed("the relay")
    tprefs = read_transport_prefs(reader)
    expiry = reader.number("the expiry")
    sealed = reader.binary("what is sealed", MAX_SEALED, 1)
    reader.leave()
    reader.end()
    return RelayMessage(src, dst, expiry, sealed, tprefs)


def serialize_relay_message(message: RelayMessage) -> bytes:
    """Return the bytes of a message for a relay."""
    record: bytes = dumps(
        (
            message.src,
            message.dst,
            transport_items(message.tprefs),
            message.expiry,
            message.sealed,
        )
    )
    return record


def sign_relay_message(message: RelayMessage, key: SigningKey) -> bytes:
    """Return the envelope of a message for a relay.

    Raises:
        BadKey: The key is not of the source.
    """
    if key.identity != message.src:
        raise BadKey("it is not of the source of the message")
    return sign(SignedKind.RELAY, serialize_relay_message(message), key)


def open_relay_message(envelope: bytes, verifiers: Verifiers) -> RelayMessage | None:
    """Return the message for a relay in an envelope, or `None` if its signature is wrong.

    What is sealed stays so.

    Raises:
        BadRecord: It is no envelope, or no such message is in it.
    """
    signed = parse_signed(envelope)
    message = parse_relay_message(signed.payload)
    return message if is_signed_by(message.src, SignedKind.RELAY, signed, verifiers) else None
