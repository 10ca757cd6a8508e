"""The views of `onward top`: keys, rates, and frames that fit."""

from __future__ import annotations

from typing import Any

import pytest

from onward.cli._status import CommandError
from onward.cli._top_views import MAX_PROBLEMS, VIEWS, Rates, Sample, TopState, frame

FIGURES: dict[str, Any] = {
    "routes": 2,
    "waiting": 3,
    "oldest_wait": 1.5,
    "rejected": 1,
    "lost": 0,
    "draining": True,
    "streams": 4,
    "listeners": [{"connections": 2}, {"connections": 3}],
    "requests_rate": 1234.56,
}
PROBLEM = {"severity": "critical", "subject": "disk\x1b", "text": "full", "advice": "empty it"}
ROW = {"service": "shop\x1b[2J", "destinations": 2, "success": 0.5, "requests_rate": 10.0}


def shown(state: TopState, sample: Sample, columns: int, lines: int, **color: bool) -> list[str]:
    return frame(state, sample, "rsocket+tcp://a:1", (columns, lines), color=color.get("on", False))


def test_keys_change_the_view_the_order_and_the_pause() -> None:
    state = TopState()
    assert state.query(5) == "/api/v1/services?sort=-requests&limit=5"
    for _ in range(5):
        assert state.press("s")
    assert state.query(5) == "/api/v1/services?sort=service&limit=5"
    assert state.press("r")
    assert state.query(5) == "/api/v1/services?sort=-service&limit=5"
    assert state.press("s")
    assert state.column == "requests"
    for number, view in enumerate(VIEWS, 1):
        assert state.press(str(number))
        assert (state.shown, state.sort, state.reverse) == (view, 0, False)
    assert state.press("p")
    assert state.paused
    assert state.press(" ")
    assert not state.paused
    for key in ("x", "5", "0", "\n"):
        assert not TopState().press(key)


def test_columns_of_the_order_are_fields_of_the_tables() -> None:
    for view in VIEWS:
        assert len(set(view.sort)) == len(view.sort)
        assert set(view.counters) <= {column.field for column in view.columns}


def test_rates_are_of_the_last_two_looks() -> None:
    rates, view = Rates(), VIEWS[0]
    first = rates.add(view, [{"service": "a", "requests": 10}], 1.0)
    assert first[0]["requests_rate"] is None
    rows = [{"service": "a", "requests": 30}, {"service": "b", "requests": 5}]
    second = rates.add(view, rows, 3.0)
    assert [row["requests_rate"] for row in second] == [10.0, None]
    # Started anew.
    assert rates.add(view, [{"service": "a", "requests": 1}], 4.0)[0]["requests_rate"] == 0.0
    # Another view, and the same moment.
    assert rates.add(VIEWS[3], [{"address": "a", "handled": 1}], 5.0)[0]["handled_rate"] is None
    assert rates.add(VIEWS[3], [{"address": "a", "handled": 1}], 5.0)[0]["handled_rate"] is None


def test_rows_and_problems_have_their_process() -> None:
    rows = [
        {"address": each, "waiting": 0, "failed": 0, "restarts": 0, "process": each}
        for each in range(2)
    ]
    problem = {**PROBLEM, "kind": "limit", "process": 1}
    silent = {**PROBLEM, "kind": "process", "subject": "process 2", "process": 2}
    state = TopState(view=3)
    lines = shown(state, Sample(0.0, FIGURES, [problem, silent], 2, rows), 200, 10)
    assert lines[1:3] == ["critical: process 1: disk\\x1b: full", "critical: process 2: full"]
    assert [line.split()[-1] for line in lines[3:6]] == ["PROCESS", "0", "1"]


def test_a_frame_has_what_is_wrong_before_the_rows() -> None:
    sample = Sample(0.0, FIGURES, [PROBLEM], 5, [ROW])
    lines = shown(TopState(paused=True), sample, 200, 10)
    assert len(lines) == 10
    assert lines[0].startswith("DRAINING  PAUSED  ")
    assert "1,234.6 requests/s  3 waiting (1.5 s)  1 rejected  0 lost" in lines[0]
    assert lines[0].endswith("4 streams  5 connections  2 routes  rsocket+tcp://a:1")
    assert lines[1] == "critical: disk\\x1b: full"
    assert lines[2].split()[:2] == ["SERVICE", "DESTINATIONS"]
    assert lines[3].split() == [
        "shop\\x1b[2J",
        "2",
        "0",
        "0",
        "10.0",
        "50.00",
        "%",
        "-",
        "-",
        "0",
        "0",
    ]
    assert "s sort: requests" in lines[-1]
    assert "p go on" in lines[-1]
    assert lines[-1].startswith(" 4 more")


@pytest.mark.parametrize("size", [(80, 24), (20, 5), (1, 1), (3, 2), (200, 3), (40, 100)])
@pytest.mark.parametrize("on", [False, True])
def test_a_frame_fits_any_screen(size: tuple[int, int], on: bool) -> None:
    sample = Sample(0.0, FIGURES, [PROBLEM] * 20, 50, [ROW] * 50)
    lines = shown(TopState(), sample, *size, on=on)
    assert len(lines) == size[1]
    for line in lines:
        plain = line
        for code in (0, 1, 7, 31, 33):
            plain = plain.replace(f"\x1b[{code}m", "")
        assert len(plain) <= size[0]
        assert plain.isprintable()
        assert on or plain == line
    problems = sum("critical" in line for line in lines)
    assert problems <= MAX_PROBLEMS


@pytest.mark.parametrize("view", range(len(VIEWS)))
def test_each_view_shows_rows_of_a_broker_that_says_little(view: int) -> None:
    state = TopState(view)
    row = {VIEWS[view].key: 1}
    lines = shown(state, Sample(0.0, {**FIGURES, "requests_rate": None}, [], 1, [row]), 200, 5)
    assert lines[0].split("  ")[2] == "- requests/s"
    assert lines[1].split()[0] == VIEWS[view].columns[0].heading
    busy = shown(TopState(2), Sample(0.0, FIGURES, [], 1, [{"expected": True}]), 200, 5)
    assert busy[2].endswith("expected")


@pytest.mark.parametrize(
    "sample",
    [
        Sample(0.0, {}),
        Sample(0.0, {**FIGURES, "listeners": 5}),
        Sample(0.0, FIGURES, [{}]),
        Sample(0.0, FIGURES, [], 1, [{"destinations": "x"}]),
    ],
)
def test_odd_answers(sample: Sample) -> None:
    with pytest.raises(CommandError, match="has no services"):
        shown(TopState(), sample, 80, 24)
