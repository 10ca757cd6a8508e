"""The key/value lists of the frames: tags and metadata.

An entry is a key byte, for a literal key its text, a value byte and the value. The key
byte's first bit says well-known; the value byte's first bit says that another entry
follows; the other seven bits are a number or a plain length. Where the specification is
silent (decisions 2 and 6 of the architecture page):

- No bytes are an empty list. Where a list is followed by something else, the entry `80 00`
  (No Tag Present, empty, last) is the empty list; so is `80` at the end of a frame.
- A value of length 0 is the empty text. A frame that ends after a key leaves its value
  null. Null therefore is possible only as the last value of a frame. The reference has no
  null and fails to read one; for it null is written as the empty value.
- In the specification's dialect the keys 0x7C and 0x7F are followed by a 16-bit number.
- A literal key of length 0 is refused.

Tag values are texts, metadata values byte strings. Lists keep order and duplicates;
`normal_form` is what the table indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from ..options import check_value
from ._dialect import Dialect
from ._errors import (
    BadText,
    BrokerFrameError,
    DefaultTagClaimed,
    FieldTooLong,
    FrameTruncated,
    NullNotLast,
    TooManyTags,
)
from ._ids import canonical_id, format_id
from ._keys import EXTENSION_SPACES, MAX_KEY_SIZE, Key, WellKnownKey, is_key_number, parse_key

__all__ = [
    "EMPTY_LIST",
    "MAX_TAGS",
    "MAX_VALUE_SIZE",
    "OWN_ID",
    "OWN_KEY",
    "Metadata",
    "Tag",
    "TagList",
    "TagSet",
    "check_default_tags",
    "make_tags",
    "normal_form",
    "null_last",
    "parse_metadata",
    "parse_tags",
    "serialize_metadata",
    "serialize_tags",
    "tag_set",
    "with_default_tags",
]

MAX_TAGS: Final = 256
"""Most entries of one list. A route costs the table memory for each of its tags."""

MAX_VALUE_SIZE: Final = 127
"""Most bytes of a value: its length field has 7 bits."""

EMPTY_LIST: Final = b"\x80\x00"
"""The empty list where another field follows: No Tag Present, empty, last."""

Tag: TypeAlias = tuple[Key, str | None]
"""A key and its value; `None` is the null value."""

OWN_KEY: Final = -2
"""The key of `OWN_ID`. Neither a wire nor a text can name it."""

OWN_ID: Final[Tag] = (OWN_KEY, None)
"""Stands for the RouteId of a route itself among its tags.

