"""ROUTE_ADD: a broker tells another of a route.

A broker has hundreds of thousands to tell, and what is behind the ids and the time is the same for
many: their name and their tags, but for the RouteId that brokers write behind all others. So that
text is read once, and kept by its bytes, for each of them to refer to.

Brokers write tags of their own, with a key that begins with `onward.`, in front of the others, and
their values may differ from route to route. That of the owner is taken off before the text is
looked up. The tags behind a count, which has the ServiceName in front, are read once, and so is
what is in front of the count.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

from ._dialect import Dialect
from ._errors import BrokerFrameError
from ._fields import (
    HEADER_SIZE,
    MAX_TIMESTAMP,
    Buffer,
    FrameType,
    check_header,
    expect_end,
    header,
    read_id,
    read_name,
    read_timestamp,
    write_id,
    write_name,
    write_timestamp,
)
from ._ids import ID_SIZE, format_id
from ._keys import EXTENSION_SPACES, Key, WellKnownKey
from ._owner import OWNER_KEY, Ownership, parse_owner, read_owner
from ._tags import OWN_ID, OWN_KEY, Tag, TagList, parse_tags, serialize_tags

__all__ = ["COUNT_KEY", "RouteAdd", "RouteText"]

COUNT_KEY: Final = "onward.count"
"""The tag of a group that says the number of its routes, in decimal digits."""

MAX_TEXTS: Final = 4096
"""Most texts of a dialect that are remembered, and lists of tags, and tags, and their bytes;
the least recently used is forgotten."""
MAX_TEXT_SIZE: Final = 512
"""Bytes of a ROUTE_ADD above which its text is not remembered."""

V = TypeVar("V", str, str | None)

_HEADER: Final = header(FrameType.ROUTE_ADD)
_ANY_ID: Final = format_id(bytes(ID_SIZE)).encode()
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE_NAME: Final = int(WellKnownKey.SERVICE_NAME)
_ID_TEXT: Final = len(_ANY_ID)
# What is written of the last tag before its value: the number of the key and the length.
_OWN_RAW: Final = bytes((0x80 | _ROUTE_ID, _ID_TEXT))
# The fields in front of the text: broker id, route id and timestamp.
_FIXED: Final = Struct(f">{ID_SIZE}s{ID_SIZE}sQ")
_read_fixed: Final[Callable[[bytes, int], tuple[bytes, bytes, int]]] = _FIXED.unpack_from
_TEXT_AT: Final = HEADER_SIZE + _FIXED.size
_OURS: Final = "onward."
# As a key is written: its length, and then itself.
_COUNT_RAW: Final = bytes((len(COUNT_KEY),)) + COUNT_KEY.encode()
_OWNER_RAW: Final = bytes((len(OWNER_KEY),)) + OWNER_KEY.encode()
# With that of the value.
_OWNER_SIZE: Final = len(_OWNER_RAW) + 1


class RouteText:
    """The name and the tags of a route; `OWN_ID` stands for the RouteId of the route itself.

    Routes that were read from equal bytes have the same object. Their owners are not in it.

    Attributes:
        service_name: The name.
        tags: The tags.
        count: The count of a group; `None` if it was not read in parts.
        rest: The tags behind it, `OWN_ID` the last: one object for equal ones. Empty likewise.
    """

    __slots__ = ("count", "rest", "service_name", "tags")

    def __init__(
        self, service_name: str, tags: TagList, count: str | None = None, rest: TagList = ()
    ) -> None:
        self.service_name: Final = service_name
        self.tags: Final = tags
        self.count: Final = count
        self.rest: Final = rest


def _read_text(dialect: Dialect, data: bytes) -> RouteText | None:
    """Read a name, and tags of which the last one is a RouteId without its value.

    Returns:
        The text; `None` if that is not what they are.
    """
    try:
        service_name, at = read_name(data, 0)
    except BrokerFrameError:
        return None
    tags = _read_tags(dialect, data[at:])
    return None if tags is None else RouteText(_shared(_SERVICE_NAME, service_name)[1], tags)


def _read_parts(dialect: Dialect, data: bytes) -> RouteText | None:
    """Read a text with the ServiceName in front, and the count of a group behind it.

    Returns:
        The text; `None` if that is not what it is.
    """
    start = _start_of(data[: data[0] + 1])
    if start is None or not data.startswith(start[0]):
        return None
    at = len(start[0])
    if at >= len(data) or data[at] < 0x80:
        return None
    end = at + 1 + (data[at] & 0x7F)
    read = _rest_of if dialect is Dialect.SPECIFICATION else _rests[dialect]
    rest, count = read(data[end:]), _count_of(data[at + 1 : end])
    if rest is None or count is None:
        return None
    service = start[1]
    return RouteText(service[1], (service, count, *rest), count[1], rest)


@lru_cache(MAX_TEXTS)
def _start_of(name: bytes) -> tuple[bytes, tuple[Key, str]] | None:
    """Return what a group's text with a name begins with, up to the key of the count, and a tag.

    Args:
        name: The name with its length, as it is written.

    Returns:
        The bytes, and the tag of the ServiceName; `None` if it cannot be the value of a tag.
    """
    size = name[0]
    if size >= 0x80 or len(name) <= size:
        return None
    try:
        service = _shared(_SERVICE_NAME, name[1:].decode())
    except UnicodeDecodeError:
        return None
    # As the tag is written: the number of the key, the length with its first bit set, the value.
    tag = b"%c%c%b" % (0x80 | _SERVICE_NAME, 0x80 | size, name[1:])
    return name + tag + _COUNT_RAW, service


@lru_cache(MAX_TEXTS)
def _count_of(value: bytes) -> Tag | None:
    """Return the tag of a count; `None` if its value is no text."""
    try:
        return COUNT_KEY, value.decode()
    except UnicodeDecodeError:
        return None


def _read_tags(dialect: Dialect, data: bytes) -> TagList | None:
    """Read tags of which the last one is a RouteId without its value.

    Each other one is read once, and kept by its bytes: most texts are combinations of known tags.

    Returns:
        The tags; `None` if that is not what they are.
    """
    read, extended = _pairs[dialect], dialect is Dialect.SPECIFICATION
    tags: list[Tag] = []
    at, end = 0, len(data) - len(_OWN_RAW)
    while at < end:
        # As `parse_tags` does.
        head = data[at]
        stop = at + 1
        if head < 0x80:
            stop += head
        elif extended and head & 0x7F in EXTENSION_SPACES:
            stop += 2
        # ROUTE_SETUP, Value Length: "If the first bit is set to 1, there are more tags."
        if stop >= end or data[stop] < 0x80:
            return None
        stop += 1 + (data[stop] & 0x7F)
        pair = read(data[at:stop])
        if pair is None:
            return None
        tags.append(pair[0])
        at = stop
    if at != end or not data.endswith(_OWN_RAW):
        return None
    tags.append(OWN_ID)
    return tuple(tags)


def _read_pair(dialect: Dialect, data: bytes) -> TagList | None:
    """Read a tag with others behind it.

    Returns:
        The tag, and another one; `None` if it is not well formed.
    """
    data += _OWN_RAW + _ANY_ID
    try:
        tags, at = parse_tags(data, 0, dialect)
    except BrokerFrameError:
        return None
    return (_shared(*tags[0]), OWN_ID) if at == len(data) and len(tags) == 2 else None


def _read_rest(dialect: Dialect, data: bytes) -> TagList | None:
    """Read tags as `_read_tags` does; `None` too if a broker's own one is among them."""
    tags = _read_tags(dialect, data)
    if tags is None or any(isinstance(key, str) and key.startswith(_OURS) for key, _ in tags):
        return None
    return tags


