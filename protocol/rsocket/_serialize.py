"""Bytes of the frames a peer originates, length prefix included.

A payload that has metadata of zero bytes is not a payload without metadata: the first sets
the M flag. An element that has no bytes at all still sets N. Both survive here.

Stream ids and request-n are written as given: `Connection` has checked them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from .._errors import PayloadTooBig
from ._constants import (
    COMPLETE,
    FOLLOWS,
    HEADER_SIZE,
    MAX_FRAME,
    METADATA,
    NEXT,
    RESPOND,
    FrameType,
)
from ._errors import LocalProtocolError

__all__ = [
    "MIN_MTU",
    "Buffer",
    "cancel_frame",
    "error_frame",
    "keepalive_frame",
    "lease_frame",
    "metadata_push_frame",
    "payload_frames",
    "request_frames",
    "request_n_frame",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""The types of bytes that frames are made of."""
"""The types of payloads."""

MIN_MTU: Final = 64
"""Smallest fragment size in bytes; below it headers are most of the traffic."""

_METADATA_LENGTH_SIZE: Final = 3
_CANCEL: Final = int(FrameType.CANCEL) << 10
_REQUEST_N: Final = int(FrameType.REQUEST_N) << 10

_header = Struct(">BHIH").pack
_header_u32 = Struct(">BHIHI").pack
_header_u64 = Struct(">BHIHQ").pack
_header_u32_u32 = Struct(">BHIHII").pack


def _split(length: int) -> tuple[int, int]:
    if length > MAX_FRAME:
        raise PayloadTooBig(length, MAX_FRAME)
    return length >> 16, length & 0xFFFF


def request_n_frame(stream_id: int, n: int) -> bytes:
    """Return a REQUEST_N frame."""
    return _header_u32(0, 10, stream_id, _REQUEST_N, n)


def cancel_frame(stream_id: int) -> bytes:
    """Return a CANCEL frame."""
    return _header(0, HEADER_SIZE, stream_id, _CANCEL)


def error_frame(stream_id: int, code: int, text: str) -> bytes:
    """Return an ERROR frame; text over 65535 bytes of UTF-8 is cut off at a character.

    Raises:
        LocalProtocolError: The code is not 1 to 0xFFFFFFFE.
    """
    if not 0 < code < 0xFFFFFFFF:
        raise LocalProtocolError(f"an error code is 1 to 0xfffffffe, not {code:#x}")
    # ERROR Frame: "Error Data SHOULD be a UTF-8 encoded string. The string MUST NOT be null
    # terminated."
    data = text.encode("utf-8", "replace")[:0xFFFF].decode("utf-8", "ignore").encode()
    high, low = _split(10 + len(data))
    return _header_u32(high, low, stream_id, FrameType.ERROR << 10, code) + data


def keepalive_frame(data: Buffer = b"", *, respond: bool, position: int = 0) -> bytes:
    """Return a KEEPALIVE frame.

    Args:
        data: Bytes the peer sends back, if `respond`.
        respond: Whether the peer must answer.
        position: Last received position; 0 where sessions cannot be resumed.
    """
    high, low = _split(14 + len(data))
    word = FrameType.KEEPALIVE << 10 | (RESPOND if respond else 0)
    # KEEPALIVE Frame: "KEEPALIVE frames MUST always use Stream ID 0 as they pertain to the
    # Connection."
    return _header_u64(high, low, 0, word, position) + data


def metadata_push_frame(metadata: Buffer) -> bytes:
    """Return a METADATA_PUSH frame."""
    high, low = _split(HEADER_SIZE + len(metadata))
    # METADATA_PUSH Frame: "This frame only supports Metadata, so the Metadata Length header MUST
    # NOT be included."
    return _header(high, low, 0, FrameType.METADATA_PUSH << 10 | METADATA) + metadata


def lease_frame(
    time_to_live: int, number_of_requests: int, metadata: Buffer | None = None
) -> bytes:
    """Return a LEASE frame.

    Args:
        time_to_live: For how many milliseconds it holds; 0 stops all requests.
        number_of_requests: Number of requests it allows; 0 stops all requests.
        metadata: Metadata, or `None` for none.
    """
    high, low = _split(14 + (0 if metadata is None else len(metadata)))
    word = FrameType.LEASE << 10 | (0 if metadata is None else METADATA)
    # LEASE Frame: "This frame only supports Metadata, so the Metadata Length header MUST NOT be
    # included, even if the (M)etadata flag is set true."
    frame = _header_u32_u32(high, low, 0, word, time_to_live, number_of_requests)
    return frame if metadata is None else frame + metadata


