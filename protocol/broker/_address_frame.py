"""The ADDRESS frame of Routing and Forwarding 0.1: where a request is to go.

One that only has to be forwarded need not be read: `locate_address` says what kind it is and
where its tags and wrapped metadata are. The other frames are in `_frames.py`, which also says
what all of them have in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ._dialect import Dialect
from ._errors import BadRoutingFlags, BrokerFrameError, FrameTruncated, NullNotLast
from ._fields import (
    HEADER_SIZE,
    Buffer,
    FrameType,
    check_header,
    expect_end,
    header,
    lacks_more_flag,
    write_id,
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

__all__ = ["FLAG_ENCRYPTED", "AddressFrame", "AddressSpans", "RoutingType", "locate_address"]

FLAG_ENCRYPTED: Final = 0x100
"""ADDRESS: the payload is encrypted. 0x200 and the low five bits mean nothing."""


class RoutingType(IntEnum):
    """The kind of routing of an ADDRESS; the value is its flag."""

    UNICAST = 0x080
    MULTICAST = 0x040
    SHARD = 0x020


_ROUTING: Final = {int(kind): kind for kind in RoutingType}
_ROUTING_MASK: Final = sum(_ROUTING)


class AddressSpans(NamedTuple):
    """The kind of an ADDRESS, and the offsets of its parts in the buffer.

    Attributes:
        routing: Unicast, multicast or shard.
        encrypted: Whether the payload is encrypted.
        metadata: Start of the metadata list; it ends where the tags start.
        tags: Start of the tag list.
        wrapped: End of the tag list and start of the wrapped metadata; that goes on to
            the end of the buffer.
    """

    routing: RoutingType
    encrypted: bool
    metadata: int
    tags: int
    wrapped: int


@dataclass(frozen=True, slots=True)
class AddressFrame:
    """The ADDRESS frame of a request (section ADDRESS).

    Attributes:
        origin_route_id: 16 bytes: the route the request comes from.
        routing: Unicast, multicast or shard.
        tags: The tags that the destination must carry; at least one.
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
        to_end = lacks_more_flag(data, dialect)
        tags, _ = parse_tags(data, spans.tags, dialect, to_end=to_end)
        _expect_tags(tags)
        origin = data[HEADER_SIZE : HEADER_SIZE + ID_SIZE]
        # ADDRESS: "The wrapped metadata field has no length and consists of the ADDRESS frame's
        # remain bytes".
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
    """Locate the parts of an ADDRESS, without reading texts.

    The tag list, `buffer[spans.tags:spans.wrapped]`, is checked for its lengths only;
    `query_from_tags` and `read_address` check the rest.

    Raises:
        BrokerFrameError: It is not an ADDRESS, its flags or lengths are broken, it has no
            tags, or bytes follow in the reference dialect.
    """
    flags = check_header(buffer, FrameType.ADDRESS, dialect)
    routing = _ROUTING.get(flags & _ROUTING_MASK)
    if routing is None:
        # ADDRESS: "The flags U, M, S are exclusive. A request that has more than one of these flags
        # set is considered invalid, and the request MUST be rejected."
        raise BadRoutingFlags(flags)
    first = tags = HEADER_SIZE + ID_SIZE
    if len(buffer) < first:
        raise FrameTruncated("origin route id", ID_SIZE, len(buffer) - HEADER_SIZE)
    if dialect is Dialect.SPECIFICATION:
        # Section ADDRESS: "Metadata is distinct from tags in that metadata is not used for
        # routing."
        tags = list_end(buffer, first, dialect, "metadata")
    if tags == len(buffer):
        raise BrokerFrameError("tags", "an ADDRESS needs at least one")
    end = list_end(buffer, tags, dialect, to_end=lacks_more_flag(buffer, dialect))
    if dialect is Dialect.REFERENCE:
        expect_end(buffer, end, "ADDRESS")
    return AddressSpans(routing, bool(flags & FLAG_ENCRYPTED), first, tags, end)


def _expect_tags(tags: TagList) -> None:
    # Section ADDRESS: "All tags included in the ADDRESS are used for routing a request."
    if not tag_set(tags):
        raise BrokerFrameError("tags", "an ADDRESS needs at least one")