@lru_cache(MAX_TEXTS)
def _shared(key: Key, value: V) -> tuple[Key, V]:
    """Return the object for a tag, which all texts with an equal one have."""
    return key, value


_pairs: Final[dict[Dialect, Callable[[bytes], TagList | None]]] = {
    dialect: lru_cache(MAX_TEXTS)(partial(_read_pair, dialect)) for dialect in Dialect
}
_rests: Final[dict[Dialect, Callable[[bytes], TagList | None]]] = {
    dialect: lru_cache(MAX_TEXTS)(partial(_read_rest, dialect)) for dialect in Dialect
}
_texts: Final[dict[Dialect, Callable[[bytes], RouteText | None]]] = {
    dialect: lru_cache(MAX_TEXTS)(partial(_read_text, dialect)) for dialect in Dialect
}
_rest_of: Final = _rests[Dialect.SPECIFICATION]
_text_of: Final = _texts[Dialect.SPECIFICATION]


@dataclass(init=False, frozen=True)
class RouteAdd:
    """A broker tells another of a route (section ROUTE_ADD, in places called ROUTE_JOIN).

    Attributes:
        broker_id: 16 bytes: the broker the destination is connected to.
        route_id: 16 bytes.
        timestamp: Milliseconds since the Unix epoch, 1 to `MAX_TIMESTAMP`.
        service_name: At most 255 bytes of UTF-8.
        tags: The route's tags.
        text: The name and the tags, as other routes may have them too.
        ownership: The owner, since when it has had the route id, and the value of the tag that says
            so. That is the first of the tags, and not in the text. `None` without one.
    """

    __slots__ = ("broker_id", "ownership", "route_id", "text", "timestamp")

    broker_id: bytes
    route_id: bytes
    timestamp: int
    service_name: str
    tags: TagList
    if TYPE_CHECKING:
        # No fields: two others are made of them.
        text: RouteText = field(init=False, compare=False)
        ownership: Ownership | None = field(init=False, compare=False)

    def __init__(
        self,
        broker_id: bytes,
        route_id: bytes,
        timestamp: int,
        service_name: str,
        tags: TagList = (),
    ) -> None:
        _set_broker_id(self, broker_id)
        _set_route_id(self, route_id)
        _set_timestamp(self, timestamp)
        owned = bool(tags) and tags[0][0] == OWNER_KEY
        _set_ownership(self, (*read_owner(tags[0][1]), tags[0][1]) if owned else None)
        _set_text(self, RouteText(service_name, tags[1:] if owned else tags))

    def owned(self) -> tuple[str | None, int]:
        """Return the owner, `None` if it is not told, and since when it has had the route id.

        See `split_owner`.
        """
        ownership = self.ownership
        return (None, 0) if ownership is None else ownership[:2]

    @classmethod
    def parse(cls, buffer: Buffer, dialect: Dialect) -> RouteAdd:
        """Read a whole frame.

        Raises:
            BrokerFrameError: It is not a well-formed ROUTE_ADD.
        """
        data = bytes(buffer)
        if not _TEXT_AT + _ID_TEXT < len(data) <= MAX_TEXT_SIZE:
            return cls._read(data, dialect)
        broker_id, route_id, timestamp = _read_fixed(data, HEADER_SIZE)
        last = data[-_ID_TEXT:]
        # Brokers write the route's own RouteId behind all other tags.
        if (
            last.replace(b"-", b"") == hexlify(route_id)
            and last[8:24:5] == b"----"
            and 0 < timestamp <= MAX_TIMESTAMP
            and data.startswith(_HEADER)
        ):
            tags_at = _TEXT_AT + 1 + data[_TEXT_AT]
            ownership: Ownership | None = None
            if data.startswith(_OWNER_RAW, tags_at):
                at = tags_at + _OWNER_SIZE
                end = at + (data[at - 1] & 0x7F)
                # ROUTE_SETUP, Value Length: "If the first bit is set to 1, there are more tags."
                more = data[at - 1] >= 0x80 and end <= len(data) - _ID_TEXT
                ownership = parse_owner(data[at:end]) if more else None
                if ownership is None:
                    return cls._read(data, dialect)
                raw = data[_TEXT_AT:tags_at] + data[end:-_ID_TEXT]
            else:
                raw = data[_TEXT_AT:-_ID_TEXT]
            # In a quarter of the time of `in`, which makes an error of each search for bytes.
            if raw.find(_COUNT_RAW) >= 0:
                # Nearly each group has a text of its own: remembered, it would displace others.
                text = _read_parts(dialect, raw) or _read_text(dialect, raw)
            else:
                text = _text_of(raw) if dialect is Dialect.SPECIFICATION else _texts[dialect](raw)
            if text is not None:
                # As the constructor does; this runs for each route.
                made = cls.__new__(cls)
                _set_broker_id(made, broker_id)
                _set_route_id(made, route_id)
                _set_timestamp(made, timestamp)
                _set_text(made, text)
                _set_ownership(made, ownership)
                return made
        return cls._read(data, dialect)

    @classmethod
    def _read(cls, data: bytes, dialect: Dialect) -> RouteAdd:
        """Read a whole frame, field by field."""
        check_header(data, FrameType.ROUTE_ADD, dialect)
        # ROUTE_JOIN: "This is used to distinguish which broker to route to when creating routing
        # tables."
        broker_id, at = read_id(data, HEADER_SIZE, "broker id")
        route_id, at = read_id(data, at, "route id")
        timestamp, at = read_timestamp(data, at)
        service_name, at = read_name(data, at)
        tags, at = parse_tags(data, at, dialect)
        expect_end(data, at, "ROUTE_ADD")
        return cls(broker_id, route_id, timestamp, service_name, tags)

    def serialize(self, dialect: Dialect) -> bytes:
        """Write the frame.

        Raises:
            BrokerFrameError: A field is out of range.
        """
        return b"".join(
            (
                _HEADER,
                write_id(self.broker_id, "broker id"),
                write_id(self.route_id, "route id"),
                write_timestamp(self.timestamp),
                write_name(self.service_name),
                serialize_tags(self.tags, dialect),
            )
        )


def _service_name(route: RouteAdd) -> str:
    """Its name, at most 255 bytes of UTF-8."""
    return route.text.service_name


def _tags(route: RouteAdd) -> TagList:
    """The route's tags."""
    tags, ownership = route.text.tags, route.ownership
    if tags and tags[-1][0] == OWN_KEY:
        tags = (*tags[:-1], (_ROUTE_ID, format_id(route.route_id)))
    if ownership is None:
        return tags
    value = ownership[2]
    return ((OWNER_KEY, value.decode() if isinstance(value, bytes) else value), *tags)


# The slots of a frozen object: at a third of what `object.__setattr__` takes.
_set_broker_id: Final = RouteAdd.__dict__["broker_id"].__set__
_set_route_id: Final = RouteAdd.__dict__["route_id"].__set__
_set_timestamp: Final = RouteAdd.__dict__["timestamp"].__set__
_set_text: Final = RouteAdd.__dict__["text"].__set__
_set_ownership: Final = RouteAdd.__dict__["ownership"].__set__
# The two fields that are in the text.
setattr(RouteAdd, "service_name", property(_service_name))  # noqa: B010
setattr(RouteAdd, "tags", property(_tags))  # noqa: B010
