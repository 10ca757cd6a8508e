"""ROUTE_ADD: a broker tells another of a route.

A broker has hundreds of thousands to tell, and what is behind the ids and the time is the same for
many: their name and their tags, but for the RouteId that brokers write behind all others. So that
text is read once, and kept by its bytes, for each of them to refer to.

Brokers write a tag of their own, with a key that begins with `onward.`, in front of the others. Its
value may differ from route to route. The tags behind it are read once as well then.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

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
from ._keys import Key, WellKnownKey
from ._owner import OWNER_KEY, split_owner
from ._tags import OWN_ID, OWN_KEY, Tag, TagList, parse_tags, serialize_tags

__all__ = ["COUNT_KEY", "RouteAdd", "RouteText"]

COUNT_KEY: Final = "onward.count"
"""The tag of a group that says the number of its routes, in decimal digits."""

MAX_TEXTS: Final = 4096
"""Most texts of a dialect that are remembered, and lists of tags, and service names; the least
recently used is forgotten."""
MAX_TEXT_SIZE: Final = 512
"""Bytes of a ROUTE_ADD above which its text is not remembered."""

_HEADER: Final = header(FrameType.ROUTE_ADD)
_ANY_ID: Final = format_id(bytes(ID_SIZE)).encode()
_ROUTE_ID: Final = int(WellKnownKey.ROUTE_ID)
_SERVICE_NAME: Final = int(WellKnownKey.SERVICE_NAME)
_ID_TEXT: Final = len(_ANY_ID)
_ROUTE_AT: Final = HEADER_SIZE + ID_SIZE
_TIME_AT: Final = _ROUTE_AT + ID_SIZE
_TEXT_AT: Final = _TIME_AT + 8
_OURS: Final = "onward."
_OURS_RAW: Final = _OURS.encode()
_COUNT_RAW: Final = COUNT_KEY.encode()


class RouteText:
    """The name and the tags of a route; `OWN_ID` stands for the RouteId of the route itself.

    Routes that were read from equal bytes have the same object.

    Attributes:
        service_name: The name.
        tags: The tags.
        owner: The owner that is told in them; see `split_owner`.
        since: Since when it has had the route id, likewise.
        plain: The text without the owner; `None` if it has none.
        rest: The tags behind a broker's own one in front, `OWN_ID` the last: one object for equal
            ones. `None` if it was not read in these parts.
    """

    __slots__ = ("owner", "plain", "rest", "service_name", "since", "tags")

    def __init__(self, service_name: str, tags: TagList, rest: TagList | None = None) -> None:
        self.service_name: Final = service_name
        self.tags: Final = tags
        self.rest: Final = rest
        self.owner: str | None = None
        self.since = 0
        self.plain: RouteText | None = None
        if tags and tags[0][0] == OWNER_KEY:
            self.owner, self.since, others = split_owner(tags)
            self.plain = RouteText(service_name, others)


def _read_text(dialect: Dialect, data: bytes) -> RouteText | None:
    """Read a name, and tags of which the last one is a RouteId without its value.

    Returns:
        The text; `None` if that is not what they are.
    """
    if _OURS_RAW in data:
        found = _read_parts(dialect, data)
        if found is not None:
            return found
    try:
        service_name, at = read_name(data, 0)
    except BrokerFrameError:
        return None
    tags = _read_tags(dialect, data[at:])
    return None if tags is None else RouteText(service_name, tags)


def _read_parts(dialect: Dialect, data: bytes) -> RouteText | None:
    """Read a text with a broker's own tag in front, or behind the ServiceName only.

    Returns:
        The text; `None` if that is not what it is.
    """
    at = data[0] + 1
    name = data[1:at]
    # As the tag is written: the number of the key, the length with its first bit set, the value.
    written = b"%c%c%b" % (0x80 | _SERVICE_NAME, 0x80 | data[0], name)
    named = data[0] < 0x80 and data.startswith(written, at)
    if named:
        at += len(written)
    if not data.startswith(_OURS_RAW, at + 1):
        return None
    key_end = at + 1 + data[at]
    if data[at] >= 0x80 or key_end >= len(data) or data[key_end] < 0x80:
        return None
    end = key_end + 1 + (data[key_end] & 0x7F)
    read = _rest_of if dialect is Dialect.SPECIFICATION else _rests[dialect]
    rest = read(data[end:])
    if rest is None:
        return None
    try:
        service = _named(name)
        own: Tag = data[at + 1 : key_end].decode(), data[key_end + 1 : end].decode()
    except UnicodeDecodeError:
        return None
    tags = (service, own, *rest) if named else (own, *rest)
    return RouteText(service[1], tags, rest)


def _read_tags(dialect: Dialect, data: bytes) -> TagList | None:
    """Read tags of which the last one is a RouteId without its value.

    Returns:
        The tags; `None` if that is not what they are.
    """
    data += _ANY_ID
    try:
        tags, at = parse_tags(data, 0, dialect)
    except BrokerFrameError:
        return None
    if at != len(data) or not tags or tags[-1] != (_ROUTE_ID, _ANY_ID.decode()):
        return None
    return (*tags[:-1], OWN_ID)


def _read_rest(dialect: Dialect, data: bytes) -> TagList | None:
    """Read tags as `_read_tags` does; `None` too if a broker's own one is among them."""
    tags = _read_tags(dialect, data)
    if tags is None or any(isinstance(key, str) and key.startswith(_OURS) for key, _ in tags):
        return None
    return tags


