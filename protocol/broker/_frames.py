"""The five frames of Routing and Forwarding 0.1.

All begin with the same six bytes: major version, minor version, and sixteen bits of which
six are the frame type and ten are flags. Integers are big-endian. A frame has no length of
its own: what carries it says where it ends, and every byte up to there must be accounted for.

`parse` and `serialize` are inverse. Deliberately unlike the Java reference, `parse` refuses

- bytes after the last list of a frame. There they are a sign of a list whose entries lack
  the more-flag, and taking the first tag for all of them would route to the wrong place;
- text that is not UTF-8, which the reference replaces;
- an ADDRESS with none or several of the flags U, M and S, at once and not when it is routed.

An ADDRESS that only has to be forwarded need not be read: `locate_address` says what kind it
is and where its tags and wrapped metadata are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from ._dialect import Dialect
from ._errors import BadRoutingFlags, BrokerFrameError, FrameTruncated, NullNotLast
from ._fields import (
    HEADER_SIZE,
    Buffer,
    FrameType,
    check_header,
    expect_end,
    frame_type,
    header,
    read_id,
    read_name,
    read_timestamp,
    write_id,
    write_name,
    write_timestamp,
)
from ._ids import ID_SIZE
from ._tags import (
    Metadata,
    TagList,
    list_end,
    parse_metadata,
    parse_tags,
    serialize_metadata,
    serialize_tags,
    tag_set,
)

__all__ = [
    "FLAG_ENCRYPTED",
    "AddressFrame",
    "AddressSpans",
    "BrokerFrame",
    "BrokerInfo",
    "RouteAdd",
    "RouteRemove",
    "RouteSetup",
    "RoutingType",
    "locate_address",
    "parse_frame",
]

FLAG_ENCRYPTED: Final = 0x100
"""ADDRESS: the payload is encrypted. 0x200 and the low five bits mean nothing."""


class RoutingType(IntEnum):
    """How an ADDRESS is routed; the value is its flag."""

    UNICAST = 0x080
    MULTICAST = 0x040
    SHARD = 0x020


_ROUTING: Final = {int(kind): kind for kind in RoutingType}
_ROUTING_MASK: Final = sum(_ROUTING)


@dataclass(frozen=True, slots=True)
class RouteSetup:
    """A destination tells its broker what it serves (section ROUTE_SETUP).

    Attributes:
        route_id: 16 bytes, unique among all routes.
        service_name: 1 to 255 bytes of UTF-8.
        tags: What requests for it may ask for.
    """

    route_id: bytes
    service_name: str
    tags: TagList = ()

    @classmethod
    def parse(cls, buffer: Buffer, dialect: Dialect) -> RouteSetup:
        """Read a whole frame.

        Raises:
            BrokerFrameError: It is not a well-formed ROUTE_SETUP.
        """
        check_header(buffer, FrameType.ROUTE_SETUP, dialect)
        data = bytes(buffer)
        route_id, at = read_id(data, HEADER_SIZE, "route id")
        service_name, at = read_name(data, at)
        if not service_name:
            raise BrokerFrameError("service name", "empty")
        tags, at = parse_tags(data, at, dialect)
        expect_end(data, at, "ROUTE_SETUP")
        return cls(route_id, service_name, tags)

    def serialize(self, dialect: Dialect) -> bytes:
        """Write the frame.

        Raises:
            BrokerFrameError: A field is out of range.
        """
        if not self.service_name:
            raise BrokerFrameError("service name", "empty")
        return b"".join(
            (
                header(FrameType.ROUTE_SETUP),
                write_id(self.route_id, "route id"),
                write_name(self.service_name),
                serialize_tags(self.tags, dialect),
            )
        )


@dataclass(frozen=True, slots=True)
class RouteAdd:
    """A broker tells another of a route (section ROUTE_ADD, in places called ROUTE_JOIN).

    Attributes:
        broker_id: 16 bytes: the broker the destination is connected to.
        route_id: 16 bytes.
        timestamp: Milliseconds since the Unix epoch, 1 to `MAX_TIMESTAMP`.
        service_name: At most 255 bytes of UTF-8.
        tags: The route's tags.
    """

    broker_id: bytes
    route_id: bytes
    timestamp: int
    service_name: str
    tags: TagList = ()

    @classmethod
    def parse(cls, buffer: Buffer, dialect: Dialect) -> RouteAdd:
        """Read a whole frame.

        Raises:
            BrokerFrameError: It is not a well-formed ROUTE_ADD.
        """
        check_header(buffer, FrameType.ROUTE_ADD, dialect)
        data = bytes(buffer)
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
                header(FrameType.ROUTE_ADD),
                write_id(self.broker_id, "broker id"),
                write_id(self.route_id, "route id"),
                write_timestamp(self.timestamp),
                write_name(self.service_name),
                serialize_tags(self.tags, dialect),
            )
        )


@dataclass(frozen=True, slots=True)
class RouteRemove:
    """A broker tells another that a route is gone (section ROUTE_REMOVE).

    Attributes:
        broker_id: 16 bytes.
        route_id: 16 bytes.
        timestamp: Milliseconds since the Unix epoch, 1 to `MAX_TIMESTAMP`.
    """

    broker_id: bytes
    route_id: bytes
    timestamp: int

    @classmethod
    def parse(cls, buffer: Buffer, dialect: Dialect) -> RouteRemove:
        """Read a whole frame.

        Raises:
            BrokerFrameError: It is not a well-formed ROUTE_REMOVE.
        """
        check_header(buffer, FrameType.ROUTE_REMOVE, dialect)
        data = bytes(buffer)
        broker_id, at = read_id(data, HEADER_SIZE, "broker id")
        route_id, at = read_id(data, at, "route id")
        timestamp, at = read_timestamp(data, at)
        expect_end(data, at, "ROUTE_REMOVE")
        return cls(broker_id, route_id, timestamp)

    def serialize(self, dialect: Dialect) -> bytes:
        """Write the frame. It is the same in both dialects.

        Raises:
            BrokerFrameError: A field is out of range.
        """
        del dialect
        return b"".join(
            (
                header(FrameType.ROUTE_REMOVE),
                write_id(self.broker_id, "broker id"),
                write_id(self.route_id, "route id"),
                write_timestamp(self.timestamp),
            )
        )


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker introduces itself to another (section BROKER_INFO).

    Attributes:
        broker_id: 16 bytes.
        timestamp: Milliseconds since the Unix epoch, 1 to `MAX_TIMESTAMP`.
        metadata: About the broker; the reference puts its URIs here.
    """

    broker_id: bytes
    timestamp: int
    metadata: Metadata = ()

    @classmethod
    def parse(cls, buffer: Buffer, dialect: Dialect) -> BrokerInfo:
        """Read a whole frame.

        Raises:
            BrokerFrameError: It is not a well-formed BROKER_INFO.
        """
        check_header(buffer, FrameType.BROKER_INFO, dialect)
        data = bytes(buffer)
        broker_id, at = read_id(data, HEADER_SIZE, "broker id")
        timestamp, at = read_timestamp(data, at)
        metadata, at = parse_metadata(data, at, dialect)
        expect_end(data, at, "BROKER_INFO")
        return cls(broker_id, timestamp, metadata)

    def serialize(self, dialect: Dialect) -> bytes:
        """Write the frame.

        Raises:
            BrokerFrameError: A field is out of range.
        """
        return b"".join(
            (
                header(FrameType.BROKER_INFO),
                write_id(self.broker_id, "broker id"),
                write_timestamp(self.timestamp),
                serialize_metadata(self.metadata, dialect),
            )
        )


