"""Sealed segments, read: any damage is an error, and never a record that was not written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import starmap
from struct import Struct
from typing import Final

from ._errors import SegmentCorrupt
from ._header import SegmentFooter, SegmentHeader
from ._records import FLOW, HOP, Asked, Flow, Hop, RouteEvent
from ._scan import RecordBlock, Scan

__all__ = ["Segment", "read_segment"]

_HOP_ORIGIN: Final = 8
_FLOW_ORIGIN: Final = 3
"""Where in a record origin, dest, route and tag set are."""

_SPARE: Final = 9
"""Where in a flow the bits are that mean nothing yet."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sealed segment. It refers to the bytes it was read from; the records are not copied.

    Attributes:
        header: Its log, epoch and first number.
        footer: Its counts.
        names: The names; number 1 is the first.
        routes: The route ids, 16 bytes each; number 1 is the first.
        tagsets: The tag sets; number 1 is the first.
        events: The route events.
        hop_blocks: The hops as they were written, block by block.
        flow_blocks: The flows as they were written.
    """

    header: SegmentHeader
    footer: SegmentFooter
    names: tuple[str, ...]
    routes: tuple[bytes, ...]
    tagsets: tuple[Asked, ...]
    events: tuple[RouteEvent, ...]
    hop_blocks: tuple[RecordBlock, ...]
    flow_blocks: tuple[RecordBlock, ...]

    @property
    def hop_bodies(self) -> tuple[memoryview, ...]:
        """The hops, 64 bytes each, to be read many at a time.

        Inside a block, rising numbers and valid references are not checked; `hops` checks them.
        """
        return tuple(block.body for block in self.hop_blocks)

    @property
    def flow_bodies(self) -> tuple[memoryview, ...]:
        """The flows, 56 bytes each: see `hop_bodies`."""
        return tuple(block.body for block in self.flow_blocks)

    @property
    def missing(self) -> int:
        """Number of records that were given a number and lost before they were written."""
        given = self.footer.last_seq - self.header.first_seq + 1
        return given - self.footer.hops - self.footer.flows - self.footer.events

    def hops(self) -> Iterator[Hop]:
        """Yield the hops.

        Raises:
            SegmentCorrupt: One refers to what is not there, or is out of order.
        """
        return starmap(Hop, _checked(self.hop_blocks, HOP, _HOP_ORIGIN))

    def flows(self) -> Iterator[Flow]:
        """Yield the flows.

        Raises:
            SegmentCorrupt: One refers to what is not there, or is out of order, or its spare
                bits are not 0.
        """
        for fields in _checked(self.flow_blocks, FLOW, _FLOW_ORIGIN):
            yield Flow(*fields[:_SPARE], *fields[_SPARE + 1 :])

    def check(self) -> None:
        """Look at every record.

        Raises:
            SegmentCorrupt: One is wrong: see `hops` and `flows`.
        """
        for _ in _checked(self.hop_blocks, HOP, _HOP_ORIGIN):
            pass
        for _ in _checked(self.flow_blocks, FLOW, _FLOW_ORIGIN):
            pass


def _checked(blocks: tuple[RecordBlock, ...], layout: Struct, at: int) -> Iterator[tuple[int, ...]]:
    """Yield the fields of each record, looked at; `at` is where origin, dest and so on are."""
    last = 0
    spared = layout is FLOW
    for block in blocks:
        offset = block.offset
        names, routes, tagsets = block.names, block.routes, block.tagsets
        for fields in layout.iter_unpack(block.body):
            seq = fields[0]
            if seq <= last:
                raise SegmentCorrupt(offset, "the numbers of records do not rise")
            if (
                fields[at] > names
                or fields[at + 1] > names
                or fields[at + 2] > routes
                or fields[at + 3] > tagsets
            ):
                raise SegmentCorrupt(offset, "a record that refers to what has no number yet")
            if spared and fields[_SPARE]:
                raise SegmentCorrupt(offset, "the spare bits of a flow are not 0")
            last = seq
            offset += layout.size
            yield fields


def read_segment(data: bytes | memoryview) -> Segment:
    """Read a sealed segment, whole.

    Every byte is covered by a check; what the blocks list is held against the limits. The hops
    and flows are looked at when they are asked for: see `Segment.check`.

    Args:
        data: All of the file. The segment refers to it as long as it lives.

    Raises:
        SegmentUnfinished: It has no footer.
        SegmentCorrupt: It is damaged, is no segment, or there are bytes behind the footer.
        SegmentNewer: It is of a later format.
    """
    scan = Scan(data)
    while scan.footer is None:
        scan.step()
    if scan.offset != len(data):
        raise SegmentCorrupt(scan.offset, "bytes behind the footer")
    return Segment(
        scan.header,
        scan.footer,
        tuple(scan.names),
        tuple(scan.routes),
        tuple(scan.tagsets),
        tuple(scan.events),
        tuple(scan.hop_blocks),
        tuple(scan.flow_blocks),
    )
