"""The clock that what takes less than a millisecond is measured by, on either event loop."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.eventlog import EventLog, LogOptions
from onward.actors.runtime._clock import clock_of


def test_the_clock_of_a_loop_is_its_own_or_the_one_behind_uvloops() -> None:
    loop = asyncio.new_event_loop()
    try:
        assert clock_of(loop) == loop.time
    finally:
        loop.close()
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        assert clock_of(loop) is time.monotonic
        assert abs(loop.time() - time.monotonic()) < 5  # one epoch: timers are set by it
    finally:
        loop.close()


def test_an_event_log_measures_by_the_clock_that_requests_begin_by(tmp_path: Path) -> None:
    async def measured_by() -> object:
        async with Node("a") as node:
            log = await EventLog.attach(node, LogOptions(tmp_path, "a"))
            assert log._recorder is not None
            return log._recorder.now

    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # uvloop's own is of whole milliseconds, and behind: most requests would take no time.
        assert runner.run(measured_by()) is time.monotonic
