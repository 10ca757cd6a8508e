"""What is put into blocks, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import MAX_TAGS, RoutingType, Tag, TagList, with_default_tags
from onward.protocol.eventlog import (
    MAX_NAME,
    Asked,
    EventLogError,
    EventName,
    RouteEvent,
    Segment,
    SegmentHeader,
    clip_name,
    events_block,
    flows_block,
    hops_block,
    names_block,
    read_segment,
    recover,
    routes_block,
    tagsets_block,
)
from tests.protocol.eventlog.logs import EVENT_1, FLOW_1, HOP_1


def test_a_name_that_is_empty_or_too_long_is_refused() -> None:
    for name in ("", "x" * (MAX_NAME + 1), "é" * 128):
        with pytest.raises(EventLogError, match="a name has 1 to 255 bytes"):
            names_block(["fine", name])


def test_a_route_id_of_another_length_is_refused() -> None:
    with pytest.raises(EventLogError, match="16 bytes, not 15"):
        routes_block([bytes(16), bytes(15)])


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(EventLogError, match="a number of a hop does not fit"):
        hops_block([replace(HOP_1, latency_us=1 << 32)])
    with pytest.raises(EventLogError, match="a number of a flow does not fit"):
        flows_block([replace(FLOW_1, origin=-1)])


@given(st.text(max_size=400))
def test_any_text_is_cut_to_a_name(text: str) -> None:
    name = clip_name(text)
    assert len(name.encode()) <= MAX_NAME
    if name:
        names_block([name])


def test_what_fits_is_not_cut() -> None:
    assert clip_name("") == ""
    assert clip_name("orders") == "orders"
    assert clip_name("é" * 127) == "é" * 127
    assert clip_name("é" * 128) == "é" * 126 + "…"
    assert clip_name("a\ud800b") == "a?b"


def read_back(*blocks: bytes) -> Segment:
    header = SegmentHeader("b", bytes(16), 1, 1, 0, 1.0).serialize()
    kept = recover(b"".join((header, *blocks)))
    assert (kept.lost, kept.reason) == (0, "")
    return read_segment(b"".join((header, *blocks, kept.footer.serialize())))


keys = st.integers(0, (1 << 24) - 1) | st.text(min_size=1, max_size=127)
wires = st.lists(st.tuples(keys, st.none() | st.text(max_size=127)), max_size=MAX_TAGS)


@given(wires, st.text(max_size=300))
def test_the_tags_of_any_destination_and_any_query_read_back(tags: list[Tag], text: str) -> None:
    given_ = with_default_tags(tuple(tags), text, bytes(16))
    event = RouteEvent(1, 0, EventName.UP, bytes(16), text, given_, text)
    asked = Asked(tuple(tags), RoutingType.UNICAST, text)
    segment = read_back(tagsets_block([asked]), events_block([event]))
    assert segment.events == (event,)
    assert segment.tagsets == (asked,)


def test_a_destination_with_as_many_tags_as_may_be_has_the_default_ones_as_well() -> None:
    tags = tuple((f"k{number}", "v") for number in range(MAX_TAGS))
    given_ = with_default_tags(tags, "big", bytes(16))
    assert len(given_) == MAX_TAGS + 2
    event = replace(EVENT_1, seq=1, tags=given_)
    assert read_back(events_block([event])).events[0].tags == given_


def test_what_utf8_cannot_write_becomes_a_question_mark() -> None:
    bad = "n\ud800"
    tags: TagList = ((bad, bad), (1, None))
    segment = read_back(
        names_block([bad, "fine"]),
        tagsets_block([Asked(tags, RoutingType.UNICAST, bad)]),
        events_block([RouteEvent(1, 0, EventName.UP, bytes(16), bad, tags, bad)]),
    )
    good: TagList = (("n?", "n?"), (1, None))
    assert segment.names == ("n?", "fine")
    assert segment.tagsets == (Asked(good, RoutingType.UNICAST, "n?"),)
    assert segment.events == (RouteEvent(1, 0, EventName.UP, bytes(16), "n?", good, "n?"),)
