"""The frames RESUME and RESUME_OK."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from ._constants import MAJOR_VERSION, MINOR_VERSION, FrameType
from ._errors import LocalProtocolError, RejectedResume

if TYPE_CHECKING:
    from ._frames import Frame

__all__ = ["MAX_POSITION", "Resume", "resume_ok_frame"]

MAX_POSITION: Final = 2**63 - 1
"""Largest position: its field has 63 bits."""
MAX_TOKEN: Final = 2**16 - 1
"""Most bytes of a resume token."""

_HEAD: Final = Struct(">HHH")
_POSITIONS: Final = Struct(">QQ")
_HEADER: Final = Struct(">BHIH")
_NONE: Final = (0, 0, -1)
"""What a frame that is too short says: a size with which no frame has the right length."""
_TOKEN_AT: Final = 6 + _HEAD.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """The RESUME frame of a client (section "RESUME Frame").

    Attributes:
        token: The token in the SETUP of the session, at most 65535 bytes.
        last_received: The position up to which the client has received, 0 to 2**63 - 1.
        first_available: The position from which the client can send again, 0 to 2**63 - 1.
        major: Major version of the protocol.
        minor: Minor version of the protocol.
    """

    token: bytes
    last_received: int
    first_available: int
    major: int = MAJOR_VERSION
    minor: int = MINOR_VERSION

    @classmethod
    def parse(cls, frame: Frame) -> Resume:
        """Read a RESUME frame.

        Raises:
            RejectedResume: It is not a RESUME on stream 0, its length is not that of its fields, or
                the first bit of a position is set.
        """
        if frame.type != FrameType.RESUME or frame.stream_id:
            raise RejectedResume(f"{frame!r} is no RESUME on stream 0")
        buffer, at = frame.buffer, frame.start + _TOKEN_AT
        # RESUME Frame, Resume Identification Token Length: "Unsigned 16-bit integer".
        major, minor, size = (
            _HEAD.unpack_from(buffer, at - _HEAD.size) if at <= frame.end else _NONE
        )
        if at + size + _POSITIONS.size != frame.end:
            raise RejectedResume(f"RESUME of {frame.end - frame.start} bytes")
        last_received, first_available = _POSITIONS.unpack_from(buffer, at + size)
        if max(last_received, first_available) > MAX_POSITION:
            raise RejectedResume("a position has 63 bits")
        return cls(
            token=bytes(buffer[at : at + size]),
            last_received=last_received,
            first_available=first_available,
            major=major,
            minor=minor,
        )

    def serialize(self) -> bytes:
        """Return the frame with its length prefix.

        Raises:
            LocalProtocolError: A field is out of range.
        """
        size = len(self.token)
        if size > MAX_TOKEN:
            raise LocalProtocolError(f"a resume token is over {MAX_TOKEN} bytes")
        if not 0 <= self.major <= 0xFFFF or not 0 <= self.minor <= 0xFFFF:
            raise LocalProtocolError("a version is two numbers of 0 to 65535")
        _check_position(self.last_received)
        _check_position(self.first_available)
        length = _TOKEN_AT + size + _POSITIONS.size
        # RESUME Frame: "RESUME frames MUST always use Stream ID 0 as they pertain to the
        # connection."
        return b"".join(
            (
                _HEADER.pack(length >> 16, length & 0xFFFF, 0, FrameType.RESUME << 10),
                _HEAD.pack(self.major, self.minor, size),
                self.token,
                _POSITIONS.pack(self.last_received, self.first_available),
            )
        )


def resume_ok_frame(position: int) -> bytes:
    """Return a RESUME_OK frame.

    Args:
        position: The position up to which the server has received, 0 to 2**63 - 1.

    Raises:
        LocalProtocolError: The position is out of range.
    """
    _check_position(position)
    # RESUME_OK Frame: "RESUME OK frames MUST always use Stream ID 0 as they pertain to the
    # connection."
    return _HEADER.pack(0, 14, 0, FrameType.RESUME_OK << 10) + position.to_bytes(8)


def _check_position(position: int) -> None:
    if not 0 <= position <= MAX_POSITION:
        raise LocalProtocolError(f"a position is 0 to 2**63 - 1, not {position}")
