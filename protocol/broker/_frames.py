"""The five frames of Routing and Forwarding 0.1.

All begin with the same six bytes: major version, minor version, and sixteen bits of which
six are the frame type and ten are flags. Integers are big-endian. A frame has no length of
its own: what carries it says where it ends, and every byte up to there must be accounted for.

`parse` and `serialize` are inverse. Deliberately unlike the Java reference, `parse` refuses

- bytes after the last list of a frame. They indicate a list of entries without the more-flag, and
  reading the first tag as all of them would route to the wrong destination. The one client that is
  known to omit the flag is recognised by its version, and its frames are accepted
  (`lacks_more_flag`);
- text that is not UTF-8, which the reference replaces;
- an ADDRESS with none or several of the flags U, M and S, at once and not when it is routed.

The ADDRESS, which each request has, is in `_address_frame.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from ._address_frame import AddressFrame
from ._dialect import Dialect
from ._errors import BrokerFrameError
from ._fields import (
    HEADER_SIZE,
    Buffer,
    FrameType,
    check_header,
    expect_end,
    frame_type,
    header,
    lacks_more_flag,
    read_id,
    read_name,
    read_timestamp,
    write_id,
    write_name,
    write_timestamp,
)
from ._tags import (
    Metadata,
    TagList,
    parse_metadata,
    parse_tags,
    serialize_metadata,
    serialize_tags,
)

__all__ = [
    "BrokerFrame",
    "BrokerInfo",
    "RouteAdd",
    "RouteRemove",
    "RouteSetup",
    "parse_frame",
]


@dataclass(frozen=True, slots=True)
class RouteSetup:
    """A destination tells its broker what it serves (section ROUTE_SETUP).

    Attributes:
        route_id: 16 bytes, unique among all routes.
        service_name: 1 to 255 bytes of UTF-8.
        tags: The tags that requests for it may name.
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
        tags, at = parse_tags(data, at, dialect, to_end=lacks_more_flag(data, dialect))
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
