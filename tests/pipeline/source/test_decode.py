"""Segments as Arrow: the same as the reader in plain Python has, column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from onward.pipeline import EVENT_TABLES
from onward.pipeline._errors import SegmentDamaged, SegmentGone
from onward.pipeline.source import columns_of, decode
from onward.pipeline.source._decode import decode_batches
from onward.pipeline.source._reading import _load_definitions  # pyright: ignore[reportPrivateUsage]
from onward.protocol.eventlog import (
    EventName,
    Flow,
    Hop,
    Kind,
    Outcome,
    RouteEvent,
    Segment,
    SegmentHeader,
    asked_tags_text,
    asked_text,
    carried_tags_text,
    name_id,
    read_segment,
    route_key,
    tagset_id,
)
from tests.support.eventlogs import START_US, log_id_of, write_log, write_segment

TABLES = [table for table in EVENT_TABLES if table != "segments"]


def when(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def expected(table: str, segment: Segment) -> list[dict[str, Any]]:
    """What the table should have of the segment, by the reader in plain Python."""
    header = segment.header
    base = {"broker": header.broker, "epoch": header.epoch}
    few = {**base, "first_seq": header.first_seq, "first_seen": when(header.started_us)}
    nodes = [0, *(name_id(name) for name in segment.names)]
    routes = [0, *(route_key(route) for route in segment.routes)]
    tagsets = [0, *(tagset_id(asked) for asked in segment.tagsets)]
    if table == "hops":
        return [
            {
                **base,
                "seq": hop.seq,
                "ts": when(hop.ts_us),
                "trace_id": signed(hop.trace_id),
                "kind": hop.kind,
                "outcome": hop.outcome,
                "hop": hop.hop,
                "flags": hop.flags,
                "origin_node": nodes[hop.origin],
                "dest_node": nodes[hop.dest],
                "route_id": routes[hop.route],
                "tagset_id": tagsets[hop.tagset],
                "shard_hash": signed(hop.shard_hash),
                "latency_us": hop.latency_us,
                "bytes": hop.bytes,
                "weight": hop.weight,
            }
            for hop in segment.hops()
        ]
    if table == "flows":
        return [
            {
                **base,
                "seq": flow.seq,
                "window_start": when(flow.window_us),
                "window_ms": flow.window_ms,
                "origin_node": nodes[flow.origin],
                "dest_node": nodes[flow.dest],
                "route_id": routes[flow.route],
                "tagset_id": tagsets[flow.tagset],
                "kind": flow.kind,
                "outcome": flow.outcome,
                "frames": flow.frames,
                "bytes": flow.bytes,
            }
            for flow in segment.flows()
        ]
    if table == "route_events":
        return [
            {
                **base,
                "seq": event.seq,
                "ts": when(event.ts_us),
                "event": event.name.name.lower(),
                "route_id": route_key(event.route_id) if event.route_id else 0,
                "node": name_id(event.node) if event.node else 0,
                "tags": list(carried_tags_text(event.tags).items()),
                "reason": event.reason,
            }
            for event in segment.events
        ]
    if table == "tagsets":
        return [
            {
                **few,
                "tagset_id": tagset_id(asked),
                "tags": list(asked_tags_text(asked).items()),
                "text": asked_text(asked),
                "routing": asked.routing.name.lower(),
                "method": asked.method,
            }
            for asked in segment.tagsets
        ]
    if table == "nodes":
        return [{**few, "node": name_id(name), "name": name} for name in segment.names]
    return [
        {**few, "route_id": route_key(route), "uuid": str(UUID(bytes=route))}
        for route in segment.routes
    ]


def in_order(row: Mapping[str, Any], table: str) -> dict[str, Any]:
    return {name: row[name] for name in columns_of(EVENT_TABLES[table])}


@pytest.mark.parametrize("table", TABLES)
def test_all_columns_are_what_the_plain_reader_has(table: str, tmp_path: Path) -> None:
    truth = write_log(tmp_path, hops=2_500, flows=200, events=50, segments=2, epoch=7)
    for written in truth.segments:
        segment = read_segment(written.path.read_bytes())
        rows = decode(table, None, segment).to_pylist()
        assert rows == [in_order(row, table) for row in expected(table, segment)]
        assert rows


@pytest.mark.parametrize("table", TABLES)
def test_each_column_can_be_read_alone(table: str, tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=1)
    segment = read_segment(truth.segments[0].path.read_bytes())
    everything = decode(table, None, segment)
    for name in columns_of(EVENT_TABLES[table]):
        alone = decode(table, [name], segment)
        assert alone.schema.names == [name]
        assert alone.column(0).equals(everything.column(name))


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_segment_has_no_rows_and_all_columns(table: str, tmp_path: Path) -> None:
    header = SegmentHeader("b1", log_id_of("b1"), 1, 1, START_US, 0.01)
    segment = read_segment(write_segment(tmp_path, header).path.read_bytes())
    batch = decode(table, None, segment)
    assert batch.num_rows == 0
    assert batch.schema.names == list(columns_of(EVENT_TABLES[table]))
    assert list(decode_batches(table, columns_of(EVENT_TABLES[table]), segment, "")) == []


@pytest.mark.parametrize("table", ["hops", "flows", "route_events"])
def test_times_outside_are_left_out(table: str, tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=1, events=50)
    segment = read_segment(truth.segments[0].path.read_bytes())
    since, until = START_US + 600_000_000, START_US + 2_400_000_000
    columns = columns_of(EVENT_TABLES[table])
    column = "window_start" if table == "flows" else "ts"

    batches = decode_batches(table, columns, segment, "", since=since, until=until)

    rows = [row for batch in batches for row in batch.to_pylist()]
    every = decode(table, None, segment).to_pylist()
    assert rows == [row for row in every if when(since) <= row[column] < when(until)]
    assert 0 < len(rows) < len(every)


@pytest.mark.parametrize("table", ["tagsets", "nodes", "routes"])
def test_definitions_are_read_without_the_records(table: str, tmp_path: Path) -> None:
    written = write_log(tmp_path, segments=1, first_seq=7).segments[0]
    whole = read_segment(written.path.read_bytes())
    part = _load_definitions(written.path)
    assert (part.names, part.routes, part.tagsets) == (whole.names, whole.routes, whole.tagsets)
    assert decode(table, None, part).equals(decode(table, None, whole))
    assert not part.hop_bodies


def test_definitions_that_are_cut_short_are_damage(tmp_path: Path) -> None:
    path = write_log(tmp_path, segments=1).segments[0].path
    data = path.read_bytes()
    for size in (0, 3, 40, len(data) - 3):
        path.write_bytes(data[:size])
        with pytest.raises(SegmentDamaged, match=path.name):
            _load_definitions(path)
    path.unlink()
    with pytest.raises(SegmentGone):
        _load_definitions(path)


def test_large_segments_come_in_pieces_of_whole_blocks(tmp_path: Path) -> None:
    truth = write_log(tmp_path, hops=5_500, flows=0, events=0, segments=1)
    segment = read_segment(truth.segments[0].path.read_bytes())

    batches = list(decode_batches("hops", {"seq": "bigint"}, segment, "", max_rows=2_000))

    assert [batch.num_rows for batch in batches] == [2_000, 2_000, 1_500]
    assert np.concatenate([batch.column(0) for batch in batches]).tolist() == [
        hop.seq for hop in truth.hops
    ]


def a_hop(seq: int, origin: int = 0) -> Hop:
    return Hop(seq, START_US, 1, 0, 2, 3, 0, 0, origin, 0, 0, 0, 10, 10, 1)


def a_flow(window: int) -> Flow:
    return Flow(1, window, 10_000, 0, 0, 0, 0, Kind.RESPONSE, Outcome.RECEIVED, 5, 50)


@pytest.mark.parametrize(
    ("hops", "said"),
    [
        ([a_hop(1, origin=2)], "a number for origin that it does not give"),
        ([a_hop(seq) for seq in (1, 3, 3, 4)], "do not rise"),
        ([a_hop(seq) for seq in (1, 3, 2, 4)], "do not rise"),
    ],
)
def test_records_that_make_no_sense_are_damage(hops: list[Hop], said: str, tmp_path: Path) -> None:
    header = SegmentHeader("b1", log_id_of("b1"), 1, 1, START_US, 0.01)
    written = write_segment(tmp_path, header, names=["one"], hops=hops)
    with pytest.raises(SegmentDamaged, match=said) as raised:
        decode("hops", None, read_segment(written.path.read_bytes()), "b1/x.seg")
    assert "b1/x.seg" in str(raised.value)


@pytest.mark.parametrize("mad", [2**62, -1, 7_258_118_400_000_000])
@pytest.mark.parametrize("table", ["hops", "flows", "route_events"])
def test_times_that_no_clock_shows_are_damage(table: str, mad: int, tmp_path: Path) -> None:
    header = SegmentHeader("b1", log_id_of("b1"), 1, 1, START_US, 0.01)
    hops = [replace(a_hop(1), ts_us=mad)] if table == "hops" else []
    flows = [a_flow(mad)] if table == "flows" else []
    events = [RouteEvent(1, mad, EventName.IDLE, None, "", (), "")]
    written = write_segment(
        tmp_path,
        header,
        hops=hops,
        flows=flows,
        events=events if table == "route_events" else [],
        ended_us=START_US,
    )
    with pytest.raises(SegmentDamaged, match=r"b1/x.seg: .* outside 1970 to 2200"):
        decode(table, None, read_segment(written.path.read_bytes()), "b1/x.seg")


@pytest.mark.parametrize(("frames", "size"), [(2**63, 1), (1, 2**63)])
def test_counts_beyond_sparks_numbers_are_damage(frames: int, size: int, tmp_path: Path) -> None:
    header = SegmentHeader("b1", log_id_of("b1"), 1, 1, START_US, 0.01)
    flow = replace(a_flow(START_US), frames=frames, bytes=size)
    written = write_segment(tmp_path, header, flows=[flow])
    with pytest.raises(SegmentDamaged, match="more than"):
        decode("flows", None, read_segment(written.path.read_bytes()), "b1/x.seg")
