"""What a lake knows of itself: numbers it has, days that are closed, batches that fit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onward.pipeline._errors import DuplicateBroker, SegmentDamaged
from onward.pipeline.ingest import KEPT_SKIPPED, BrokerState, LakeState, _state
from onward.pipeline.ingest._parts import LakeFiles
from onward.pipeline.ingest._plan import plan, unfolded
from onward.pipeline.ingest._state import add_range, microseconds
from onward.pipeline.ingest._tables import TableWriter

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def segment(
    epoch: int,
    first: int,
    last: int | None,
    *,
    broker: str = "b1",
    log_id: str = "aa",
    ended: datetime = NOON,
    hops: int | None = None,
) -> Mapping[str, Any]:
    return {
        "broker": broker,
        "epoch": epoch,
        "first_seq": first,
        "last_seq": last,
        "log_id": None if last is None else log_id,
        "path": f"{broker}/{epoch:08x}-{first:016x}.seg",
        "ended": ended,
        "hops": (0 if last is None else last - first + 1) if hops is None else hops,
        "flows": 0,
        "events": 0,
        "size": 5,
        "damaged": "broken" if last is None else None,
    }


def sealed(**brokers: datetime) -> LakeState:
    return LakeState(
        batch=1,
        brokers={
            name: BrokerState("aa", microseconds(when), "x") for name, when in brokers.items()
        },
    )


def test_ranges_in_any_order_become_one() -> None:
    pieces = [(1, 1, 10), (1, 11, 11), (1, 12, 40), (2, 1, 5), (2, 6, 7)]
    for seed in range(20):
        ranges: tuple[tuple[int, int, int], ...] = ()
        for piece in random.Random(seed).sample(pieces, len(pieces)):
            ranges = add_range(ranges, *piece)
        assert ranges == ((1, 1, 40), (2, 1, 7))


def test_a_state_comes_back_from_json() -> None:
    state = plan([segment(1, 1, 10), segment(2, 1, 5, broker="b2")], LakeState())
    made = LakeState().after(brokers=state.brokers, segments=["b", "a"], now=NOON)
    made = LakeState.of({**made.plain(), "late": {"2026-11-20": [3, 0]}})
    assert LakeState.of(made.plain()) == made
    assert made.segments == ("a", "b")
    assert made.late == {date(2026, 11, 20): (3, 0)}


def test_a_day_is_closed_when_all_brokers_have_sealed_it() -> None:
    midnight = datetime(2026, 11, 22, tzinfo=UTC)
    early = midnight - timedelta(seconds=1)
    assert sealed(b1=NOON, b2=early).closed_by(NOON) == date(2026, 11, 20)
    assert sealed(b1=NOON, b2=midnight).closed_by(NOON) == date(2026, 11, 21)
    assert LakeState().closed_by(NOON) is None


def test_a_broker_that_is_silent_for_a_day_keeps_none_open() -> None:
    gone = NOON - timedelta(days=1, seconds=1)
    assert sealed(b1=NOON, b2=gone).closed_by(NOON) == date(2026, 11, 21)
    assert sealed(b1=gone).closed_by(NOON) == date(2026, 11, 20)


def test_a_clock_that_is_ahead_closes_no_day_before_its_time() -> None:
    future = NOON + timedelta(days=400)
    assert sealed(b1=future).closed_by(NOON) == date(2026, 11, 21)
    assert sealed(b1=NOON, b2=future).closed_by(NOON) == date(2026, 11, 21)


def test_a_clock_that_goes_back_opens_no_day_again() -> None:
    state = LakeState(
        brokers={"b1": BrokerState("aa", microseconds(NOON - timedelta(days=9)), "x")},
        closed=date(2026, 11, 21),
    )
    assert state.closed_by(NOON) == date(2026, 11, 21)
    assert sealed(b1=datetime(1960, 1, 1, tzinfo=UTC)).closed_by(NOON) == date(1969, 12, 31)


def test_what_is_missing_is_counted_between_and_inside_segments() -> None:
    rows = [
        # The first of all was deleted before there was a lake.
        segment(1, 101, 110),
        segment(1, 121, 130, hops=7),
        segment(2, 4, 5),
    ]
    broker = plan(rows, LakeState()).brokers["b1"]
    assert broker.missing == 10 + 3 + 3
    assert broker.last == (2, 5)
    assert BrokerState("aa", 0, "").missing == 0
    assert BrokerState("aa", 0, "").last == (0, 0)


def test_what_the_lake_has_is_not_added_again() -> None:
    first = plan([segment(1, 1, 10), segment(1, 11, 20)], LakeState())
    state = LakeState(brokers=first.brokers)

    again = plan([segment(1, 11, 20), segment(1, 1, 10), segment(1, 21, 30)], state)

    assert [row["first_seq"] for row in again.rows] == [21]
    assert again.duplicates == 2
    assert again.brokers["b1"].ranges == ((1, 1, 30),)
    assert again.brokers["b1"].events == 30


def test_a_gap_may_be_filled_later() -> None:
    state = LakeState(brokers=plan([segment(1, 1, 10), segment(1, 21, 30)], LakeState()).brokers)
    assert state.brokers["b1"].missing == 10
    newest = state.brokers["b1"].segment

    filled = plan([segment(1, 11, 20, ended=NOON - timedelta(days=5))], state).brokers["b1"]

    assert (filled.missing, filled.ranges) == (0, ((1, 1, 30),))
    assert (filled.segment, filled.sealed_through) == (newest, microseconds(NOON))


def test_segments_that_overlap_what_is_there_are_damage() -> None:
    state = LakeState(brokers=plan([segment(1, 1, 10)], LakeState()).brokers)
    with pytest.raises(SegmentDamaged, match="some of its events are in the lake"):
        plan([segment(1, 10, 12)], state)


def test_another_log_under_the_same_name_is_told_with_both() -> None:
    state = LakeState(brokers=plan([segment(1, 1, 10)], LakeState()).brokers)
    with pytest.raises(DuplicateBroker, match=r"log id aa\) and .*log id bb"):
        plan([segment(2, 1, 10, log_id="bb")], state)


def test_empty_and_damaged_segments_add_no_numbers() -> None:
    batch = plan([segment(1, 1, 10), segment(1, 11, 10), segment(1, 11, None)], LakeState())
    assert batch.brokers["b1"].ranges == ((1, 1, 10),)
    assert len(batch.rows) == 2
    assert batch.damaged == [segment(1, 11, None)]
    assert batch.total("hops") == 10


def test_an_empty_segment_is_known_again_too() -> None:
    rows = [segment(1, 1, 10), segment(1, 11, 10), segment(1, 11, 20), segment(2, 1, 0)]
    first = plan(rows, LakeState())
    assert len(first.rows) == 4
    state = LakeState(brokers=first.brokers)

    again = plan([*rows, segment(3, 1, 0)], state)

    assert (again.rows, again.duplicates) == ([segment(3, 1, 0)], 4)
    assert again.brokers["b1"].segments == 5

    # One that was skipped as damaged, and turns out to be empty, was not had.
    damaged = plan([segment(1, 1, None), segment(2, 1, 5)], LakeState())
    mended = plan([segment(1, 1, 0)], LakeState(brokers=damaged.brokers))
    assert (len(mended.rows), mended.brokers["b1"].skipped) == (1, ())


def test_what_was_skipped_is_missing_until_it_is_there() -> None:
    damaged = plan(
        [segment(1, 1, 10), segment(1, 11, None), segment(1, 21, 30), segment(1, 31, None)],
        LakeState(),
        {segment(1, 11, None)["path"]: (7, 70)},
    ).brokers["b1"]
    # Of the last one nobody knows more than that it has a number.
    assert damaged.missing == 10 + 1
    assert [(each.first, each.size, each.modified) for each in damaged.skipped] == [
        (11, 7, 70),
        (31, 5, 0),
    ]
    assert BrokerState.of(damaged.plain()) == damaged
    assert plan([segment(2, 1, 5)], LakeState(brokers={"b1": damaged})).brokers["b1"].missing == 11

    state = LakeState(brokers={"b1": damaged})
    known = {**segment(1, 31, 40), "damaged": "broken", "hops": 0}
    assert plan([known], state).brokers["b1"].missing == 10 + 10
    mended = plan([segment(1, 11, 20), segment(1, 31, 40)], state)
    assert (mended.brokers["b1"].missing, mended.brokers["b1"].skipped) == (0, ())
    again = plan([segment(1, 11, 20)], LakeState(brokers=mended.brokers))
    assert (again.rows, again.duplicates) == ([], 1)


def test_a_broker_of_which_nothing_could_be_read_is_known_when_something_can() -> None:
    first = plan([segment(1, 1, None)], LakeState())
    assert (first.brokers["b1"].log_id, first.brokers["b1"].missing) == ("", 1)
    then = plan([segment(1, 11, 20)], LakeState(brokers=first.brokers)).brokers["b1"]
    assert (then.log_id, then.missing) == ("aa", 10)


def test_no_more_is_kept_of_what_was_skipped_than_the_limit() -> None:
    rows = [segment(epoch, 1, None) for epoch in range(1, KEPT_SKIPPED + 3)]
    kept = plan(rows, LakeState()).brokers["b1"].skipped
    assert (len(kept), kept[0].epoch) == (KEPT_SKIPPED, 3)


def test_a_folded_epoch_is_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_state, "KEPT_RANGES", 3)
    rows = [
        # Of the first there was more before, of the second there will be, in the third is a hole.
        segment(1, 5, 10),
        segment(2, 1, 10),
        segment(3, 1, 4),
        segment(3, 8, 9),
        segment(4, 1, None),
        *(segment(epoch, 1, 10) for epoch in range(5, 9)),
    ]
    state = LakeState(brokers=plan(rows, LakeState()).brokers)
    broker = state.brokers["b1"]
    assert broker.ranges == ((6, 1, 10), (7, 1, 10), (8, 1, 10))
    assert (broker.folded, broker.folded_first, broker.folded_last) == (5, 5, 10 + 10 + 9 + 1 + 10)
    assert broker.missing == 3 + 1
    assert BrokerState.of(broker.plain()) == broker
    files = LakeFiles(tmp_path)
    files.commit(replace(state, batch=0))
    told: Any = None
    TableWriter(told, files, tmp_path, 0, told).write_small("segments", rows)

    late = [segment(2, 11, 20), segment(3, 5, 7), segment(4, 1, 5)]
    again = plan([*rows[:4], *late], unfolded([*rows[:4], *late], state, files))

    assert again.duplicates == 4
    assert [row["epoch"] for row in again.rows] == [2, 3, 4]
    after = again.brokers["b1"]
    assert (after.folded, after.folded_last, after.missing) == (5, 10 + 20 + 9 + 5 + 10, 0)
    assert after.ranges == broker.ranges
    assert unfolded([segment(6, 1, 10)], state, files) is state
    # What is of the last epoch is not folded, however many holes it has.
    holes = plan([segment(9, at, at) for at in range(1, 20, 2)], LakeState()).brokers["b1"]
    assert (len(holes.ranges), holes.missing) == (10, 9)


def test_late_events_are_added_up_by_day() -> None:
    day = date(2026, 11, 20)
    state = LakeState(batch=7, late={day: (3, 2)})
    assert state.with_late({day: 4, date(2026, 11, 19): 1}) == {
        day: (7, 7),
        date(2026, 11, 19): (1, 7),
    }
