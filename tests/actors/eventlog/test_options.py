"""What an event log may not be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.actors.eventlog import LogOptions
from onward.protocol.eventlog import EventLogError


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
        ("seal_bytes", 0),
        ("seal_bytes", 1 << 31),
        ("max_bytes", 0),
        ("max_pending", 0),
        ("max_names", 65_536),
        ("max_routes", 0),
        ("max_tagsets", 65_536),
        ("max_flows", 0),
        ("max_rejects_per_second", 0),
    ],
)
def test_an_option_out_of_range_says_which(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{option} is "):
        LogOptions(Path("logs"), "broker", **{option: value})  # type: ignore[arg-type]


def test_a_name_or_a_rate_that_is_none_is_refused() -> None:
    with pytest.raises(EventLogError, match="is no name of an event log"):
        LogOptions(Path("logs"), "a/b")
    with pytest.raises(EventLogError, match="a sampling rate of 2 is not from 0 to 1"):
        LogOptions(Path("logs"), "b", sample_rate=2)
