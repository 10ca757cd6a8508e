"""Numbers of the RSocket 1.0 specification.

Flags are plain ints and not an `IntFlag`: they are tested for every frame, and an `IntFlag`
makes a new object for each `&`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "COMPLETE",
    "FOLLOWS",
    "HEADER_SIZE",
    "IGNORE",
    "LEASE_REQUESTED",
    "LENGTH_SIZE",
    "MAJOR_VERSION",
    "MAX_FRAME",
    "MAX_METADATA",
    "MAX_REQUEST_N",
    "MAX_STREAM_ID",
    "METADATA",
    "MINOR_VERSION",
    "NEXT",
    "PIN_HEAD",
    "RESPOND",
    "RESUME_REQUESTED",
    "WELL_KNOWN_MIME_IDS",
    "WELL_KNOWN_MIME_TYPES",
    "ErrorCode",
    "FrameType",
]


class FrameType(IntEnum):
    """Frame types (section "Frame Types"). 0x00 is reserved."""

    SETUP = 0x01
    LEASE = 0x02
    KEEPALIVE = 0x03
    REQUEST_RESPONSE = 0x04
    REQUEST_FNF = 0x05
    REQUEST_STREAM = 0x06
    REQUEST_CHANNEL = 0x07
    REQUEST_N = 0x08
    CANCEL = 0x09
    PAYLOAD = 0x0A
    ERROR = 0x0B
    METADATA_PUSH = 0x0C
    RESUME = 0x0D
    RESUME_OK = 0x0E
    EXT = 0x3F


class ErrorCode(IntEnum):
    """Codes of an ERROR frame (section "Error Codes").

    0 and 0xFFFFFFFF are reserved, and so is what is unused up to 0x300. From 0x301 on a
    code belongs to the application; an ERROR frame may carry any 32-bit number.
    """

    INVALID_SETUP = 0x001
    UNSUPPORTED_SETUP = 0x002
    REJECTED_SETUP = 0x003
    REJECTED_RESUME = 0x004
    CONNECTION_ERROR = 0x101
    CONNECTION_CLOSE = 0x102
    APPLICATION_ERROR = 0x201
    REJECTED = 0x202
    CANCELED = 0x203
    INVALID = 0x204


# Flags: the low ten bits of the 16-bit word that follows the stream id.
IGNORE: Final = 0x200
"""I: a receiver that does not know the frame may ignore it. Any frame."""
METADATA: Final = 0x100
"""M: metadata is present. Any frame that can carry some."""
FOLLOWS: Final = 0x080
"""F: more fragments follow. REQUEST_* and PAYLOAD."""
COMPLETE: Final = 0x040
"""C: the sender's direction is complete. REQUEST_CHANNEL and PAYLOAD."""
NEXT: Final = 0x020
"""N: the frame carries an element. PAYLOAD."""
RESUME_REQUESTED: Final = 0x080
"""R of SETUP: a resume token is present."""
LEASE_REQUESTED: Final = 0x040
"""L of SETUP: the client will honour leases."""
RESPOND: Final = 0x080
"""R of KEEPALIVE: answer with a KEEPALIVE."""

# Framing Format: "When using a transport protocol that does not provide compatible framing, the
# Frame Length MUST be prepended to the RSocket Frame."
LENGTH_SIZE: Final = 3
"""Bytes of the length before a frame on a transport that keeps no message boundaries."""
HEADER_SIZE: Final = 6
"""Bytes of a frame header: stream id, type and flags. The shortest frame has nothing else."""
# Max Frame Size: "RSocket Frames (Header + Payload) MUST be limited to 16,777,215 bytes, regardless
# of whether the utilized transport protocol requires the Frame Length field."
MAX_FRAME: Final = 2**24 - 1
"""Most bytes of a frame, without its length prefix (section "Max Frame Size")."""
MAX_METADATA: Final = 2**24 - 1
"""Most bytes a metadata length field can say."""
# Frame Header Format: "Unsigned 31-bit integer representing the stream Identifier for this frame or
# 0 to indicate the entire connection."
MAX_STREAM_ID: Final = 2**31 - 1
"""Largest stream id: its field has 31 bits."""
MAX_REQUEST_N: Final = 2**31 - 1
"""Most credit one REQUEST_N can grant; credit is kept at this number once it reaches it."""
MAJOR_VERSION: Final = 1
"""Major version of the protocol, as SETUP says it."""
MINOR_VERSION: Final = 0
"""Minor version of the protocol, as SETUP says it."""

PIN_HEAD: Final = LENGTH_SIZE + HEADER_SIZE
"""Bytes in front of the metadata that are given to `Connection.relay_pinned`."""

WELL_KNOWN_MIME_TYPES: Final[dict[int, str]] = {
    0x00: "application/avro",
    0x01: "application/cbor",
    0x02: "application/graphql",
    0x03: "application/gzip",
    0x04: "application/javascript",
    0x05: "application/json",
    0x06: "application/octet-stream",
    0x07: "application/pdf",
    0x08: "application/vnd.apache.thrift.binary",
    0x09: "application/vnd.google.protobuf",
    0x0A: "application/xml",
    0x0B: "application/zip",
    0x0C: "audio/aac",
    0x0D: "audio/mp3",
    0x0E: "audio/mp4",
    0x0F: "audio/mpeg3",
    0x10: "audio/mpeg",
    0x11: "audio/ogg",
    0x12: "audio/opus",
    0x13: "audio/vorbis",
    0x14: "image/bmp",
    0x15: "image/gif",
    0x16: "image/heic-sequence",
    0x17: "image/heic",
    0x18: "image/heif-sequence",
    0x19: "image/heif",
    0x1A: "image/jpeg",
    0x1B: "image/png",
    0x1C: "image/tiff",
    0x1D: "multipart/mixed",
    0x1E: "text/css",
    0x1F: "text/csv",
    0x20: "text/html",
    0x21: "text/plain",
    0x22: "text/xml",
    0x23: "video/H264",
    0x24: "video/H265",
    0x25: "video/VP8",
    0x26: "application/x-hessian",
    0x27: "application/x-java-object",
    0x28: "application/cloudevents+json",
    0x29: "application/x-capnp",
    0x2A: "application/x-flatbuffers",
    0x7A: "message/x.rsocket.mime-type.v0",
    0x7B: "message/x.rsocket.accept-mime-types.v0",
    0x7C: "message/x.rsocket.authentication.v0",
    0x7D: "message/x.rsocket.tracing-zipkin.v0",
    0x7E: "message/x.rsocket.routing.v0",
    0x7F: "message/x.rsocket.composite-metadata.v0",
}
"""Extension "Well-known MIME Types": the name of each id."""

WELL_KNOWN_MIME_IDS: Final[dict[bytes, int]] = {
    name.encode("ascii"): number for number, name in WELL_KNOWN_MIME_TYPES.items()
}
"""The id of each well-known name."""
