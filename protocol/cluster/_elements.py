"""The elements of a route stream, and the position from which a subscriber wants it.

| bytes | an element |
| --- | --- |
| 1 | kind: 1 a part of a snapshot, 2 changes, 3 a mark, 4 a part of a filter, 5 ids |
| 1 | flags: 1 the last part, 2 the rest is compressed (zlib); all others are 0 |
| 16 | id of the home broker |
| 8 | instance: when the home broker was started, in ms since the Unix epoch |
| 8 | sequence: the number that the subscriber has reached with this element |
| … | frames, each with its length in 24 bits before it: see below |

Frames are ROUTE_ADD and ROUTE_REMOVE; a part of a filter has one, which is a piece of the filter;
ids are frames of 16 bytes.

Integers are big-endian. An element has at most `MAX_ELEMENT` bytes, compressed or not: what is
compressed is inflated up to that limit and no further.

A position is the instance and the sequence, 8 bytes each; zeros for a subscriber that has nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Annotated, Final, TypeAlias

from .._words import counted
from ..broker import HEADER_SIZE, ID_SIZE
from ..options import Range
from ._errors import ClusterFrameError, ElementTooBig

__all__ = [
    "ELEMENT_HEADER_SIZE",
    "LENGTH_SIZE",
    "MAX_ELEMENT",
    "MIN_BATCH",
    "BatchSize",
    "Element",
    "ElementKind",
    "Position",
]

MAX_ELEMENT: Final = 128 * 1024
"""Most bytes of an element, compressed or inflated. The longest ROUTE_ADD is half of it."""

MIN_BATCH: Final = 1024
"""Least size to which frames are gathered for one element, in bytes."""

BatchSize: TypeAlias = Annotated[int, Range(least=MIN_BATCH, most=MAX_ELEMENT, unit="bytes")]
"""The size to which frames are gathered for one element, in bytes."""

_HEADER: Final = Struct(">BB16sQQ")
ELEMENT_HEADER_SIZE: Final = _HEADER.size
"""Bytes of an element before its frames."""
LENGTH_SIZE: Final = 3
"""Bytes of a frame's length in an element."""

_POSITION: Final = Struct(">QQ")
_LAST: Final = 1
_COMPRESSED: Final = 2
_LEVEL: Final = 1
_COMPRESS_FROM: Final = 1024
"""Bytes of frames from which on compression pays."""


class ElementKind(IntEnum):
    """The kinds of elements."""

    SNAPSHOT = 1
    """A part of all routes; the last one has the flag."""
    CHANGES = 2
    """Changes that follow one another."""
    MARK = 3
    """The sequence alone: the subscriber has everything up to it."""
    FILTER = 4
    """A part of a filter of route ids; the last one has the flag."""
    IDS = 5
    """Ids of routes that have joined, which follow one another."""


