"""Segments for the tests: one written out, and any that a writer could make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from onward.protocol.broker import RoutingType, Tag, TagList
from onward.protocol.eventlog import (
    MAX_NAME,
    Asked,
    EventName,
    Flow,
    Hop,
    RouteEvent,
    SegmentFooter,
    SegmentHeader,
    events_block,
    flows_block,
    hops_block,
    names_block,
    routes_block,
    tagsets_block,
)

Block = (
    tuple[str, tuple[str, ...]]
    | tuple[str, tuple[bytes, ...]]
    | tuple[str, tuple[Asked, ...]]
    | tuple[str, tuple[Hop, ...]]
    | tuple[str, tuple[Flow, ...]]
    | tuple[str, tuple[RouteEvent, ...]]
)

HEADER = SegmentHeader("broker-1", bytes(range(16)), 0x1F, 1001, 1_700_000_000_000_000, 0.01)
TAGS: TagList = ((1, "orders"), ("zone", "b"), (0x7C0001, None))
HOP_1 = Hop(1001, HEADER.started_us + 5, 7, 9, 2, 3, 0, 2, 1, 2, 1, 1, 250, 64, 100)
HOP_2 = replace(HOP_1, seq=1003, ts_us=HEADER.started_us + 6, trace_id=(1 << 64) - 1, dest=0)
FLOW_1 = Flow(1002, HEADER.started_us, 10_000, 1, 2, 1, 1, 2, 3, 12, 3400)
EVENT_1 = RouteEvent(
    1004, HEADER.started_us + 7, EventName.UP, bytes(16), "orders", TAGS, "it joined"
)
FOOTER = SegmentFooter(2, 1, 1, 1004, HEADER.started_us + 60_000_000)
PARTS = [
    HEADER.serialize(),
    names_block(["shop", "orders"]),
    routes_block([bytes(16)]),
    tagsets_block([Asked(TAGS, RoutingType.SHARD, "jump")]),
    hops_block([HOP_1, HOP_2]),
    flows_block([FLOW_1]),
    events_block([EVENT_1]),
    FOOTER.serialize(),
]
SEGMENT = b"".join(PARTS)


@dataclass(frozen=True)
class Written:
    """What was written, and the bytes of each part."""

    header: SegmentHeader
    names: tuple[str, ...]
    routes: tuple[bytes, ...]
    tagsets: tuple[Asked, ...]
    hops: tuple[Hop, ...]
    flows: tuple[Flow, ...]
    events: tuple[RouteEvent, ...]
    footer: SegmentFooter
    parts: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)


u8 = st.integers(0, 255)
u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
times = st.integers(-(1 << 62), 1 << 62)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(lambda text: 0 < len(text.encode()) <= MAX_NAME)
keys: st.SearchStrategy[int | str] = st.integers(0, 127) | names
tags: st.SearchStrategy[Tag] = st.tuples(keys, st.none() | texts)
tag_lists: st.SearchStrategy[TagList] = st.lists(tags, max_size=4).map(tuple)
askeds = st.builds(Asked, tag_lists, st.sampled_from(RoutingType), texts)
headers = st.builds(
    SegmentHeader,
    st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}", fullmatch=True),
    st.binary(min_size=16, max_size=16),
    st.integers(0, (1 << 31) - 1),
    st.integers(1, 1 << 40),
    times,
    st.floats(0, 1),
)


@st.composite
def segments(draw: st.DrawFn, most: int = 12) -> Written:
    """A segment as any writer may write it: what is numbered before it is referred to."""
    header = draw(headers)
    parts = [header.serialize()]
    names_, routes, tagsets = list[str](), list[bytes](), list[Asked]()
    hops, flows, events = list[Hop](), list[Flow](), list[RouteEvent]()
    seq = header.first_seq - 1
    for kind in draw(st.lists(st.sampled_from("NPTRFE"), max_size=most)):
        count = draw(st.integers(0, 3))
        if kind == "N":
            more = draw(st.lists(names, min_size=count, max_size=count))
            names_ += more
            parts.append(names_block(more))
        elif kind == "P":
            ids = [draw(st.binary(min_size=16, max_size=16)) for _ in range(count)]
            routes += ids
            parts.append(routes_block(ids))
        elif kind == "T":
            sets = [draw(askeds) for _ in range(count)]
            tagsets += sets
            parts.append(tagsets_block(sets))
        else:
            seqs: list[int] = []
            for _ in range(count):
                seq += draw(st.integers(1, 3))
                seqs.append(seq)
            name = st.integers(0, len(names_))
            numbers = [name, name, st.integers(0, len(routes)), st.integers(0, len(tagsets))]
            if kind == "R":
                made = [draw(hop_of(each, numbers)) for each in seqs]
                hops += made
                parts.append(hops_block(made))
            elif kind == "F":
                counted = [draw(flow_of(each, numbers)) for each in seqs]
                flows += counted
                parts.append(flows_block(counted))
            else:
                happened = [draw(event_of(each)) for each in seqs]
                events += happened
                parts.append(events_block(happened))
    last = seq + draw(st.integers(0, 2))
    footer = SegmentFooter(len(hops), len(flows), len(events), last, draw(times))
    return Written(
        header,
        tuple(names_),
        tuple(routes),
        tuple(tagsets),
        tuple(hops),
        tuple(flows),
        tuple(events),
        footer,
        (*parts, footer.serialize()),
    )


def hop_of(seq: int, numbers: Sequence[st.SearchStrategy[int]]) -> st.SearchStrategy[Hop]:
    front = st.just(seq), times, u64, u64, u8, u8, u8, u8
    return st.builds(Hop, *front, *numbers, u32, u32, u32)


def flow_of(seq: int, numbers: Sequence[st.SearchStrategy[int]]) -> st.SearchStrategy[Flow]:
    return st.builds(Flow, st.just(seq), times, u32, *numbers, u8, u8, u64, u64)


def event_of(seq: int) -> st.SearchStrategy[RouteEvent]:
    route = st.none() | st.binary(min_size=16, max_size=16)
    return st.builds(
        RouteEvent, st.just(seq), times, st.sampled_from(EventName), route, texts, tag_lists, texts
    )
