"""Frames of raw loads, built from the RSocket and broker specifications.

They do not use Onward's codec, as the load must not change with the codec. Each function returns a
frame with its length before it, as over TCP; the stream id is at `STREAM_ID`. The broker frames are
in composite metadata, in the dialect of the Java broker.
"""

from __future__ import annotations

import array
import struct
import sys
import uuid
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "NO_ROUTE",
    "SHARD_KEY",
    "STICKY_ROUTE_KEY",
    "STREAM_ID",
    "Hint",
    "Interaction",
    "Routing",
    "columns",
    "element_frame",
    "frame",
    "frames_of",
    "hinted_frame",
    "lease_frame",
    "numbers",
    "push_frame",
    "request_frame",
    "setup_frame",
    "stamp",
]

COMPOSITE: Final = b"message/x.rsocket.composite-metadata.v0"
BROKER_FRAME: Final = b"message/x.rsocket.broker.frame.v0"
FORWARDING: Final = b"message/x.rsocket.forwarding"
"""The specification's own dialect, in which an ADDRESS has a metadata list before its tags."""
OCTETS: Final = b"application/octet-stream"

ROUTE_SETUP_HEADER: Final = bytes.fromhex("000000010400")
ADDRESS_HEADER: Final = bytes.fromhex("0000000114")
SERVICE_NAME: Final = 0x81
SHARD_KEY: Final = bytes([0x9B])
STICKY_ROUTE_KEY: Final = bytes([0x9D])
AUTHENTICATION: Final = bytes([0xFC])
"""The well-known id 0x7C of `message/x.rsocket.authentication.v0`."""
NO_ROUTE: Final = bytes([0xFC, 0, 1])
"""Onward's key 1 of a broker: the policy for requests to a service without a destination."""
FOLLOWS: Final = 0x80
"""A bit in the length of a value: another pair follows."""

# Frame type (6 bits) and flags (10 bits), RSocket 1.0, "Frame Types".
SETUP_WITH_METADATA: Final = 0x0500
WITH_LEASE: Final = 0x0040
LEASE: Final = 0x0800
KEEPALIVE_RESPOND: Final = 0x0C80
KEEPALIVE: Final = 0x0C00
REQUEST_N: Final = 0x2000
CANCEL: Final = 0x2400
ERROR: Final = 0x2C00
METADATA_PUSH: Final = 0x3100
PAYLOAD: Final = 0x2800
PAYLOAD_COMPLETE: Final = 0x2840
PAYLOAD_NEXT: Final = 0x2820
PAYLOAD_NEXT_COMPLETE: Final = 0x2860
TYPE: Final = 0xFC00
"""The bits of the frame type."""
COMPLETE: Final = 0x0040
NEXT: Final = 0x0020

STREAM_ID: Final = range(3, 7)
"""The positions of the stream id in a frame with its length before it."""

SELDOM: Final = 600_000
"""Milliseconds between two KEEPALIVE, and for which the broker waits: the most that it takes."""

_HEAD: Final = struct.Struct(">BHIH")


class Interaction(IntEnum):
    """Type and flags of a request that carries metadata."""

    RESPONSE = 0x1100
    FIRE_AND_FORGET = 0x1500
    STREAM = 0x1900
    CHANNEL = 0x1D00


class Routing(IntEnum):
    """The flag of an ADDRESS that selects the kind of routing."""

    UNICAST = 0x80
    MULTICAST = 0x40
    SHARD = 0x20


class Hint(NamedTuple):
    """An entry of the metadata list of an ADDRESS, and its kind of routing.

    Attributes:
        key: The encoded key.
        value: The encoded value; with a tag, the name of the tag.
        routing: The kind of routing.
    """

    key: bytes
    value: bytes
    routing: Routing = Routing.UNICAST


def frame(stream_id: int, type_and_flags: int, body: bytes) -> bytes:
    """Return a frame with its length before it."""
    header = struct.pack(">IH", stream_id, type_and_flags)
    return _length(header + body) + header + body


def setup_frame(
    name: str, *, lease: bool = False, credentials: bytes = b"", route_id: bytes = b""
) -> bytes:
    """Return SETUP with a ROUTE_SETUP of a new route in its composite metadata.

    Args:
        name: The service.
        lease: Whether requests may be sent only as `lease_frame` allows.
        credentials: The content of an authentication entry, which is in front of the ROUTE_SETUP.
        route_id: The id of the route, 16 bytes; a new one by default.
    """
    metadata = _broker_entry(
        ROUTE_SETUP_HEADER + (route_id or uuid.uuid4().bytes) + bytes([len(name)]) + name.encode()
    )
    if credentials:
        metadata = AUTHENTICATION + _length(credentials) + credentials + metadata
    version = struct.pack(">HH", 1, 0)
    keepalive = struct.pack(">II", SELDOM, SELDOM)
    mime_types = b"".join(bytes([len(each)]) + each for each in (COMPOSITE, OCTETS))
    kind = SETUP_WITH_METADATA | (WITH_LEASE if lease else 0)
    return frame(0, kind, version + keepalive + mime_types + _length(metadata) + metadata)


