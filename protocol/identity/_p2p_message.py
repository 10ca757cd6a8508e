"""The message between two nodes, which carries all others over their link.

```
p2p     = [src, dst, content, pad]                      one or two nulls may follow, see below
content = [0, engine envelope] / [1, relay envelope, handle or null] / [2, handle, reply]
        / [3, control record]
```

It has no signature: the session of the link authenticates it.

*Reading.* Nearly all messages have an envelope of 256 to 65,535 bytes and no padding. These are
read by the places at which their items are then, and all others item by item.

*Padding.* A message between nodes is filled to a size that says nothing about it. No byte string
takes exactly 25 bytes, 258, 65,539 or 65,540, since its head grows at 24, 256 and 65,536; so one or
two nulls follow where a size cannot be reached without them, and only there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from cbor2 import dumps

from ._checks import check_key, check_number, check_size
from ._errors import BadRecord, RecordTooBig
from ._identities import Identity
from ._record_reader import MAX_RECORD, RecordReader, binary_head
from ._relay_message import MAX_SEALED

__all__ = [
    "HANDLE_SIZE",
    "MAX_CONTENT",
    "ControlContent",
    "EngineContent",
    "P2PContent",
    "P2PMessage",
    "RelayContent",
    "ReplyContent",
    "pad_to",
    "parse_p2p_message",
    "serialize_p2p_message",
]

HANDLE_SIZE: Final = 16
"""Bytes of a handle, by which a relay knows the way of an answer."""

MAX_CONTENT: Final = MAX_RECORD - 256
"""Most bytes of an envelope or a control record in a message between nodes."""


@dataclass(frozen=True, slots=True)
class EngineContent:
    """The message of an engine, as the content of a message between nodes.

    Attributes:
        envelope: The signed message, 1 to `MAX_CONTENT` bytes.

    Raises:
        BadRecord: It has another size.
    """

    envelope: bytes

    def __post_init__(self) -> None:
        check_size("the envelope", self.envelope, MAX_CONTENT, 1)


@dataclass(frozen=True, slots=True)
class RelayContent:
    """A message for a relay, as the content of a message between nodes.

    Attributes:
        envelope: The signed message, 1 to `MAX_CONTENT` bytes.
        handle: Where an answer goes, `HANDLE_SIZE` bytes; `None` if none is wanted.

    Raises:
        BadRecord: One has another size.
    """

    envelope: bytes
    handle: bytes | None = None

    def __post_init__(self) -> None:
        check_size("the envelope", self.envelope, MAX_CONTENT, 1)
        if self.handle is not None:
            check_size("the handle", self.handle, HANDLE_SIZE, HANDLE_SIZE)


@dataclass(frozen=True, slots=True)
class ReplyContent:
    """An answer on its way back, as the content of a message between nodes.

    Attributes:
        handle: What the receiver knows its way by, `HANDLE_SIZE` bytes.
        reply: The sealed answer, 1 to `MAX_SEALED` bytes.

    Raises:
        BadRecord: One has another size.
    """

    handle: bytes
    reply: bytes

    def __post_init__(self) -> None:
        check_size("the handle", self.handle, HANDLE_SIZE, HANDLE_SIZE)
        check_size("the reply", self.reply, MAX_SEALED, 1)


@dataclass(frozen=True, slots=True)
class ControlContent:
    """A record of what nodes say to each other, as the content of a message between them.

    Attributes:
        record: An advert, a subscription or the like, 1 to `MAX_CONTENT` bytes.

    Raises:
        BadRecord: It has another size.
    """

    record: bytes

    def __post_init__(self) -> None:
        check_size("the control record", self.record, MAX_CONTENT, 1)

    @property
    def number(self) -> int:
        """The number that the record begins with, below 256; -1 if it begins with none.

        It says what reads the record, which may turn out to be none of that kind.
        """
        head = self.record[:3]
        if len(head) > 1 and head[0] >> 5 == _ARRAY:
            if head[1] < _NEXT_BYTE:
                return head[1]
            if head[1] == _NEXT_BYTE and len(head) > _NUMBER_AT:
                return head[_NUMBER_AT]
        return -1


_ARRAY: Final = 4
_NEXT_BYTE: Final = 24
_NUMBER_AT: Final = 2
"""RFC 8949, section 3: the major type of arrays, and the first byte of a number that needs one
more, which is at this place in a short array."""


P2PContent: TypeAlias = EngineContent | RelayContent | ReplyContent | ControlContent
"""The content of a message between nodes."""


@dataclass(frozen=True, slots=True)
class P2PMessage:
    """A message from a node to another over their link, which authenticates it.

    Attributes:
        src: The node that sends it.
        dst: The node that it is for.
        content: What it says.
        pad: Bytes that it is longer by than it need be; see `pad_to`.

    Raises:
        BadRecord: A node has no key, or `pad` is over `MAX_RECORD`.
    """

    src: Identity
    dst: Identity
    content: P2PContent
    pad: int = 0

    def __post_init__(self) -> None:
        check_key("the source", self.src)
        check_key("the destination", self.dst)
        check_number("the padding", self.pad, MAX_RECORD)


def parse_p2p_message(data: bytes) -> P2PMessage:
    """Read a message between nodes.

    Raises:
        BadRecord: It is none.
    """
    return _parse_usual(data) or _parse_any(data)


def _parse_any(data: bytes) -> P2PMessage:
    reader = RecordReader(data)
    nulls = reader.enter("the message", 4, 6) - 4
    src = reader.keyed("the source")
    dst = reader.keyed("the destination")
    content = _read_content(reader)
    zeros = reader.binary("the padding")
    if zeros.count(0) != len(zeros):
        raise BadRecord("the padding is not of zeros")
    for _ in range(nulls):
        if not reader.is_null("what is behind the padding"):
            raise BadRecord("what is behind the padding is not null")
    reader.leave()
    reader.end()
    pad = _head_size(len(zeros)) + len(zeros) + nulls - 1
    if _fill(pad) != (len(zeros), nulls):
        raise BadRecord("the padding has more nulls than it needs")
    return P2PMessage(src, dst, content, pad)


def serialize_p2p_message(message: P2PMessage) -> bytes:
    """Return the bytes of a message between nodes."""
    content = message.content
    if isinstance(content, EngineContent) and not message.pad:
        # The usual shape is joined: an array of four, of two identities, an array of two and bytes.
        envelope, src, dst = content.envelope, message.src, message.dst
        head = b"\x82\x00" + binary_head(len(envelope))
        return b"".join((b"\x84\x58\x21", src, b"\x58\x21", dst, head, envelope, b"\x40"))
    return _write_any(message)


def _write_any(message: P2PMessage) -> bytes:
    zeros, nulls = _fill(message.pad)
    items = (message.src, message.dst, _content_items(message.content), bytes(zeros))
    record: bytes = dumps(items + (None,) * nulls)
    return record


def pad_to(message: P2PMessage, size: int) -> P2PMessage:
    """Return a message between nodes with padding, so that its bytes are exactly `size`.

    Raises:
        RecordTooBig: Its bytes are more without any padding, or `size` is over `MAX_RECORD`.
    """
    if size > MAX_RECORD:
        raise RecordTooBig(size, MAX_RECORD)
    bare = len(serialize_p2p_message(replace(message, pad=0)))
    if bare > size:
        raise RecordTooBig(bare, size)
    return replace(message, pad=size - bare)


def _parse_usual(data: bytes) -> P2PMessage | None:
    """Read a message of the usual shape; return `None` if it may be another one, or none."""
    if (
        data.startswith(b"\x84\x58\x21\x01")  # an array of four, and an identity with a key
        and data.startswith(b"\x58\x21\x01", 36)
        and data.startswith(b"\x82\x00\x59", 71)  # an envelope with a size of two bytes
        and data.endswith(b"\x40")  # no padding
        and _LEAST_OF_TWO_BYTES <= int.from_bytes(data[74:76]) == len(data) - 77
    ):
        content = EngineContent(data[76:-1])
        return P2PMessage(Identity(data[3:36]), Identity(data[38:71]), content)
    return None


def _read_content(reader: RecordReader) -> P2PContent:
    count = reader.enter("the content", 2, 3)
    kind = reader.number("the kind of the content", 3)
    right = 3 if kind in {1, 2} else 2
    if count != right:
        raise BadRecord(f"content of kind {kind} has {right} items, not {count}")
    content: P2PContent
    if kind == 0:
        content = EngineContent(reader.binary("the envelope", MAX_CONTENT, 1))
    elif kind == 1:
        envelope = reader.binary("the envelope", MAX_CONTENT, 1)
        content = RelayContent(envelope, None if reader.is_null("the handle") else _handle(reader))
    elif kind == 2:
        handle = _handle(reader)
        content = ReplyContent(handle, reader.binary("the reply", MAX_SEALED, 1))
    else:
        content = ControlContent(reader.binary("the control record", MAX_CONTENT, 1))
    reader.leave()
    return content


def _handle(reader: RecordReader) -> bytes:
    return reader.binary("the handle", HANDLE_SIZE, HANDLE_SIZE)


def _content_items(content: P2PContent) -> tuple[object, ...]:
    if isinstance(content, EngineContent):
        return 0, content.envelope
    if isinstance(content, RelayContent):
        return 1, content.envelope, content.handle
    if isinstance(content, ReplyContent):
        return 2, content.handle, content.reply
    return 3, content.record


_LEAST_OF_TWO_BYTES: Final = 256


def _head_size(size: int) -> int:
    """Return the bytes of the head of a byte string."""
    if size < 24:
        return 1
    if size < _LEAST_OF_TWO_BYTES:
        return 2
    return 3 if size < 0x10000 else 5


def _fill(pad: int) -> tuple[int, int]:
    """Return the zeros and nulls by which a message is `pad` bytes longer than without."""
    if not pad:
        return 0, 0
    nulls = 0
    while True:
        # The head has one byte of these already, when there are no zeros.
        whole = pad + 1 - nulls
        for head in (1, 2, 3, 5):
            if whole >= head and _head_size(whole - head) == head:
                return whole - head, nulls
        nulls += 1