class AddressSpans(NamedTuple):
    """What an ADDRESS is and where its parts are, as offsets into the buffer.

    Attributes:
        routing: Unicast, multicast or shard.
        encrypted: Whether the payload is encrypted.
        metadata: Where the metadata list starts; it ends where the tags start.
        tags: Where the tag list starts.
        wrapped: Where the tag list ends and the wrapped metadata starts; that goes on to
            the end of the buffer.
    """

    routing: RoutingType
    encrypted: bool
    metadata: int
    tags: int
    wrapped: int


@dataclass(frozen=True, slots=True)
class AddressFrame:
    """Where a request is to go (section ADDRESS).

    Attributes:
        origin_route_id: 16 bytes: the route the request comes from.
        routing: Unicast, multicast or shard.
        tags: What the destination must carry; at least one.
        encrypted: Whether the payload is encrypted.
        metadata: For brokers, not used to choose a route. Not in the reference dialect.
        wrapped: The request's own metadata. Not in the reference dialect.
    """

    origin_route_id: bytes
    routing: RoutingType
    tags: TagList
    encrypted: bool = False
    metadata: Metadata = ()
    wrapped: bytes = b""

    @classmethod
    def parse(cls, buffer: Buffer, dialect: Dialect) -> AddressFrame:
        """Read a whole frame.

        Raises:
            BrokerFrameError: It is not a well-formed ADDRESS.
        """
        data = bytes(buffer)
        spans = locate_address(data, dialect)
        metadata: Metadata = ()
        if spans.metadata != spans.tags:
            metadata, _ = parse_metadata(data, spans.metadata, dialect)
        tags, _ = parse_tags(data, spans.tags, dialect)
        _expect_tags(tags)
        origin = data[HEADER_SIZE : HEADER_SIZE + ID_SIZE]
        return cls(origin, spans.routing, tags, spans.encrypted, metadata, data[spans.wrapped :])

    def serialize(self, dialect: Dialect) -> bytes:
        """Write the frame.

        Raises:
            BrokerFrameError: A field is out of range, there are no tags, or the dialect
                cannot carry the metadata or the wrapped metadata.
        """
        _expect_tags(self.tags)
        lists = serialize_tags(self.tags, dialect)
        if dialect is Dialect.SPECIFICATION:
            if self.wrapped and self.tags[-1][1] is None:
                raise NullNotLast("tag value")
            lists = serialize_metadata(self.metadata, dialect, last=False) + lists
        elif self.metadata or self.wrapped:
            field = "metadata" if self.metadata else "wrapped metadata"
            raise BrokerFrameError(field, "not in the reference dialect")
        flags = self.routing | (FLAG_ENCRYPTED if self.encrypted else 0)
        origin = write_id(self.origin_route_id, "origin route id")
        return b"".join((header(FrameType.ADDRESS, flags), origin, lists, self.wrapped))


