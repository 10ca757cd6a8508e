"""The recorder: hops, sampling, numbers, flows, events and segments."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from onward.actors.eventlog import Recorder
from onward.actors.eventlog.recording._messages import PACKED_HOP, codes_of, mark_of
from onward.actors.eventlog.recording._requests import MAX_KEPT
from onward.actors.eventlog.storage._dictionary import MAX_KNOWN, PIECE
from onward.protocol import Message
from onward.protocol.eventlog import HOP, Asked, EventName, Kind, LogMark, Outcome
from tests.actors.eventlog.recorded import A_BLOCK, Flowed, a_hop, an_event, recording

RECEIVED, DELIVER = int(Outcome.RECEIVED), int(Outcome.DELIVER)
MESSAGE = int(Kind.MESSAGE)


def marked(recorder: Recorder) -> LogMark:
    """Return the mark of a message that the count came out at."""
    mark = mark_of(recorder.messages.enters(None))
    assert mark is not None
    return mark


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
    left = recorder.sample_gap()
    for _ in range(10_000):
        left -= 1
        if left <= 0:
            count += 1
            assert marked(recorder).trace_id
            left = recorder.sample_gap()
    assert least < count < most


def test_all_are_sampled_or_none() -> None:
    recorder = recording(sample_rate=1.0).recorder
    assert recorder.sample_gap() == 1
    assert marked(recorder) != marked(recorder)
    assert recorder.sample_gap() == 1
    assert recording(sample_rate=0.0).recorder.sample_gap() == 0


def test_a_hop_is_packed_in_fewer_fields_to_the_same_bytes() -> None:
    ends = (0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10)
    fields = (1, -2, 3, 1 << 63, 4, 5, 255, 128, *ends, 6, 7, 8)
    packed = struct.pack("<IIII", *ends)
    assert PACKED_HOP.pack(*fields[:4], codes_of(4, 5, 255, 128), packed, 6, 7, 8) == HOP.pack(
        *fields
    )


@pytest.mark.parametrize(("took", "told"), [(-1, 0), (7, 7), (1 << 40, (1 << 32) - 1)])
def test_how_long_a_message_took_stays_within_what_a_hop_can_tell(took: int, told: int) -> None:
    made = recording()
    message = Message((), (), b"abc")
    made.recorder.messages.record(LogMark(7, 3, 5), message, None, Outcome.RETURN, took)
    (hop,) = made.hops()
    assert (hop.raw.latency_us, hop.raw.bytes, hop.raw.weight) == (told, 3, 5)
    assert (hop.outcome, hop.hop, hop.dest) == (Outcome.RETURN, 3, "edge")


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


def test_what_there_is_no_room_for_has_no_number_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onward.actors.eventlog.storage._dictionary.MAX_NAMES", 2)
    made = recording()
    recorder = made.recorder
    assert [recorder.naming.name(text) for text in ("a", "b", "c", "a", "")] == [1, 2, 0, 1, 0]
    assert [recorder.naming.route(each * 16) for each in (b"r", b"s", b"t")] == [1, 2, 0]
    asked = [Asked((("k", value),)) for value in "abc"]
    assert [recorder.naming.tagset(each) for each in (*asked, asked[0], None)] == [1, 2, 0, 1, 0]
    assert recorder.statistics().left_out == {"names": 3}


def test_ends_are_known_until_the_segment_ends_and_only_so_many() -> None:
    made = recording()
    naming = made.recorder.naming
    ends = naming.learn("key", "a", "b")
    assert naming.known["key"] is ends
    for number in range(MAX_KNOWN):
        naming.learn(number, "a", "b")
    assert list(naming.known) == [MAX_KNOWN - 1]


def test_long_names_are_clipped() -> None:
    made = recording()
    recorder = made.recorder
    a_hop(recorder, dest="é" * 300)
    (hop,) = made.hops()
    assert hop.dest.endswith("…")
    assert len(hop.dest.encode()) <= 255


def test_many_new_names_are_defined_in_several_blocks() -> None:
    made = recording()
    for number in range(PIECE // 8):
        made.recorder.naming.name(f"name {number}")
    a_hop(made.recorder)
    (segment,) = made.read()
    assert len(segment.names) == PIECE // 8 + 2


# --- flows ------------------------------------------------------------------------------------


def test_flows_are_written_once_a_window_and_begin_anew() -> None:
    made = recording()
    recorder = made.recorder
    recorder.flows.cell(MESSAGE, RECEIVED, dest="b").add(10)
    recorder.flows.cell(MESSAGE, RECEIVED, dest="b").add(5)
    made.seconds += 9
    recorder.tick()
    assert not recorder.write_flows()
    made.seconds += 1
    recorder.tick()
    assert recorder.write_flows()
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


def test_many_flows_are_written_in_parts() -> None:
    made = recording()
    for number in range(150):
        made.recorder.flows.cell(MESSAGE, DELIVER, dest=str(number)).add(1)
    made.seconds += 10
    made.recorder.tick()
    assert [made.recorder.write_flows() for _ in range(4)] == [True, True, True, False]
    assert sum(made.flows().values()) == 150


def test_services_beyond_the_limit_are_looked_up_anew() -> None:
    made = recording()
    requests = made.recorder.requests
    first = requests.origin("service 0")
    for number in range(MAX_KEPT + 10):
        assert requests.origin(f"service {number}").name == f"service {number}"
    assert requests.kept == 10
    assert requests.origin("service 0") is not first


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


def test_a_clock_that_goes_back_begins_another_window() -> None:
    made = recording()
    made.recorder.flows.cell(MESSAGE, DELIVER).add(1)
    made.skew -= 25
    made.recorder.tick()
    made.recorder.flows.cell(MESSAGE, DELIVER).add(1)
    (segment,) = made.read()
    assert [flow.window_us for flow in segment.flows()] == [1_000_000_000, 970_000_000]
