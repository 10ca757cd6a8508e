"""Greetings: since when a node runs, its clock, and its engines."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_GREETED,
    MAX_SKEW,
    MAX_START,
    TOLD_APART,
    AdvertEnvelope,
    AdvertKind,
    BadRecord,
    Destination,
    DestinationKind,
    Greeting,
    ReplayWindows,
    SigningKey,
    first_id_time,
    parse_greeting,
    serialize_greeting,
    told_time,
)

NODE = SigningKey(bytes(range(32))).identity
BYTES = bytes.fromhex("8418400102818200426869")


def test_a_greeting_is_read_whole_and_refused_when_it_is_cut() -> None:
    greeting = Greeting(1, 2, (AdvertEnvelope(AdvertKind.ENGINE, b"hi"),))
    assert serialize_greeting(greeting) == BYTES
    assert parse_greeting(BYTES) == greeting
    for size in range(len(BYTES)):
        with pytest.raises(BadRecord):
            parse_greeting(BYTES[:size])
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        parse_greeting(BYTES + b"\x00")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ("83184001 02", "a greeting has 3 items, not 4"),
        ("8418410102 80", "it is no greeting"),
        ("8418402002 80", "the start is a negative number, not a number"),
        ("84184001f6 80", "the time is a simple value, not a number"),
        ("84184001 02 9841", "the list of adverts has 65 items, not 0 to 64"),
        ("84184001 02 81 820940", "there is no kind 9 of adverts"),
    ],
)
def test_what_is_no_greeting_is_refused(record: str, reason: str) -> None:
    data = bytes.fromhex(record.replace(" ", ""))
    if "9841" in record:
        data += bytes(MAX_GREETED + 1)
    with pytest.raises(BadRecord) as raised:
        parse_greeting(data)
    assert raised.value.reason == reason


@given(
    started=st.integers(1, 2**40),
    elapsed=st.integers(0, 3 * MAX_SKEW),
    late=st.integers(0, 200),
)
def test_the_first_id_for_a_node_is_one_that_it_accepts(
    started: int, elapsed: int, late: int
) -> None:
    # The node has greeted a while after its start, and the greeting was under way for a time.
    windows = ReplayWindows(started)
    now = started + 1 + elapsed
    number = first_id_time(started, now) << 20
    there = now + late
    destination = Destination(DestinationKind.NODE, NODE)
    assert windows.record(NODE, destination, number, there + 1000, NODE, there) is None


@given(st.integers(0, 2**40), st.integers(0, 10_000), st.integers(1, 10_000))
def test_ids_of_a_sender_that_is_started_again_begin_above_those_of_before(
    started: int, elapsed: int, later: int
) -> None:
    first = first_id_time(started, started + elapsed)
    assert started + MAX_SKEW < first <= started + max(1, elapsed) + MAX_SKEW < MAX_START
    assert first <= first_id_time(started, started + elapsed + later)


def test_ids_begin_a_second_before_the_latest_that_is_accepted() -> None:
    assert first_id_time(0, 1) == MAX_SKEW + 1
    assert first_id_time(0, 1000) == MAX_SKEW + 500
    assert first_id_time(0, 2000) == MAX_SKEW + 1000
    assert first_id_time(0, 50_000) == MAX_SKEW + 49_000


def test_no_two_sessions_are_told_the_same_time() -> None:
    assert told_time(0, 100, 0) == 100
    assert told_time(0, 100, 100) == 102
    assert told_time(0, 103, 102) == 104
    assert told_time(0, 200, 104) == 200
    # But for a node that has been started in this very moment.
    assert told_time(99, 100, 100) == 100


@given(
    started=st.integers(1, 2**40),
    # Also set back, by less in all than the second that is left.
    passed=st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 500, 5000, -15]), max_size=60),
)
def test_no_two_sessions_have_ids_of_the_same_time_and_all_are_accepted(
    started: int, passed: list[int]
) -> None:
    now, told, before = started + 5000, 0, 0
    destination, windows = Destination(DestinationKind.NODE, NODE), ReplayWindows(started)
    for each in passed:
        now += each
        told = told_time(started, now, told)
        begins = first_id_time(started, told)
        assert begins > before
        before = begins
        assert windows.record(NODE, destination, begins << 20, now + 1000, NODE, now) is None


def test_hundreds_of_sessions_can_begin_in_one_moment() -> None:
    started, told = 1000, 0
    now = started + 60_000
    times = set[int]()
    for _ in range(500):
        told = told_time(started, now, told)
        times.add(first_id_time(started, told))
    assert len(times) == 500
    assert max(times) <= now + MAX_SKEW
    # Then it is told the time that it is: later sessions have the times of some before.
    while told > now:
        told = told_time(started, now, told)
        times.add(first_id_time(started, told))
    assert max(times) <= now + MAX_SKEW


def test_a_clock_that_is_set_back_is_followed() -> None:
    started, now = 0, 10_000_000
    assert told_time(started, now - 3000, now) == now - 3000
    assert told_time(started, now - 500, now) == now + TOLD_APART
