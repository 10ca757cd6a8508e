"""The plots: what is drawn where the plain way to draw it would show nothing, or something else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from onward.pipeline.report import Latency
from onward.pipeline.report._plots import axis_of_times
from onward.pipeline.report._plots_requests import lines_figure, ranges_figure
from onward.pipeline.report._plots_routes import churn_figure, shards_figure
from tests.support.report_pages import DAY, busy_day

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def latency() -> Latency:
    found = busy_day().latency
    assert found is not None
    return found


def test_no_time_at_all_has_a_place_on_the_axis_of_logarithms() -> None:
    at_once = replace(latency().lines[0], day=(10, 0.0, 0.4, 2000.0))
    ranges = ranges_figure(Latency((at_once,), 5))["data"]
    assert ranges[0]["x"] == [0.001, 2.0, None]
    assert [points["x"] for points in ranges[1:]] == [[0.001], [0.001], [2.0]]


def test_only_the_first_destination_is_drawn_until_another_is_chosen() -> None:
    lines = lines_figure(latency())["data"]
    assert {line["meta"] for line in lines if line["visible"]} == {0}
    assert {line["meta"] for line in lines} == set(range(len(latency().lines)))


def test_a_moment_has_minutes_around_it() -> None:
    assert axis_of_times([NOON])["range"] == ["2026-11-20 11:55:00", "2026-11-20 12:05:00"]
    assert "range" not in axis_of_times([NOON, NOON + timedelta(hours=1)])
    assert "range" not in axis_of_times([])


def test_the_bars_of_the_first_and_the_last_hour_are_whole() -> None:
    churn = busy_day().churn
    assert churn is not None
    assert churn_figure(churn)["layout"]["xaxis"]["range"] == [
        f"{DAY - timedelta(days=1)} 23:30:00",
        f"{DAY} 23:30:00",
    ]


def test_a_route_with_more_than_one_and_a_half_of_an_even_part_stands_out() -> None:
    shards = busy_day().shards
    assert shards is not None
    bars, marks = shards_figure(shards)["data"]
    assert bars["marker"]["color"] == ["$bad", "$accent", "$accent"]
    assert marks["x"] == pytest.approx([100 / 3] * 3)
