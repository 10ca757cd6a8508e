"""What an event log may not be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.actors.eventlog import LogOptions
from onward.actors.eventlog._options import DAY, LEAST_SECONDS
from onward.protocol.eventlog import EventLogError, Kind, Outcome
from tests.actors.eventlog.recorded import recording


def test_the_defaults_are_fine() -> None:
    options = LogOptions(Path("logs"), "broker")
    assert (options.sample_rate, options.fsync) == (0.01, "seal")
    assert options.max_bytes == 10 * 1024**3
    assert options.max_age_seconds == 7 * 24 * 3600


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("fsync", "always"),
        ("flush_seconds", 0.0),
        ("window_seconds", -1.0),
        ("seal_seconds", float("inf")),
        ("max_age_seconds", float("nan")),
        ("retry_seconds", 0.0),
        ("close_seconds", 0.0),
        ("flush_seconds", 1e-7),
        ("window_seconds", 1e-7),
        ("window_seconds", 5e6),
        ("seal_seconds", 0.0009),
        ("max_age_seconds", 1e18),
        ("seal_bytes", 0),
        ("seal_bytes", 1 << 31),
        ("max_bytes", 0),
        ("max_pending", 0),
        ("max_flows", 0),
        ("max_foreign_per_second", 0),
    ],
)
def test_an_option_out_of_range_says_which(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"LogOptions.{option} must be "):
        LogOptions(Path("logs"), "broker", **{option: value})  # type: ignore[arg-type]


def test_every_time_has_bounds_and_both_are_fine() -> None:
    times = [name for name in LogOptions.__slots__ if name.endswith("_seconds")]
    assert times
    for time in times:
        for value in (LEAST_SECONDS, 100 * 365 * DAY if "age" in time else DAY):
            made = LogOptions(Path("logs"), "broker", **{time: value})  # type: ignore[arg-type]
            assert getattr(made, time) == value


@pytest.mark.parametrize("seconds", [LEAST_SECONDS, DAY])
def test_flows_of_the_shortest_and_of_the_longest_window_are_written(seconds: float) -> None:
    made = recording(window_seconds=seconds)
    made.recorder.flows.cell(Kind.MESSAGE, Outcome.DELIVER, dest="x").add(1)
    (flow,) = [flow for segment in made.read() for flow in segment.flows()]
    assert flow.window_ms == seconds * 1000


def test_a_name_or_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(EventLogError, match="is no name of an event log"):
        LogOptions(Path("logs"), "a/b")
    with pytest.raises(ValueError, match="sample_rate must be a number from 0 to 1, not 2"):
        LogOptions(Path("logs"), "b", sample_rate=2)
