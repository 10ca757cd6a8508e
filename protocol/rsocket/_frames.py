"""Frames as views over the bytes they came in.

A frame never copies: it holds the whole chunk that was read and two offsets. Most frames a
broker sees are only split, looked up and passed on, so everything else is worked out when
asked for. `Frame.detached` copies a frame that is to be kept for long out of its chunk.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from .._closed import close_class
from ._constants import (
    HEADER_SIZE,
    LENGTH_SIZE,
    MAX_FRAME,
    METADATA,
    RESUME_REQUESTED,
    FrameType,
)
from ._errors import MalformedFrame
from ._octets import unpack_header, unpack_u24, unpack_u32
from ._stream import CONNECTION_STREAM, Stream

__all__ = ["UNEXPECTED_PROXY_HEADER", "Frame", "check_frame", "parse_frame", "split_frames"]

_unpack_u64: Final = Struct(">Q").unpack_from
_unpack_u16: Final = Struct(">H").unpack_from

_SHORTEST: Final[dict[int, int]] = {
    FrameType.LEASE: 14,
    FrameType.KEEPALIVE: 14,
    FrameType.REQUEST_STREAM: 10,
    FrameType.REQUEST_CHANNEL: 10,
    FrameType.REQUEST_N: 10,
    FrameType.ERROR: 10,
    FrameType.EXT: 10,
    FrameType.RESUME_OK: 14,
}
"""Bytes of the fixed fields, where there are more than the header."""

_WITH_BOTH: Final = frozenset(
    {
        FrameType.REQUEST_RESPONSE,
        FrameType.REQUEST_FNF,
        FrameType.REQUEST_STREAM,
        FrameType.REQUEST_CHANNEL,
        FrameType.PAYLOAD,
        FrameType.SETUP,
    }
)
"""Frames with metadata and data: a length goes before the metadata."""
_METADATA_ONLY: Final = frozenset({FrameType.METADATA_PUSH, FrameType.LEASE})
_DATA_ONLY: Final = frozenset({FrameType.ERROR, FrameType.KEEPALIVE})


LENGTH_AT: Final = tuple(
    _SHORTEST.get(number, HEADER_SIZE) if number in _WITH_BOTH - {FrameType.SETUP} else 0
    for number in range(64)
)
"""By type: where in a frame of a stream its metadata length is, if it has one; else 0."""


class Frame:
    """One frame: a view over an immutable buffer.

    Reading a field that the frame's type does not have raises `MalformedFrame`, as does
    reading one that the bytes are too short for; an accepted frame of a connection was
    checked and has all its fields.

    Attributes:
        buffer: The bytes the frame lies in; the three bytes before `start` are its length.
        start: Offset of the stream id.
        end: Offset after the last byte.
        stream_id: The stream id; 0 is the connection.
        type: The frame's type (`FrameType`); may be a number the specification does not know.
        word: Type and flags as on the wire: 16 bits.
        stream: The stream it belongs to, set by the connection that accepted it; otherwise
            `CONNECTION_STREAM`.
    """

    __slots__ = ("buffer", "end", "start", "stream", "stream_id", "type", "word")

    # There is no `__init__`: a connection makes two frames for each request, and to call one
    # would cost more than all else that is done with a frame. It sets the attributes itself.
    buffer: bytes
    start: int
    end: int
    stream_id: int
    type: int
    word: int
    stream: Stream

    @classmethod
    def of(
        cls,
        buffer: bytes,
        start: int,
        end: int,
        stream_id: int,
        word: int,
        stream: Stream = CONNECTION_STREAM,
    ) -> Frame:
        """Return a frame; its type is that of `word`, the rest is as in `Frame`."""
        frame = cls()
        frame.buffer = buffer
        frame.start = start
        frame.end = end
        frame.stream_id = stream_id
        frame.word = word
        frame.type = word >> 10
        frame.stream = stream
        return frame

    @property
    def flags(self) -> int:
        """The ten flag bits."""
        return self.word & 0x3FF

    @property
    def has_metadata(self) -> bool:
        """Whether the M flag is set; metadata may still be empty."""
        return bool(self.word & METADATA)

    @property
    def raw(self) -> memoryview:
        """The frame's bytes without the length prefix."""
        return memoryview(self.buffer)[self.start : self.end]

    @property
    def body_offset(self) -> int:
        """Offset in `buffer` after the fixed fields, where the metadata or data start.

        Raises:
            MalformedFrame: The frame is too short for its fixed fields.
        """
        at = self.start + _SHORTEST.get(self.type, HEADER_SIZE)
        if self.type == FrameType.SETUP:
            at = self._setup_body(self.start + 18)
        if at > self.end:
            raise MalformedFrame(f"{_name(self.type)} of {self.end - self.start} bytes")
        return at

    def _setup_body(self, at: int) -> int:
        """Step over the token, if there is one, and the two MIME types of a SETUP."""
        buffer, end = self.buffer, self.end
        if self.word & RESUME_REQUESTED:
            # SETUP Frame: "Unsigned 16-bit integer of Resume Identification Token Length in bytes.
            # (Not present if R flag is not set)"
            at += 2 + (_unpack_u16(buffer, at)[0] if at + 2 <= end else end)
        for _ in "metadata", "data":
            at += 1 + (buffer[at] if at < end else end)
        return at

    @property
    def metadata_range(self) -> tuple[int, int] | None:
        """Offsets in `buffer` of the metadata, or `None` where there is none.

        Raises:
            MalformedFrame: The metadata length runs past the frame.
        """
        word = self.word
        if not word & METADATA:
            return None
        offset = LENGTH_AT[word >> 10]
        start = self.start + offset + 3
        if offset and start <= self.end:
            high, low = unpack_u24(self.buffer, start - 3)
            end: int = start + (high << 16 | low)
            if end <= self.end:
                return start, end
        return self._rare_metadata_range()

    def _rare_metadata_range(self) -> tuple[int, int] | None:
        """Locate the metadata of SETUP, of frames without data, and of malformed frames."""
        # METADATA_PUSH Frame: "This frame only supports Metadata, so the Metadata Length header
        # MUST NOT be included."
        if self.type in _METADATA_ONLY:
            return self.body_offset, self.end
        if self.type not in _WITH_BOTH:
            return None
        start = self.body_offset + 3
        if start <= self.end:
            high, low = unpack_u24(self.buffer, start - 3)
            end: int = start + (high << 16 | low)
            if end <= self.end:
                return start, end
        # Metadata Optional Header: "If Metadata Length is not equal to this value, the frame is
        # invalid".
        raise MalformedFrame(f"metadata length runs past the frame on stream {self.stream_id}")

    @property
    def metadata(self) -> memoryview | None:
        """The metadata; `None` where absent, which is not the same as empty."""
        found = self.metadata_range
        return None if found is None else memoryview(self.buffer)[found[0] : found[1]]

    @property
    def data_offset(self) -> int:
        """Offset in `buffer` of the data; `end` where there is none."""
        if self.type in _WITH_BOTH:
            found = self.metadata_range
            return self.body_offset if found is None else found[1]
        return self.body_offset if self.type in _DATA_ONLY else self.end

    @property
    def data(self) -> memoryview | None:
        """The data, possibly empty; `None` for types that carry none."""
        if self.type not in _WITH_BOTH and self.type not in _DATA_ONLY:
            return None
        return memoryview(self.buffer)[self.data_offset : self.end]

    def _u32(self, offset: int, *types: int) -> int:
        if self.type not in types:
            raise MalformedFrame(f"{_name(self.type)} has no such field")
        if self.start + offset + 4 > self.end:
            raise MalformedFrame(f"{_name(self.type)} of {self.end - self.start} bytes")
        value: int = unpack_u32(self.buffer, self.start + offset)[0]
        return value

    @property
    def initial_request_n(self) -> int:
        """First credit of a REQUEST_STREAM or REQUEST_CHANNEL, unsigned and unchecked."""
        return self._u32(6, FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL)

    @property
    def request_n(self) -> int:
        """Credit of a REQUEST_N, unsigned and unchecked."""
        return self._u32(6, FrameType.REQUEST_N)

    @property
    def error_code(self) -> int:
        """Code of an ERROR; any 32-bit number."""
        return self._u32(6, FrameType.ERROR)

    @property
    def error_text(self) -> str:
        """Data of an ERROR as text; what is not UTF-8 is replaced."""
        self._u32(6, FrameType.ERROR)
        # ERROR Frame: "Error Data SHOULD be a UTF-8 encoded string."
        return self.buffer[self.start + 10 : self.end].decode("utf-8", "replace")

    @property
    def position(self) -> int:
        """Last received position of a KEEPALIVE or a RESUME_OK."""
        self._u32(10, FrameType.KEEPALIVE, FrameType.RESUME_OK)
        value: int = _unpack_u64(self.buffer, self.start + 6)[0]
        return value

    @property
    def time_to_live(self) -> int:
        """Time to live of a LEASE, in milliseconds."""
        return self._u32(6, FrameType.LEASE)

    @property
    def number_of_requests(self) -> int:
        """Number of requests that a LEASE allows."""
        return self._u32(10, FrameType.LEASE)

    def detached(self) -> Frame:
        """Return the same frame with a buffer of its own, so that the chunk can be freed."""
        first = self.start - LENGTH_SIZE
        if first == 0 and self.end == len(self.buffer):
            return self
        buffer = self.buffer[first : self.end]
        return Frame.of(buffer, LENGTH_SIZE, len(buffer), self.stream_id, self.word, self.stream)

    def __repr__(self) -> str:
        return (
            f"<Frame {_name(self.type)} stream {self.stream_id} "
            f"flags 0x{self.flags:03x} {self.end - self.start} bytes>"
        )


