"""The SETUP frame as a value."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from .._errors import PayloadTooBig
from ._constants import (
    LEASE_REQUESTED,
    MAJOR_VERSION,
    MAX_FRAME,
    METADATA,
    MINOR_VERSION,
    RESUME_REQUESTED,
    FrameType,
)
from ._errors import InvalidSetup, LocalProtocolError, MalformedFrame

if TYPE_CHECKING:
    from ._frames import Frame

__all__ = ["COMPOSITE_MIME", "Setup"]

COMPOSITE_MIME: Final = "message/x.rsocket.composite-metadata.v0"
"""The metadata MIME type of connections with composite metadata."""

_FIXED = Struct(">HHII")
_MAX_TIME: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The SETUP frame of a client (section "SETUP Frame").

    Attributes:
        metadata_mime: MIME type of all metadata, at most 255 bytes. It should be ASCII;
            other bytes survive as surrogate escapes.
        data_mime: MIME type of all data, at most 255 bytes.
        keepalive: Milliseconds between the client's KEEPALIVE frames, 1 to 2**31 - 1.
        lifetime: Milliseconds of silence after which the other side counts as dead,
            1 to 2**31 - 1.
        major: Major version of the protocol.
        minor: Minor version of the protocol.
        token: Resume identification token, at most 65535 bytes; `None` if the client does
            not ask for resumption.
        lease: Whether the client honours leases.
        metadata: Metadata of the connection; `None` for none, which is not the same as empty.
        data: Data of the connection.
    """

    metadata_mime: str = COMPOSITE_MIME
    data_mime: str = "application/octet-stream"
    keepalive: int = 20_000
    lifetime: int = 90_000
    major: int = MAJOR_VERSION
    minor: int = MINOR_VERSION
    token: bytes | None = None
    lease: bool = False
    metadata: bytes | None = None
    data: bytes = b""

    @classmethod
    def parse(cls, frame: Frame) -> Setup:
        """Read a SETUP frame.

        Raises:
            InvalidSetup: It is not a SETUP, is cut short, or a time is not positive.
        """
        if frame.type != FrameType.SETUP:
            raise InvalidSetup(f"the first frame is {frame!r}, not SETUP")
        try:
            metadata, data = frame.metadata, frame.data
        except MalformedFrame as error:
            raise InvalidSetup(error.text) from None
        if data is None:
            raise AssertionError("SETUP has data")
        buffer, at = frame.buffer, frame.start + 18
        major, minor, keepalive, lifetime = _FIXED.unpack_from(buffer, frame.start + 6)
        token = None
        # SETUP Frame: "Token used for client resume identification (Not present if R flag is not
        # set)".
        if frame.word & RESUME_REQUESTED:
            size = int.from_bytes(buffer[at : at + 2])
            token = buffer[at + 2 : at + 2 + size]
            at += 2 + size
        mimes: list[str] = []
        for _ in "metadata", "data":
            size = buffer[at]
            mimes.append(buffer[at + 1 : at + 1 + size].decode("ascii", "surrogateescape"))
            at += 1 + size
        # SETUP Frame: "Value MUST be > 0." The top bit is no part of either number.
        if not 0 < keepalive <= _MAX_TIME or not 0 < lifetime <= _MAX_TIME:
            raise InvalidSetup(f"keepalive {keepalive} ms, lifetime {lifetime} ms: not positive")
        return cls(
            metadata_mime=mimes[0],
            data_mime=mimes[1],
            keepalive=keepalive,
            lifetime=lifetime,
            major=major,
            minor=minor,
            token=token,
            lease=bool(frame.word & LEASE_REQUESTED),
            metadata=None if metadata is None else bytes(metadata),
            data=bytes(data),
        )

    def serialize(self) -> bytes:
        """Return the frame with its length prefix.

        Raises:
            LocalProtocolError: A field is out of range.
            PayloadTooBig: The frame would be over 16 MiB - 1.
        """
        mimes = [_mime_bytes(self.metadata_mime), _mime_bytes(self.data_mime)]
        if not 0 < self.keepalive <= _MAX_TIME or not 0 < self.lifetime <= _MAX_TIME:
            raise LocalProtocolError("keepalive and lifetime must be 1 to 2**31 - 1 ms")
        if not 0 <= self.major <= 0xFFFF or not 0 <= self.minor <= 0xFFFF:
            raise LocalProtocolError("a version is two numbers of 0 to 65535")
        word = FrameType.SETUP << 10 | (LEASE_REQUESTED if self.lease else 0)
        parts = [_FIXED.pack(self.major, self.minor, self.keepalive, self.lifetime)]
        if self.token is not None:
            if len(self.token) > 0xFFFF:
                raise LocalProtocolError("a resume token is over 65535 bytes")
            word |= RESUME_REQUESTED
            parts += [len(self.token).to_bytes(2), self.token]
        for mime in mimes:
            parts += [bytes((len(mime),)), mime]
        if self.metadata is not None:
            word |= METADATA
            if len(self.metadata) > MAX_FRAME:
                raise PayloadTooBig(len(self.metadata), MAX_FRAME)
            parts += [len(self.metadata).to_bytes(3), self.metadata]
        body = b"".join((bytes(4), word.to_bytes(2), *parts, self.data))
        if len(body) > MAX_FRAME:
            raise PayloadTooBig(len(body), MAX_FRAME)
        return len(body).to_bytes(3) + body


def _mime_bytes(mime: str) -> bytes:
    try:
        # SETUP Frame: "This SHOULD be a US-ASCII string".
        data = mime.encode("ascii", "surrogateescape")
    except UnicodeEncodeError:
        raise LocalProtocolError(f"a MIME type is ASCII, not {mime!r}") from None
    if len(data) > 255:
        raise LocalProtocolError("a MIME type is over 255 bytes")
    return data