It is known by its key: a tuple that has passed compiled code is another object.
"""

TagList: TypeAlias = tuple[Tag, ...]
"""Tags in the order of the wire, duplicates included."""

TagSet: TypeAlias = frozenset[Tag]
"""Tags in normal form, without order: what a query asks for."""

Metadata: TypeAlias = tuple[tuple[Key, bytes | None], ...]
"""Metadata entries in the order of the wire; `None` is the null value."""

_NO_TAG: Final = int(WellKnownKey.NO_TAG)
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE_NAME: Final = int(WellKnownKey.SERVICE_NAME)
_DEFAULTS: Final = (("routeid", _ROUTE_ID), ("servicename", _SERVICE_NAME))
# The long names of the two keys, which a wire may also have as literal keys, in lower case.
_LONG_NAMES: Final = {
    f"io.rsocket.{prefix}.{name}": key
    for prefix in ("routing", "broker")
    for name, key in _DEFAULTS
}
_NULL: Final = -1

_Spans: TypeAlias = list[tuple[int, int, int]]


# --- reading --------------------------------------------------------------------------------


def parse_tags(
    buffer: bytes, offset: int, dialect: Dialect, *, to_end: bool = False
) -> tuple[TagList, int]:
    """Read a list of tags.

    Args:
        buffer: The whole frame, or just the list.
        offset: Where the list starts.
        dialect: Whether 0x7C and 0x7F are followed by a 16-bit number.
        to_end: Whether entries follow up to the end of the buffer, also after one that says that
            it is the last.

    Returns:
        The tags and where the list ends.

    Raises:
        BrokerFrameError: The list is broken.
    """
    spans, end = _scan(buffer, offset, dialect, "tag", to_end=to_end)
    if _is_marker(buffer, spans):
        return (), end
    tags: list[Tag] = []
    for key, start, stop in spans:
        value = None if start == _NULL else _text(buffer[start:stop], "tag value")
        tags.append((_key(buffer, key, dialect, "tag"), value))
    return tuple(tags), end


def parse_metadata(buffer: bytes, offset: int, dialect: Dialect) -> tuple[Metadata, int]:
    """Read a list of metadata: like `parse_tags`, but the values are bytes.

    Raises:
        BrokerFrameError: The list is broken.
    """
    spans, end = _scan(buffer, offset, dialect, "metadata")
    if _is_marker(buffer, spans):
        return (), end
    return tuple(
        (
            _key(buffer, key, dialect, "metadata"),
            None if start == _NULL else buffer[start:stop],
        )
        for key, start, stop in spans
    ), end


def list_end(
    buffer: bytes | bytearray | memoryview,
    offset: int,
    dialect: Dialect,
    what: str = "tag",
    *,
    to_end: bool = False,
) -> int:
    """Return where a list ends, without reading its texts; `to_end` is as in `parse_tags`.

    Raises:
        BrokerFrameError: Its lengths are broken.
    """
    return _scan(buffer, offset, dialect, what, to_end=to_end)[1]


def _scan(
    buffer: bytes | bytearray | memoryview,
    at: int,
    dialect: Dialect,
    what: str,
    *,
    to_end: bool = False,
) -> tuple[_Spans, int]:
    """Check a list's lengths and say where each key, value and value's end is."""
    size = len(buffer)
    extended = dialect is Dialect.SPECIFICATION
    spans: _Spans = []
    more = at < size
    while more:
        if len(spans) == MAX_TAGS:
            raise TooManyTags(f"{what} list", MAX_TAGS)
        if at == size:
            raise FrameTruncated(f"{what} key", 1, 0)
        key = at
        head = buffer[at]
        at += 1
        # ROUTE_SETUP, Key Length: "If the first bit is set to 0, assume this is a length tag key,
        # and the tag key field will follow. If the first bit is set to 1, this is a well-known tag
        # type".
        if head < 0x80:
            at += head
            if not head:
                raise BrokerFrameError(f"{what} key", "empty")
        elif extended and head & 0x7F in EXTENSION_SPACES:
            at += 2
        if at >= size:
            if at > size:
                raise FrameTruncated(f"{what} key", at - key - 1, size - key - 1)
            # ROUTE_SETUP, Value Length: "If there is no value length present, assume the value is
            # null."
            spans.append((key, _NULL, _NULL))
            break
        head = buffer[at]
        value = at + 1
        at = value + (head & 0x7F)
        if at > size:
            raise FrameTruncated(f"{what} value", at - value, size - value)
        spans.append((key, value, at))
        # ROUTE_SETUP, Value Length: "If the first bit is set to 1, there are more tags. If it is
        # set to 0, there are no more tags."
        more = head >= 0x80 or (to_end and at < size)
    return spans, at


def _is_marker(buffer: bytes, spans: _Spans) -> bool:
    """Whether a list is just No Tag Present, with an empty value or without one."""
    if len(spans) != 1:
        return False
    key, start, end = spans[0]
    return start == end and buffer[key] == EMPTY_LIST[0]


def _key(buffer: bytes, at: int, dialect: Dialect, what: str) -> Key:
    head = buffer[at]
    if head < 0x80:
        return _text(buffer[at + 1 : at + 1 + head], f"{what} key")
    number = head & 0x7F
    if dialect is Dialect.SPECIFICATION and number in EXTENSION_SPACES:
        # Well-known Types: "When this tag is sent, the key length is 16-bits allowing 65, extension
        # tags."
        return number << 16 | buffer[at + 1] << 8 | buffer[at + 2]
    return number


def _text(data: bytes, field: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadText(field) from None


# --- writing --------------------------------------------------------------------------------


def serialize_tags(tags: TagList, dialect: Dialect, *, last: bool = True) -> bytes:
    """Write a list of tags.

    Args:
        tags: The tags, in order.
        dialect: How to write extension keys and null.
        last: Whether the frame ends with the list. If not, an empty list is written as
            `EMPTY_LIST`, and null cannot be written.

    Raises:
        BrokerFrameError: A key or value is over 127 bytes, no number of a key, not to be
            written as UTF-8, or null where the wire cannot say it; or there are more
            than `MAX_TAGS`.
    """
    encoded = tuple(
        (key, None if value is None else _bytes(value, "tag value")) for key, value in tags
    )
    return _serialize(encoded, dialect, last, "tag")


def serialize_metadata(metadata: Metadata, dialect: Dialect, *, last: bool = True) -> bytes:
    """Write a list of metadata: like `serialize_tags`, but the values are bytes.

    Raises:
        BrokerFrameError: As in `serialize_tags`.
    """
    return _serialize(metadata, dialect, last, "metadata")


def _serialize(entries: Metadata, dialect: Dialect, last: bool, what: str) -> bytes:
    if len(entries) > MAX_TAGS:
        raise TooManyTags(f"{what} list", MAX_TAGS)
    if not entries:
        return b"" if last else EMPTY_LIST
    out = bytearray()
    final = len(entries) - 1
    for position, (key, value) in enumerate(entries):
        out += _serialize_key(key, dialect, what)
        if value is None:
            if dialect is Dialect.SPECIFICATION:
                if not last or position != final:
                    raise NullNotLast(f"{what} value")
                break
            value = b""
        # ROUTE_SETUP, Value Length: "(7 bits = max 128)". Seven bits hold at most 127.
        if len(value) > MAX_VALUE_SIZE:
            raise FieldTooLong(f"{what} value", len(value), MAX_VALUE_SIZE)
        out.append(len(value) | (0x80 if position != final else 0))
        out += value
    return bytes(out)


def _serialize_key(key: Key, dialect: Dialect, what: str) -> bytes:
    field = f"{what} key"
    if isinstance(key, str):
        data = _bytes(key, field)
        if not data:
            raise BrokerFrameError(field, "empty")
        if len(data) > MAX_KEY_SIZE:
            raise FieldTooLong(field, len(data), MAX_KEY_SIZE)
        return bytes((len(data),)) + data
    if not is_key_number(key):
        raise BrokerFrameError(field, "not a number of a key")
    extended = dialect is Dialect.SPECIFICATION
    if key > 0x7F:
        if not extended:
            raise BrokerFrameError(field, "the reference dialect has no 16-bit keys")
        return bytes((0x80 | key >> 16, key >> 8 & 0xFF, key & 0xFF))
    if extended and key in EXTENSION_SPACES:
        raise BrokerFrameError(field, "an extension key without its 16-bit number")
    return bytes((0x80 | key,))


def _bytes(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadText(field) from None


# --- meaning --------------------------------------------------------------------------------


def normal_form(tags: Iterable[Tag]) -> TagList:
    """Return the tags that count for routing: each once, in order of appearance.

    No Tag Present entries are left out, and a RouteId is written canonically.
    """
    kept: dict[Tag, None] = {}
    for tag in tags:
        key, value = tag
        if key == _ROUTE_ID and value is not None:
            tag = (_ROUTE_ID, canonical_id(value))
        # Well-known Types, No Tag Present: "Used to indicate there is no tag".
        if key != _NO_TAG:
            kept[tag] = None
    return tuple(kept)


def tag_set(tags: Iterable[Tag]) -> TagSet:
    """Return the normal form of tags without their order."""
    return frozenset(normal_form(tags))


def with_default_tags(tags: TagList, service_name: str, route_id: bytes) -> TagList:
    """Return a route's tags with ServiceName and RouteId added, each only if absent.

    Section Default Tags: "if they are not already present".
    """
    present = {key for key, _ in tags}
    # Default Tags: "Each routable destination MUST have two tags automatically added its ROUTE_ADD
    # frame by the Broker if they are not already present."
    if _SERVICE_NAME not in present:
        tags = (*tags, (_SERVICE_NAME, service_name))
    if _ROUTE_ID not in present:
        tags = (*tags, (_ROUTE_ID, format_id(route_id)))
    return tags


def check_default_tags(tags: TagList, service_name: str, route_id: bytes) -> None:
    """Refuse tags by which a route would be found as another service or another route.

    Section Default Tags lets a route bring ServiceName and RouteId itself. Both name it, so their
    values can only be its own. A text key that is the long name of one of them counts as that
    key: no other route would be found by it. Null and the empty text name nothing.

    Raises:
        DefaultTagClaimed: A ServiceName or RouteId has another value.
    """
    own = {_SERVICE_NAME: service_name, _ROUTE_ID: format_id(route_id)}
    for key, value in tags:
        number = key if isinstance(key, int) else _LONG_NAMES.get(key.casefold())
        if number not in own or not value:
            continue
        named = canonical_id(value) if number == _ROUTE_ID else value
        if named != own[number]:
            raise DefaultTagClaimed("RouteId tag" if number == _ROUTE_ID else "ServiceName tag")


def make_tags(given: Mapping[str, str | None]) -> TagList:
    """Make checked tags of what a program gives: `{"region": "eu", "colour": "blue"}`.

    Keys are read as people write them: see `parse_key`.

    Raises:
        ValueError: It is no mapping from texts to texts or `None`.
        AddressError: A key cannot be read.
        BrokerFrameError: A value is over 127 bytes or not to be written as UTF-8, or there
            are more than `MAX_TAGS`.
    """
    check_value("tags", given, Mapping[str, str | None])
    tags = tuple((parse_key(key), value) for key, value in given.items())
    # Null may stand anywhere in a table; only a wire has no way to say it.
    serialize_tags(tuple((key, value or "") for key, value in tags), Dialect.SPECIFICATION)
    return null_last(tags)


def null_last(tags: TagList) -> TagList:
    """Return tags in their order, those without a value behind all others.

    On the wire, a value is missing where the frame ends after a key: one tag at most can have
    none, and it has to be the last. The order of tags has no meaning.
    """
    return tuple(sorted(tags, key=lambda tag: tag[1] is None))
