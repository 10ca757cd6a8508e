"""What is put into blocks, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from onward.protocol.eventlog import (
    MAX_NAME,
    EventLogError,
    block,
    clip_name,
    events_block,
    flows_block,
    hops_block,
    names_block,
    record_count,
    routes_block,
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


@pytest.mark.parametrize("count", [0, 1, 23, 24, 255, 256, 300, 65_535, 65_536])
def test_the_records_of_a_body_are_counted_without_reading_it(count: int) -> None:
    hops = hops_block([HOP_1] * min(count, 300))
    assert record_count(b"R", hops[9:]) == min(count, 300)
    flows = flows_block([FLOW_1] * min(count, 300))
    assert record_count(b"F", memoryview(flows)[9:]) == min(count, 300)
    events = events_block([replace(EVENT_1, tags=(), reason="", node="")] * count)
    assert record_count(b"E", events[9:]) == count


def test_what_holds_no_records_counts_none() -> None:
    for kind in (b"N", b"P", b"T", b"Z"):
        assert record_count(kind, block(kind, b"\x81\x01")) == 0
    assert record_count(b"E", b"") == 0
