"""How numbers, times and texts are written."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from onward.pipeline.report._text import (
    amount,
    as_json,
    clock,
    compact,
    duration,
    html,
    plain,
    share,
    short,
    size,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (999.6, "1 k"),
        (1000, "1 k"),
        (12_403, "12.4 k"),
        (4_812_331, "4.81 M"),
        (2_000_000_000, "2 G"),
        (5e15, "5,000 T"),
    ],
)
def test_big_numbers_have_three_digits_and_a_unit(number: float, text: str) -> None:
    assert compact(number) == text


def test_amounts_have_thin_spaces() -> None:
    assert amount(1_234_567) == "1\u202f234\u202f567"


@pytest.mark.parametrize(
    ("octets", "text"), [(0, "0 B"), (640, "640 B"), (3_212_000_111, "3.21 GB")]
)
def test_sizes(octets: int, text: str) -> None:
    assert size(octets) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 µs"),
        (640, "640 µs"),
        (1250, "1.25 ms"),
        (2_500_000, "2.5 s"),
        (600_000_000, "10 min"),
        (14_400_000_000, "4 h"),
    ],
)
def test_durations_have_a_unit_that_suits_them(microseconds: float, text: str) -> None:
    assert duration(microseconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (1, 0, "\u2013"),
        (0, 5, "0 %"),
        (1, 3, "33.33 %"),
        (1, 1_000_000, "< 0.01 %"),
        (999_999, 1_000_000, "> 99.99 %"),
        (5, 5, "100 %"),
    ],
)
def test_a_share_that_is_small_is_not_none(part: float, whole: float, text: str) -> None:
    assert share(part, whole) == text


def test_long_labels_lose_their_middle() -> None:
    assert short("a" * 26) == "a" * 26
    assert short("start" + "x" * 40 + "end", 11) == "start…xxend"
    assert len(short("y" * 100)) == 26


def test_texts_are_escaped_for_where_they_stand() -> None:
    evil = "<b>\"'&"
    assert html(evil) == "&lt;b&gt;&quot;&#x27;&amp;"
    assert plain(evil) == "&lt;b&gt;\"'&amp;"
    assert "<" not in as_json(["</script>", evil])
    assert json.loads(as_json(["</script>", evil])) == ["</script>", evil]


def test_json_of_what_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_json(float("nan"))


def test_times_of_day() -> None:
    assert clock(None) == "\u2013"
    assert clock(datetime(2026, 11, 20, 3, 4, 5, tzinfo=UTC)) == "03:04:05"
