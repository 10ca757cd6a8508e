"""The header and the fields that the frames are made of: each read and written one way.

A reader takes the frame's bytes and an offset, and returns the value and the next offset.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, TypeAlias

from ._dialect import Dialect
from ._errors import (
    BadText,
    BrokerFrameError,
    FieldTooLong,
    FrameTruncated,
    TrailingBytes,
    UnexpectedFrameType,
    UnsupportedVersion,
)
from ._ids import ID_SIZE

__all__ = [
    "HEADER_SIZE",
    "MAJOR_VERSION",
    "MAX_SERVICE_NAME_SIZE",
    "MAX_TIMESTAMP",
    "MINOR_VERSION",
    "Buffer",
    "FrameType",
    "frame_type",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""The types of bytes that frames are read from."""

MAJOR_VERSION: Final = 0
"""Major version of the specification, as every frame says it."""
MINOR_VERSION: Final = 1
"""Minor version of the specification, as every frame says it."""
HEADER_SIZE: Final = 6
"""Bytes before a frame's first own field."""

MAX_SERVICE_NAME_SIZE: Final = 255
"""Most bytes of a service name: its length field has 8 bits."""

MAX_TIMESTAMP: Final = 2**63 - 1
"""Latest timestamp, in milliseconds since the Unix epoch: the reference's is signed."""

_WITHOUT_MORE_FLAG: Final = (0).to_bytes(2) + (7169).to_bytes(2)
"""Version 0.7169 as a frame says it."""

_HEADER: Final = Struct(">HHH")
_TIMESTAMP: Final = Struct(">Q")


class FrameType(IntEnum):
    """Frame types, by the specification's names (its ROUTE_JOIN is ROUTE_ADD). 0 is reserved."""

    ROUTE_SETUP = 0x01
    ROUTE_ADD = 0x02
    ROUTE_REMOVE = 0x03
    BROKER_INFO = 0x04
    ADDRESS = 0x05


_TYPES: Final = {int(kind): kind for kind in FrameType}


def frame_type(buffer: Buffer) -> FrameType:
    """Return a frame's type; nothing else of it is checked.

    Raises:
        BrokerFrameError: The buffer has not even a header, or the type is unknown.
    """
    number = _unpack_header(buffer)[2] >> 10
    kind = _TYPES.get(number)
    if kind is None:
        raise UnexpectedFrameType(number)
    return kind


def _unpack_header(buffer: Buffer) -> tuple[int, int, int]:
    if len(buffer) < HEADER_SIZE:
        raise FrameTruncated("header", HEADER_SIZE, len(buffer))
    major, minor, rest = _HEADER.unpack_from(buffer)
    return major, minor, rest


def check_header(buffer: Buffer, expected: FrameType, dialect: Dialect) -> int:
    """Check version and type and return the flags."""
    major, minor, rest = _unpack_header(buffer)
    if rest >> 10 != expected:
        raise UnexpectedFrameType(rest >> 10, expected)
    # The JavaScript client writes 0.7169, and the reference reads any version.
    if major != MAJOR_VERSION and dialect is Dialect.SPECIFICATION:
        # Cross version compatibility: "RSocket Routing and Forwarding spec does not assume backward
        # compatibility between major versions, but it is encouraged. Versions with the same major
        # version are compatible."
        raise UnsupportedVersion(major, minor)
    # Framing Header Format: "Flags (10 bits) Reserved for future use".
    return rest & 0x3FF


def lacks_more_flag(buffer: Buffer, dialect: Dialect) -> bool:
    """Whether the frame's lists go on to its end, whatever the more-flag of their entries says.

    The JavaScript client (npm `rsocket-broker-client-js`) never sets that flag, and can be told
    by the version that it alone writes.
    """
    return dialect is Dialect.REFERENCE and bytes(buffer[:4]) == _WITHOUT_MORE_FLAG


def header(kind: FrameType, flags: int = 0) -> bytes:
    """Write a frame's header."""
    return _HEADER.pack(MAJOR_VERSION, MINOR_VERSION, kind << 10 | flags)


def expect_end(buffer: Buffer, at: int, frame: str) -> None:
    """Refuse bytes after a frame's last field."""
    # Frame Length: "Routing and Forwarding frames do not have a length. They defer the frame's
    # length to the encapsulate RSocket Extension frame."
    if at != len(buffer):
        raise TrailingBytes(frame, len(buffer) - at)


def read_id(data: bytes, at: int, field: str) -> tuple[bytes, int]:
    """Read a route id or broker id."""
    end = at + ID_SIZE
    if len(data) < end:
        raise FrameTruncated(field, ID_SIZE, len(data) - at)
    return data[at:end], end


def write_id(value: bytes, field: str) -> bytes:
    """Write a route id or broker id."""
    if len(value) != ID_SIZE:
        raise BrokerFrameError(field, f"{len(value)} bytes, not {ID_SIZE}")
    return value


def read_timestamp(data: bytes, at: int) -> tuple[int, int]:
    """Read a timestamp; the reference, too, refuses one that is not above 0."""
    end = at + _TIMESTAMP.size
    if len(data) < end:
        raise FrameTruncated("timestamp", _TIMESTAMP.size, len(data) - at)
    (timestamp,) = _TIMESTAMP.unpack_from(data, at)
    return _checked_timestamp(timestamp), end


def write_timestamp(timestamp: int) -> bytes:
    """Write a timestamp."""
    return _TIMESTAMP.pack(_checked_timestamp(timestamp))


def _checked_timestamp(timestamp: int) -> int:
    # ROUTE_REMOVE: "GMT UNIX epoch time stamp when the frame was created".
    if not 0 < timestamp <= MAX_TIMESTAMP:
        raise BrokerFrameError("timestamp", "not between 1 and 2^63 - 1")
    return timestamp


def read_name(data: bytes, at: int) -> tuple[str, int]:
    """Read a service name."""
    if at == len(data):
        raise FrameTruncated("service name", 1, 0)
    start = at + 1
    end = start + data[at]
    if end > len(data):
        raise FrameTruncated("service name", end - start, len(data) - start)
    try:
        # Section ROUTE_SETUP: "UTF-8 encoded string representing the routable service name."
        return data[start:end].decode(), end
    except UnicodeDecodeError:
        raise BadText("service name") from None


def write_name(name: str) -> bytes:
    """Write a service name."""
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise BadText("service name") from None
    if len(data) > MAX_SERVICE_NAME_SIZE:
        raise FieldTooLong("service name", len(data), MAX_SERVICE_NAME_SIZE)
    return bytes((len(data),)) + data
