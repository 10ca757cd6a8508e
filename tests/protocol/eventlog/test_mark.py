"""The mark that has the hops of a message recorded."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import MAX_TRACING, read_tracing
from onward.protocol.eventlog import (
    MAX_LOG_HOP,
    MAX_LOG_WEIGHT,
    LogMark,
    log_mark_of,
    with_log_mark,
)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, MAX_LOG_HOP), st.integers(1, MAX_LOG_WEIGHT))
def test_a_mark_is_read_as_it_was_written(trace: int, hop: int, weight: int) -> None:
    text = with_log_mark({"traceparent": "x"}, LogMark(trace, hop, weight))
    assert text is not None
    fields = read_tracing(text)
    assert fields is not None
    assert fields["traceparent"] == "x"
    assert log_mark_of(fields) == LogMark(trace, hop, weight)


def test_a_mark_is_16_digits_a_count_and_a_weight() -> None:
    text = with_log_mark({}, LogMark(0xF067, 3, 100))
    assert text == '{"onward.log":"000000000000f067-3-100"}'


@pytest.mark.parametrize(("said", "taken"), [("0", 1), ("4000000000", MAX_LOG_WEIGHT)])
def test_a_weight_that_nobody_believes_is_taken_for_what_there_is(said: str, taken: int) -> None:
    mark = log_mark_of({"onward.log": f"000000000000f067-3-{said}"})
    assert mark == LogMark(0xF067, 3, taken)


def test_hops_are_counted_up_to_the_limit() -> None:
    assert LogMark(5, weight=9).next() == LogMark(5, 1, 9)
    assert LogMark(5, MAX_LOG_HOP).next() == LogMark(5, MAX_LOG_HOP)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5-1-1",
        "000000000000F067-1-1",
        "000000000000f067-1",
        "000000000000f067-1-",
        "000000000000f067-256-1",
        "000000000000f067-1000-1",
        "000000000000f067-1-1 ",
        "000000000000f067--1-1",
        "000000000000f067-1-12345678901",
    ],
)
def test_what_is_no_mark_is_as_good_as_none(text: str) -> None:
    assert log_mark_of({"onward.log": text}) is None
    assert log_mark_of({}) is None


def test_a_text_that_would_be_too_long_is_not_marked() -> None:
    assert with_log_mark({"x": "y" * MAX_TRACING}, LogMark(1)) is None