@lru_cache(MAX_TEXTS)
def _named(name: bytes) -> tuple[Key, str]:
    """Return the ServiceName tag with a name."""
    return _SERVICE_NAME, name.decode()


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
    """

    __slots__ = ("broker_id", "route_id", "text", "timestamp")

    broker_id: bytes
    route_id: bytes
    timestamp: int
    service_name: str
    tags: TagList
    if TYPE_CHECKING:
        text: RouteText = field(init=False, compare=False)  # no field: two others are it

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
        _set_text(self, RouteText(service_name, tags))

    @classmethod
    def parse(cls, buffer: Buffer, dialect: Dialect) -> RouteAdd:
        """Read a whole frame.

        Raises:
            BrokerFrameError: It is not a well-formed ROUTE_ADD.
        """
        data = bytes(buffer)
        route_id = data[_ROUTE_AT:_TIME_AT]
        last = data[-_ID_TEXT:]
        # Brokers write the route's own RouteId behind all other tags.
        if (
            last[8:24:5] == b"----"
            and last.replace(b"-", b"") == hexlify(route_id)
            and data.startswith(_HEADER)
            and len(data) <= MAX_TEXT_SIZE
        ):
            raw = data[_TEXT_AT:-_ID_TEXT]
            if _COUNT_RAW in raw:
                # Nearly each group has a text of its own: remembered, it would displace others.
                text = _read_text(dialect, raw)
            else:
                text = _text_of(raw) if dialect is Dialect.SPECIFICATION else _texts[dialect](raw)
            timestamp = int.from_bytes(data[_TIME_AT:_TEXT_AT])
            if text is not None and 0 < timestamp <= MAX_TIMESTAMP:
                # As the constructor does; this runs for each route.
                made = cls.__new__(cls)
                _set_broker_id(made, data[HEADER_SIZE:_ROUTE_AT])
                _set_route_id(made, route_id)
                _set_timestamp(made, timestamp)
                _set_text(made, text)
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
    tags = route.text.tags
    if tags and tags[-1][0] == OWN_KEY:
        return (*tags[:-1], (_ROUTE_ID, format_id(route.route_id)))
    return tags


# The slots of a frozen object: at a third of what `object.__setattr__` takes.
_set_broker_id: Final = RouteAdd.__dict__["broker_id"].__set__
_set_route_id: Final = RouteAdd.__dict__["route_id"].__set__
_set_timestamp: Final = RouteAdd.__dict__["timestamp"].__set__
_set_text: Final = RouteAdd.__dict__["text"].__set__
# The two fields that are in the text.
setattr(RouteAdd, "service_name", property(_service_name))  # noqa: B010
setattr(RouteAdd, "tags", property(_tags))  # noqa: B010
