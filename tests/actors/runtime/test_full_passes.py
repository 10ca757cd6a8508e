"""Full passes of the cyclic collector, put off while objects are loaded that stay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from onward.actors.runtime._full_passes import LEASE, LONGEST, PAUSE, FullPasses

USUAL = (500, 7, 9)
OFF = (500, 7, 2**31 - 1)


class Passes(FullPasses):
    """Full passes with a clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__(lambda: self.now)
        self.now = 100.0

    def put_off_at(self, now: float) -> tuple[int, int, int]:
        self.now = now
        self.put_off()
        return gc.get_threshold()

    def after(self, now: float, generation: int = 1) -> tuple[int, int, int]:
        """Return the threshold after a pass at a time."""
        self.now = now
        gc.collect(generation)
        return gc.get_threshold()


@pytest.fixture
def passes() -> Iterator[Passes]:
    threshold, callbacks = gc.get_threshold(), gc.callbacks[:]
    # That of the process would set back its own threshold in the middle of a test.
    gc.callbacks[:] = [
        each for each in callbacks if not isinstance(getattr(each, "__self__", None), FullPasses)
    ]
    gc.set_threshold(*USUAL)
    yield Passes()
    gc.set_threshold(*threshold)
    gc.callbacks[:] = callbacks


def test_they_come_again_some_time_after_the_last_slice(passes: Passes) -> None:
    assert passes.put_off_at(100.0) == passes.put_off_at(100.5) == OFF
    assert passes.after(100.4 + LEASE) == OFF
    assert passes.after(100.5 + LEASE, generation=0) == OFF
    assert passes.after(100.5 + LEASE) == USUAL
    assert passes.put_off_at(200.0) == OFF
    assert passes.after(200.0 + LEASE) == USUAL
    assert sum(getattr(each, "__self__", None) is passes for each in gc.callbacks) == 1


def test_they_are_not_put_off_for_ever(passes: Passes) -> None:
    for second in range(int(LONGEST)):
        assert passes.put_off_at(100.0 + second) == OFF
    end = 100.0 + LONGEST
    assert passes.put_off_at(end) == USUAL
    assert passes.put_off_at(end + PAUSE / 2) == USUAL
    assert passes.put_off_at(end + PAUSE) == OFF


def test_what_a_program_sets_meanwhile_stays(passes: Passes) -> None:
    passes.put_off_at(100.0)
    gc.set_threshold(600, 8, 10)
    assert passes.after(100.0 + LEASE) == (600, 8, 10)


def test_what_a_program_has_switched_off_stays_off(passes: Passes) -> None:
    gc.set_threshold(*OFF)
    assert passes.put_off_at(100.0) == passes.put_off_at(100.0 + LONGEST) == OFF
    assert passes.after(200.0 + LONGEST + LEASE) == OFF


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there are no full passes")
def test_objects_that_stay_are_looked_at_afterwards_only(passes: Passes) -> None:
    """What is loaded would bring a full pass about several times."""
    gc.set_threshold(100, 1, 1)
    gc.collect()
    passes.put_off_at(100.0)
    before = gc.get_stats()
    kept: list[list[int]] = [[] for _ in range(4 * len(gc.get_objects()))]
    during = gc.get_stats()
    passes.now += LEASE
    kept += [[] for _ in range(10_000)]
    after = gc.get_stats()
    counts = [stats[2]["collections"] for stats in (before, during, after)]
    assert counts[0] == counts[1] < counts[2]
    assert during[1]["collections"] > before[1]["collections"]
    assert kept
