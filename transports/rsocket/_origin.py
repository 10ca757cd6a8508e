"""The origin route id in the ADDRESS of a request, which is a claim of the requester.

With authorization it is checked: zeros, which stand for none, or the requester's own route id.
Anything else is replaced in the frames of the request, before others act on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.broker import HEADER_SIZE, ID_SIZE
from ...protocol.rsocket import LENGTH_SIZE, Frame
from ._metadata import address_starts

if TYPE_CHECKING:
    from ._metadata import Form

__all__ = ["false_origins", "with_origin"]

_NONE = bytes(ID_SIZE)


def false_origins(metadata: bytes, form: Form, own: bytes) -> tuple[int, ...]:
    """Return the offsets of origins that are neither zeros nor the requester's own route id.

    Composite metadata may have several ADDRESS frames. The broker reads the last one, a destination
    perhaps another.

    Args:
        metadata: The whole metadata of a request.
        form: The form of its ADDRESS.
        own: The requester's route id, or zeros.
    """
    starts = address_starts(metadata) if form.composite else [0]
    offsets = [start + HEADER_SIZE for start in starts]
    return tuple(at for at in offsets if metadata[at : at + ID_SIZE] not in (_NONE, own))


def with_origin(frames: list[Frame], offsets: tuple[int, ...], origin: bytes) -> list[Frame]:
    """Return the frames of a request with another origin.

    Args:
        frames: The frames, with all of the request's metadata.
        offsets: The offsets of the origins in the metadata.
        origin: The origin to write, 16 bytes.
    """
    made: list[Frame] = []
    before = 0
    for frame in frames:
        span = frame.metadata_range
        if span is None:
            made.append(frame)
            continue
        begin = frame.start - LENGTH_SIZE
        raw = bytearray(frame.buffer[begin : frame.end])
        start, size = span[0] - begin, span[1] - span[0]
        for at in offsets:
            # An origin may lie in two fragments, or more.
            first, last = max(at, before), min(at + ID_SIZE, before + size)
            if first < last:
                place = start - before
                raw[place + first : place + last] = origin[first - at : last - at]
        before += size
        made.append(
            Frame.of(bytes(raw), LENGTH_SIZE, len(raw), frame.stream_id, frame.word, frame.stream)
        )
    return made
