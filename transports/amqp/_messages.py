"""Messages of AMQP 1.0 as bytes: where their sections are, and the few fields that the edge reads.

The payload of a dispatched message is the whole encoded message. It is passed on as it came, but
for its annotations where they are to be stripped, so nothing of it is decoded and encoded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["BadMessage", "MessageHead", "message_of", "read_head", "without_annotations"]

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_SYMBOLS: Final = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}
_LIST: Final = frozenset({0x45, 0xC0, 0xD0})
_MAP: Final = frozenset({0xC1, 0xD1})
_BINARY: Final = frozenset({0xA0, 0xB0})
_STRING: Final = frozenset({0xA1, 0xB1})
_NULL: Final = 0x40
_FORMS: Final = {
    HEADER: _LIST,
    DELIVERY_ANNOTATIONS: _MAP,
    MESSAGE_ANNOTATIONS: _MAP,
    PROPERTIES: _LIST,
    APPLICATION_PROPERTIES: _MAP,
    DATA: _BINARY,
    SEQUENCE: _LIST,
    FOOTER: _MAP,
}
# AMQP 1.0, part 1, section 1.2: the high half of a format code tells the width of its value, or
# of the size in front of it.
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_SIZED: Final = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}

MAX_DESCRIBED: Final = 16
"""Descriptors that a value may have in front of it."""


class BadMessage(Exception):
    """Bytes are no message of AMQP 1.0.

    It does not leave the edge, so it is none of the package's errors.
    """


@dataclass(frozen=True, slots=True)
class MessageHead:
    """The fields of a message that the edge reads.

    Attributes:
        to: The name that it is for, of its properties; `None` without one.
        ttl: Its time to live in seconds, of its header; `None` without one.
    """

    to: str | None = None
    ttl: float | None = None


def read_head(message: bytes) -> MessageHead:
    """Check the sections of a message, and read its head.

    Raises:
        BadMessage: It is none.
    """
    to: str | None = None
    ttl: float | None = None
    for kind, _, start, end in _sections(message):
        if kind == HEADER:
            ttl = _read_ttl(message, start, end)
        elif kind == PROPERTIES:
            to = _read_to(message, start, end)
    return MessageHead(to, ttl)


def without_annotations(message: bytes) -> bytes:
    """Return a message without delivery and message annotations.

    Raises:
        BadMessage: It is none.
    """
    cut = (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS)
    spans = [(at, end) for kind, at, _, end in _sections(message) if kind in cut]
    for at, end in reversed(spans):
        message = message[:at] + message[end:]
    return message


def message_of(payload: bytes) -> bytes:
    """Return a payload that is a message as it is, and another one as the data of a message."""
    try:
        if payload:
            read_head(payload)
            return payload
    except BadMessage:
        pass
    size = len(payload)
    head = bytes((0xA0, size)) if size < 256 else b"\xb0" + size.to_bytes(4)
    return bytes((0x00, 0x53, DATA)) + head + payload


def _sections(message: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the sections: the kind, where it begins, where its value begins, and where it ends."""
    at, before = 0, 0
    while at < len(message):
        kind, start = _descriptor(message, at)
        # AMQP 1.0, part 3, section 3.2: "Zero or one", in this order, and the body is "one or
        # more data sections, one or more amqp-sequence sections, or a single amqp-value section".
        again = kind == before and kind in (DATA, SEQUENCE)
        second_body = kind in (SEQUENCE, VALUE) and before in (DATA, SEQUENCE)
        if not again and (kind <= before or second_body):
            raise BadMessage("sections in another order")
        forms = _FORMS.get(kind)
        if forms is not None and (start >= len(message) or message[start] not in forms):
            raise BadMessage("a section of another type")
        end = _skip(message, start, len(message))
        yield kind, at, start, end
        at, before = end, kind


def _descriptor(message: bytes, at: int) -> tuple[int, int]:
    """Return the kind of the section at a place, and where its value begins."""
    head = message[at : at + 2]
    if head == b"\x00\x53":
        kind, start = int.from_bytes(message[at + 2 : at + 3]), at + 3
    elif head == b"\x00\x80":
        kind, start = int.from_bytes(message[at + 2 : at + 10]), at + 10
    elif head == b"\x00\xa3":
        start = _skip(message, at + 1, len(message))
        kind = _SYMBOLS.get(message[at + 3 : start], 0)
    else:
        raise BadMessage("no section")
    if not HEADER <= kind <= FOOTER:
        raise BadMessage("an unknown section")
    return kind, start


def _skip(message: bytes, at: int, limit: int) -> int:
    """Return where a value ends, which is not beyond a limit."""
    for _ in range(MAX_DESCRIBED):
        if at >= limit:
            raise BadMessage("cut short")
        code = message[at]
        if code == 0x00:
            at = _skip_plain(message, at + 1, limit)
        else:
            return _skip_plain(message, at, limit)
    raise BadMessage("too many descriptors")


def _skip_plain(message: bytes, at: int, limit: int) -> int:
    """Return where a value without a descriptor ends."""
    half = message[at] >> 4 if at < limit else 0
    end = at + 1
    if half in _FIXED:
        end += _FIXED[half]
    elif half in _SIZED:
        width = _SIZED[half]
        end += width + int.from_bytes(message[end : min(end + width, limit)])
    else:
        raise BadMessage("an unknown type")
    if end > limit:
        raise BadMessage("cut short")
    return end


def _field(message: bytes, at: int, end: int, index: int) -> tuple[int, int] | None:
    """Return where a field of a list begins and ends; `None` if it is not there."""
    if message[at] == 0x45:
        return None
    width = 1 if message[at] == 0xC0 else 4
    count = int.from_bytes(message[at + 1 + width : min(at + 1 + 2 * width, end)])
    start = at + 1 + 2 * width
    if start > end:
        raise BadMessage("a list without a count")
    if count <= index:
        return None
    for _ in range(index):
        start = _skip(message, start, end)
    return start, _skip(message, start, end)


def _read_to(message: bytes, at: int, end: int) -> str | None:
    # AMQP 1.0, part 3, section 3.2.4: `to` is the third field of the properties.
    found = _field(message, at, end, 2)
    if found is None or message[found[0]] == _NULL:
        return None
    if message[found[0]] not in _STRING:
        raise BadMessage("a name that is no text")
    start = found[0] + (2 if message[found[0]] == 0xA1 else 5)
    try:
        return message[start : found[1]].decode()
    except UnicodeDecodeError:
        raise BadMessage("a name that is no text") from None


def _read_ttl(message: bytes, at: int, end: int) -> float | None:
    # AMQP 1.0, part 3, section 3.2.1: `ttl` is the third field of the header, in milliseconds.
    found = _field(message, at, end, 2)
    if found is None or message[found[0]] == _NULL:
        return None
    if message[found[0]] not in (0x70, 0x52, 0x43):
        raise BadMessage("a time to live that is no number")
    return int.from_bytes(message[found[0] + 1 : found[1]]) / 1000
