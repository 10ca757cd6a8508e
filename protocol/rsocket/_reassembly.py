"""Reassembly of fragmented payloads.

A connection returns fragments as they arrive, and a relay passes them on unchanged. Two helpers
are for other uses. `Reassembler` joins the fragments of one payload. `RequestGatherer` keeps the
raw frames of a request and joins only its metadata, which precedes the data: a broker reads the
destination from the metadata, and then relays the frames unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._closed import close_class
from ._constants import COMPLETE, FOLLOWS, METADATA, NEXT, FrameType
from ._errors import ReassemblyLimit

if TYPE_CHECKING:
    from ._frames import Frame

__all__ = ["Reassembler", "RequestGatherer"]


def _more_follow(frame: Frame) -> bool:
    word = frame.word
    if frame.type == FrameType.PAYLOAD and word & COMPLETE:
        # Handling the Unexpected: "A PAYLOAD with both F and C flags set, implicitly ignores the F
        # flag."
        return False
    return bool(word & FOLLOWS)


class Reassembler:
    """One payload that may come in fragments.

    Make one for each payload, and let it go when its stream ends.

    Args:
        limit: Most bytes of data and metadata together.

    Attributes:
        complete: Whether the payload is whole.
        next: Whether it is an element: a request, or any of its PAYLOAD frames has N or F.
        ends: Whether the sender's direction ends with it (C).
    """

    __slots__ = ("_data", "_limit", "_metadata", "_size", "complete", "ends", "next")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._data: list[memoryview] = []
        self._metadata: list[memoryview] | None = None
        self.complete = False
        self.next = False
        self.ends = False

    def add(self, frame: Frame) -> bool:
        """Add a request frame or PAYLOAD.

        Returns:
            Whether the payload is whole now.

        Raises:
            ReassemblyLimit: It is over the limit. What was gathered is let go.
        """
        metadata, data = frame.metadata, frame.data
        self._size += len(metadata or b"") + len(data or b"")
        if self._size > self._limit:
            # Handling the Unexpected: "Reassembly of PAYLOADs and REQUEST_CHANNELs MUST assume the
            # possibility of an infinite stream."
            self._data.clear()
            self._metadata = None
            raise ReassemblyLimit(self._size, self._limit, stream_id=frame.stream_id)
        if metadata is not None:
            self._metadata = [*(self._metadata or ()), metadata]
        if data:
            self._data.append(data)
        self.next |= frame.type != FrameType.PAYLOAD or bool(frame.word & (NEXT | FOLLOWS))
        self.ends |= bool(frame.word & COMPLETE)
        self.complete = not _more_follow(frame)
        return self.complete

    @property
    def data(self) -> bytes:
        """The data gathered so far."""
        return b"".join(self._data)

    @property
    def metadata(self) -> bytes | None:
        """The metadata gathered so far; `None` if no frame had any."""
        return None if self._metadata is None else b"".join(self._metadata)


close_class(Reassembler)


class RequestGatherer:
    """The raw frames of a request, until its metadata is complete.

    "The Metadata MUST be transmitted completely before the Data": it is complete with the
    first frame that has none, has data too, or is the last.

    Args:
        limit: Most bytes of frames to keep, headers included.

    Attributes:
        frames: The frames as received, to be relayed in this order. Each has a buffer of
            its own, so that waiting does not keep whole chunks of input.
        complete: Whether the metadata is complete.
    """

    __slots__ = ("_limit", "_parts", "_size", "complete", "frames")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._parts: list[memoryview] = []
        self.frames: list[Frame] = []
        self.complete = False

    def add(self, frame: Frame) -> bool:
        """Add the request frame, or a PAYLOAD that continues it.

        Returns:
            Whether the metadata is complete now. Later frames can be added all the same.

        Raises:
            ReassemblyLimit: The frames are over the limit. They are let go.
        """
        self._size += frame.end - frame.start
        if self._size > self._limit:
            self.frames.clear()
            self._parts.clear()
            raise ReassemblyLimit(self._size, self._limit, stream_id=frame.stream_id)
        frame = frame.detached()
        self.frames.append(frame)
        if not self.complete:
            metadata = frame.metadata
            if metadata is not None:
                self._parts.append(metadata)
            self.complete = (
                not frame.word & METADATA
                or frame.data_offset < frame.end
                or not _more_follow(frame)
            )
        return self.complete

    @property
    def metadata(self) -> bytes | None:
        """The metadata gathered so far; `None` if no frame had any."""
        return b"".join(self._parts) if self._parts else None


close_class(RequestGatherer)