close_class(Frame)


def _name(frame_type: int) -> str:
    try:
        return FrameType(frame_type).name
    except ValueError:
        return f"type 0x{frame_type:02x}"


def check_frame(frame: Frame) -> None:
    """Check the lengths inside a frame: fixed fields and metadata.

    Raises:
        MalformedFrame: The frame is too short, or its metadata length runs past it
            (section "Metadata Optional Header": send ERROR[CONNECTION_ERROR] and close).
    """
    if frame.body_offset:
        _ = frame.metadata_range


def split_frames(
    tail: bytes, chunk: bytes, max_frame: int = MAX_FRAME
) -> tuple[list[Frame], bytes]:
    """Split a byte stream into frames, without looking inside them.

    Args:
        tail: The rest that the last call returned; empty at first.
        chunk: The next bytes.
        max_frame: Most bytes a frame may have, without its length prefix.

    Returns:
        The whole frames, and the rest to hand in again.

    Raises:
        MalformedFrame: A length is below 6 or over `max_frame`.
    """
    data = tail + chunk if tail else chunk
    frames: list[Frame] = []
    pos, size = 0, len(data)
    while size - pos >= LENGTH_SIZE:
        length = int.from_bytes(data[pos : pos + LENGTH_SIZE])
        check_length(length, max_frame)
        start = pos + LENGTH_SIZE
        pos = start + length
        if pos > size:
            return frames, data[start - LENGTH_SIZE :]
        _, _, stream_id, word = unpack_header(data, start - LENGTH_SIZE)
        frames.append(Frame.of(data, start, pos, stream_id & 0x7FFFFFFF, word))
    return frames, data[pos:]


