"""Translation of requests to their destination's form of metadata (decision 15).

It is used only if a requester and a destination use different forms of broker frames. The
metadata and the frames that hold them are written anew; data and flags stay the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...protocol.broker import translate_address
from ...protocol.rsocket import (
    COMPLETE,
    FOLLOWS,
    HEADER_SIZE,
    LENGTH_SIZE,
    MAX_FRAME,
    Frame,
    FrameType,
    composite_entry,
    iterate_composite,
    metadata_push_frame,
    request_frames,
)
from ._metadata import ADDRESS, Form, find_broker_frame
from ._request import WITH_CREDIT, completes, more_follow

__all__ = ["translated", "with_metadata"]

REMEMBERED: Final = 256
"""Most translated metadata that are cached."""
REMEMBERED_SIZE: Final = 1024
"""Most bytes of metadata that are cached."""

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_PUSH: Final = int(FrameType.METADATA_PUSH)
_SMALLEST: Final = 64
"""Least bytes of a fragment that is written here."""
_KEPT_FLAGS: Final = 0x21F
"""Flags of a request that do not depend on its content: I, and the unspecified ones."""


def translated(frames: list[Frame], source: Form, target: Form) -> tuple[list[Frame], int]:
    """Return the frames of a request for a destination that uses another form.

    Args:
        frames: The frames read so far, which hold all of its metadata.
        source: The form of the requester.
        target: The form of the destination.

    Returns:
        The frames, and the number of metadata entries left out.

    Raises:
        ProtocolError: The metadata cannot be read, or not be written in the other form.
    """
    # Forwarding the Request: a broker "MUST not mutate the wrapped metadata, or data of the
    # request."
    metadata = b"".join(bytes(frame.metadata or b"") for frame in frames)
    small = len(metadata) <= REMEMBERED_SIZE
    translate = _translate_remembered if small else _translate
    metadata, left_out = translate(metadata, source, target)
    return with_metadata(frames, metadata), left_out


def with_metadata(frames: list[Frame], metadata: bytes) -> list[Frame]:
    """Return the frames of a request with other metadata.

    Args:
        frames: The frames read so far, which hold all of its metadata.
        metadata: The other metadata.
    """
    first, last = frames[0], frames[-1]
    kind = first.type
    if kind == _PUSH:
        return [_frame(metadata_push_frame(metadata), first.word & _KEPT_FLAGS)]
    more = more_follow(last)
    # Fragments keep about the size that their sender has chosen.
    in_parts = more or len(frames) > 1
    largest = max(frame.end - frame.start for frame in frames) if in_parts else MAX_FRAME
    raws = list(
        request_frames(
            kind,
            1,
            b"".join(bytes(frame.data or b"") for frame in frames),
            metadata,
            initial_n=first.initial_request_n if kind in WITH_CREDIT else 1,
            complete=not more and completes(frames),
            mtu=max(_SMALLEST, largest),
        )
    )
    if more and len(raws) > 1 and len(raws[-1]) < LENGTH_SIZE + _SMALLEST:
        # The last fragment here is not the last of the request, and rsocket-java refuses a middle
        # fragment of fewer than 64 bytes.
        raws[-2:] = [_joined(raws[-2], raws[-1])]
    made = [_frame(raw, 0) for raw in raws]
    made[0] = _frame(made[0].buffer, first.word & _KEPT_FLAGS)
    if more and kind == _CHANNEL:  # its last fragment need not repeat the C flag
        made[0] = _frame(made[0].buffer, first.word & COMPLETE)
    if more:
        made[-1] = _frame(made[-1].buffer, FOLLOWS)
    return made


def _translate(metadata: bytes, source: Form, target: Form) -> tuple[bytes, int]:
    """Return metadata in another form, and the number of entries left out."""
    start, end, left_out = 0, len(metadata), 0
    if source.composite:
        found = find_broker_frame(metadata, 0, end, ADDRESS)
        if found is None:
            raise AssertionError("a request is routed by its ADDRESS")
        _, start, end = found
    address = translate_address(metadata[start:end], source.dialect, target.dialect)
    if not target.composite:
        if source.composite:
            left_out = sum(1 for _ in iterate_composite(metadata)) - 1
        return address, left_out
    entry = composite_entry(target.mime.decode(), address)
    if not source.composite:
        return entry, 0
    begin = start - 3 - len(source.mime) - 1  # the entry's head: lengths and name
    return metadata[:begin] + entry + metadata[end:], 0


_translate_remembered = lru_cache(REMEMBERED)(_translate)


def _joined(raw: bytes, after: bytes) -> bytes:
    """Return two consecutive fragments of a request as one."""
    first, second = _frame(raw, 0), _frame(after, 0)
    fixed = raw[LENGTH_SIZE + HEADER_SIZE : first.body_offset]
    metadata = bytes(first.metadata or b"") + bytes(second.metadata or b"")
    data = bytes(first.data or b"") + bytes(second.data or b"")
    body = fixed + (len(metadata).to_bytes(3) + metadata if first.has_metadata else b"") + data
    head = raw[LENGTH_SIZE : LENGTH_SIZE + HEADER_SIZE]
    return (HEADER_SIZE + len(body)).to_bytes(LENGTH_SIZE) + head + body


def _frame(raw: bytes, flags: int) -> Frame:
    """Return a frame of bytes with a length prefix, with more flags set."""
    word = int.from_bytes(raw[7:9]) | flags
    if flags:
        raw = raw[:7] + word.to_bytes(2) + raw[9:]
    return Frame.of(raw, 3, len(raw), int.from_bytes(raw[3:7]), word)