_KINDS: Final = {int(kind): kind for kind in ElementKind}


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a subscriber in the log of a home broker.

    Attributes:
        instance: The instance of the home broker that it refers to; 0 for none.
        sequence: The number of the last change that the subscriber has.
    """

    instance: int = 0
    sequence: int = 0

    @classmethod
    def parse(cls, data: bytes | memoryview) -> Position:
        """Read a position.

        Raises:
            ClusterFrameError: It has not its size.
        """
        if len(data) != _POSITION.size:
            raise ClusterFrameError(
                f"{counted(len(data), 'byte')} for a position, not {_POSITION.size}"
            )
        return cls(*_POSITION.unpack(data))

    def serialize(self) -> bytes:
        """Write it."""
        return _POSITION.pack(self.instance, self.sequence)


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a route stream.

    Attributes:
        kind: Its kind.
        home: 16 bytes: the home broker of all routes in it.
        instance: When the home broker was started, in milliseconds since the Unix epoch.
        sequence: The number that the subscriber has reached with it.
        frames: ROUTE_ADD and ROUTE_REMOVE frames in the specification's dialect; of a filter one
            piece, and ids as they are.
        last: Whether it is the last part of a snapshot or of a filter.
    """

    kind: ElementKind
    home: bytes
    instance: int
    sequence: int
    frames: Sequence[bytes] = ()
    last: bool = False

    @classmethod
    def parse(cls, data: bytes | memoryview) -> Element:
        """Read a whole element; its frames are cut out and not read.

        Raises:
            ElementTooBig: It has more than `MAX_ELEMENT` bytes, or would have when inflated.
            ClusterFrameError: It is none.
        """
        if len(data) > MAX_ELEMENT:
            raise ElementTooBig(MAX_ELEMENT)
        if len(data) < ELEMENT_HEADER_SIZE:
            raise ClusterFrameError(f"an element of {counted(len(data), 'byte')}")
        number, flags, home, instance, sequence = _HEADER.unpack_from(data)
        kind = _KINDS.get(number)
        if kind is None:
            raise ClusterFrameError(f"there is no element of kind {number}")
        if flags & ~(_LAST | _COMPRESSED):
            raise ClusterFrameError(f"unknown flags 0x{flags:02x} of an element")
        rest = bytes(data[ELEMENT_HEADER_SIZE:])
        frames = _cut(_inflate(rest) if flags & _COMPRESSED else rest)
        element = cls(kind, home, instance, sequence, frames, bool(flags & _LAST))
        element.check()
        return element

    def serialize(self, *, compress: bool = True) -> bytes:
        """Write it.

        Args:
            compress: Whether frames are compressed from 1 KiB on, if that makes them smaller.

        Raises:
            ElementTooBig: It has more than `MAX_ELEMENT` bytes.
            ClusterFrameError: It could not be read again.
        """
        self.check()
        parts: list[bytes] = []
        for frame in self.frames:
            parts += (len(frame).to_bytes(LENGTH_SIZE), frame)
        rest = b"".join(parts)
        if ELEMENT_HEADER_SIZE + len(rest) > MAX_ELEMENT:
            raise ElementTooBig(MAX_ELEMENT)
        flags = _LAST if self.last else 0
        if compress and len(rest) >= _COMPRESS_FROM:
            smaller = zlib.compress(rest, _LEVEL)
            if len(smaller) < len(rest):
                rest, flags = smaller, flags | _COMPRESSED
        return _HEADER.pack(self.kind, flags, self.home, self.instance, self.sequence) + rest

    def check(self) -> None:
        """Check what the fields have to be together.

        Raises:
            ClusterFrameError: They are not.
        """
        count = len(self.frames)
        if len(self.home) != ID_SIZE or not self.instance:
            raise ClusterFrameError("an element of no broker or of no instance")
        if self.kind is ElementKind.SNAPSHOT:
            if not count and not self.last:
                raise ClusterFrameError("a part of a snapshot without frames that is not the last")
        elif self.kind is ElementKind.FILTER:
            if count != 1:
                raise ClusterFrameError(f"{counted(count, 'piece')} in a part of a filter")
        elif self.last:
            raise ClusterFrameError("a last part of what is no snapshot")
        elif self.kind is ElementKind.MARK:
            if count:
                raise ClusterFrameError("a mark with frames")
        elif self.kind is ElementKind.IDS and any(len(each) != ID_SIZE for each in self.frames):
            raise ClusterFrameError(f"an id that has not {ID_SIZE} bytes")
        elif not 0 < count <= self.sequence:
            what = "id" if self.kind is ElementKind.IDS else "change"
            raise ClusterFrameError(f"{counted(count, what)} up to the number {self.sequence}")


def _inflate(data: bytes) -> bytes:
    """Return what was compressed; no more than the limit is ever made of it."""
    inflater = zlib.decompressobj()
    most = MAX_ELEMENT - ELEMENT_HEADER_SIZE
    try:
        made = inflater.decompress(data, most + 1)
    except zlib.error:
        raise ClusterFrameError("an element that cannot be inflated") from None
    if len(made) > most:
        raise ElementTooBig(MAX_ELEMENT)
    if not inflater.eof:
        raise ClusterFrameError("an element that is cut short")
    if inflater.unused_data:
        raise ClusterFrameError(f"{counted(len(inflater.unused_data), 'byte')} after an element")
    return made


def _cut(data: bytes) -> tuple[bytes, ...]:
    """Cut the frames apart."""
    frames: list[bytes] = []
    at, size = 0, len(data)
    while at < size:
        start = at + LENGTH_SIZE
        at = start + int.from_bytes(data[at:start])
        # A frame that is cut short, or the length of one.
        if at > size:
            raise ClusterFrameError("a frame in an element is cut short")
        if at - start < HEADER_SIZE:
            raise ClusterFrameError(f"a frame of {counted(at - start, 'byte')} in an element")
        frames.append(data[start:at])
    return tuple(frames)