UNEXPECTED_PROXY_HEADER: Final = "a PROXY header, which is not expected"
"""The reason for which a connection is refused that begins with a header of the PROXY protocol."""

_PROXY_HEADERS: Final = frozenset({int.from_bytes(b"PRO"), int.from_bytes(b"\r\n\r")})
"""The first bytes of such a header, of version 1 and of version 2, as the length of a frame."""


def check_length(length: int, max_frame: int) -> None:
    """Check the length a frame announces.

    Raises:
        MalformedFrame: It is below 6 or over `max_frame`.
    """
    if length < HEADER_SIZE:
        raise MalformedFrame(f"a frame of {length} bytes has no header")
    if length > max_frame:
        if length in _PROXY_HEADERS:
            raise MalformedFrame(UNEXPECTED_PROXY_HEADER)
        raise MalformedFrame(f"a frame of {length} bytes is over the limit of {max_frame} bytes")


def parse_frame(data: bytes) -> Frame:
    """Read exactly one frame with its length prefix.

    Raises:
        MalformedFrame: The length does not fit the bytes, or a length inside is wrong.
    """
    frames, rest = split_frames(b"", data)
    if len(frames) != 1 or rest:
        raise MalformedFrame(f"{len(data)} bytes are not exactly one frame")
    check_frame(frames[0])
    return frames[0]
