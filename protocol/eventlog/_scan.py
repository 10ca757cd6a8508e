"""A reader of segments block by block, for sealed segments and for recovery.

A block is taken whole or not at all: nothing is remembered of one that is refused, and nothing is
made room for before its length was held against the bytes there are. The records in the blocks
`R` and `F` are looked at only where each begins and ends; `Segment.hops` looks at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Final, TypeVar, cast
from zlib import crc32

from ..broker import ID_SIZE, RoutingType, TagList
from ._blocks import (
    BLOCK_HEADER,
    EVENTS,
    FLOWS,
    FOOTER,
    HOPS,
    MAX_BLOCK,
    MAX_NAME,
    MAX_NAMES,
    MAX_ROUTES,
    MAX_TAGSETS,
    NAMES,
    ROUTES,
    TAGSETS,
)
from ._cbor import MAX_I64, read
from ._errors import SegmentCorrupt, SegmentUnfinished
from ._header import SegmentFooter, header_size, parse_footer, read_header
from ._records import FLOW, HOP, Asked, EventName, RouteEvent

__all__ = ["RecordBlock", "Scan"]

T = TypeVar("T")

_CHECK_OFFSET: Final = BLOCK_HEADER.size - 4
_ROUTINGS: Final = {int(routing): routing for routing in RoutingType}
_MOST_KEY: Final = 1 << 24
_EVENT_NAMES: Final = {int(name): name for name in EventName}
_SEQ: Final = Struct("<Q")
_SEQ_AND_TIME: Final = Struct("<Qq")
_FLOW_TIMES: Final = Struct("<QqI")


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """The records of one block, and which numbers were given when it was written.

    Attributes:
        offset: Offset of the body in the segment.
        body: The records.
        names: Number of names so far.
        routes: Number of route ids so far.
        tagsets: Number of tag sets so far.
    """

    offset: int
    body: memoryview
    names: int
    routes: int
    tagsets: int


class Scan:
    """The state of reading a segment.

    Args:
        data: The segment.

    Attributes:
        refused: Whether the block that could not be read is whole, by its check, and what it
            says is not understood: then it was not damaged, and there may be more behind it.

    Raises:
        SegmentUnfinished: The header is cut short.
        SegmentCorrupt: The header is damaged, or none.
        SegmentNewer: It is of a later format.
    """

    __slots__ = (
        "_data",
        "_last",
        "end_us",
        "events",
        "flow_blocks",
        "footer",
        "header",
        "hop_blocks",
        "names",
        "offset",
        "records",
        "refused",
        "routes",
        "tagsets",
    )

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self.header = read_header(self._data)
        self.offset = header_size(self._data)
        self.names: list[str] = []
        self.routes: list[bytes] = []
        self.tagsets: list[Asked] = []
        self.hop_blocks: list[RecordBlock] = []
        self.flow_blocks: list[RecordBlock] = []
        self.events: list[RouteEvent] = []
        self.footer: SegmentFooter | None = None
        self.refused = False
        self.records: dict[bytes, int] = {HOPS: 0, FLOWS: 0, EVENTS: 0}
        self._last: dict[bytes, int] = dict.fromkeys(
            (HOPS, FLOWS, EVENTS), self.header.first_seq - 1
        )
        self.end_us = self.header.started_us

    @property
    def last_seq(self) -> int:
        """The last number that was read; `first_seq - 1` if none was."""
        return max(self._last.values())

    def step(self) -> None:
        """Read the next block; at the end of the data, or after the footer, that is an error.

        Raises:
            SegmentUnfinished: The data ends, before a block or within.
            SegmentCorrupt: The block is damaged, or is none that may stand here.
        """
        if self.footer is not None:
            raise SegmentCorrupt(self.offset, "bytes behind the footer")
        start = self.offset + BLOCK_HEADER.size
        if start > len(self._data):
            raise SegmentUnfinished
        kind, length, check = cast(
            "tuple[bytes, int, int]", BLOCK_HEADER.unpack_from(self._data, self.offset)
        )
        if length > MAX_BLOCK:
            raise self._corrupt(f"a block of {length} bytes, over the limit of {MAX_BLOCK}")
        if start + length > len(self._data):
            raise SegmentUnfinished
        body = self._data[start : start + length]
        if check != crc32(body, crc32(self._data[self.offset : self.offset + _CHECK_OFFSET])):
            raise self._corrupt("the check of a block")
        end = start + length
        # Of a footer that is refused nothing is lost, unless there is more behind it.
        self.refused = kind != FOOTER or end < len(self._data)
        self._take(kind, body)
        self.refused = False
        self.offset = end

    def _corrupt(self, reason: str) -> SegmentCorrupt:
        return SegmentCorrupt(self.offset, reason)

    def _take(self, kind: bytes, body: memoryview) -> None:
        if kind == HOPS:
            self._take_records(kind, body, HOP.size)
        elif kind == FLOWS:
            self._take_records(kind, body, FLOW.size)
        elif kind == EVENTS:
            self._take_events(self._list(body))
        elif kind == NAMES:
            self._define(self.names, [self._name(item) for item in self._list(body)], MAX_NAMES)
        elif kind == ROUTES:
            self._define(self.routes, [self._route(item) for item in self._list(body)], MAX_ROUTES)
        elif kind == TAGSETS:
            self._define(
                self.tagsets, [self._asked(item) for item in self._list(body)], MAX_TAGSETS
            )
        elif kind == FOOTER:
            self._take_footer(parse_footer(bytes(body), self.offset))
        else:
            raise self._corrupt(f"a block of the unknown type 0x{kind[0]:02x}")

    # --- lists of CBOR --------------------------------------------------------------------

    def _list(self, body: memoryview) -> list[object]:
        items = read(bytes(body), self.offset)
        if not isinstance(items, list):
            raise self._corrupt("no list")
        return cast("list[object]", items)

    def _define(self, known: list[T], more: list[T], limit: int) -> None:
        if len(known) + len(more) > limit:
            raise self._corrupt(f"over {limit} numbers are given")
        known += more

    def _name(self, item: object) -> str:
        if not isinstance(item, str) or not 0 < len(item.encode()) <= MAX_NAME:
            raise self._corrupt(f"a name that is no text of 1 to {MAX_NAME} bytes")
        return item

    def _route(self, item: object) -> bytes:
        if not isinstance(item, bytes) or len(item) != ID_SIZE:
            raise self._corrupt(f"a route id that is not {ID_SIZE} bytes")
        return item

    def _asked(self, item: object) -> Asked:
        tags, routing, method = self._fields(item, 3)
        if not isinstance(method, str):
            raise self._corrupt("a method that is no text")
        if type(routing) is not int or routing not in _ROUTINGS:
            raise self._corrupt("a routing that is none")
        return Asked(self._tags(tags), _ROUTINGS[routing], method)

    def _tags(self, items: object) -> TagList:
        # No limit but the block's: a destination has the default tags besides those it gave.
        if not isinstance(items, list):
            raise self._corrupt("no list of tags")
        return tuple(self._tag(item) for item in cast("list[object]", items))

    def _tag(self, item: object) -> tuple[int | str, str | None]:
        key, value = self._fields(item, 2)
        if value is not None and not isinstance(value, str):
            raise self._corrupt("the value of a tag is neither a text nor null")
        if isinstance(key, str) and key:
            return key, value
        if type(key) is int and 0 <= key < _MOST_KEY:
            return key, value
        raise self._corrupt("the key of a tag is neither a number nor a text")

    def _fields(self, item: object, count: int) -> list[object]:
        if not isinstance(item, list) or len(cast("list[object]", item)) != count:
            raise self._corrupt(f"no list of {count}")
        return cast("list[object]", item)

    def _event(self, item: object) -> RouteEvent:
        seq, ts_us, name, route_id, node, tags, reason = self._fields(item, 7)
        if type(seq) is not int or type(ts_us) is not int or not -MAX_I64 <= ts_us <= MAX_I64:
            raise self._corrupt("the number or the time of an event is not valid")
        if not isinstance(node, str) or not isinstance(reason, str):
            raise self._corrupt("the node or the reason of an event is not a text")
        if type(name) is not int or name not in _EVENT_NAMES:
            raise self._corrupt("an event of an unknown name")
        route = None if route_id is None else self._route(route_id)
        return RouteEvent(seq, ts_us, _EVENT_NAMES[name], route, node, self._tags(tags), reason)

    # --- what is numbered -----------------------------------------------------------------

    def _take_events(self, items: list[object]) -> None:
        events = [self._event(item) for item in items]
        if not events:
            return
        if not all(one.seq < other.seq for one, other in pairwise(events)):
            raise self._corrupt("the numbers of events do not rise")
        self._count(EVENTS, events[0].seq, events[-1].seq, len(events))
        self.events += events
        self.end_us = max(self.end_us, events[-1].ts_us)

    def _take_records(self, kind: bytes, body: memoryview, size: int) -> None:
        count, rest = divmod(len(body), size)
        if rest:
            raise self._corrupt(f"{len(body)} bytes are no records of {size}")
        if not count:
            return
        (first,) = _SEQ.unpack_from(body)
        final = len(body) - size
        if kind == HOPS:
            blocks = self.hop_blocks
            last, end_us = _SEQ_AND_TIME.unpack_from(body, final)
        else:
            blocks = self.flow_blocks
            last, began_us, window_ms = _FLOW_TIMES.unpack_from(body, final)
            end_us = began_us + window_ms * 1000
        self._count(kind, first, last, count)
        start = self.offset + BLOCK_HEADER.size
        known = len(self.names), len(self.routes), len(self.tagsets)
        blocks.append(RecordBlock(start, body, *known))
        self.end_us = max(self.end_us, end_us)

    def _count(self, kind: bytes, first: int, last: int, count: int) -> None:
        """Check that so many records of a kind fit between two numbers, and count them."""
        if first <= self._last[kind] or last - first < count - 1 or last > MAX_I64:
            raise self._corrupt("the numbers of records do not rise")
        numbers = max(last, self.last_seq) - self.header.first_seq + 1
        if sum(self.records.values()) + count > numbers:
            raise self._corrupt("more records than numbers were given")
        self._last[kind] = last
        self.records[kind] += count

    def _take_footer(self, footer: SegmentFooter) -> None:
        if (footer.hops, footer.flows, footer.events) != tuple(self.records.values()):
            raise self._corrupt("the footer counts other records than there are")
        if footer.last_seq < self.last_seq:
            raise self._corrupt("the footer's last number is lower than that of a record")
        self.footer = footer
