"""The frames that one side of a connection keeps, to send them again after a loss.

Kept are the buffers that were written, without copies. A buffer has whole frames, those of stream 0
among them, which have no position and are not sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final

from ._constants import LENGTH_SIZE

__all__ = ["BUFFER_COST", "KeptFrames", "positions_in"]

_unpack_length_and_id: Final = Struct(">BHI").unpack_from

BUFFER_COST: Final = 160
"""The bytes that the objects of one kept buffer cost besides its frames."""


def positions_in(buffer: bytes | bytearray, start: int, stop: int) -> int:
    """Return how far the whole frames in a part of a buffer move the position.

    Args:
        buffer: The frames, each preceded by its length.
        start: Offset of the first.
        stop: Offset after the last.
    """
    # Implied Position: "The positions are calculated based on the length of encoded frames without
    # the frame length field after any fragmentation is applied."
    moved = 0
    while start < stop:
        high, low, stream_id = _unpack_length_and_id(buffer, start)
        length = high << 16 | low
        # Implied Position: "Frame types outside REQUEST(s), REQUEST_N, CANCEL, ERROR, and PAYLOAD
        # do not have assigned (nor implied) positions." Those are on stream 0.
        if stream_id:
            moved += length
        start += LENGTH_SIZE + length
    return moved


class KeptFrames:
    """The newest frames that were sent in one direction, and their positions.

    A position is a number of bytes since the beginning of the session.

    Args:
        limit: Most bytes kept, with the cost of their objects. Over it the oldest are dropped.

    Attributes:
        limit: The limit, in bytes.
        first: The position of the first frame that is kept.
        end: The position after the last frame that was added.
        size: The bytes kept, with the cost of their objects.
        drops: How often frames were dropped that the peer may not have received.
    """

    __slots__ = ("_buffers", "drops", "end", "first", "limit", "size")

    def __init__(self, limit: int) -> None:
        self._buffers: deque[tuple[bytes | bytearray, int]] = deque()
        self.limit = limit
        self.first = 0
        self.end = 0
        self.size = 0
        self.drops = 0

    def add(self, frames: bytes | bytearray) -> None:
        """Keep whole frames, which must not change any more; at the limit drop the oldest."""
        moved = positions_in(frames, 0, len(frames))
        if not moved:
            return
        self.end += moved
        self._buffers.append((frames, moved))
        self.size += len(frames) + BUFFER_COST
        if self.size > self.limit:
            self.drop_to(self.limit)

    def drop_to(self, size: int) -> None:
        """Drop the oldest frames, until no more than a number of bytes is kept."""
        before = self.first
        while self.size > size:
            self._drop_oldest()
        self.drops += self.first != before

    def trim(self, position: int) -> None:
        """Release frames that the peer has received, up to a position."""
        # Keepalive Position Field: "This information MAY be used to update state for possible
        # retransmission, such as trimming a retransmit buffer".
        while self._buffers and self.first + self._buffers[0][1] <= position:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        frames, moved = self._buffers.popleft()
        self.first += moved
        self.size -= len(frames) + BUFFER_COST

    def since(self, position: int) -> list[memoryview] | None:
        """Return the frames from a position on; `None` if no kept frame begins or ends there."""
        at, found = self.first, list[memoryview]()
        if not at <= position <= self.end:
            return None
        for frames, moved in self._buffers:
            if at + moved <= position:
                at += moved
                continue
            view = memoryview(frames)
            begins = -1  # of a run of frames with positions
            for start, stop in _frames_in(frames):
                tracked = stop > start
                if tracked and at >= position:
                    if at > position and begins < 0 and not found:
                        return None
                    begins = start if begins < 0 else begins
                elif begins >= 0:
                    found.append(view[begins:start])
                    begins = -1
                if tracked:
                    at += stop - start - LENGTH_SIZE
            if begins >= 0:
                found.append(view[begins:])
        return found if found or at == position else None


def _frames_in(buffer: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each frame, with its length prefix; of stream 0, its start twice."""
    start, size = 0, len(buffer)
    while start < size:
        high, low, stream_id = _unpack_length_and_id(buffer, start)
        stop = start + LENGTH_SIZE + (high << 16 | low)
        yield start, stop if stream_id else start
        start = stop
