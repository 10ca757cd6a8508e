"""The lag of a loop."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.monitoring import LoopLag


async def test_a_loop_that_is_free_does_not_lag() -> None:
    lag = LoopLag(asyncio.get_running_loop())
    assert lag.now == 0.0
    lag.start()
    await asyncio.sleep(1.75)
    lag.stop()
    lag.stop()
    assert sum(lag.histogram.read().counts) == 3
    assert lag.now == pytest.approx(0.0, abs=0.001)


async def test_a_loop_that_was_held_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    lag = LoopLag(asyncio.get_running_loop())
    now = 0.0
    monkeypatch.setattr(lag, "_clock", lambda: now)
    lag.start()
    now = 7.5  # the timer was due at 0.5, and has not been called
    assert lag.now == 7.0
    await asyncio.sleep(0.5)
    assert lag.now == 7.0
    assert lag.histogram.read().total == 7.0
    lag.stop()
