"""What a log lacks, by when, and what it says of it itself."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from onward.pipeline.transforms import MAX_REASONS, log_holes
from tests.pipeline.transforms.rows import frame
from tests.support.traffic import SECOND, START, Row, time_of

pytestmark = pytest.mark.spark


def segment(
    at: float, first: int, last: int, events: int, *, log: str = "b", epoch: int = 1
) -> Row:
    """Return a segment of ten seconds."""
    began, ended = (time_of(START + int(each * SECOND)) for each in (at, at + 10))
    path = f"{log}/{epoch}-{first}"
    return (log, epoch, first, last, "00", path, 1, 1.0, began, ended, events, 0, 0, 1, None)


def damaged(first: int, *, epoch: int) -> Row:
    """Return a segment that was skipped: nothing is known but its name."""
    return ("b", epoch, first, None, None, "b/x", *[None] * 7, 1, "the check of the header")


def complete(log: str, missing: int) -> Row:
    return (log, "00", time_of(START), 1, 1, 1, 1, missing)


def lost(at: float, reason: str, log: str = "b") -> Row:
    return (log, 1, 1, time_of(START + int(at * SECOND)), "lost", None, 0, {}, reason)


def holes(
    spark: SparkSession,
    segments: list[Row],
    events: list[Row] | None = None,
    completeness: list[Row] | None = None,
    between: tuple[float, float] | None = None,
) -> list[tuple[str, int, int, list[str]]]:
    times = [
        None if between is None else time_of(START + int(at * SECOND)) for at in between or (0, 0)
    ]
    made = log_holes(
        frame(spark, "segments", segments),
        frame(spark, "route_events", events or []),
        frame(spark, "completeness", completeness or []),
        *times,
    )
    return [tuple(row) for row in made.orderBy("log").collect()]


def test_a_log_that_goes_on_from_number_to_number_lacks_nothing(spark: SparkSession) -> None:
    # What was before the first segment was deleted before there was a lake.
    segments = [segment(0, 11, 20, 10), segment(10, 21, 25, 5), segment(20, 1, 5, 5, epoch=2)]
    assert holes(spark, segments, completeness=[complete("b", 0)]) == []


def test_numbers_missing_in_a_segment_between_two_and_before_a_run(spark: SparkSession) -> None:
    segments = [
        segment(0, 1, 10, 7),
        segment(10, 16, 20, 5),
        segment(20, 3, 5, 3, epoch=2),
        segment(0, 1, 10, 10, log="whole"),
    ]
    assert holes(spark, segments) == [("b", 3 + 5 + 2, 0, [])]
    assert holes(spark, segments, between=(0, 5)) == [("b", 3, 0, [])]
    assert holes(spark, segments, between=(21, 99)) == []


def test_a_skipped_segment_lies_between_its_neighbours_until_added(spark: SparkSession) -> None:
    around = [segment(0, 1, 3, 3), segment(5, 1, 3, 3, epoch=2), segment(20, 7, 9, 3, epoch=2)]
    skipped = [*around, damaged(4, epoch=2)]
    assert holes(spark, skipped) == [("b", 3, 0, [])]
    assert holes(spark, [*skipped, segment(10, 4, 6, 3, epoch=2)]) == []


def test_what_nobody_can_place_counts_at_any_time(spark: SparkSession) -> None:
    known = [complete("b", 9)]
    assert holes(spark, [segment(0, 1, 10, 8)], None, known) == [("b", 9, 0, [])]
    assert holes(spark, [segment(0, 1, 10, 8)], None, known, (50, 60)) == [("b", 7, 0, [])]


def test_what_a_log_could_not_take_is_what_it_says(spark: SparkSession) -> None:
    events = [
        lost(0, "5000 events: disk full"),
        lost(5, "1 event: too large"),
        lost(6, "who knows", log="c"),
        *(lost(7, f"1 events: reason {number}", log="d") for number in range(5)),
    ]
    assert holes(spark, [], events) == [
        ("b", 0, 5001, ["disk full", "too large"]),
        ("c", 0, 1, ["who knows"]),
        ("d", 0, 5, [f"reason {number}" for number in range(MAX_REASONS)]),
    ]
    assert holes(spark, [], events, between=(1, 6)) == [("b", 0, 1, ["too large"])]
