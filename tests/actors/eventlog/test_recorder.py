"""The recorder: blocks, numbers, windows, segments, clocks, and what does not get into the log."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

import pytest

from onward.actors.eventlog import Recorder
from onward.actors.eventlog._flows import MAX_PAIRS, Cell
from onward.actors.eventlog._hops import PACKED_HOP, codes_of
from onward.actors.eventlog._losses import BROKEN
from onward.actors.eventlog._messages import mark_of
from onward.actors.eventlog._naming import MAX_KNOWN
from onward.actors.eventlog._numbers import MAX_BYTES, PIECE
from onward.protocol.eventlog import HOP, Asked, EventName, Kind, LogMark, Outcome
from tests.actors.eventlog.recording import Flowed, Recording, recording

RECEIVED, DELIVER = int(Outcome.RECEIVED), int(Outcome.DELIVER)
MESSAGE = int(Kind.MESSAGE)
A_BLOCK = 1024
BEHIND = "the disk does not keep up"


def a_hop(recorder: Recorder, trace: int = 1, dest: str = "b") -> None:
    naming = recorder.naming
    ends = naming.known.get(dest) or naming.learn(dest, "a", dest)
    recorder.hop(trace, 0, codes_of(MESSAGE, DELIVER), ends, 5, 7, recorder.weight)


def an_event(recorder: Recorder) -> None:
    recorder.event(EventName.UP)


def marked(recorder: Recorder) -> LogMark:
    """Return the mark of a message that the count came out at."""
    mark = mark_of(recorder.messages.enters(None))
    assert mark is not None
    return mark


def lost(made: Recording) -> list[str]:
    return [event.reason for event in made.events() if event.name == EventName.LOST]


# --- hops -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, A_BLOCK - 1, A_BLOCK, A_BLOCK + 1, 3 * A_BLOCK])
def test_hops_come_back_in_order_whatever_fills_a_block(count: int) -> None:
    made = recording()
    for number in range(count):
        a_hop(made.recorder, number + 1)
    assert made.recorder.statistics().hops == count
    hops = made.hops()
    assert [hop.raw.trace_id for hop in hops] == list(range(1, count + 1))
    assert [hop.raw.seq for hop in hops] == list(range(1, count + 1))
    assert {(hop.origin, hop.dest) for hop in hops} <= {("a", "b")}


def test_a_destination_that_nobody_asks_has_a_name_and_an_id() -> None:
    made = recording()
    made.recorder.event(EventName.UP, bytes(range(16)), "idle")
    (segment,) = made.read()
    assert (segment.names, segment.routes) == (("idle",), (bytes(range(16)),))


def test_a_hop_has_its_time_and_its_weight() -> None:
    made = recording(sample_rate=0.25)
    made.seconds = 1234.5
    a_hop(made.recorder)
    (hop,) = made.hops()
    assert (hop.raw.ts_us, hop.raw.weight) == (1_234_500_000, 4)
    assert (hop.raw.latency_us, hop.raw.bytes) == (5, 7)


@pytest.mark.parametrize(("rate", "least", "most"), [(0.1, 850, 1150), (0.5, 4800, 5200)])
def test_about_the_rate_is_sampled(rate: float, least: int, most: int) -> None:
    recorder = recording(sample_rate=rate).recorder
    count = 0
    for _ in range(10_000):
        recorder.left -= 1
        if recorder.left <= 0:
            count += 1
            assert marked(recorder).trace_id
    assert least < count < most


def test_all_are_sampled_or_none() -> None:
    recorder = recording(sample_rate=1.0).recorder
    assert recorder.left == 1
    assert marked(recorder) != marked(recorder)
    assert recorder.left == 1
    assert recording(sample_rate=0.0).recorder.left > 1 << 60


def test_a_hop_is_packed_in_fewer_fields_to_the_same_bytes() -> None:
    ends = (0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10)
    fields = (1, -2, 3, 1 << 63, 4, 5, 255, 128, *ends, 6, 7, 8)
    packed = struct.pack("<IIII", *ends)
    assert PACKED_HOP.pack(*fields[:4], codes_of(4, 5, 255, 128), packed, 6, 7, 8) == HOP.pack(
        *fields
    )


# --- numbers ----------------------------------------------------------------------------------


def test_numbers_are_of_one_segment_and_defined_in_each() -> None:
    made = recording()
    recorder = made.recorder
    a_hop(recorder, dest="b")
    made.seconds += 61
    recorder.tick()
    assert not recorder.naming.known
    a_hop(recorder, dest="c")
    assert [(hop.origin, hop.dest) for hop in made.hops()] == [("a", "b"), ("a", "c")]
    assert [segment.names for segment in made.read()] == [("a", "b"), ("a", "c")]


def test_what_there_is_no_room_for_has_no_number_and_is_counted() -> None:
    made = recording(max_names=2, max_routes=1, max_tagsets=1)
    recorder = made.recorder
    assert [recorder.naming.name(text) for text in ("a", "b", "c", "a", "")] == [1, 2, 0, 1, 0]
    assert [recorder.naming.route(each) for each in (b"r" * 16, b"s" * 16, None)] == [1, 0, 0]
    asked = Asked((("k", "v"),))
    assert [recorder.naming.tagset(each) for each in (asked, Asked(()), asked, None)] == [
        1,
        0,
        1,
        0,
    ]
    assert recorder.statistics().without_number == 3


def test_ends_are_known_until_the_segment_ends_and_only_so_many() -> None:
    made = recording()
    naming = made.recorder.naming
    ends = naming.learn("key", "a", "b")
    assert naming.known["key"] is ends
    for number in range(MAX_KNOWN):
        naming.learn(number, "a", "b")
    assert list(naming.known) == [MAX_KNOWN - 1]


def test_ends_there_was_no_room_for_are_counted_for_each_hop() -> None:
    made = recording(max_names=1)
    for _ in range(3):
        a_hop(made.recorder)
    assert made.recorder.statistics().without_number == 3
    assert [(hop.origin, hop.dest) for hop in made.hops()] == [("a", "")] * 3


def test_long_names_are_clipped_and_long_tag_sets_left_out() -> None:
    made = recording()
    recorder = made.recorder
    a_hop(recorder, dest="é" * 300)
    (hop,) = made.hops()
    assert hop.dest.endswith("…")
    assert len(hop.dest.encode()) <= 255
    assert recorder.naming.tagset(Asked((("k", "v" * 5000),))) == 0
    assert recorder.naming.tagset(Asked(((5, None),))) == 1
    assert recorder.statistics().without_number == 1


def test_many_new_names_are_defined_in_several_blocks() -> None:
    made = recording()
    for number in range(PIECE // 8):
        made.recorder.naming.name(f"name {number}")
    a_hop(made.recorder)
    (segment,) = made.read()
    assert len(segment.names) == PIECE // 8 + 2


# --- flows ------------------------------------------------------------------------------------


def test_few_flows_are_written_with_each_tick_and_add_up() -> None:
    made = recording()
    cell = made.recorder.flows.cell(MESSAGE, RECEIVED, dest="b")
    for _ in range(4):
        cell.add(3)
        made.recorder.tick()
        assert not made.recorder.write_flows()
        made.seconds += 1
    made.recorder.tick()
    assert made.recorder.statistics().flows == 4
    (segment,) = made.read()
    rows = [(flow.window_us, flow.window_ms, flow.frames, flow.bytes) for flow in segment.flows()]
    assert rows == [(1_000_000_000, 10_000, 1, 3)] * 4


def test_many_flows_are_written_once_a_window_and_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onward.actors.eventlog._recorder.MAX_EARLY", 0)
    made = recording()
    recorder = made.recorder
    recorder.flows.cell(MESSAGE, RECEIVED, dest="b").add(10)
    recorder.flows.cell(MESSAGE, RECEIVED, dest="b").add(5)
    made.seconds += 9
    recorder.tick()
    assert not recorder.write_flows()
    assert recorder.statistics().flows == 0
    made.seconds += 1
    recorder.tick()
    assert not recorder.write_flows()
    recorder.flows.cell(MESSAGE, RECEIVED, dest="b").add(1)
    (segment,) = made.read()
    rows = [(flow.window_us, flow.window_ms, flow.frames, flow.bytes) for flow in segment.flows()]
    assert rows == [(1_000_000_000, 10_000, 2, 15), (1_010_000_000, 10_000, 1, 1)]


def test_a_cell_that_is_kept_longer_counts_in_the_window_it_is_counted_on() -> None:
    made = recording()
    cell = made.recorder.flows.cell(MESSAGE, RECEIVED, origin="a")
    cell.add(1)
    for _ in range(3):
        made.seconds += 10
        made.recorder.tick()
    cell.add(1)
    assert made.flows()[Flowed(Kind.MESSAGE, Outcome.RECEIVED, "a", "")] == 2


def test_flows_there_is_no_room_for_keep_kind_and_outcome() -> None:
    made = recording(max_flows=3)
    flows = made.recorder.flows
    for number in range(10):
        flows.cell(MESSAGE, RECEIVED, dest=f"w{number}").add(2)
        flows.cell(MESSAGE, DELIVER, dest=f"w{number}").add(2)
    assert flows.full
    assert flows.folded == 17
    assert made.totals() == {
        (Kind.MESSAGE, Outcome.RECEIVED): 10,
        (Kind.MESSAGE, Outcome.DELIVER): 10,
    }
    assert len(made.flows()) <= 5


def test_rows_are_bounded_whoever_kept_cells_of_windows_before() -> None:
    made = recording(max_flows=2)
    flows = made.recorder.flows
    kept = list[Cell]()
    for number in range(3):
        kept += [flows.cell(MESSAGE, DELIVER, dest=f"{number}{each}") for each in "ab"]
        flows.end_window(0, 10_000)
    for cell in kept:
        cell.add(1)
    flows.end_window(0, 10_000)
    assert len(flows.rows) == 3
    assert flows.folded == 4
    assert made.totals() == {(Kind.MESSAGE, Outcome.DELIVER): 6}


def test_many_flows_are_written_in_parts() -> None:
    made = recording()
    for number in range(2500):
        made.recorder.flows.cell(MESSAGE, DELIVER, dest=str(number)).add(1)
    made.seconds += 10
    made.recorder.tick()
    assert [made.recorder.write_flows() for _ in range(3)] == [True, True, False]
    assert sum(made.flows().values()) == 2500


# --- events -----------------------------------------------------------------------------------


def test_route_events_have_all_that_was_said() -> None:
    made = recording()
    made.recorder.event(EventName.UP, b"r" * 16, "orders", (("zone", "b"), (5, None)), "why")
    (event,) = made.events()
    assert (event.name, event.route_id, event.node) == (EventName.UP, b"r" * 16, "orders")
    assert (event.tags, event.reason) == ((("zone", "b"), (5, None)), "why")
    assert event.ts_us == 1_000_000_000


def test_events_are_written_before_there_are_too_many_or_too_large() -> None:
    made = recording()
    for _ in range(256):
        made.recorder.event(EventName.UP)
    assert len(made.recorder._events) == 0
    made.recorder.event(EventName.UP, tags=(("k", "v" * 300_000),))
    assert len(made.recorder._events) == 0
    assert len(made.events()) == 257


def test_rejects_are_limited_each_second() -> None:
    made = recording(max_rejects_per_second=2)
    for _ in range(5):
        made.recorder.reject((("a", "b"),), "no route")
    made.seconds += 1
    made.recorder.reject((), "no route")
    assert made.recorder.statistics().rejects_left_out == 3
    assert [event.name for event in made.events()] == [EventName.REJECT] * 3


# --- segments ---------------------------------------------------------------------------------


def test_a_segment_ends_by_age_and_an_idle_one_says_that_it_is() -> None:
    made = recording(seal_seconds=60)
    for _ in range(3):
        made.seconds += 60
        made.recorder.tick()
    made.recorder.close()
    made.recorder.close()
    made.recorder.tick()
    segments = made.read()
    assert [len(segment.events) for segment in segments] == [1, 1, 1, 1]
    assert {event.name for event in made.events()} == {EventName.IDLE}
    assert made.recorder.statistics().segments == 4


def test_a_segment_ends_by_size_in_the_middle_of_things() -> None:
    made = recording(seal_bytes=100_000)
    for number in range(5 * A_BLOCK):
        a_hop(made.recorder, number + 1)
    assert [segment.footer.hops for segment in made.read()] == [2048, 2048, 1024]
    assert len(made.hops()) == 5 * A_BLOCK


def test_a_segment_ends_by_size_at_a_tick_if_it_was_not_hops() -> None:
    made = recording(seal_bytes=1)
    made.recorder.event(EventName.UP)
    made.recorder.tick()
    made.recorder.event(EventName.DOWN)
    assert [len(segment.events) for segment in made.read()] == [1, 1]


@pytest.mark.parametrize("record", [a_hop, an_event])
def test_what_is_recorded_after_the_end_is_dropped_and_counted(
    record: Callable[[Recorder], None],
) -> None:
    made = recording()
    made.recorder.close()
    for _ in range(A_BLOCK):
        record(made.recorder)
    assert made.recorder.statistics().dropped == {"the log is closed": A_BLOCK}
    assert len(made.read()) == 1


# --- what cannot be packed --------------------------------------------------------------------


def huge(number: int) -> Asked:
    """Return a tag set of just under the limit, nearly all of it outside ASCII."""
    tags = tuple((chr(0x1F300 + each), "\U0001f600" * 30) for each in range(28))
    return Asked((*tags, ("u", str(number))))


def test_tag_sets_of_strangers_fill_no_block_and_hold_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = recording()
    blocks: list[int] = []
    append = made.sink.append

    def noted(block: bytes, body: bytes | None = None) -> bool:
        blocks.append(len(block if body is None else body))
        return append(block, body)

    monkeypatch.setattr(made.sink, "append", noted)
    for number in range(1500):
        made.recorder.flows.cell(MESSAGE, DELIVER, asked=huge(number)).add(1)
    for number in range(A_BLOCK):
        a_hop(made.recorder, number + 1)
        made.recorder.naming.tagset(huge(10_000 + number))
    made.seconds += 10
    made.recorder.tick()
    turns: list[int] = []
    while made.recorder.write_flows():
        turns.append(sum(blocks))
    assert max(blocks) < 2 * PIECE
    assert max(after - before for before, after in pairwise(turns)) < 512 * 1024
    assert sum(made.flows().values()) == 1500
    assert len(made.hops()) == A_BLOCK
    assert made.recorder.statistics().dropped == {}


def test_definitions_are_bounded_by_bytes() -> None:
    made = recording()
    numbers = [made.recorder.naming.tagset(huge(number)) for number in range(5000)]
    assert 0 in numbers
    assert sum(map(bool, numbers)) * 3500 < MAX_BYTES
    assert made.recorder.statistics().without_number == numbers.count(0)
    assert len(made.read()) == 1


def test_what_utf_8_cannot_write_is_cleaned() -> None:
    made = recording()
    recorder = made.recorder
    asked = Asked((("k\ud800", "v\udfff"), (5, None)), method="m\ud800")
    ends = recorder.naming.learn("key", "n\ud800", "", None, asked)
    recorder.hop(1, 0, codes_of(MESSAGE, DELIVER), ends, 1, 1, 1)
    recorder.event(EventName.UP, None, "n\ud800", asked.tags, "r\ud800" * 1000)
    recorder.flows.cell(MESSAGE, DELIVER, origin="o\ud800", asked=asked).add(1)
    (hop,) = made.hops()
    assert (hop.origin, hop.asked) == ("n?", Asked((("k?", "v?"), (5, None)), method="m?"))
    (event,) = made.events()
    assert (event.node, event.tags) == ("n?", (("k?", "v?"), (5, None)))
    assert len(event.reason) == 1024
    assert [flow.origin for flow in made.flows()] == ["o?"]


def test_an_event_with_too_many_tags_is_told_without_them() -> None:
    made = recording()
    made.recorder.event(EventName.UP, tags=(("k", "v" * 2_000_000),), reason="why")
    (event,) = made.events()
    assert event.tags == ()
    assert event.reason.startswith("why (2")


@pytest.mark.parametrize(
    "what",
    [
        "_naming.names_block",
        "_events.events_block",
        "_rows._pack_flow",
        "_naming.clip_name",
        "_events.clip_name",
    ],
)
def test_a_failure_in_packing_is_counted_and_never_reaches_who_routes(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bytes:
        raise RuntimeError("a defect")

    made = recording()
    recorder = made.recorder
    a_hop(recorder)
    recorder.event(EventName.UP)
    recorder.flows.cell(MESSAGE, DELIVER, dest="there").add(1)
    recorder.tick()
    with monkeypatch.context() as patched:
        patched.setattr(f"onward.actors.eventlog.{what}", broken)
        patched.setattr(recorder._output.naming._names, "_write", broken)
        for number in range(2 * A_BLOCK):
            a_hop(recorder, dest=f"new {number}")
        recorder.event(EventName.DOWN)
        made.seconds += 10
        recorder.tick()
        recorder.write_flows()
        recorder.tick()
    made.seconds += 1
    recorder.tick()
    a_hop(recorder, 77, dest="after")
    recorder.event(EventName.RETAG)
    assert [hop.dest for hop in made.hops() if hop.raw.trace_id == 77] == ["after"]
    names = [event.name for event in made.events()]
    assert {EventName.UP, EventName.LOST, EventName.RETAG} <= set(names)
    assert recorder.statistics().dropped[BROKEN] > 0
    assert sum(made.flows().values()) == 1
    lines = [record for record in caplog.records if "could not pack" in record.message]
    assert len(lines) == 1


def test_a_hop_that_does_not_fit_is_dropped_alone() -> None:
    made = recording()
    a_hop(made.recorder, 1 << 64)
    made.recorder.tick()
    a_hop(made.recorder, 5)
    assert [hop.raw.trace_id for hop in made.hops()] == [5]
    assert lost(made) == [f"1 events: {BROKEN}"]


def test_the_end_comes_whatever_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("a defect")

    made = recording()
    a_hop(made.recorder)
    made.recorder.flows.before_window.append(broken)
    made.seconds += 10
    made.recorder.tick()
    made.recorder.close()
    assert len(made.sink.sealed) >= 1


# --- what is lost -----------------------------------------------------------------------------


def test_what_is_lost_is_counted_and_told_as_soon_as_there_is_room() -> None:
    made = recording()
    made.sink.room = False
    for _ in range(A_BLOCK):
        a_hop(made.recorder)
    made.recorder.tick()
    assert made.recorder.statistics().dropped == {BEHIND: A_BLOCK + 1}
    made.sink.room = True
    made.recorder.tick()
    assert made.hops() == []
    assert lost(made) == [f"{A_BLOCK + 1} events: {BEHIND}"]


def test_the_disk_says_why() -> None:
    made = recording()
    made.sink.room, made.sink.why = False, "no space left on device"
    made.recorder.event(EventName.UP)
    made.recorder.tick()
    made.sink.room = True
    assert made.recorder.statistics().dropped == {"no space left on device": 1}
    assert lost(made) == ["1 events: no space left on device"]


def test_names_that_could_not_be_written_are_written_with_what_comes_next() -> None:
    made = recording()
    made.sink.room = False
    a_hop(made.recorder, dest="b")
    made.recorder.tick()
    made.sink.room = True
    a_hop(made.recorder, dest="c")
    assert [(hop.origin, hop.dest) for hop in made.hops()] == [("a", "c")]


def test_after_a_failure_another_segment_is_begun() -> None:
    made = recording(retry_seconds=5, seal_seconds=600)
    made.sink.room = False
    made.recorder.event(EventName.UP)
    made.recorder.tick()
    made.seconds += 4
    made.recorder.tick()
    assert made.recorder.statistics().segments == 1
    made.sink.room = True
    made.seconds += 1
    made.recorder.tick()
    assert made.recorder.statistics().segments == 2
    made.seconds += 60
    made.recorder.tick()
    assert made.recorder.statistics().segments == 2


def missing(made: Recording) -> int:
    return sum(segment.missing for segment in made.read())


def test_what_is_told_as_lost_is_what_is_missing() -> None:
    made = recording()
    made.sink.room = False
    for number in range(5):
        a_hop(made.recorder)
        an_event(made.recorder)
        made.seconds += 1
        made.recorder.tick()
        made.sink.room = number % 2 == 1
    made.sink.room = True
    made.recorder.tick()
    told = [int(reason.split()[0]) for reason in lost(made)]
    assert sum(told) == missing(made) == sum(made.recorder.statistics().dropped.values())


def test_flows_that_could_not_be_written_are_written_later() -> None:
    made = recording(max_flows=100)
    flows = made.recorder.flows
    made.sink.room = False
    for window in range(50):
        for number in range(40):
            flows.cell(MESSAGE, RECEIVED, dest=f"w{number}").add(2)
            flows.cell(MESSAGE, DELIVER, dest=f"w{number}").add(2)
        made.seconds += 10
        made.recorder.tick()
        assert not made.recorder.write_flows()
        assert len(flows.rows) <= 100 + MAX_PAIRS, window
    made.sink.room = True
    assert made.totals() == {
        (Kind.MESSAGE, Outcome.RECEIVED): 2000,
        (Kind.MESSAGE, Outcome.DELIVER): 2000,
    }
    rows = [flow for segment in made.read() for flow in segment.flows()]
    assert rows[0].window_us == 1_000_000_000
    assert rows[0].window_ms > 400_000


def test_flows_that_the_disk_took_and_lost_are_written_again() -> None:
    made = recording()
    flows = made.recorder.flows
    flows.cell(MESSAGE, DELIVER, dest="kept").add(1)
    flows.cell(MESSAGE, DELIVER, dest="lost").add(1)
    made.seconds += 10
    made.recorder.tick()
    made.sink.later.pending = 200
    assert not made.recorder.write_flows()
    made.recorder.tick()
    assert not flows.rows
    # The thread was at the second of the two when the disk was full.
    made.sink.later.pending, made.sink.later.lost_flows = 0, 1
    made.sink.why = "no space left on device"
    made.recorder.tick()
    assert [row[3] for row in flows.rows] == ["lost"]
    assert made.flows()[Flowed(Kind.MESSAGE, Outcome.DELIVER, "", "lost")] == 2
    assert made.flows()[Flowed(Kind.MESSAGE, Outcome.DELIVER, "", "kept")] == 1
    assert lost(made) == ["1 events: no space left on device"]


def test_what_said_so_and_was_lost_is_said_again() -> None:
    made = recording()
    made.sink.later.lost_hops = 7
    made.sink.later.pending = 10_000
    made.recorder.tick()
    made.sink.later.lost_events = 1
    made.recorder.tick()
    made.sink.later.pending = 0
    made.recorder.tick()
    assert lost(made) == ["7 events: the disk failed", "8 events: the disk failed"]


# --- the clock --------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "told"), [(3600.0, "+3600000000 us"), (-2.0, "-2000000 us")])
def test_a_clock_that_is_set_is_an_event(step: float, told: str) -> None:
    made = recording()
    made.seconds += 1
    made.recorder.tick()
    made.skew += step
    made.seconds += 1
    made.recorder.tick()
    made.recorder.tick()
    assert [(event.name, event.reason) for event in made.events()] == [(EventName.CLOCK, told)]


def test_a_clock_that_is_pulled_along_slowly_is_none() -> None:
    made = recording()
    for _ in range(10):
        made.skew += 0.5
        made.recorder.tick()
    assert [event.name for event in made.events()] == [EventName.IDLE]


def test_a_clock_that_goes_back_begins_another_window() -> None:
    made = recording()
    made.recorder.flows.cell(MESSAGE, DELIVER).add(1)
    made.skew -= 25
    made.recorder.tick()
    made.recorder.flows.cell(MESSAGE, DELIVER).add(1)
    (segment,) = made.read()
    assert [flow.window_us for flow in segment.flows()] == [1_000_000_000, 970_000_000]