def request_frames(
    kind: int,
    stream_id: int,
    data: Buffer,
    metadata: Buffer | None = None,
    *,
    initial_n: int = 1,
    complete: bool = False,
    mtu: int | None = None,
) -> Iterator[bytes]:
    """Yield the frames of a request: one, or a request and PAYLOAD fragments.

    Args:
        kind: REQUEST_RESPONSE, REQUEST_FNF, REQUEST_STREAM or REQUEST_CHANNEL.
        stream_id: The stream.
        data: The data.
        metadata: The metadata; `None` for none, which is not the same as empty.
        initial_n: First credit, for REQUEST_STREAM and REQUEST_CHANNEL.
        complete: Whether the requester's direction of a channel ends with this.
        mtu: Most bytes of a frame, without its length prefix; at least `MIN_MTU`; `None`
            for one frame.

    Raises:
        PayloadTooBig: One frame does not hold it and there is no `mtu`. Nothing is yielded.
        LocalProtocolError: `mtu` is below `MIN_MTU`. Nothing is yielded.
    """
    fixed = b""
    if kind in (FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL):
        fixed = initial_n.to_bytes(4)
    last = COMPLETE if complete and kind == FrameType.REQUEST_CHANNEL else 0
    return _fragments(kind, 0, last, stream_id, fixed, data, metadata, mtu)


def payload_frames(
    stream_id: int,
    data: Buffer = b"",
    metadata: Buffer | None = None,
    *,
    next: bool = True,  # noqa: A002 - the specification's word
    complete: bool = False,
    mtu: int | None = None,
) -> Iterator[bytes]:
    """Yield the frames of a payload: one, or several fragments.

    Args:
        stream_id: The stream.
        data: The data.
        metadata: The metadata; `None` for none, which is not the same as empty.
        next: Whether this is an element.
        complete: Whether the direction ends with this.
        mtu: As for `request_frames`.

    Raises:
        PayloadTooBig: One frame does not hold it and there is no `mtu`. Nothing is yielded.
        LocalProtocolError: `mtu` is below `MIN_MTU`. Nothing is yielded.
    """
    always, last = (NEXT if next else 0), (COMPLETE if complete else 0)
    return _fragments(FrameType.PAYLOAD, always, last, stream_id, b"", data, metadata, mtu)


def _fragments(
    kind: int,
    always: int,
    last: int,
    stream_id: int,
    fixed: bytes,
    data: Buffer,
    metadata: Buffer | None,
    mtu: int | None,
) -> Iterator[bytes]:
    """Yield the frames of one payload; `last` are the flags of its last frame only."""
    if mtu is not None and mtu < MIN_MTU:
        raise LocalProtocolError(f"an mtu is at least {MIN_MTU} bytes, not {mtu}")
    extra = 0 if metadata is None else _METADATA_LENGTH_SIZE + len(metadata)
    size = HEADER_SIZE + len(fixed) + extra + len(data)
    if mtu is None or size <= mtu:
        yield _one(kind << 10 | always | last, stream_id, fixed, data, metadata, size)
        return
    # Fragmentation And Reassembly: "When a PAYLOAD is fragmented, the Metadata MUST be transmitted
    # completely before the Data."
    more_metadata = None if metadata is None else memoryview(metadata)
    more_data = memoryview(data)
    while True:
        room = mtu - HEADER_SIZE - len(fixed)
        piece: memoryview | None = None
        if more_metadata is not None:
            room -= _METADATA_LENGTH_SIZE
            piece, more_metadata = more_metadata[:room], more_metadata[room:]
            room -= len(piece)
            more_metadata = more_metadata or None
        part, more_data = more_data[:room], more_data[room:]
        follows = bool(more_metadata or more_data)
        word = kind << 10 | always | (FOLLOWS if follows else last)
        size = HEADER_SIZE + len(fixed) + len(part)
        size += 0 if piece is None else _METADATA_LENGTH_SIZE + len(piece)
        yield _one(word, stream_id, fixed, part, piece, size)
        if not follows:
            return
        # Fragmentation And Reassembly: "the first frame is the REQUEST_* frame with the (F)ollows
        # flag set, followed by a sequence of PAYLOAD frames."
        kind, always, fixed = FrameType.PAYLOAD, NEXT, b""


def _one(
    word: int, stream_id: int, fixed: bytes, data: Buffer, metadata: Buffer | None, size: int
) -> bytes:
    high, low = _split(size)
    if metadata is None:
        return b"".join((_header(high, low, stream_id, word), fixed, data))
    return b"".join(
        (
            # Metadata Optional Header: "This metadata header is between the Frame Header and any
            # payload."
            _header(high, low, stream_id, word | METADATA),
            fixed,
            len(metadata).to_bytes(3),
            metadata,
            data,
        )
    )
