"""A limit of what peers can cause: a rate, and what is saved of it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.actors.eventlog.recording._rate_limit import RateLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_after_a_long_silence_no_more_than_the_most_is_saved() -> None:
    clock = Clock()
    limit = RateLimit(100, 100, clock)
    clock.now = 1000.0
    assert sum(limit.take() for _ in range(500)) == 100
    clock.now = 1000.5
    assert sum(limit.take() for _ in range(500)) == 50


def test_slow_use_leaves_the_whole_burst() -> None:
    clock = Clock()
    limit = RateLimit(10, 100, clock)
    for _ in range(200):
        clock.now += 1.0
        assert limit.take(5)
    clock.now += 1.0
    assert sum(limit.take() for _ in range(500)) == 100


def test_a_size_over_the_most_is_charged_to_the_time_that_follows() -> None:
    clock = Clock()
    limit = RateLimit(10, 100, clock)
    assert limit.take(150)
    clock.now = 5.0
    assert not limit.take(1)
    clock.now = 5.1
    assert limit.take(1)


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 50)), max_size=60))
def test_over_any_time_it_takes_no_more_than_it_may(takes: list[tuple[int, int]]) -> None:
    clock = Clock()
    limit = RateLimit(10, 100, clock)
    taken: list[tuple[float, int]] = []
    for milliseconds, size in takes:
        clock.now += milliseconds / 1000
        if limit.take(size):
            taken.append((clock.now, size))
    for first, (began, _) in enumerate(taken):
        total = 0
        for at, size in taken[first:]:
            total += size
            assert total <= 100 + 10 * (at - began) + size + 1e-6