def request_frame(
    service: str,
    data: bytes,
    interaction: Interaction = Interaction.RESPONSE,
    routing: Routing = Routing.UNICAST,
    *,
    elements: int = 0,
    claims: bool = True,
) -> bytes:
    """Return a request with an ADDRESS in its composite metadata.

    Args:
        service: The service name, the only tag of the ADDRESS.
        data: The request's data.
        interaction: The interaction of the request.
        routing: The kind of routing.
        elements: The initial credit of a stream or a channel.
        claims: Whether the ADDRESS names an origin, which a broker with rules replaces.
    """
    metadata = _address(service, routing, claims=claims)
    flows = interaction in (Interaction.STREAM, Interaction.CHANNEL)
    credit = struct.pack(">I", elements) if flows else b""
    return frame(0, interaction, credit + _length(metadata) + metadata + data)


def push_frame(service: str, data: bytes, routing: Routing = Routing.UNICAST) -> bytes:
    """Return METADATA_PUSH to a service, with data as the last entry of its metadata."""
    entry = bytes([len(OCTETS) - 1]) + OCTETS + _length(data) + data
    return frame(0, METADATA_PUSH, _address(service, routing) + entry)


def lease_frame(milliseconds: int, requests: int) -> bytes:
    """Return LEASE for a number of requests within a time."""
    return frame(0, LEASE, struct.pack(">II", milliseconds, requests))


def hinted_frame(service: str, data: bytes, hint: Hint, tag: str = "") -> bytes:
    """Return REQUEST_RESPONSE with a hint, in the specification's own dialect.

    Args:
        service: The service name.
        data: The request's data.
        hint: The entry of the metadata list of the ADDRESS.
        tag: The value of the tag that the hint names; none by default.
    """
    name = service.encode()
    metadata_list = hint.key + bytes([len(hint.value)]) + hint.value
    tags = bytes([SERVICE_NAME, (FOLLOWS if tag else 0) | len(name)]) + name
    if tag:
        tags += bytes([len(hint.value)]) + hint.value + bytes([len(tag)]) + tag.encode()
    header = ADDRESS_HEADER + bytes([hint.routing]) + uuid.uuid4().bytes
    address = header + metadata_list + tags
    metadata = bytes([len(FORWARDING) - 1]) + FORWARDING + _length(address) + address
    return frame(0, Interaction.RESPONSE, _length(metadata) + metadata + data)


def element_frame(data: bytes, *, complete: bool) -> bytes:
    """Return PAYLOAD with an element, which may be the last."""
    return frame(0, PAYLOAD_NEXT_COMPLETE if complete else PAYLOAD_NEXT, data)


def frames_of(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Parse whole frames: yield type and flags, stream id, start and end of the body.

    Bytes after the last whole frame are ignored.
    """
    position, size, unpack = 0, len(data), _HEAD.unpack_from
    while size - position >= _HEAD.size:
        high, low, stream_id, type_and_flags = unpack(data, position)
        end = position + 3 + (high << 16) + low
        if end > size:
            return
        yield type_and_flags, stream_id, position + 9, end
        position = end


def stamp(template: bytes, octets: bytes, places: range) -> bytearray:
    """Repeat a frame, with other octets in each at the same positions.

    Args:
        template: The frame.
        octets: As many octets for each repetition as there are positions.
        places: The positions in the frame.
    """
    size, width = len(template), len(places)
    written = bytearray(template * (len(octets) // width))
    for place, offset in enumerate(places):
        written[offset::size] = octets[place::width]
    return written


def columns(frames: bytes, size: int, places: range) -> bytes:
    """Return the octets at these positions of each frame; all frames have the same size."""
    width = len(places)
    octets = bytearray(len(frames) // size * width)
    for place, offset in enumerate(places):
        octets[place::width] = frames[offset::size]
    return bytes(octets)


def numbers(octets: bytes | array.array[int]) -> array.array[int]:
    """Convert numbers of 32 bits from or to the byte order of the wire."""
    turned = array.array("I", octets) if isinstance(octets, bytes) else octets[:]
    if sys.byteorder == "little":
        turned.byteswap()
    return turned


def _address(service: str, routing: Routing, *, claims: bool = True) -> bytes:
    name = service.encode()
    tags = bytes([SERVICE_NAME, len(name)]) + name
    origin = uuid.uuid4().bytes if claims else bytes(16)
    return _broker_entry(ADDRESS_HEADER + bytes([routing]) + origin + tags)


def _broker_entry(broker_frame: bytes) -> bytes:
    return bytes([len(BROKER_FRAME) - 1]) + BROKER_FRAME + _length(broker_frame) + broker_frame


def _length(data: bytes) -> bytes:
    return len(data).to_bytes(3, "big")
