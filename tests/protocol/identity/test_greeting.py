"""Greetings: since when a node runs, its clock, and its engines."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_GREETED,
    MAX_SKEW,
    MAX_START,
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
