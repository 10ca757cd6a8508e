"""The messages of engines; those for relays, and those between two nodes, are modules of their own.

```
engine = [src, [kind, identity], id, reply_to or null, expiry or null, rprefs or null,
          tprefs or null, protocol, body, origin or null]
origin = [node, name]                                   of an engine without a key
```

The message of an engine is signed by it, or by the node that it is of, and keeps this signature to
its end.

*Reading.* Nearly all messages of engines have numbers of eight bytes, and ask nothing of their way.
These are read by the places at which their items are then, and all others item by item. They are
written by joining their items, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cbor2 import dumps

from ._checks import check_key, check_number, check_size
from ._errors import BadIdentity, BadKey, BadRecord
from ._identities import (
    MAX_ENGINE_NAME,
    Destination,
    DestinationKind,
    Identity,
    derived_engine,
    is_derived,
)
from ._keys import SigningKey, Verifiers
from ._preferences import (
    Protocol,
    RoutingPrefs,
    TransportPrefs,
    protocol_items,
    read_protocol,
    read_routing_prefs,
    read_transport_prefs,
    routing_items,
    transport_items,
)
from ._record_reader import MAX_RECORD, RecordReader, binary_head
from ._signed import SignedKind, is_signed_by, parse_signed, sign

__all__ = [
    "MAX_BODY",
    "EngineMessage",
    "EngineOrigin",
    "open_engine_message",
    "parse_engine_message",
    "serialize_engine_message",
    "sign_engine_message",
]

MAX_BODY: Final = MAX_RECORD - 4096
"""Most bytes of the body of an engine: with all that is around it, it fits a record."""


@dataclass(frozen=True, slots=True)
class EngineOrigin:
    """The node and the name that an engine without a key is derived of.

    Attributes:
        node: The node, which signs for it.
        name: Its name there, 1 to `MAX_ENGINE_NAME` bytes.
    """

    node: Identity
    name: bytes


@dataclass(frozen=True, slots=True)
class EngineMessage:
    """A message of an engine to a destination.

    Attributes:
        src: The engine.
        dst: The destination.
        id: A number that no other message of `src` to `dst` has.
        protocol: What `body` is written in.
        body: At most `MAX_BODY` bytes.
        reply_to: The `id` of the message that it answers, if any.
        expiry: When it is of no use any more, in Unix milliseconds; `None` for never.
        rprefs: What it asks of its routing, if anything.
        tprefs: What it asks of its carriage, if anything.
        origin: What `src` is derived of; `None` if it has a key.

    Raises:
        BadRecord: A value is over its limit, or `origin` does not fit `src`.
    """

    src: Identity
    dst: Destination
    id: int
    protocol: Protocol
    body: bytes
    reply_to: int | None = None
    expiry: int | None = None
    rprefs: RoutingPrefs | None = None
    tprefs: TransportPrefs | None = None
    origin: EngineOrigin | None = None

    def __post_init__(self) -> None:
        if self.dst.kind is not DestinationKind.ENGINE:
            check_key("the destination", self.dst.identity)
        check_number("the id", self.id)
        if self.reply_to is not None:
            check_number("the id that is answered", self.reply_to)
        if self.expiry is not None:
            check_number("the expiry", self.expiry)
        check_size("the body", self.body, MAX_BODY)
        if self.origin is not None or is_derived(self.src):
            _check_origin(self.src, self.origin)

    @property
    def signer(self) -> Identity:
        """The identity that signs it: its engine, or the node that this is derived of."""
        return self.src if self.origin is None else self.origin.node


def parse_engine_message(data: bytes) -> EngineMessage:
    """Read the message of an engine.

    Raises:
        BadRecord: It is none.
    """
    return _parse_usual(data) or _parse_any(data)


def _parse_any(data: bytes) -> EngineMessage:
    reader = RecordReader(data)
    reader.enter("the message", 10)
    src = reader.identity("the source")
    dst = _read_destination(reader)
    number = reader.number("the id")
    reply_to = _number_or_null(reader, "the id that is answered")
    expiry = _number_or_null(reader, "the expiry")
    rprefs = read_routing_prefs(reader)
    tprefs = read_transport_prefs(reader)
    protocol = read_protocol(reader)
    body = reader.binary("the body", MAX_BODY)
    origin = _read_origin(reader)
    reader.leave()
    reader.end()
    return EngineMessage(src, dst, number, protocol, body, reply_to, expiry, rprefs, tprefs, origin)


def serialize_engine_message(message: EngineMessage) -> bytes:
    """Return the bytes of the message of an engine."""
    return _write_usual(message) or _write_any(message)


def _write_any(message: EngineMessage) -> bytes:
    origin = message.origin
    record: bytes = dumps(
        (
            message.src,
            (message.dst.kind, message.dst.identity),
            message.id,
            message.reply_to,
            message.expiry,
            routing_items(message.rprefs),
            transport_items(message.tprefs),
            protocol_items(message.protocol),
            message.body,
            None if origin is None else (origin.node, origin.name),
        )
    )
    return record


def sign_engine_message(message: EngineMessage, key: SigningKey) -> bytes:
    """Return the envelope of the message of an engine.

    Raises:
        BadKey: The key is not of the signer of the message.
    """
    if key.identity != message.signer:
        raise BadKey("it is not of the engine, nor of the node that the engine is derived of")
    return sign(SignedKind.ENGINE, serialize_engine_message(message), key)


def open_engine_message(envelope: bytes, verifiers: Verifiers) -> EngineMessage | None:
    """Return the message of an engine in an envelope, or `None` if its signature is wrong.

    Raises:
        BadRecord: It is no envelope, or no such message is in it.
    """
    signed = parse_signed(envelope)
    message = parse_engine_message(signed.payload)
    right = is_signed_by(message.signer, SignedKind.ENGINE, signed, verifiers)
    return message if right else None


def _parse_usual(data: bytes) -> EngineMessage | None:
    """Read a message of the usual shape; return `None` if it may be another one, or none."""
    kind = _DESTINATIONS.get(data[36:41])
    if kind is None or data[:4] not in _STARTS:
        return None
    try:
        at = 82
        number, reply_to = _eight_bytes(data, 73), None
        if data[at] == _NULL:
            at += 1
        else:
            reply_to = _eight_bytes(data, at)
            at += 9
        expiry = _eight_bytes(data, at)
        if not data.startswith(b"\xf6\xf6", at + 9):
            return None
        at += 11
        end = at + 3 + data[at + 1] - 0x60  # an array of two, a short text, and a small number
        protocol = _protocol_of(data[at:end])
        size, start = data[end] - 0x40, end + 1
        if size == 24:
            size = data[start]
            start += 1
            if size < 24:
                return None
        elif size == 25:
            size = int.from_bytes(data[start : start + 2])
            start += 2
            if size < 0x100:
                return None
        elif not 0 <= size < 24:
            return None
        end = start + size
        body, origin = data[start:end], None
        if data[end] != _NULL:
            reader = RecordReader(data[end:])
            origin = _read_origin(reader)
            reader.end()
        elif len(data) != end + 1:
            return None
    except (IndexError, BadRecord):
        return None
    dst = Destination(kind, Identity(data[40:73]))
    src = Identity(data[3:36])
    return EngineMessage(src, dst, number, protocol, body, reply_to, expiry, origin=origin)


def _write_usual(message: EngineMessage) -> bytes | None:
    """Return the bytes of a message of the usual shape; `None` for another one."""
    number, expiry, dst, body = message.id, message.expiry, message.dst, message.body
    if (
        number < _LEAST_OF_EIGHT
        or expiry is None
        or expiry < _LEAST_OF_EIGHT
        or message.reply_to is not None
        or message.rprefs is not None
        or message.tprefs is not None
        or message.origin is not None
    ):
        return None
    return b"".join(
        (
            b"\x8a\x58\x21",
            message.src,
            _DESTINATION_HEADS[dst.kind],
            dst.identity,
            b"\x1b",
            number.to_bytes(8),
            b"\xf6\x1b",
            expiry.to_bytes(8),
            b"\xf6\xf6",
            _protocol_bytes(message.protocol.name, message.protocol.version),
            binary_head(len(body)),
            body,
            b"\xf6",
        )
    )


_LEAST_OF_EIGHT: Final = 0x100000000
"""The smallest number that needs eight bytes."""
_NULL: Final = 0xF6
_PROTOCOLS: Final = 64
"""Most protocols that are remembered by their bytes. Beyond: the one that was used longest ago is
read again. Nothing else is remembered of messages that are not verified yet: by the time of what is
known from before, another node could find out which others send here."""
_STARTS: Final = frozenset({b"\x8a\x58\x21\x01", b"\x8a\x58\x21\x02"})
"""An array of ten, and the head and kind of an identity."""
_DESTINATION_HEADS: Final = {each: bytes((0x82, each)) + b"\x58\x21" for each in DestinationKind}
_DESTINATIONS: Final = {
    bytes((0x82, each, 0x58, 0x21, kind)): each for each in DestinationKind for kind in (1, 2)
}
"""What a destination begins with: an array of two, its kind, the head and kind of an identity."""


def _eight_bytes(data: bytes, at: int) -> int:
    """Read a number that needs eight bytes.

    Raises:
        BadRecord: There may be another number, or none.
        IndexError: The bytes end before it.
    """
    number = int.from_bytes(data[at + 1 : at + 9])
    if data[at] != 0x1B or number < _LEAST_OF_EIGHT:
        raise BadRecord("no number of eight bytes")
    return number


@lru_cache(_PROTOCOLS)
def _protocol_bytes(name: str, version: int) -> bytes:
    record: bytes = dumps((name, version))
    return record


@lru_cache(_PROTOCOLS)
def _protocol_of(item: bytes) -> Protocol:
    reader = RecordReader(item)
    protocol = read_protocol(reader)
    reader.end()
    return protocol


def _read_destination(reader: RecordReader) -> Destination:
    reader.enter("the destination", 2)
    kind = DestinationKind(reader.number("the kind of the destination", max(DestinationKind)))
    identity = reader.identity("the identity of the destination")
    reader.leave()
    return Destination(kind, identity)


def _read_origin(reader: RecordReader) -> EngineOrigin | None:
    if reader.is_null("the origin"):
        return None
    reader.enter("the origin", 2)
    node = reader.keyed("the node of the engine")
    name = reader.binary("the name of the engine", MAX_ENGINE_NAME, 1)
    reader.leave()
    return EngineOrigin(node, name)


def _number_or_null(reader: RecordReader, what: str) -> int | None:
    return None if reader.is_null(what) else reader.number(what)


def _check_origin(src: Identity, origin: EngineOrigin | None) -> None:
    if origin is None or not is_derived(src):
        raise BadRecord("an engine has an origin if it has no key, and only then")
    check_key("the node of the engine", origin.node)
    try:
        derived = derived_engine(origin.node, origin.name)
    except BadIdentity as error:
        raise BadRecord(error.reason) from None
    if derived != src:
        raise BadRecord("the source is not the engine of its origin")