def locate_address(buffer: Buffer, dialect: Dialect) -> AddressSpans:
    """Say what kind of ADDRESS this is and where its parts are, without reading texts.

    The tag list, `buffer[spans.tags:spans.wrapped]`, is checked for its lengths only;
    `query_from_tags` and `read_address` check the rest.

    Raises:
        BrokerFrameError: It is not an ADDRESS, its flags or lengths are broken, it has no
            tags, or bytes follow in the reference dialect.
    """
    flags = check_header(buffer, FrameType.ADDRESS, dialect)
    routing = _ROUTING.get(flags & _ROUTING_MASK)
    if routing is None:
        raise BadRoutingFlags(flags)
    first = tags = HEADER_SIZE + ID_SIZE
    if len(buffer) < first:
        raise FrameTruncated("origin route id", ID_SIZE, len(buffer) - HEADER_SIZE)
    if dialect is Dialect.SPECIFICATION:
        tags = list_end(buffer, first, dialect, "metadata")
    if tags == len(buffer):
        raise BrokerFrameError("tags", "an ADDRESS needs at least one")
    end = list_end(buffer, tags, dialect)
    if dialect is Dialect.REFERENCE:
        expect_end(buffer, end, "ADDRESS")
    return AddressSpans(routing, bool(flags & FLAG_ENCRYPTED), first, tags, end)


BrokerFrame: TypeAlias = RouteSetup | RouteAdd | RouteRemove | BrokerInfo | AddressFrame
"""Any of the five frames."""

_PARSERS: Final[Mapping[int, Callable[[Buffer, Dialect], BrokerFrame]]] = MappingProxyType(
    {
        FrameType.ROUTE_SETUP: RouteSetup.parse,
        FrameType.ROUTE_ADD: RouteAdd.parse,
        FrameType.ROUTE_REMOVE: RouteRemove.parse,
        FrameType.BROKER_INFO: BrokerInfo.parse,
        FrameType.ADDRESS: AddressFrame.parse,
    }
)


def parse_frame(buffer: Buffer, dialect: Dialect) -> BrokerFrame:
    """Read a whole frame of any type.

    Raises:
        BrokerFrameError: Its type is unknown, or it is not well-formed.
    """
    return _PARSERS[frame_type(buffer)](buffer, dialect)


def _expect_tags(tags: TagList) -> None:
    if not tag_set(tags):
        raise BrokerFrameError("tags", "an ADDRESS needs at least one")
