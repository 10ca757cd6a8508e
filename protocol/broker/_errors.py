"""Errors in the bytes of Routing and Forwarding frames.

```
ProtocolError
└── BrokerFrameError              any of these; says which field and why
    ├── FrameTruncated            a field announces more bytes than there are
    ├── TrailingBytes             bytes follow where the frame has ended
    ├── BadText                   a text is not UTF-8
    ├── FieldTooLong              more bytes than its length field can say
    ├── TooManyTags               more entries in a list than the limit
    ├── NullNotLast               a null value where the wire has no way to say it
    ├── UnsupportedVersion        a major version other than ours
    ├── UnexpectedFrameType       unknown, or not the one asked for
    ├── BadRoutingFlags           none, or more than one, of U, M and S
    └── DefaultTagClaimed         a default tag with a value that is not the route's own
```

Texts name the field and sizes and never repeat the input, so they can be sent to the peer.
"""

from __future__ import annotations

from .._errors import ProtocolError
from .._words import counted

__all__ = [
    "BadRoutingFlags",
    "BadText",
    "BrokerFrameError",
    "DefaultTagClaimed",
    "FieldTooLong",
    "FrameTruncated",
    "NullNotLast",
    "TooManyTags",
    "TrailingBytes",
    "UnexpectedFrameType",
    "UnsupportedVersion",
]


class BrokerFrameError(ProtocolError):
    """A Routing and Forwarding frame cannot be read or written.

    Attributes:
        field: The field at fault, in the specification's words.
        reason: What is wrong with it.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class FrameTruncated(BrokerFrameError):
    """A field announces more bytes than there are.

    Attributes:
        size: Number of bytes that the field needs.
        left: Number of bytes that are left.
    """

    def __init__(self, field: str, size: int, left: int) -> None:
        super().__init__(field, f"{counted(size, 'byte')} needed, {left} left")
        self.args = (field, size, left)
        self.size = size
        self.left = left


class TrailingBytes(BrokerFrameError):
    """Bytes follow where the frame has ended.

    Attributes:
        size: Number of bytes.
    """

    def __init__(self, field: str, size: int) -> None:
        super().__init__(field, f"{counted(size, 'byte')} after its end")
        self.args = (field, size)
        self.size = size


class BadText(BrokerFrameError):
    """A text is not UTF-8, or cannot be written as UTF-8."""

    def __init__(self, field: str) -> None:
        super().__init__(field, "not UTF-8")
        self.args = (field,)


class FieldTooLong(BrokerFrameError):
    """A field has more bytes than its length field can say.

    Attributes:
        size: Its size in bytes.
        limit: The limit in bytes.
    """

    def __init__(self, field: str, size: int, limit: int) -> None:
        super().__init__(field, f"{size} bytes are over the limit of {limit} bytes")
        self.args = (field, size, limit)
        self.size = size
        self.limit = limit


class TooManyTags(BrokerFrameError):
    """A list has more entries than the limit.

    Attributes:
        limit: How many it may have.
    """

    def __init__(self, field: str, limit: int) -> None:
        super().__init__(field, f"more than {limit} entries")
        self.args = (field, limit)
        self.limit = limit


class NullNotLast(BrokerFrameError):
    """A null value stands where the wire has no way to say it.

    A null value is a missing length byte, which can only be told from the next entry's
    bytes at the end of the frame.
    """

    def __init__(self, field: str) -> None:
        super().__init__(field, "null, and more bytes follow")
        self.args = (field,)


class UnsupportedVersion(BrokerFrameError):
    """The frame has a major version other than ours.

    Attributes:
        major: Its major version.
        minor: Its minor version.
    """

    def __init__(self, major: int, minor: int) -> None:
        super().__init__("version", f"{major}.{minor} is not supported, 0.1 is")
        self.args = (major, minor)
        self.major = major
        self.minor = minor


class UnexpectedFrameType(BrokerFrameError):
    """The frame's type is unknown, or not the one that belongs here.

    Attributes:
        found: Its type.
        expected: The type asked for; `None` where any known one would do.
    """

    def __init__(self, found: int, expected: int | None = None) -> None:
        wanted = "unknown" if expected is None else f"not 0x{expected:02x}"
        super().__init__("frame type", f"0x{found:02x} is {wanted}")
        self.args = (found, expected)
        self.found = found
        self.expected = expected


class BadRoutingFlags(BrokerFrameError):
    """Not exactly one of the flags U, M and S is set.

    Attributes:
        flags: The ten flag bits.
    """

    def __init__(self, flags: int) -> None:
        super().__init__("flags", "exactly one of U, M and S must be set")
        self.args = (flags,)
        self.flags = flags


class DefaultTagClaimed(BrokerFrameError):
    """A route brings a default tag, ServiceName or RouteId, that is not its own.

    Requests for that service or route would go to the wrong destination.
    """

    def __init__(self, field: str) -> None:
        super().__init__(field, "a default tag is the route's own service name or route id")
        self.args = (field,)
