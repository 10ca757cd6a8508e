"""The recorder: route events, segments, and a clock that is set."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onward.actors.eventlog import Recorder
from onward.protocol.eventlog import EventName, Kind, Outcome
from tests.actors.eventlog.recorded import A_BLOCK, a_hop, an_event, recording

DELIVER = int(Outcome.DELIVER)
MESSAGE = int(Kind.MESSAGE)


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
