"""The timeout follows what was measured."""

from __future__ import annotations

import pytest

from onward.protocol.pipes import RoundTrip


def test_the_timeout_follows_the_measurements() -> None:
    trip = RoundTrip(first=0.5, least=0.02, most=2.0)
    assert trip.timeout() == 0.5
    assert trip.smoothed is None
    trip.measured(0.1)
    assert trip.timeout() == pytest.approx(0.3)
    for _ in range(200):
        trip.measured(0.1)
    assert trip.smoothed == pytest.approx(0.1)
    assert trip.timeout() == pytest.approx(0.1)
    trip.measured(0.05)
    assert trip.shortest == 0.05
    assert trip.timeout() > 0.1
    assert trip.smoothed is not None
    assert trip.overtaken() == pytest.approx(9 / 8 * trip.smoothed)


def test_the_timeout_doubles_up_to_the_longest() -> None:
    trip = RoundTrip(first=0.5, least=0.02, most=2.0)
    seen: list[float] = []
    for _ in range(4):
        seen.append(trip.timeout())
        trip.back_off()
    assert seen == [0.5, 1.0, 2.0, 2.0]
    for _ in range(100):
        trip.back_off()
    assert trip.timeout() == 2.0
    assert trip.overtaken() > 0


def test_the_timeout_is_never_too_short() -> None:
    trip = RoundTrip(first=0.5, least=0.02, most=2.0)
    trip.measured(0.000001)
    assert trip.timeout() == 0.02
